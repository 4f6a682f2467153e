// SPDX-License-Identifier: GPL-2.0-only
//! All counters as one JSON object, for programs that read them after the end.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::{bpf_prog_get_info_by_fd, bpf_prog_info};
use libbpf_rs::skel::Skel;
use serde::Serialize;

use usher_core::Event;

use crate::arena::Counters;
use crate::capacity::CapacityReport;
use crate::shared::{HINT_CALLS, HOST_EVENTS, LEVELS};
use crate::skel::MainSkel;

/// How long the start took, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Startup {
    /// Topology, opening and verification.
    pub load_ms: u64,
    /// Tables and attaching.
    pub attach_ms: u64,
}

/// A BPF program, and what it cost.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// Instructions the verifier went through.
    pub verified_insns: u32,
    /// Bytes of machine code.
    pub jited_bytes: u32,
    /// How often it ran; 0 unless the kernel counts (sysctl kernel.bpf_stats_enabled).
    pub run_cnt: u64,
    /// For how long, in nanoseconds.
    pub run_time_ns: u64,
}

/// What is written: `schema` first, fields may be added.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: u32,
    ops: &'a str,
    startup: Startup,
    reasons: BTreeMap<&'static str, u64>,
    migrations: BTreeMap<&'static str, u64>,
    hints: BTreeMap<&'static str, u64>,
    events: BTreeMap<&'static str, u64>,
    callbacks: BTreeMap<&'static str, u64>,
    longest_wait_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacities: Option<CapacityReport>,
    programs: BTreeMap<&'a str, &'a Program>,
}

/// Writes the report.
pub fn write(
    path: &Path,
    ops: &str,
    startup: Startup,
    counters: &Counters,
    capacities: Option<CapacityReport>,
    programs: &[Program],
) -> Result<()> {
    let report = Report {
        schema: 1,
        ops,
        startup,
        reasons: counters
            .core
            .reasons()
            .map(|(reason, n)| (reason.as_str(), n))
            .collect(),
        migrations: LEVELS.into_iter().zip(counters.migrations).collect(),
        hints: HINT_CALLS
            .into_iter()
            .zip(counters.hint_calls)
            .chain([
                ("kept", counters.core[Event::HintKept]),
                ("lapsed", counters.core[Event::HintLapsed]),
            ])
            .collect(),
        events: counters
            .core
            .events()
            .map(|(event, n)| (event.as_str(), n))
            .collect(),
        callbacks: HOST_EVENTS.into_iter().zip(counters.host).collect(),
        longest_wait_ns: counters.waited_ns,
        capacities,
        programs: programs
            .iter()
            .map(|program| (program.name.as_str(), program))
            .collect(),
    };
    let text = serde_json::to_string(&report)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// What each program of the object cost so far.
pub fn programs(skel: &MainSkel<'_>) -> Vec<Program> {
    let mut found = Vec::new();
    for program in skel.object().progs() {
        let mut info = bpf_prog_info::default();
        let mut len = size_of::<bpf_prog_info>() as u32;
        if !program.autoload() {
            continue;
        }
        // SAFETY: the descriptor is open, info has the size said, and asks for no arrays.
        let error =
            unsafe { bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut len) };
        if error == 0 {
            found.push(Program {
                name: program.name().to_string_lossy().into_owned(),
                verified_insns: info.verified_insns,
                jited_bytes: info.jited_prog_len,
                run_cnt: info.run_cnt,
                run_time_ns: info.run_time_ns,
            });
        }
    }
    found
}
