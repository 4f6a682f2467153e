// SPDX-License-Identifier: GPL-2.0-only
//! Ctrl-C: long commands end early and still print what they have.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use crate::exit::Code;

/// What a shell says of a command that SIGINT ended.
pub const INTERRUPTED: Code = Code::Other(130);

/// Becomes true at the first Ctrl-C. The second one ends the process at once.
pub fn flag() -> &'static AtomicBool {
    static STOP: AtomicBool = AtomicBool::new(false);
    static HANDLER: OnceLock<()> = OnceLock::new();
    HANDLER.get_or_init(|| {
        let set = ctrlc::set_handler(|| {
            if STOP.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        });
        if let Err(error) = set {
            let _ = writeln!(io::stderr(), "usher: Ctrl-C will lose the results: {error}");
        }
    });
    &STOP
}
