// SPDX-License-Identifier: GPL-2.0-only
//! Process number 1 of the lab's guests. Not for use outside of them.

fn main() {
    if std::process::id() != 1 {
        eprintln!("usher-guest: runs as process 1 of a guest that `usher lab` boots, nowhere else");
        std::process::exit(2);
    }
    usher_lab::agent::main()
}
