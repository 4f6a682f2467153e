// SPDX-License-Identifier: GPL-2.0-only
//! Cost tables: what is built in, and what is refused.

use usher_sim::costs::{CostNumbers, Costs, BUILTIN};

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

// Goal: a file with a mistake is refused with a message that names it.
// Method: a table based on the generic one, with one mistake each.
#[test]
fn mistakes_are_named() {
    let line = |text: &str| format!("base = \"generic\"\n{text}\n");
    for (text, message) in [
        (
            line("[wake]\nwake_ns = { value = 1, source = \"\" }"),
            "`wake.wake_ns` has no source",
        ),
        (
            line("[wake]\nwak_ns = { value = 1, source = \"x\" }"),
            "unknown number `wake.wak_ns`; nearest: wake.wake_ns",
        ),
        (
            line("[tick]\nhz = { value = 0, source = \"x\" }"),
            "tick.hz is 0",
        ),
        (
            line("[wake]\nwake_ns = { value = 2000000000, source = \"x\" }"),
            "wake.wake_ns must be at most",
        ),
        (
            line("[smt]\nshare_permille = { value = [600], source = \"x\" }"),
            "must begin with 1000",
        ),
        (
            line("[smt]\nshare_permille = { value = [1000, 0], source = \"x\" }"),
            "from 1 to 1000",
        ),
        (
            "[wake]\nwake_ns = { value = 1, source = \"x\" }".into(),
            "is missing",
        ),
        ("base = \"nowhere\"".into(), "unknown cost table `nowhere`"),
        ("base = \"own.toml\"".into(), "itself as its base"),
        ("wake_ns = 3".into(), "invalid type"),
    ] {
        let error = Costs::parse("own.toml", &text)
            .expect_err(&text)
            .to_string();
        assert!(error.contains(message), "{text}\n{error}");
    }
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
