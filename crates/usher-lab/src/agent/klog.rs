// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's log, as records from /dev/kmsg.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use crate::proto::LogLine;

/// Syslog level of a warning; lower is worse.
const LEVEL_WARNING: u8 = 4;

/// A reader that remembers where it is.
pub struct KernelLog(File);

impl KernelLog {
    /// Opens the log at its beginning.
    pub fn open() -> Result<Self, String> {
        std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .map(KernelLog)
            .map_err(|error| format!("/dev/kmsg: {error}"))
    }

    /// Forgets everything up to now.
    pub fn skip(&mut self) {
        self.records(|_| ());
    }

    /// Warnings and worse since the last look, and everything that sched_ext said.
    pub fn take(&mut self) -> Vec<LogLine> {
        let mut lines = self.take_all();
        lines.retain(|line| line.level <= LEVEL_WARNING || line.text.contains("sched_ext"));
        lines
    }

    /// Everything since the last look.
    pub fn take_all(&mut self) -> Vec<LogLine> {
        let mut lines = Vec::new();
        self.records(|line| lines.push(line));
        lines
    }

    fn records(&mut self, mut each: impl FnMut(LogLine)) {
        let mut buffer = [0; 8192];
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => {
                    if let Some(line) = parse(&String::from_utf8_lossy(&buffer[..length])) {
                        each(line);
                    }
                }
                // Records were overwritten before they were read: the next read goes on after them.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

/// Reads `priority,sequence,microseconds,flags;text`, dropping the continuation lines of keys and values.
fn parse(record: &str) -> Option<LogLine> {
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    let text = text.lines().next().unwrap_or("").to_string();
    // The low three bits are the level, the rest the facility.
    Some(LogLine {
        level: (priority & 7) as u8,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: level and text come out of a record. Method: a record as the kernel's documentation has it
    /// (Documentation/ABI/testing/dev-kmsg), and garbage.
    #[test]
    fn records_are_read() {
        let line = parse("28,160,424069,-;sched_ext: usher enabled\n SUBSYSTEM=acpi\n").unwrap();
        assert_eq!(
            line,
            LogLine {
                level: 4,
                text: "sched_ext: usher enabled".into()
            }
        );
        assert_eq!(parse("garbage"), None);
    }
}
