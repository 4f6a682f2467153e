// SPDX-License-Identifier: GPL-2.0-only
//! What things cost on a machine: every number of the hardware and kernel model, with its source.
//!
//! A cost file (`data/costs/*.toml`, or a user's own) gives each number as `{ value = 1500, source = "..." }`, where
//! the source is a citation or begins with `assumed`. A file may start from a built-in one with `base = "..."` and
//! then overrides only what differs. A number that is missing, unknown or without source is an error.

use std::collections::BTreeMap;

use serde::Deserialize;
use usher_topo::line;
use usher_topo::machine::is_path;

use crate::error::{nearest, SimError};
use crate::ids::Nanos;

macro_rules! costs {
    ($($(#[doc = $doc:literal])* $section:ident . $field:ident;)*) => {
        /// The numbers. Names end in their unit; `[a, b, ...]` tables are documented at the field.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct CostNumbers {
            $($(#[doc = $doc])* pub $field: u64,)*
        }

        impl CostNumbers {
            /// `section.name` of every number.
            pub const NAMES: &'static [&'static str] =
                &[$(concat!(stringify!($section), ".", stringify!($field)),)*];

            /// What each of them means, in the same order.
            const MEANINGS: &'static [&'static str] = &[$(concat!($($doc),*),)*];

            /// Their values, in the same order.
            fn values(&self) -> Vec<u64> {
                vec![$(self.$field,)*]
            }

            /// The number with this `section.name`.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(concat!(stringify!($section), ".", stringify!($field)) =>
                        Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

costs! {
    /// The clock under load: what a cycle is where results are given in cycles. Nothing runs by it.
    cpu.clock_mhz;
    /// Share of a socket's cores, in thousandths, that may be busy while all run at the speed that the other costs hold for.
    clock.clock_free_permille;
    /// The speed with all of them busy, in thousandths of that one; between, it falls in proportion. 1000: clocks do not fall.
    clock.clock_full_permille;
    /// Ticks per second (`CONFIG_HZ`).
    tick.hz;
    /// Time one tick's handler takes, without what the policy does in it.
    tick.tick_ns;
    /// 1: the ticks of different CPUs are spread over the period (`skew_tick=1`); 0: all at once.
    tick.tick_skew;
    /// Slack of timers of tasks that are not real-time.
    timer.timer_slack_ns;
    /// Time a timer interrupt takes, entry to exit, without the wakeups it does.
    timer.timer_irq_ns;
    /// Context switch between tasks of different address spaces.
    switch.switch_ns;
    /// Context switch between threads of one process.
    switch.switch_thread_ns;
    /// Fixed part of choosing the next task (`__schedule` without the policy's own work).
    switch.schedule_ns;
    /// Fixed part of a wakeup (`try_to_wake_up` without the policy's own work).
    wake.wake_ns;
    /// Lines in which the kernel keeps account of a task, fetched by who wakes it, who queues it and where it runs: how many are waited for within an
    /// LLC, where a core goes on while others come,
    wake.task_lines;
    /// ... and between LLCs.
    wake.task_far_lines;
    /// Lines of a CPU's run queue, fetched by who queues a task there or takes one away, beyond those that a policy's model has.
    wake.queue_lines;
    /// As many more where tasks are of the fair class: its averages, its tree, and what is charged to who runs there.
    wake.fair_lines;
    /// Time the sender of an interrupt to another CPU spends.
    ipi.ipi_send_ns;
    /// From sending to arrival, between threads of a core.
    ipi.ipi_core_ns;
    /// From sending to arrival, within an LLC.
    ipi.ipi_llc_ns;
    /// From sending to arrival, within a node.
    ipi.ipi_node_ns;
    /// From sending to arrival, to another node.
    ipi.ipi_remote_ns;
    /// Time the receiver spends on it, without what it is about.
    ipi.ipi_handle_ns;
    /// Time to wake a CPU that polls a memory word instead, on the sender's side.
    ipi.poll_wake_ns;
    /// Any system call: entry and exit.
    syscall.syscall_ns;
    /// `futex` beyond that.
    syscall.futex_ns;
    /// `read` and `write` on a pipe or socket beyond that, without protocol and copy; half of it, the locks,
    /// once more after a sleep.
    syscall.rw_ns;
    /// Each of these on a stream socket within the machine beyond that: its protocol.
    syscall.unix_ns;
    /// `poll` beyond that, per channel.
    syscall.poll_ns;
    /// Locking or unlocking an uncontended mutex, in user space.
    syscall.mutex_ns;
    /// `nanosleep` beyond that.
    syscall.sleep_ns;
    /// `semop` beyond that.
    syscall.sem_ns;
    /// `fork` of a process.
    syscall.fork_ns;
    /// `clone` of a thread.
    syscall.thread_ns;
    /// `execve`.
    syscall.exec_ns;
    /// `exit`, with the release of the address space.
    syscall.exit_ns;
    /// `exit` of a thread.
    syscall.thread_exit_ns;
    /// `wait4` beyond the entry.
    syscall.wait_ns;
    /// `sched_setaffinity` and `sched_setattr`.
    syscall.sched_ns;
    /// Submitting a request to a device.
    syscall.io_ns;
    /// A load or store of a line that this core has.
    line.line_hit_ns;
    /// An atomic read-modify-write of a line that this core owns.
    line.line_rmw_ns;
    /// Fetching a line that the sibling thread's core has is a hit; from another core of the LLC.
    line.line_llc_ns;
    /// From another LLC of the node.
    line.line_node_ns;
    /// From another node at `line_remote_slit`.
    line.line_remote_ns;
    /// The SLIT distance at which `line_remote_ns` was measured; others scale linearly above 10.
    line.line_remote_slit;
    /// From memory: nobody has it.
    line.line_memory_ns;
    /// Looking at many CPUs one after the other: what is waited for each one's line, in thousandths of a transfer. A core fetches several at once.
    line.line_scan_permille;
    /// Private cache (L2) of a core, in KiB.
    cache.l2_kib;
    /// LLC, in KiB.
    cache.llc_kib;
    /// Refilling the private cache from the LLC, ns per KiB.
    cache.refill_llc_ns_per_kib;
    /// Refilling from another LLC or the node's memory, ns per KiB.
    cache.refill_memory_ns_per_kib;
    /// Refilling from another node's memory, ns per KiB.
    cache.refill_remote_ns_per_kib;
    /// A refill slows work down to no less than 1000 / (1000 + this) of its speed: a burst shorter than
    /// the refill does not pay for all of it.
    cache.refill_slowdown_permille;
    /// How much longer memory-bound work takes on another node than its own, in thousandths, at
    /// `line_remote_slit`.
    cache.remote_memory_permille;
    /// Copying data that this LLC holds, ns per KiB.
    copy.copy_llc_ns_per_kib;
    /// Copying data that another LLC of the node holds, ns per KiB.
    copy.copy_node_ns_per_kib;
    /// Copying data that another node holds, ns per KiB.
    copy.copy_remote_ns_per_kib;
    /// Entering an idle state.
    idle.idle_enter_ns;
    /// Share of a state's worst-case exit latency that an exit takes, in thousandths.
    idle.idle_exit_permille;
    /// The governor reckons with a timer within this time: a real CPU always has one (vmstat, write-back,
    /// RCU), and without one the governor's learned correction has nothing to correct, and a mixed history
    /// locks CPUs that wake each other into deep states. No event comes of it.
    idle.idle_housekeeping_ns;
}

/// No number is larger: a second, so that sums stay far from their end.
const LARGEST: u64 = 1_000_000_000;

/// An idle state of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// `C1`, `C6`.
    pub name: String,
    /// Worst-case exit latency, as firmware or driver tell the kernel: governor and policies go by it.
    pub exit_ns: Nanos,
    /// What an exit takes where somebody measured it; else that share of `exit_ns` that
    /// `idle.idle_exit_permille` says.
    pub wake_ns: Option<Nanos>,
    /// What an exit takes on top of that where all CPUs of the LLC are in the deepest state: the cluster
    /// sleeps, too, and has to come up first. Of the deepest state; 0 for no such thing.
    pub llc_wake_ns: Nanos,
    /// Shortest stay for which the state pays.
    pub residency_ns: Nanos,
    /// Whether a CPU in it watches a memory word (POLL, mwait), so that waking it needs no interrupt.
    pub polling: bool,
}

/// A number as a list of them shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Described {
    /// Its key, as in `--set key=value`.
    pub key: String,
    /// The value in force; the key ends in its unit.
    pub value: u64,
    /// What it means.
    pub meaning: &'static str,
    /// Where it comes from.
    pub source: String,
}

/// What things cost on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// The name of the table.
    pub name: String,
    /// The numbers.
    pub n: CostNumbers,
    /// Speed of one thread in thousandths of the core's, by the number of busy threads of the core less
    /// one. The last entry serves wider cores, too.
    pub smt_share_permille: Vec<u32>,
    /// Idle states, shallowest first. Never empty.
    pub idle_states: Vec<IdleState>,
    /// `section.name` to source, for all numbers.
    pub sources: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "`{ value = NUMBER, source = \"where from\" }`"
)]
struct RawValue {
    value: u64,
    source: String,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "`{ value = [NUMBER, ...], source = \"where from\" }`"
)]
struct RawShares {
    value: Vec<u32>,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawIdle {
    name: String,
    exit_ns: u64,
    wake_ns: Option<u64>,
    #[serde(default)]
    llc_wake_ns: u64,
    residency_ns: u64,
    polling: bool,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSmt {
    share_permille: RawShares,
}

/// A file. Sections are fields, since of a flattened map errors know no line.
macro_rules! sections {
    ($($section:ident),*) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RawFile {
            base: Option<String>,
            smt: Option<RawSmt>,
            idle_state: Option<Vec<RawIdle>>,
            $(#[serde(default)] $section: BTreeMap<String, RawValue>,)*
        }

        impl RawFile {
            /// The sections by name.
            fn sections(self) -> Vec<(&'static str, BTreeMap<String, RawValue>)> {
                vec![$((stringify!($section), self.$section),)*]
            }
        }
    };
}

sections![cpu, clock, tick, timer, switch, wake, ipi, syscall, line, cache, copy, idle];

/// The key of what is wrong in a file, and what is.
type Wrong = (String, String);

fn wrong<T>(key: &str, what: impl Into<String>) -> Result<T, Wrong> {
    Err((key.into(), what.into()))
}

fn check_source(key: &str, source: &str) -> Result<(), Wrong> {
    match source.trim() {
        "" => wrong(
            key,
            format!("`{key}` has no source; cite one, or write `assumed: why`"),
        ),
        _ => Ok(()),
    }
}

macro_rules! builtin {
    ($($name:literal),* $(,)?) => {
        /// Names of the built-in tables.
        pub const BUILTIN: &[&str] = &[$($name),*];

        fn builtin_text(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../../../data/costs/", $name, ".toml"))),)*
                _ => None,
            }
        }
    };
}

builtin![
    "generic",
    "skylake-sp",
    "icelake-sp",
    "sapphire-rapids",
    "broadwell-ep",
    "zen3",
    "zen4",
    "tc2"
];

impl IdleState {
    /// What an exit takes, where the LLC is awake.
    pub fn wake_ns(&self, n: &CostNumbers) -> Nanos {
        self.wake_ns
            .unwrap_or(self.exit_ns * n.idle_exit_permille / 1000)
    }
}

impl Costs {
    /// The built-in table of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn builtin(name: &str) -> Result<Costs, SimError> {
        let text = builtin_text(name).ok_or_else(|| SimError::Unknown {
            kind: "cost table".into(),
            name: name.into(),
            nearest: nearest(name, BUILTIN),
        })?;
        Self::parse(name, text)
    }

    /// The built-in table of this name, or that of the file at this path.
    ///
    /// # Errors
    /// There is none, or it is not as the module's documentation says.
    pub fn load(name: &str) -> Result<Costs, SimError> {
        if !is_path(name) {
            return Self::builtin(name);
        }
        let text = std::fs::read_to_string(name).map_err(|e| SimError::Input {
            origin: name.into(),
            what: format!("cannot be read: {e}; a machine file names its costs"),
        })?;
        Self::parse(name, &text)
    }

    /// Reads a table from the text of a cost file; `origin` names it in errors.
    ///
    /// # Errors
    /// Anything that is not as the module's documentation says.
    pub fn parse(origin: &str, text: &str) -> Result<Costs, SimError> {
        let error = |line: Option<usize>, what: String| SimError::Input {
            origin: line.map_or(origin.into(), |line| format!("{origin}:{line}")),
            what,
        };
        let raw: RawFile = toml::from_str(text).map_err(|e| {
            let what = e.message().lines().collect::<Vec<_>>().join(", ");
            let what = format!("{what}; `usher sim --list costs` lists the numbers");
            error(e.span().map(|span| line::at(text, span.start)), what)
        })?;
        let mut costs = match raw.base.as_deref() {
            Some(base) => Self::builtin(base)
                .map_err(|e| error(line::of_key(text, "base"), format!("base: {e}")))?,
            None => Costs::default(),
        };
        costs.name = origin.into();
        let taken = costs.take(raw).and_then(|()| costs.check());
        taken.map_err(|(key, what)| error(line::of_key(text, &key), what))?;
        Ok(costs)
    }

    /// What a file says, over what there is.
    fn take(&mut self, mut raw: RawFile) -> Result<(), Wrong> {
        let (smt, idle_states) = (raw.smt.take(), raw.idle_state.take());
        for (section, numbers) in raw.sections() {
            for (name, number) in numbers {
                let name = format!("{section}.{name}");
                check_source(&name, &number.source)?;
                let Some(field) = self.n.get_mut(&name) else {
                    let near = nearest(&name, CostNumbers::NAMES);
                    let near = near.into_iter().take(3).collect::<Vec<_>>().join(", ");
                    return wrong(&name, format!("unknown number `{name}`; nearest: {near}"));
                };
                *field = number.value;
                self.sources.insert(name, number.source);
            }
        }
        if let Some(RawSmt { share_permille }) = smt {
            const NAME: &str = "smt.share_permille";
            check_source(NAME, &share_permille.source)?;
            self.smt_share_permille = share_permille.value;
            self.sources.insert(NAME.into(), share_permille.source);
        }
        if let Some(states) = idle_states {
            self.idle_states.clear();
            self.sources
                .retain(|name, _| !name.starts_with("idle_state."));
            for state in states {
                let name = format!("idle_state.{}", state.name);
                check_source(&name, &state.source)?;
                if self.sources.insert(name, state.source).is_some() {
                    let what = format!("there are two idle states `{}`", state.name);
                    return wrong("idle_state", what);
                }
                self.idle_states.push(IdleState {
                    name: state.name,
                    exit_ns: state.exit_ns,
                    wake_ns: state.wake_ns,
                    llc_wake_ns: state.llc_wake_ns,
                    residency_ns: state.residency_ns,
                    polling: state.polling,
                });
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Wrong> {
        if let Some(missing) = CostNumbers::NAMES
            .iter()
            .find(|n| !self.sources.contains_key(**n))
        {
            return wrong(
                missing,
                format!("the number `{missing}` is missing; add it, or name a base table"),
            );
        }
        const SMT: &str = "smt.share_permille";
        if self.smt_share_permille.first() != Some(&1000) {
            let what = format!("{SMT} must begin with 1000, a thread alone on its core");
            return wrong(SMT, what);
        }
        if self.smt_share_permille.iter().any(|&s| s == 0 || s > 1000) {
            return wrong(SMT, format!("{SMT}: each share must be from 1 to 1000"));
        }
        if self.idle_states.is_empty() {
            return wrong("idle_state", "there must be at least one [[idle_state]]");
        }
        let pairs = self.idle_states.iter().zip(&self.idle_states[1..]);
        for (shallow, deep) in pairs {
            if (deep.exit_ns, deep.residency_ns) < (shallow.exit_ns, shallow.residency_ns) {
                let what = format!(
                    "idle state `{}` comes after `{}`, but is left sooner; the shallowest come first",
                    deep.name, shallow.name
                );
                return wrong("idle_state", what);
            }
        }
        for state in &self.idle_states {
            let times = [
                state.exit_ns,
                state.residency_ns,
                state.llc_wake_ns,
                state.wake_ns.unwrap_or(0),
            ];
            if times.iter().any(|&ns| ns > LARGEST) {
                let what = format!(
                    "idle state `{}`: times must be at most {LARGEST}",
                    state.name
                );
                return wrong("idle_state", what);
            }
        }
        if self.n.clock_mhz == 0 {
            return wrong(
                "cpu.clock_mhz",
                "cpu.clock_mhz is 0, but what words cost is told in its cycles",
            );
        }
        if self.n.clock_free_permille >= 1000 {
            return wrong(
                "clock.clock_free_permille",
                "clock.clock_free_permille must be below 1000, all cores of the socket",
            );
        }
        if !(100..=1000).contains(&self.n.clock_full_permille) {
            let what = format!(
                "clock.clock_full_permille is {}, but must be from 100 to 1000, which is a clock that does not fall",
                self.n.clock_full_permille
            );
            return wrong("clock.clock_full_permille", what);
        }
        if !(24..=10_000).contains(&self.n.hz) {
            let what = format!("tick.hz is {}, but must be from 24 to 10000", self.n.hz);
            return wrong("tick.hz", what);
        }
        let mut numbers = CostNumbers::NAMES.iter().zip(self.n.values());
        if let Some((name, _)) = numbers.find(|(_, value)| *value > LARGEST) {
            return wrong(name, format!("{name} must be at most {LARGEST}"));
        }
        if self.n.line_remote_slit <= 10 {
            return wrong(
                "line.line_remote_slit",
                "line.line_remote_slit must be above 10, the local distance",
            );
        }
        Ok(())
    }

    /// Changes one number by `section.name`, as `--set cost.section.name=value` does.
    ///
    /// # Errors
    /// There is no such number (the nearest names are suggested), or it cannot be this.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), SimError> {
        let field = self.n.get_mut(name).ok_or_else(|| SimError::Unknown {
            kind: "cost".into(),
            name: name.into(),
            nearest: nearest(name, CostNumbers::NAMES),
        })?;
        let before = std::mem::replace(field, value);
        if let Err((_, what)) = self.check() {
            if let Some(field) = self.n.get_mut(name) {
                *field = before;
            }
            return Err(SimError::Parameter {
                key: format!("cost.{name}"),
                what: format!("cannot be set: {what}"),
            });
        }
        self.sources.insert(name.into(), "set by the user".into());
        Ok(())
    }

    /// All numbers, with what they mean and where they come from.
    pub fn described(&self) -> Vec<Described> {
        let numbers = CostNumbers::NAMES.iter().zip(CostNumbers::MEANINGS);
        let numbers = numbers.zip(self.n.values());
        let described = numbers.map(|((name, meaning), value)| Described {
            key: format!("cost.{name}"),
            value,
            meaning: meaning.trim(),
            source: self.sources.get(*name).cloned().unwrap_or_default(),
        });
        described.collect()
    }

    /// Names of the numbers whose source begins with `assumed`.
    pub fn assumed(&self) -> impl Iterator<Item = &str> {
        self.sources
            .iter()
            .filter(|(_, s)| s.starts_with("assumed"))
            .map(|(n, _)| n.as_str())
    }
}
