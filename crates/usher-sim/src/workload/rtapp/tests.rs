// SPDX-License-Identifier: GPL-2.0-only
//! Tests of the reader, the writer and the threads of rt-app files.

use super::super::testkit::{machine, run, run_any, run_workload, By, Ran};
use super::super::{build, registry, Workload};
use super::*;
use crate::program::Class;

/// A file with one task "t" of these keys, after these global ones.
fn file(global: &str, task: &str) -> String {
    format!(
        "{{ \"global\": {{ \"duration\": 1, {global} }}, \"tasks\": {{ \"t\": {{ {task} }} }} }}"
    )
}

fn load_with(text: &str, pairs: &[&str]) -> Result<Workload, SimError> {
    let path = std::env::temp_dir().join(format!(
        "usher-rtapp-{:x}.json",
        crate::rng::mix(hash(text))
    ));
    std::fs::write(&path, text).unwrap();
    let params = Params::parse(pairs.iter().copied()).unwrap();
    let loaded = build(path.to_str().unwrap(), &machine(), params);
    std::fs::remove_file(&path).unwrap();
    loaded
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(std::process::id().into(), |h, b| {
        crate::rng::mix(h ^ u64::from(b))
    })
}

fn ran(text: &str) -> Ran {
    run_workload(
        load_with(text, &[]).unwrap_or_else(|e| panic!("{text}: {e}")),
        1,
    )
}

fn error(text: &str) -> String {
    load_with(text, &[]).map(|_| ()).unwrap_err().to_string()
}

/// All keys and events, each with a value that is not the default.
const EVERYTHING: &str = r#"{
  "global": { "duration": 7, "default_policy": "SCHED_RR", "pi_enabled": true,
              "mem_buffer_size": 8192, "io_device": "/dev/x", "cumulative_slack": true },
  "tasks": {
    "a": { "instance": 3, "delay": 1500, "policy": "SCHED_FIFO", "priority": 7, "cpus": [0, 2],
           "loop": 4,
           "phases": {
             "p": { "loop": 5, "policy": "SCHED_OTHER", "priority": -3, "cpus": [1],
                    "run": 1, "runtime": 2, "sleep": 3, "mem": 4, "iorun": 5, "yield": "",
                    "timer": { "ref": "tick", "period": 6, "mode": "absolute" },
                    "timer": { "ref": "uniqueA", "period": 7 },
                    "lock": "m", "wait": { "ref": "c", "mutex": "m" },
                    "sync": { "ref": "c", "mutex": "m" }, "signal": "c", "broad": "c", "unlock": "m",
                    "suspend": "", "resume": "a", "fork": "b", "run": 8 },
             "q": { "barrier": "both", "run": 9 } } },
    "b": { "instance": 0, "loop": 2, "run": 10 },
    "c \"quoted\" é": { "policy": "SCHED_IDLE", "loop": -1, "run": 11 },
    "d": { "loop": -1, "phases": { "": { "loop": -1, "barrier": "both" } } },
    "e": { "run": 12 } } }"#;

// Goal: writing loses nothing: what is read, written and read again is the same.
// Method: a file with every key and event, and all ready files.
#[test]
fn round_trip() {
    let ready = registry::FILES.iter().map(|f| (f.name, f.text));
    for (name, text) in ready.chain([("everything", EVERYTHING)]) {
        let first = parse(name, text).unwrap();
        let written = write(&first);
        let second = parse("again", &written).unwrap_or_else(|e| panic!("{name}: {e}\n{written}"));
        assert_eq!(first, second, "{name}:\n{written}");
        assert_eq!(written, write(&second));
    }
}

// Goal: every key arrives where it belongs.
// Method: the model of the file that has them all.
#[test]
fn everything_is_read() {
    let file = parse("x", EVERYTHING).unwrap();
    let g = &file.global;
    assert_eq!(
        (g.duration_s, g.default_policy, g.pi_enabled),
        (Some(7), Policy::RoundRobin, true)
    );
    assert_eq!(
        (g.mem_buffer_size, &*g.io_device, g.cumulative_slack),
        (8192, "/dev/x", true)
    );
    let a = &file.tasks[0];
    assert_eq!(
        (a.instances, a.delay_us, a.repeat),
        (3, 1500, Repeat::Times(4))
    );
    assert_eq!(
        (a.attrs.policy, a.attrs.priority.unwrap().0),
        (Some(Policy::Fifo), 7)
    );
    assert_eq!(a.attrs.cpus.as_ref().unwrap().0, [0, 2]);
    let p = &a.phases[0];
    assert_eq!(
        (p.repeat, p.attrs.priority.unwrap().0),
        (Repeat::Times(5), -3)
    );
    let text = |t: &str| t.to_string();
    let pair = || (text("c"), text("m"));
    let expected = [
        Event::Run(1),
        Event::Runtime(2),
        Event::Sleep(3),
        Event::Mem(4),
        Event::IoRun(5),
        Event::Yield,
        Event::Timer {
            name: text("tick"),
            period: 6,
            absolute: true,
        },
        Event::Timer {
            name: text("uniqueA"),
            period: 7,
            absolute: false,
        },
        Event::Lock(text("m")),
        Event::Wait {
            cond: pair().0,
            mutex: pair().1,
        },
        Event::Sync {
            cond: pair().0,
            mutex: pair().1,
        },
        Event::Signal(text("c")),
        Event::Broad(text("c")),
        Event::Unlock(text("m")),
        Event::Suspend(text("")),
        Event::Resume(text("a")),
        Event::Fork(text("b")),
        Event::Run(8),
    ];
    assert!(
        p.events.iter().map(|s| &s.event).eq(&expected),
        "{:#?}",
        p.events
    );
    // Without phases: rt-app loops the phase, or without `loop` the task.
    assert_eq!(
        (file.tasks[1].repeat, file.tasks[1].phases[0].repeat),
        (Repeat::Times(1), Repeat::Times(2))
    );
    assert_eq!(file.tasks[2].phases[0].repeat, Repeat::Forever);
    assert_eq!(
        (file.tasks[4].repeat, file.tasks[4].phases[0].repeat),
        (Repeat::Forever, Repeat::Times(1))
    );
    assert_eq!(file.tasks[3].phases[0].name, "phase0");
}

// Goal: keys that carry no meaning here are taken, in any legal form, and tails of events are.
// Method: files with each.
#[test]
fn accepted_without_meaning() {
    for key in [
        r#""logdir": "./""#,
        r#""log_basename": "x""#,
        r#""log_size": "file""#,
        r#""log_size": 16"#,
        r#""ftrace": "main,task""#,
        r#""ftrace": true"#,
        r#""gnuplot": false"#,
        r#""lock_pages": true"#,
        r#""frag": 1"#,
        r#""fragment": 1"#,
        r#""calibration": "CPU1""#,
        r#""calibration": 50"#,
    ] {
        let plain = parse("x", &file("", "\"run\": 1")).unwrap();
        assert_eq!(
            parse("x", &file(key, "\"run\": 1")).unwrap(),
            plain,
            "{key}"
        );
    }
    let neutral = r#""util_min": 0, "util_max": 1024, "taskgroup": "", "dl-runtime": 0, "run": 1"#;
    assert!(parse("x", &file("", neutral)).is_ok());
    let tails = parse(
        "x",
        &file("", r#""run0": 1, "run1": 2, "sleep_a": 3, "run-b": 4"#),
    )
    .unwrap();
    assert_eq!(tails.tasks[0].phases[0].events.len(), 4);
    let resources = r#"{ "resources": { "m": { "type": "mutex" }, "t": {} },
                         "tasks": { "x": { "loop": 1, "run": 1 }, "x": { "loop": 1, "run": 2 } } }"#;
    let names: Vec<String> = parse("x", resources)
        .unwrap()
        .tasks
        .into_iter()
        .map(|t| t.name)
        .collect();
    assert_eq!(names, ["x", "x1"], "a name that comes twice gets a number");
}

// Goal: whatever is wrong or not modelled is refused with its key, its place and a remedy.
// Method: one file per mistake; the place is that of the mistake in a one-line text.
#[test]
fn every_mistake_is_named() {
    for (task, words) in [
        (
            r#""rum": 1, "run": 1"#,
            &["`rum`", "did you mean `run`"][..],
        ),
        (r#""run": -1"#, &["`run`", "-1", "microseconds"]),
        (r#""run": 1.5"#, &["`run`", "1.5", "whole"]),
        (r#""run": 99999999999999999999"#, &["`run`", "whole"]),
        (r#""run": "1""#, &["`run`", "\"1\""]),
        (r#""runtime": null"#, &["`runtime`", "null"]),
        (r#""sleep": true"#, &["`sleep`", "true"]),
        (r#""mem": []"#, &["`mem`", "a list", "bytes"]),
        (r#""iorun": {}"#, &["`iorun`", "an object"]),
        (r#""lock": 1"#, &["`lock`", "mutex"]),
        (r#""lock": """#, &["`lock`", "mutex"]),
        (r#""unlock": 1"#, &["`unlock`"]),
        (r#""signal": 1"#, &["`signal`", "condition"]),
        (r#""broad": 1"#, &["`broad`"]),
        (r#""resume": 1"#, &["`resume`"]),
        (r#""suspend": 1"#, &["`suspend`"]),
        (r#""barrier": 1"#, &["`barrier`"]),
        (r#""fork": 1"#, &["`fork`", "task"]),
        (r#""fork": "u""#, &["`fork`", "`u`", "t"]),
        (r#""timer": 5"#, &["`timer`", "period"]),
        (r#""timer": { "ref": "x" }"#, &["timer", "`period`"]),
        (r#""timer": { "period": 5 }"#, &["timer", "`ref`"]),
        (
            r#""timer": { "ref": "x", "period": 0 }"#,
            &["`period`", "above 0"],
        ),
        (r#""timer": { "ref": 1, "period": 5 }"#, &["`ref`"]),
        (
            r#""timer": { "ref": "x", "period": 5, "mode": "abs" }"#,
            &["`mode`", "absolute"],
        ),
        (
            r#""timer": { "ref": "x", "perios": 5 }"#,
            &["`perios`", "did you mean `period`"],
        ),
        (r#""wait": "c""#, &["`wait`", "mutex"]),
        (r#""wait": { "ref": "c" }"#, &["`wait`", "`mutex`"]),
        (
            r#""wait": { "ref": "c", "mutex": "m" }"#,
            &["`m`", "lock it before"],
        ),
        (
            r#""sync": { "ref": "c", "mutex": "m" }"#,
            &["`m`", "lock it before"],
        ),
        (
            r#""sync": { "ref": "c", "mutexx": "m" }"#,
            &["`mutexx`", "did you mean `mutex`"],
        ),
        (r#""loop": 0, "run": 1"#, &["`loop`", "above 0"]),
        (r#""loop": -2, "run": 1"#, &["`loop`", "-1 for ever"]),
        (
            r#""loop": 1, "loop": 2, "run": 1"#,
            &["`loop`", "twice", "first at 1:"],
        ),
        (r#""instance": -1, "run": 1"#, &["`instance`"]),
        (r#""delay": -1, "run": 1"#, &["`delay`"]),
        (
            r#""policy": "SCHED_FOO", "run": 1"#,
            &["`policy`", "SCHED_FIFO"],
        ),
        (
            r#""policy": "SCHED_DEADLINE", "run": 1"#,
            &["SCHED_DEADLINE", "use SCHED_FIFO"],
        ),
        (
            r#""policy": "SCHED_FIFO", "priority": 0, "run": 1"#,
            &["`priority`", "1 to 99"],
        ),
        (r#""priority": 20, "run": 1"#, &["`priority`", "-20 to 19"]),
        (r#""priority": "x", "run": 1"#, &["`priority`"]),
        (r#""cpus": 1, "run": 1"#, &["`cpus`", "list"]),
        (r#""cpus": [], "run": 1"#, &["`cpus`", "empty"]),
        (r#""cpus": [0, -1], "run": 1"#, &["`cpus`", "-1"]),
        (r#""cpus": [32], "run": 1"#, &["CPU 32", "{0-31}"]),
        (
            r#""util_min": 100, "run": 1"#,
            &["`util_min`", "ignore=util_min"],
        ),
        (
            r#""util_max": 100, "run": 1"#,
            &["`util_max`", "ignore=util_max"],
        ),
        (
            r#""taskgroup": "/a", "run": 1"#,
            &["`taskgroup`", "ignore=taskgroup"],
        ),
        (
            r#""nodes_membind": [0], "run": 1"#,
            &["`nodes_membind`", "ignore=nodes_membind"],
        ),
        (
            r#""membind_nodes": [0], "run": 1"#,
            &["`membind_nodes`", "ignore=membind_nodes"],
        ),
        (
            r#""dl-runtime": 5, "run": 1"#,
            &["`dl-runtime`", "ignore=dl-runtime"],
        ),
        (r#""dl-period": 5, "run": 1"#, &["`dl-period`"]),
        (r#""dl-deadline": 5, "run": 1"#, &["`dl-deadline`"]),
        (r#""dl-reclaim": true, "run": 1"#, &["`dl-reclaim`"]),
        (r#""period": 5, "run": 1"#, &["`period`"]),
        (r#""deadline": 5, "run": 1"#, &["`deadline`"]),
        (r#""exec": 5, "run": 1"#, &["`exec`", "use `run`"]),
        (
            r#""lock_order": [], "run": 1"#,
            &["`lock_order`", "use `lock`"],
        ),
        (r#""resources": {}, "run": 1"#, &["`resources`", "`lock`"]),
        (r#""loop": 1"#, &["`t`", "no events"]),
        (r#""phases": {}"#, &["`phases` is empty"]),
        (r#""phases": 1"#, &["`phases`", "object"]),
        (r#""phases": { "p": 1 }"#, &["`p`", "object"]),
        (
            r#""phases": { "p": { "instance": 1, "run": 1 } }"#,
            &["unknown key `instance`"],
        ),
        (
            r#""phases": { "p": { "run": 1 } }, "run": 1"#,
            &["`run`", "beside `phases`"],
        ),
        (r#""lock": "m", "lock": "m""#, &["`m`", "locked already"]),
        (r#""unlock": "m""#, &["`m`", "not locked"]),
        (r#""lock": "m""#, &["`m`", "still locked"]),
        (
            r#""lock": "t", "suspend": "", "unlock": "t""#,
            &["`t`", "rename"],
        ),
        (
            r#""phases": { "p": { "loop": 2, "lock": "m" }, "q": { "unlock": "m" } }"#,
            &["`m`", "within"],
        ),
        (r#""instance": 0, "run": 1"#, &["`instance` above 0"]),
        (r#""barrier": "b", "fork": "t""#, &["barrier", "forked"]),
    ] {
        let text = file("", task);
        let error = error(&text);
        let column: usize = error
            .split_once(".json:1:")
            .and_then(|(_, rest)| rest.split_once(':'))
            .and_then(|(column, _)| column.parse().ok())
            .unwrap_or_else(|| panic!("no place in: {error}"));
        assert!(
            column >= text.find("\"t\"").unwrap() && column <= text.len(),
            "{error}"
        );
        for word in words {
            assert!(error.contains(word), "{task}: `{word}` is not in: {error}");
        }
        assert!(!error.contains('\n'));
    }
}

// Goal: the same for the objects around the tasks.
// Method: one text per mistake.
#[test]
fn mistakes_outside_tasks() {
    for (text, words) in [
        (file("\"durations\": 3", "\"run\": 1"), &["`durations`", "did you mean `duration`"][..]),
        (file("\"duration\": 3", "\"run\": 1"), &["`duration`", "twice"]),
        (file("\"spacing\": 3", "\"run\": 1"), &["`spacing`", "known:"]),
        (file("\"gnuplot\": 1", "\"run\": 1"), &["`gnuplot`", "true or false"]),
        (file("\"logdir\": 1", "\"run\": 1"), &["`logdir`", "text"]),
        (file("\"log_size\": true", "\"run\": 1"), &["`log_size`"]),
        (file("\"ftrace\": 1", "\"run\": 1"), &["`ftrace`"]),
        (file("\"pi_enabled\": 1", "\"run\": 1"), &["`pi_enabled`"]),
        (file("\"cumulative_slack\": 1", "\"run\": 1"), &["`cumulative_slack`"]),
        (file("\"io_device\": 1", "\"run\": 1"), &["`io_device`"]),
        (file("\"mem_buffer_size\": 0", "\"run\": 1"), &["`mem_buffer_size`"]),
        (file("\"calibration\": \"GPU0\"", "\"run\": 1"), &["`calibration`", "CPU"]),
        (file("\"calibration\": 0", "\"run\": 1"), &["`calibration`"]),
        (file("\"default_policy\": \"x\"", "\"run\": 1"), &["`default_policy`"]),
        ("{}".into(), &["no `tasks`"]),
        ("{ \"tasks\": {} }".into(), &["`tasks` is empty"]),
        ("{ \"tasks\": [] }".into(), &["`tasks`", "object"]),
        ("{ \"tasks\": { \"x\": 1 } }".into(), &["`x`", "object"]),
        ("{ \"task\": {} }".into(), &["`task`", "did you mean `tasks`"]),
        ("{ \"resources\": 3, \"tasks\": { \"x\": { \"run\": 1 } } }".into(), &["`resources`"]),
        (
            "{ \"resources\": { \"m\": { \"type\": \"x\" } }, \"tasks\": { \"x\": { \"run\": 1 } } }".into(),
            &["`type`", "mutex"],
        ),
        ("{ \"tasks\": { \"x\": { \"run\": 1 } } }".into(), &["`x`", "--set duration=10s"]),
        ("{ \"tasks\": ".into(), &["not JSON"]),
    ] {
        let error = error(&text);
        for word in words {
            assert!(error.contains(word), "{text}: `{word}` is not in: {error}");
        }
    }
    let missing = build("no/such.json", &machine(), Params::new())
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(
        missing.starts_with("no/such.json: cannot be read"),
        "{missing}"
    );
}

// Goal: keys that are not modelled can be left out of account by name, which the results then say.
// Method: a file with two of them, ignored one by one; an ignored name that is no such key.
#[test]
fn ignoring_is_explicit() {
    let text = file("", r#""util_min": 512, "taskgroup": "/a", "run": 1000"#);
    let one = load_with(&text, &["ignore=util_min"])
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(one.contains("`taskgroup`"), "{one}");
    let both = load_with(&text, &["ignore=util_min,taskgroup"]).unwrap();
    assert!(
        both.limits.iter().any(|l| l.contains("`util_min`")),
        "{:?}",
        both.limits
    );
    assert_eq!(both.parameters["ignore"], "util_min,taskgroup");
    let wrong = load_with(&text, &["ignore=util-min"])
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(wrong.contains("nearest: util_min"), "{wrong}");
}

// Goal: a warmup that leaves nothing to measure is refused, and not left out. Method: as long as the run, and a little less.
#[test]
fn a_warmup_is_shorter_than_the_run() {
    let text =
        r#"{ "global": { "duration": 2 }, "tasks": { "x": { "run": 1000, "sleep": 1000 } } }"#;
    let refused = load_with(text, &["warmup=2s"]).map(|_| ()).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("`warmup` is 2s, and the run ends after 2s"),
        "{refused}"
    );
    assert_eq!(
        load_with(text, &["warmup=1999ms"]).unwrap().warmup,
        1_999_000_000
    );
}

// Goal: run is work, runtime is time, sleep is sleep, loops count.
// Method: compute time, passes and elapsed time of a task alone.
#[test]
fn run_runtime_sleep_and_loops() {
    let one = ran(&file(
        "",
        r#""loop": 10, "run": 2000, "sleep": 3000, "run": 1000"#,
    ));
    let task = &one.tasks[one.named("t")[0].index()];
    assert_eq!(task.compute, 10 * (3_000_000 + 1_000));
    assert_eq!((task.sleeps, one.metric("task_t_activations")), (10, 10));
    assert_eq!(one.metric("work_us"), 10 * 3000);
    assert!(one.metric("task_t_period_ns_p50") > 6_000_000);
    let two = ran(&file("", r#""loop": 2, "runtime": 5000"#));
    let compute = two.tasks[two.named("t")[0].index()].compute;
    assert!(
        (10_000_000..10_000_000 + 2 * 33_000).contains(&compute),
        "{compute}"
    );
    // Phases: 2 x (3 x a, 2 x b).
    let phases = r#""loop": 2, "phases": { "a": { "loop": 3, "run": 10 }, "b": { "loop": 2, "run": 1000 } }"#;
    let three = ran(&file("", phases));
    assert_eq!(three.metric("work_us"), 2 * (3 * 10 + 2 * 1000));
    let none = ran(&file("", r#""loop": 0, "phases": { "a": { "run": 10 } }"#));
    assert_eq!(none.metric("work_us"), 0);
}

// Goal: timers keep their period whatever the work; missed ones are forgotten (relative) or made up for
// (absolute); unique ones belong to a thread, others to all.
// Method: passes within a second for each kind, with one pass that takes far too long.
#[test]
fn timers() {
    let task = |timer: &str, instances: u32| {
        let text = format!(
            r#""instance": {instances}, "phases": {{
                "a": {{ "loop": 5, "run": 1000, "timer": {timer} }},
                "long": {{ "run": 100000, "timer": {timer} }},
                "b": {{ "loop": 1000, "run": 1000, "timer": {timer} }} }}"#
        );
        ran(&file("", &text))
    };
    let relative = task(r#"{ "ref": "unique", "period": 20000 }"#, 1);
    // 5 periods, then 100 ms, then again every 20 ms from there: (1000 - 200) / 20 more.
    assert_eq!(relative.metric("activations"), 5 + 1 + 40 - 1);
    assert_eq!(relative.metric("timer_missed"), 1);
    let absolute = task(
        r#"{ "ref": "unique", "period": 20000, "mode": "absolute" }"#,
        1,
    );
    // The four that were missed are made up for at once: all of 1000 / 20.
    assert_eq!(absolute.metric("activations"), 50 - 1);
    assert!(absolute.metric("timer_missed") >= 4);
    assert!(
        relative.metric("timer_latency_ns_max") < 60_000,
        "slack and little more"
    );
    // One timer for two threads: each use moves it on, so they take turns.
    let text = |name: &str| {
        format!(r#""instance": 2, "run": 100, "timer": {{ "ref": "{name}", "period": 10000 }}"#)
    };
    let shared = ran(&file("", &text("tick"))).metric("activations");
    let unique = ran(&file("", &text("uniqueX"))).metric("activations");
    assert!(
        shared.abs_diff(100) <= 2 && unique.abs_diff(200) <= 3,
        "{shared} {unique}"
    );
}

// Goal: slack is the last timer's, or the sum with cumulative_slack.
// Method: a timer used twice per pass, with 9 ms and 4 ms to spare.
#[test]
fn slack() {
    let task = r#""run": 1000, "timer": { "ref": "unique", "period": 10000 },
                  "run": 6000, "timer": { "ref": "unique", "period": 10000 }"#;
    let last = ran(&file("", task)).metric("slack_ns_p50");
    let sum = ran(&file("\"cumulative_slack\": true", task)).metric("slack_ns_p50");
    // A little less: work, timer slack and system calls take their part.
    assert!((3_800_000..4_000_000).contains(&last), "{last}");
    assert!((12_700_000..13_000_000).contains(&sum), "{sum}");
}

// Goal: suspend and resume, wait, signal, broad and sync wake as rt-app's do: through a condition, the
// longest waiting or all.
// Method: the kinds of wakeups between named tasks.
#[test]
fn conditions() {
    let text = r#"{ "global": { "duration": 1 }, "tasks": {
        "sleeper": { "instance": 3, "suspend": "bed", "run": 100 },
        "waker": { "sleep": 10000, "resume": "bed" },
        "waiter": { "instance": 3, "lock": "m", "wait": { "ref": "c", "mutex": "m" }, "unlock": "m" },
        "signaller": { "sleep": 10000, "lock": "m", "signal": "c", "unlock": "m" } } }"#;
    let ran = ran(text);
    let (all, one) = (
        ran.count_wakes("waker", "sleeper", By::Cond),
        ran.count_wakes("signaller", "waiter", By::Cond),
    );
    // Some 98 sleeps of 10 ms and slack in a second.
    assert!(all.abs_diff(3 * 98) <= 6, "a resume wakes all three: {all}");
    assert!(one.abs_diff(98) <= 2, "a signal wakes one: {one}");
    let pipeline = run("rt-app-pipeline", &[], 1);
    assert!(pipeline.count_wakes("camera", "filter", By::Cond) > 80);
    assert!(pipeline.count_wakes("filter", "show", By::Cond) > 80);
    assert!(pipeline.count_wakes("pong", "ping", By::Cond) > 1000);
    assert!(pipeline.count_wakes("crew", "crew", By::Barrier) > 3 * 500);
}

// Goal: class and CPUs follow rt-app's order: phase, else task, else default; a class stays until changed.
// Method: what the thread was last set to, by phase.
#[test]
fn class_and_cpus_by_phase() {
    let task = |phase: &str| {
        let text = format!(
            r#""loop": 1, "policy": "SCHED_FIFO", "cpus": [2, 3],
               "phases": {{ "a": {{ "cpus": [5], "priority": 30, "run": 1 }}, "b": {{ {phase} "run": 1 }} }}"#
        );
        let ran = ran(&file("", &text));
        let thread = &ran.tasks[ran.named("t")[0].index()];
        (thread.class, thread.cpus.clone().unwrap())
    };
    assert_eq!(
        task(""),
        (Class::Fifo { prio: 30 }, vec![2, 3]),
        "the class stays, the CPUs do not"
    );
    assert_eq!(task("\"cpus\": [7],"), (Class::Fifo { prio: 30 }, vec![7]));
    assert_eq!(
        task("\"policy\": \"SCHED_RR\","),
        (Class::RoundRobin { prio: 10 }, vec![2, 3])
    );
    assert_eq!(
        task("\"policy\": \"SCHED_OTHER\","),
        (Class::NORMAL, vec![2, 3])
    );
    let idle = ran(&file(
        "\"default_policy\": \"SCHED_IDLE\"",
        "\"loop\": 1, \"run\": 1",
    ));
    assert_eq!(idle.tasks[idle.named("t")[0].index()].class, Class::Idle);
    // Back to everywhere, when neither phase nor task says anything.
    let back = r#""loop": 1, "phases": { "a": { "cpus": [1], "run": 1 }, "b": { "run": 1 } }"#;
    let back = ran(&file("", back));
    assert_eq!(
        back.tasks[back.named("t")[0].index()]
            .cpus
            .as_ref()
            .unwrap()
            .len(),
        32
    );
}

// Goal: mem, iorun, yield and fork do what they say.
// Method: times by size, yields counted, forked threads and their limit.
#[test]
fn mem_io_yield_and_fork() {
    let mem = ran(&file("", r#""loop": 1, "mem": 1048576"#));
    let thread = &mem.tasks[mem.named("t")[0].index()];
    assert_eq!(thread.compute, 1024 * 60 + 1_000);
    assert_eq!(thread.memory.bound_permille, 0, "only while it writes");
    let null = ran(&file(
        "\"mem_buffer_size\": 1000",
        r#""loop": 1, "iorun": 2500"#,
    ));
    assert_eq!(
        null.tasks[null.named("t")[0].index()].compute,
        3 * 300 + 1_000
    );
    let disk = ran(&file(
        "\"io_device\": \"/x\"",
        r#""loop": 1, "iorun": 1024"#,
    ));
    assert_eq!(disk.tasks[disk.named("t")[0].index()].ios, 100_000 + 2_000);
    let yields = ran(&file("", r#""loop": 7, "yield": "", "run": 1"#));
    assert_eq!(yields.tasks[yields.named("t")[0].index()].yields, 7);
    let text = r#"{ "global": { "duration": 1 }, "tasks": {
        "maker": { "loop": 1030, "run": 1, "fork": "child" },
        "child": { "instance": 0, "loop": 1, "run": 100 } } }"#;
    let forks = ran(text);
    assert_eq!(forks.metric("task_child_activations"), 1024);
    assert_eq!(forks.metric("forks_refused"), 6);
    let maker = forks.named("maker")[0];
    let children = forks.tasks.iter().filter(|t| t.name.starts_with("child-"));
    assert!(children
        .clone()
        .all(|t| t.parent == Some(maker) && t.thread));
    assert_eq!(children.count(), 1024);
}

// Goal: all instances start together, after the last was created; delay counts from there.
// Method: first activity of many threads and of a delayed one.
#[test]
fn common_start_and_delay() {
    let text = r#"{ "global": { "duration": 1 }, "tasks": {
        "many": { "instance": 50, "loop": 1, "run": 1 },
        "late": { "delay": 300000, "loop": 1, "run": 1 } } }"#;
    let ran = ran(text);
    let main = ran.named("rt-app")[0];
    assert!(ran.tasks.iter().skip(1).all(|t| t.parent == Some(main)));
    let barrier = ran.wakes.iter().filter(|w| w.by == By::Barrier).count();
    assert_eq!(barrier, 50, "the last of 51 wakes the others");
    let woke = ran
        .wakes
        .iter()
        .find(|w| w.wakee == ran.named("late")[0] && w.by == By::Timer);
    assert!(woke.is_some());
}

// Goal: threads that have locked each other up are a deadlock, which the run reports; threads that wait
// on conditions at the end are not, and are counted.
// Method: the two-lock embrace; a file whose servers outlive their clients.
#[test]
fn deadlock_is_told_from_waiting() {
    let embrace = r#"{ "global": { "duration": 1 }, "tasks": {
        "one": { "lock": "a", "sleep": 1000, "lock": "b", "unlock": "b", "unlock": "a" },
        "two": { "lock": "b", "sleep": 1000, "lock": "a", "unlock": "a", "unlock": "b" } } }"#;
    let stuck = run_any(load_with(embrace, &[]).unwrap(), 1);
    let who = stuck.deadlock.expect("a deadlock");
    assert!(
        who.iter()
            .any(|l| l.contains("one-0") && l.contains("held by two-1")),
        "{who:?}"
    );
    let server = r#"{ "global": { "duration": 1 }, "tasks": {
        "server": { "instance": 2, "suspend": "work", "run": 10 },
        "client": { "loop": 3, "sleep": 1000, "resume": "work" } } }"#;
    let idle = ran(server);
    assert_eq!(idle.metric("waiting_at_end"), 2);
    // Without a duration there is no end to wait for: then it is one.
    let endless = server
        .replace("\"duration\": 1", "\"duration\": -1")
        .replace("\"suspend\"", "\"loop\": 9, \"suspend\"");
    assert!(run_any(load_with(&endless, &[]).unwrap(), 1)
        .deadlock
        .is_some());
}

// Goal: --set duration overrides the file, and -1 ends with the last thread.
// Method: the end of runs.
#[test]
fn duration() {
    let end = |text: &str, pairs: &[&str]| run_workload(load_with(text, pairs).unwrap(), 1).end;
    let text = file("", r#""run": 1000"#);
    assert!((1_000_000_000..1_010_000_000).contains(&end(&text, &[])));
    assert!((50_000_000..60_000_000).contains(&end(&text, &["duration=50ms"])));
    let finite = r#"{ "tasks": { "x": { "loop": 3, "run": 1000 } } }"#;
    assert!((3_000_000..4_000_000).contains(&end(finite, &[])));
}

// Goal: every ready file runs, deterministically, on a machine of modest size.
// Method: run each twice.
#[test]
fn ready_files_run() {
    for ready in registry::FILES {
        let first = run(ready.name, &["duration=300ms"], 5);
        assert_eq!(
            first.digest(),
            run(ready.name, &["duration=300ms"], 5).digest(),
            "{}",
            ready.name
        );
        assert!(first.metric("activations") > 20, "{}", ready.name);
    }
}

// Goal: a name that is misspelt where tasks wake each other is told, with its line. Method: a resume and a suspend that do not
// meet, and the same spelt alike.
#[test]
fn names_that_do_not_meet_are_told() {
    let text = r#"{ "global": { "duration": 1 }, "tasks": {
        "root": { "loop": -1, "run": 1, "sleep": 100, "resume": "laef" },
        "leaf": { "loop": -1, "suspend": "leaf", "run": 1 } } }"#;
    let limits = load_with(text, &[]).unwrap().limits;
    assert_eq!(
        limits,
        [
            "line 2: wakes nobody, since nobody waits under `laef`; did you mean `leaf`?",
            "line 3: waits until the end, since nobody wakes who waits under `leaf`; did you mean `laef`?"
        ]
    );
    let met = text.replace("laef", "leaf");
    assert!(load_with(&met, &[]).unwrap().limits.is_empty());
}

// Goal: hints reach the tasks they name.
// Method: a hint for all, another for one task; a name that no task has.
#[test]
fn hints_by_task() {
    let text = r#"{ "global": { "duration": 1 }, "tasks": {
        "one": { "loop": 1, "run": 1 }, "two": { "loop": 1, "run": 1 } } }"#;
    let pairs = ["hint=fork-affine+wake-affine", "hint.two=wake-hold"];
    let ran = run_workload(load_with(text, &pairs).unwrap(), 1);
    assert_eq!(ran.tasks[ran.named("one")[0].index()].hint.bits(), 1 | 4);
    assert_eq!(ran.tasks[ran.named("two")[0].index()].hint.bits(), 8);
    let wrong = load_with(text, &["hint.tow=wake-hold"])
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(wrong.contains("`tow`") && wrong.contains("two"), "{wrong}");
}
