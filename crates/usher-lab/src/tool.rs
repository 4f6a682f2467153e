// SPDX-License-Identifier: GPL-2.0-only
//! Runs other programs (decompressors, apt, dpkg) and turns their failures into one clear line.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::error::{LabError, Result};

/// Where commands of the lab look for programs, in a guest and on this machine alike.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The file of a program in [`PATH`], or at a path of its own.
pub fn find(program: &str) -> Option<PathBuf> {
    let folders = match program.contains('/') {
        true => vec![""],
        false => PATH.split(':').collect(),
    };
    let files = folders
        .into_iter()
        .map(|folder| Path::new(folder).join(program));
    files.into_iter().find(|path| path.is_file())
}

/// Runs a program to its end and returns its standard output.
pub fn output<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<Vec<u8>> {
    output_in(program, arguments, None)
}

/// The same in a given working folder.
pub fn output_in<S: AsRef<OsStr>>(
    program: &str,
    arguments: &[S],
    folder: Option<&Path>,
) -> Result<Vec<u8>> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env("LC_ALL", "C");
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    finish(program, command.output())
}

/// Sends `input` through a program and returns what comes out.
pub fn filter(program: &str, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return finish(program, Err(error)),
    };
    let mut stdin = child.stdin.take().expect("piped above");
    let result = std::thread::scope(|scope| {
        // Written beside reading: both pipes would fill up otherwise. A program that ends early shows in
        // its exit status, so a broken pipe here is not reported twice.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output()
    });
    finish(program, result)
}

fn finish(program: &str, result: std::io::Result<Output>) -> Result<Vec<u8>> {
    match result {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let last: Vec<&str> = text.lines().rev().take(3).collect();
            let words = last.into_iter().rev().collect::<Vec<_>>().join(" / ");
            Err(LabError::Tool {
                command: program.into(),
                why: format!("ended with {}: {words}", output.status),
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(LabError::Missing {
            what: format!("the program {program} is not installed"),
            remedy: "run `make setup`".into(),
        }),
        Err(error) => Err(LabError::Tool {
            command: program.into(),
            why: error.to_string(),
        }),
    }
}
