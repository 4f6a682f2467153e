// SPDX-License-Identifier: GPL-2.0-only
//! The core in the kernel decides as the core in a process does: `usher-parity` in guests of both kernels.
//!
//! Goal: what is tested natively, simulated and measured is what runs in a kernel. Method: the same streams of
//! ten million requests and more, over thirteen machines and all granularities, go through the BPF object by
//! the kernel's program test run and through the native build; the hash over everything returned, every
//! decision and every reason included, is compared after each batch. Catches: code that clang's BPF back end
//! or the verifier's view of it makes different, an environment (`env_*`) with other semantics, a loop that the
//! kernel's budget cuts short.

use super::common::{alone, built, on_each_kernel};

const REQUESTS: u64 = 10_000_000;

fn equal(kernel: &str) {
    let program = built("usher-parity");
    let command = [
        &*program.to_string_lossy(),
        "--requests",
        &REQUESTS.to_string(),
    ];
    let command = command.map(str::to_owned).into();
    let step = alone(kernel, "1n1l2c1t", &program, command, 1500);
    let said = String::from_utf8_lossy(&step.stdout);
    let context = format!("{said}{}", String::from_utf8_lossy(&step.stderr));
    let equal = said
        .lines()
        .filter(|line| line.contains(" operations equal "))
        .count();
    assert!(equal >= 10, "fewer than ten machines compared: {context}");
    let total = said
        .lines()
        .find_map(|line| line.split_once(" requests on "))
        .and_then(|(n, _)| n.parse::<u64>().ok());
    assert!(
        total >= Some(REQUESTS),
        "fewer requests than asked for: {context}"
    );
}

on_each_kernel!(equal);
