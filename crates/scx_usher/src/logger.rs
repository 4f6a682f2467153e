// SPDX-License-Identifier: GPL-2.0-only
//! Talk goes to stderr, one line each; stdout is for statistics.

use std::io::{self, Write};

use libbpf_rs::PrintLevel;
use log::{Level, LevelFilter, Log, Metadata, Record};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = match record.level() {
            Level::Info => String::new(),
            level => format!("{}: ", level.as_str().to_lowercase()),
        };
        // A scheduler goes on when nobody listens any more.
        let _ = writeln!(io::stderr(), "scx_usher: {level}{}", record.args());
    }

    fn flush(&self) {}
}

/// To be called once. What libbpf tells is one level less interesting than it thinks.
pub fn init(level: LevelFilter) {
    log::set_max_level(level);
    if log::set_logger(&Stderr).is_ok() {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |level, text| {
            let text = text.trim_end();
            match level {
                PrintLevel::Debug => log::trace!("{text}"),
                PrintLevel::Info => log::debug!("{text}"),
                PrintLevel::Warn => log::warn!("{text}"),
            }
        })));
    }
}
