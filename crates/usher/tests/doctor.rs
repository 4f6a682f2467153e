// SPDX-License-Identifier: GPL-2.0-only
//! `usher doctor` as a user runs it.

use std::process::Command;

use serde_json::Value;

// Goal: what is missing decides the exit code, and the JSON that others build on has what the table has.
// Method: both formats with an empty cache, where guests lack kernels whatever the machine.
#[test]
fn missing_things_are_named_and_decide_the_exit_code() {
    let cache = tempfile::tempdir().unwrap();
    let doctor = |format: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_usher"))
            .args(["doctor", "--format", format])
            .env("USHER_CACHE", cache.path())
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(3), "{format}");
        String::from_utf8(out.stdout).unwrap()
    };
    let (table, json) = (doctor("table"), doctor("json"));
    assert!(json.starts_with(r#"{"schema":"usher-doctor/1","#), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let checks = json["checks"].as_array().unwrap();
    let missing: Vec<&Value> = checks.iter().filter(|c| c["state"] == "missing").collect();
    assert_eq!(json["missing"], missing.len());
    assert_eq!(table.matches("MISSING").count(), missing.len(), "{table}");
    let kernels = missing.iter().find(|c| c["name"] == "kernels").unwrap();
    assert_eq!(
        (&kernels["part"], &kernels["remedy"]),
        (&"lab".into(), &"make setup".into())
    );
    for check in checks {
        assert_eq!(check["state"] == "fine", check["remedy"] == "", "{check}");
        assert!(table.contains(check["name"].as_str().unwrap()), "{table}");
    }
}
