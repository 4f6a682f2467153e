// SPDX-License-Identifier: GPL-2.0-only
//! `usher reproduce --live`, `load`, `doctor` and `top` on a machine with sched_ext: the machine is a guest, in which usher
//! runs as it would on anybody's own.

use super::common::{built, everything_said, SHELL};
use usher_lab::lab::{self, Request};
use usher_lab::runner::StepOutcome;
use usher_lab::scheduler::Scheduler;

/// Everything in one guest: under the kernel's own scheduler, and where another one is loaded already.
fn steps() -> Vec<StepOutcome> {
    let usher = built("usher").display().to_string();
    let scx_usher = built("scx_usher").display().to_string();
    // A comparison to its end; one that is interrupted in the middle; one that is killed.
    let script = format!(
        "{SHELL}
        {usher} doctor scheduler >&2 || exit 1
        {usher} top --count 1 --format json >&2 || exit 1
        {usher} reproduce --live hackbench --quick --runs 2 --format json || exit 1
        wait_state disabled
        ls -d /sys/fs/cgroup/usher-command-* 2>/dev/null && {{ echo 'a group is left'; exit 1; }}
        {usher} reproduce --live hackbench --quick --runs 50 >/dev/null & live=$!
        wait_state enabled
        kill -INT $live
        wait $live; echo \"interrupted: $?\"
        wait_state disabled
        {usher} reproduce --live hackbench --quick --runs 50 >/dev/null & live=$!
        wait_state enabled
        kill -KILL $live
        wait_state disabled
        echo 'killed: unloaded'
        {usher} load --stats 1 & load=$!
        wait_state enabled
        {usher} load; echo \"second: $?\"
        kill -INT $load
        wait $load; echo \"loaded: $?\"
        wait_state disabled"
    );
    let refused = format!(
        "{usher} reproduce --live hackbench; echo \"refused: $?\"
        {usher} doctor scheduler; echo \"doctor: $?\"
        {usher} top --count 2 --format json"
    );
    let shell = |script: String| vec!["sh".to_string(), "-c".into(), script];
    let scheduler = |name: &str| name.parse::<Scheduler>().expect("known");
    let shape = "2n1l1c2t".parse().expect("a legal shape");
    let mut request = Request::new(shape, "6.18", Vec::new(), 900);
    request.copies = vec![built("usher"), built("scx_usher")];
    let list = [
        (scheduler("eevdf"), shell(script)),
        (scheduler(&scx_usher), shell(refused)),
    ];
    let outcome = lab::run_steps(&request, &list, &|line| eprintln!("{line}"), &mut |_| ());
    outcome.unwrap_or_else(|error| panic!("{error}")).steps
}

// Goal: on a real machine a comparison loads usher in turn with the kernel's scheduler and reports both; it leaves no
// scheduler behind, also when it is interrupted or killed; and it refuses where somebody else's is loaded. The doctor
// finds nothing missing where usher does run, its optional features included, and top shows what usher counts while it
// is attached.
// Method: a guest is the machine. Catches: a scheduler that stays loaded on somebody's machine, or one thrown out
// there.
#[test]
fn a_comparison_on_the_machine_at_hand() {
    let steps = steps();
    let (first, second) = (
        everything_said("live", &steps[0]),
        everything_said("refused", &steps[1]),
    );
    assert_eq!(steps[0].report.exit, Some(0), "{first}");
    let stdout = String::from_utf8_lossy(&steps[0].stdout);
    let json = stdout
        .split("\n}\n")
        .next()
        .map(|text| format!("{text}\n}}"));
    let json: serde_json::Value = serde_json::from_str(&json.expect("output")).expect("JSON");
    assert_eq!(
        (&json["schema"], &json["emulated"]),
        (&"usher-reproduce-live/1".into(), &false.into())
    );
    let program = &json["programs"][0];
    assert_eq!(
        (
            program["emulated"].as_bool(),
            program["cells"][1]["n"].as_u64()
        ),
        (Some(false), Some(2))
    );
    let ops = |i: usize| program["schedulers"][i]["ops"].as_str();
    assert!(
        ops(0).is_none() && ops(1).is_some_and(|ops| ops.starts_with("usher")),
        "{program}"
    );
    assert!(
        stdout.contains("interrupted: 130") && stdout.contains("killed: unloaded"),
        "{first}"
    );
    assert!(
        stdout.contains("second: 3") && stdout.contains("loaded: 0"),
        "{first}"
    );
    assert!(
        second.contains("refused: 3")
            && second.contains("sched_ext is enabled with the scheduler usher"),
        "{second}"
    );
    assert!(first.contains("none attached"), "{first}");
    assert!(
        second.contains("doctor: 0") && second.contains("runs here"),
        "{second}"
    );
    let tops = |said: &str| -> Vec<serde_json::Value> {
        let lines = said.lines().filter_map(|line| {
            line.find(r#"{"schema":"usher-top/1""#)
                .map(|at| &line[at..])
        });
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    };
    let (alone, attached) = (tops(&first), tops(&second));
    assert_eq!((alone.len(), attached.len()), (1, 2), "{first}\n{second}");
    assert!(
        alone[0]["scheduler"].is_null() && alone[0]["usher"].is_null(),
        "{first}"
    );
    assert_eq!(
        alone[0]["llcs"].as_array().map(Vec::len),
        Some(2),
        "{first}"
    );
    assert!(
        alone[0]["machine"]["switches_per_s"].as_f64() > Some(0.0),
        "{first}"
    );
    for top in attached {
        assert!(
            top["scheduler"]
                .as_str()
                .is_some_and(|ops| ops.starts_with("usher")),
            "{second}"
        );
        assert!(top["usher"]["decisions"].as_u64() > Some(0), "{second}");
    }
    let lacks = |said: &str| said.contains("MISSING") || said.contains("optional");
    assert!(!lacks(&first) && !lacks(&second), "{first}\n{second}");
}
