// SPDX-License-Identifier: GPL-2.0-only
//! The documentation shows what is there.

use usher_sim::policy::POLICIES;

fn read(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

// Goal: the policy that docs/POLICY.md shows is the one that runs.
// Method: the Rust block of the page against the source, to the byte; and it stays short enough to show.
#[test]
fn the_policy_shown_is_the_policy() {
    let page = read("docs/POLICY.md");
    let shown = page.split("```rust\n").nth(1).expect("a Rust block");
    let shown = shown.split("```").next().expect("split gives one part");
    let source = read("crates/usher-sim/src/policy/fifo.rs");
    assert!(
        shown == source,
        "docs/POLICY.md shows another fifo.rs; put the file into its Rust block"
    );
    let code = source
        .lines()
        .filter(|l| !l.trim().is_empty() && !l.trim().starts_with("//"));
    let lines = code.count();
    assert!(lines <= 60, "{lines} lines are no small example");
}

// Goal: what the page says of the trait is so.
// Method: each required callback of its table is in the trait without a body.
#[test]
fn the_callbacks_named_exist() {
    let (page, source) = (
        read("docs/POLICY.md"),
        read("crates/usher-sim/src/policy.rs"),
    );
    let rows = page.lines().filter(|l| l.starts_with("| `"));
    let mut required = 0;
    for row in rows {
        let name = row.split('`').nth(1).expect("a name in backticks");
        let at = source
            .find(&format!("fn {name}("))
            .unwrap_or_else(|| panic!("no callback {name}"));
        let end = source[at..].find([';', '{']).expect("a signature ends");
        let bare = source.as_bytes()[at + end] == b';';
        assert_eq!(bare, row.ends_with("| yes |"), "{name}");
        required += u32::from(bare);
    }
    let trait_text = &source[source.find("pub trait Policy").expect("the trait")..];
    assert_eq!(
        required as usize,
        trait_text.matches(";\n\n    ///").count(),
        "all required ones"
    );
}

// Goal: docs/MODELS.md covers the policies that model a kernel.
// Method: each base name of the registry appears there.
#[test]
fn models_are_documented() {
    let page = read("docs/MODELS.md");
    for policy in POLICIES {
        let base = policy.name.split('+').next().expect("split gives one part");
        assert!(
            page.contains(&format!("`{base}`")),
            "docs/MODELS.md says nothing about `{base}`"
        );
    }
}
