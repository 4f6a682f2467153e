// SPDX-License-Identifier: GPL-2.0-only
//! Cost tables: what is built in, and what is refused.

mod common;

use common::Step::{self, Act, Stamp};
use common::{assert_near, only, run_under, script, workload};
use usher_sim::case::machine;
use usher_sim::costs::{CostNumbers, Costs, BUILTIN};
use usher_sim::params::Params;
use usher_sim::program::{Action, TaskSpec};
use usher_sim::workload::Stop;
use usher_sim::world::{ChannelSpec, World};
use usher_topo::Source;

// Goal: every number of every built-in table says where it comes from, and those that are guesses say so.
// Method: each table; the sources of all numbers, shares and idle states.
#[test]
fn every_number_has_a_source() {
    for name in BUILTIN {
        let costs = Costs::builtin(name).expect("built in");
        for number in CostNumbers::NAMES {
            let source = costs.sources.get(*number);
            assert!(
                source.is_some_and(|s| s.len() > 6),
                "{name}: {number}: {source:?}"
            );
        }
        assert!(costs.sources.contains_key("smt.share_permille"), "{name}");
        for state in &costs.idle_states {
            let source = costs.sources.get(&format!("idle_state.{}", state.name));
            assert!(
                source.is_some_and(|s| !s.is_empty()),
                "{name}: {}",
                state.name
            );
        }
        assert!(costs.assumed().count() > 0, "{name}: nothing is assumed?");
    }
}

// Goal: what is said to have been measured on three servers is the median of what was, and no other number says so.
// Method: the tables that `usher bench costs` printed there.
#[test]
fn the_generic_table_is_what_three_servers_took() {
    let read = |server: &str| {
        let path = format!(
            "{}/../../data/live/{server}/costs.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        Costs::parse(&path, &std::fs::read_to_string(&path).expect("readable")).expect("a table")
    };
    let servers = ["emerald-rapids-16", "epyc-2", "granite-rapids-2"].map(read);
    let of = |costs: &Costs, name| *costs.n.clone().get_mut(name).expect("a number");
    let generic = Costs::builtin("generic").expect("built in");
    let mut medians = 0;
    for name in CostNumbers::NAMES {
        if !generic.sources[*name].starts_with("measured on three servers") {
            continue;
        }
        let mut values = servers.each_ref().map(|s| {
            assert!(
                s.sources[*name].starts_with("measured: "),
                "{}: {name}",
                s.name
            );
            of(s, name)
        });
        values.sort_unstable();
        assert_eq!(of(&generic, name), values[1], "{name}");
        medians += 1;
    }
    assert_eq!(medians, 20);
}

// Goal: a file with a mistake is refused with a message that names it.
// Method: a table based on the generic one, with one mistake each.
#[test]
fn mistakes_are_named() {
    let line = |text: &str| format!("base = \"generic\"\n{text}\n");
    let idle = |name: &str, exit: &str| {
        let rest = "residency_ns = 1\npolling = true\nsource = \"x\"";
        format!("[[idle_state]]\nname = \"{name}\"\nexit_ns = {exit}\n{rest}\n")
    };
    for (text, message) in [
        (
            line("[wake]\nwake_ns = { value = 1, source = \"\" }"),
            "own.toml:3: `wake.wake_ns` has no source",
        ),
        (
            line("[wake]\nwak_ns = { value = 1, source = \"x\" }"),
            "own.toml:3: unknown number `wake.wak_ns`; nearest: wake.wake_ns",
        ),
        (
            line("[tick]\nhz = { value = 0, source = \"x\" }"),
            "own.toml:3: tick.hz is 0",
        ),
        (
            line("[wake]\nwake_ns = { value = 2000000000, source = \"x\" }"),
            "own.toml:3: wake.wake_ns must be at most",
        ),
        (
            line("[smt]\nshare_permille = { value = [600], source = \"x\" }"),
            "own.toml:3: smt.share_permille must begin with 1000",
        ),
        (
            line("[smt]\nshare_permille = { value = [1000, 0], source = \"x\" }"),
            "from 1 to 1000",
        ),
        (
            line("[smt]\nshare_permille = { value = [1000], source = \" \" }"),
            "`smt.share_permille` has no source",
        ),
        (
            line(&(idle("C1", "9") + &idle("C2", "5"))),
            "own.toml:2: idle state `C2` comes after `C1`, but is left sooner",
        ),
        (
            line(&(idle("C1", "9") + &idle("C1", "9"))),
            "there are two idle states `C1`",
        ),
        (
            line(&idle("C1", "2000000000")),
            "idle state `C1`: times must be at most",
        ),
        (
            "[wake]\nwake_ns = { value = 1, source = \"x\" }".into(),
            "own.toml: the number `cpu.clock_mhz` is missing",
        ),
        (
            "base = \"nowhere\"".into(),
            "own.toml:1: base: unknown cost table `nowhere`",
        ),
        (
            "base = \"own.toml\"".into(),
            "own.toml:1: base: unknown cost table `own.toml`",
        ),
        ("wake_ns = 3".into(), "own.toml:1: unknown field `wake_ns`"),
        (
            line("[wake]\nwake_ns = 3"),
            "own.toml:3: invalid type: integer `3`",
        ),
    ] {
        let error = Costs::parse("own.toml", &text)
            .expect_err(&text)
            .to_string();
        assert!(error.contains(message), "{text}\n{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

// Goal: the table that docs/MACHINES.md shows is one.
#[test]
fn the_pages_example_is_a_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/MACHINES.md");
    let page = std::fs::read_to_string(page).expect("readable");
    let block = page.split("```toml\n").nth(2).expect("a table");
    let text = block.split("```").next().expect("its end");
    let costs = Costs::parse("MACHINES.md", text).expect("it is right");
    assert_eq!(costs.n.line_remote_ns, 230);
    assert_eq!(costs.smt_share_permille, [1000, 650]);
    let states = costs
        .sources
        .keys()
        .filter(|k| k.starts_with("idle_state."));
    assert_eq!((costs.idle_states.len(), states.count()), (1, 1));
}

// Goal: a machine file may name a cost file beside it.
// Method: one that changes a number, one that is not there.
#[test]
fn costs_may_be_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let machine = |costs: &str| {
        let text = usher_topo::machine::builtin_text("2a15").expect("built in");
        let text = text.replace("costs = \"tc2\"", &format!("costs = \"{costs}\""));
        std::fs::write(path("m.toml"), text).expect("written");
        machine(&Source::Machine(path("m.toml")), &Params::new())
    };
    let text = "base = \"tc2\"\n[wake]\nwake_ns = { value = 77, source = \"measured\" }\n";
    std::fs::write(path("own.toml"), text).expect("written");
    let made = machine("own.toml").expect("both are right");
    assert_eq!(made.costs().n.wake_ns, 77);
    assert_eq!(made.costs().name, path("own.toml"));
    let error = machine("gone.toml").expect_err("no such file").to_string();
    assert!(error.starts_with(&path("gone.toml")), "{error}");
}

// Goal: a number that a user sets is checked as in a file, and a refused one changes nothing.
// Method: a tick rate of 0, a huge number, a name that does not exist.
#[test]
fn numbers_that_users_set_are_checked() {
    let mut costs = Costs::builtin("generic").expect("built in");
    for (name, value, message) in [
        ("tick.hz", 0, "`cost.tick.hz` cannot be set: tick.hz is 0"),
        ("ipi.ipi_send_ns", u64::MAX, "must be at most"),
        ("line.line_remote_slit", 10, "above 10"),
        ("ipi.ipi_sned_ns", 1, "nearest: ipi.ipi_send_ns"),
    ] {
        let error = costs.set(name, value).expect_err(name).to_string();
        assert!(error.contains(message), "{error}");
    }
    assert_eq!(costs, Costs::builtin("generic").expect("built in"));
    costs.set("ipi.ipi_send_ns", 7).expect("legal");
    assert_eq!(
        (
            costs.n.ipi_send_ns,
            costs.sources["ipi.ipi_send_ns"].as_str()
        ),
        (7, "set by the user")
    );
}

// Goal: the kernel takes on the 2013 board what it takes on a Cortex-A15 as it was measured. Method: lmbench's two processes that send each
// other a byte over a Unix socket, on one CPU: 35.5 us there and back at 1.5 GHz, hence 53.3 at 1 GHz.
#[test]
fn a_byte_takes_as_long_as_lmbench_says() {
    const ROUNDS: usize = 1_000;
    let mut world = World::new();
    let [there, back] = [0; 2].map(|_| world.new_channel(ChannelSpec::UNIX_SOCKET));
    let done = world.new_value("done_ns");
    let write = |channel| Act(Action::Write { channel, bytes: 1 });
    let read = |channel| {
        Act(Action::Read {
            channel,
            bytes: 1,
            exact: true,
        })
    };
    let rounds = |calls: &dyn Fn() -> [Step; 2]| -> Vec<Step> {
        (0..ROUNDS).flat_map(|_| calls()).collect()
    };
    let mut asks = rounds(&|| [write(there), read(back)]);
    asks.push(Stamp(done));
    let answers = rounds(&|| [read(there), write(back)]);
    let tasks =
        [asks, answers].map(|steps| TaskSpec::new("process", script(steps)).affinity(only(0)));
    let a15 = machine(&Source::Machine("2a15".into()), &Params::new()).expect("it ships");
    let report = run_under("cfs-3.9", a15, workload(world, tasks.into(), Stop::AllExit));
    let round = report.metrics["done_ns"] / ROUNDS as f64;
    assert_near("there and back", round, 53_300.0, 2.0);
}
