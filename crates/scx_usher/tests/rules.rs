// SPDX-License-Identifier: GPL-2.0-only
//! What the program does with a file of rules that is wrong.

use std::process::Command;

// Goal: a wrong file ends it before it looks at the machine, with one line and the code for wrong use. Method: the
// program itself, on a machine that may well have no sched_ext. Catches: a mistake found after the attach.
#[test]
fn a_wrong_file_is_wrong_use() {
    let path = std::env::temp_dir().join(format!("usher-rules-{}.toml", std::process::id()));
    std::fs::write(&path, "[[rule]]\ncomm = \"x\"\nwake = \"now\"\n").expect("a temporary file");
    let output = Command::new(env!("CARGO_BIN_EXE_scx_usher"))
        .arg("--rules")
        .arg(&path)
        .output()
        .expect("it starts");
    std::fs::remove_file(&path).expect("it is there");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let place = format!("{}:3: ", path.display());
    for word in [
        place.as_str(),
        "no such wish for wake",
        "`\"now\"`",
        "use `affine`, `hold`",
    ] {
        assert!(said.contains(word), "{said}");
    }
}
