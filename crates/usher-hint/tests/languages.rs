// SPDX-License-Identifier: GPL-2.0-only
//! C and Python programs ask the kernel what this crate would.
//!
//! Goal: one call in three languages. Method: the same four calls from each, with another prctl() before the C
//! library's. Catches: a number or an order that only one language has, an error that is swallowed, `0x100` left in Python's result.

use std::path::{Path, PathBuf};
use std::process::Command;

use usher_hint::Hints;

fn repository() -> PathBuf {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Path::new(path).canonicalize().expect("this repository")
}

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

fn compile(source: &Path, output: &Path, options: &str) {
    let status = Command::new("cc")
        .args("-std=gnu11 -Wall -Wextra -Werror -I".split(' '))
        .arg(repository().join("include"))
        .args(options.split_whitespace())
        .arg("-o")
        .args([output, source])
        .status()
        .expect("cc runs");
    assert!(status.success(), "{} does not compile", source.display());
}

/// Runs a program that sets two hints, asks for its own, takes back those of task 7, and asks about nobody.
fn asks_as_promised(language: &str, program: &mut Command) {
    let shim = built(&format!("{language}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prctl.c");
    compile(&source, &shim, "-shared -fPIC");
    let output = program.env("LD_PRELOAD", &shim).output();
    std::fs::remove_file(&shim).expect("it was there");
    let output = output.unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let asked = String::from_utf8_lossy(&output.stderr);
    let wish = Hints::FORK_SPREAD
        .and(Hints::WAKE_HOLD)
        .expect("legal")
        .bits();
    let expected = format!(
        "prctl 0x75736872 1 {wish} 0 0\nprctl 0x75736872 2 0 0 0\nprctl 0x75736872 1 0 7 0\nprctl 0x75736872 2 0 99 0\n"
    );
    assert_eq!(asked, expected, "{program:?}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, format!("{wish} 9 0 {}\n", libc::ESRCH), "{program:?}");
}

#[test]
fn from_c() {
    let (source, program) = (built("asks.c"), built("asks"));
    let text = r#"
#include <errno.h>
#include <stdio.h>
#include <usher_hint.h>

int main(void)
{
	int set = usher_hint(USHER_HINT_SET, USHER_HINT_FORK_SPREAD | USHER_HINT_WAKE_HOLD, 0);
	int own = usher_hint(USHER_HINT_GET, 0, 0), none = usher_hint(USHER_HINT_SET, 0, 7);
	int nobody = usher_hint(USHER_HINT_GET, 0, 99);

	printf("%d %d %d ", set - USHER_HINT_OK, own - USHER_HINT_OK, none - USHER_HINT_OK);
	printf("%d\n", nobody < 0 ? errno : 0);
	return 0;
}
"#;
    std::fs::write(&source, text).expect("target is writable");
    compile(&source, &program, "");
    asks_as_promised("c", &mut Command::new(&program));
    for file in [source, program] {
        std::fs::remove_file(file).expect("it was there");
    }
}

#[test]
fn from_python() {
    let script = "\
from usher_hint import hint, FORK_SPREAD, WAKE_HOLD
told = [hint(FORK_SPREAD | WAKE_HOLD), hint(), hint(0, 7)]
try:
    hint(pid=99)
except OSError as error:
    told.append(error.errno)
print(*told)";
    asks_as_promised(
        "python",
        Command::new("python3")
            .args(["-B", "-c", script])
            .env("PYTHONPATH", repository().join("python")),
    );
}
