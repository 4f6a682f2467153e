// SPDX-License-Identifier: GPL-2.0-only
//! What a policy sees of the machine, and how it acts on it.
//!
//! Reading is free; what reading costs on the real machine, the policy says with [`Host::access`] and
//! [`Host::charge`]. Whatever is charged is time of the CPU on which the callback runs
//! ([`Host::this_cpu`]).

use std::sync::Arc;

use crate::coherence::{Access, ClassStats};
use crate::event::{Event, Kind};
use crate::ids::{Cpu, Id, LineClass, LineId, Nanos, Node, RegionId, StatId, TaskId, WordId};
use crate::machine::{Distance, Machine};
use crate::rng::Rng;
use crate::state::{Phase, TimerEntry, TimerKind};
use crate::stats::WordStats;
use crate::task::{State, Task};

pub use crate::state::Host;

impl Host {
    // ---- time ----

    /// The time: that of the event, and what this callback has charged so far.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.now + self.charged
    }

    /// Ticks of a CPU whose grid is not shifted, since the run began (jiffies).
    pub fn ticks(&self) -> u64 {
        let period = self.machine.tick_ns();
        (self.now() + period - self.tick_phase) / period
    }

    /// The CPU on which the callback runs, and which pays for it.
    #[inline]
    pub fn this_cpu(&self) -> Cpu {
        self.actor
    }

    // ---- the machine ----

    /// The machine. The handle is cheap to clone and keep.
    #[inline]
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    // ---- tasks ----

    /// A task.
    #[inline]
    pub fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// How many tasks there have been; ids are below this.
    pub fn nr_tasks(&self) -> usize {
        self.tasks.len()
    }

    /// How long a task has been on a CPU since it was created, up to now if it runs.
    #[inline]
    pub fn runtime(&self, task: TaskId) -> Nanos {
        let t = &self.tasks[task.index()];
        match t.state {
            State::Running => t.runtime + self.now.saturating_sub(t.ran_since),
            _ => t.runtime,
        }
    }

    // ---- CPUs ----

    /// The task that runs on a CPU: from the `pick_next` that chose it to its `put_prev`.
    #[inline]
    pub fn curr(&self, cpu: Cpu) -> Option<TaskId> {
        self.cpus[cpu.index()].curr
    }

    /// Whether a CPU runs nothing. It may be on its way out of idle, or look for something to run before it idles
    /// ([`crate::policy::Policy::newidle`]).
    #[inline]
    pub fn is_idle(&self, cpu: Cpu) -> bool {
        self.cpus[cpu.index()].curr.is_none()
    }

    /// Since when a CPU has run nothing; meaningless if it is busy, or looks for something to run.
    pub fn idle_since(&self, cpu: Cpu) -> Nanos {
        self.cpus[cpu.index()].idle_since
    }

    /// How long an idle CPU needs to leave its idle state (worst case of the table); 0 if it is not in
    /// one.
    pub fn idle_exit_ns(&self, cpu: Cpu) -> Nanos {
        match self.cpus[cpu.index()].phase {
            Phase::Idle => {
                let state = self.cpus[cpu.index()].idle_state;
                self.machine.costs().idle_states[usize::from(state)].exit_ns
            }
            _ => 0,
        }
    }

    /// Whether the tick of an idle CPU is stopped.
    pub fn is_tick_stopped(&self, cpu: Cpu) -> bool {
        self.cpus[cpu.index()].tick_stopped
    }

    /// Whether somebody asked a CPU to reschedule and it has not done so yet.
    #[inline]
    pub fn needs_resched(&self, cpu: Cpu) -> bool {
        self.cpus[cpu.index()].need_resched
    }

    /// Tasks on their way to a CPU by [`crate::policy::Policy::remote_wake`] (`ttwu_pending`).
    pub fn wakes_pending(&self, cpu: Cpu) -> usize {
        self.cpus[cpu.index()].wake_list.len()
    }

    // ---- acting ----

    /// Makes a CPU call `pick_next` soon: at the end of this callback if it is this CPU, else when the
    /// interrupt has arrived (an idle CPU that polls needs none). Asking twice costs once.
    pub fn resched(&mut self, cpu: Cpu) {
        let target = &mut self.cpus[cpu.index()];
        if target.need_resched {
            return;
        }
        target.need_resched = true;
        if cpu == self.actor {
            return;
        }
        let polling = self.is_polling(cpu);
        let distance = self.machine.distance(self.actor, cpu);
        let delay = self.notify(cpu, polling, distance);
        self.push(
            self.now + self.charged + delay,
            Kind::Resched,
            cpu,
            u32::from(!polling),
        );
    }

    /// Sends an interrupt: [`crate::policy::Policy::ipi`] is called on `cpu` with the cookie. Sending to
    /// itself works.
    pub fn send_ipi(&mut self, cpu: Cpu, cookie: u64) {
        self.signal(cpu, Kind::Ipi, cookie);
    }

    /// Runs the stopper on a CPU: what runs there is put back (`put_prev(Preempted)`), then
    /// [`crate::policy::Policy::stopper`] is called on it with the cookie, then it picks again. Costs the
    /// CPU two context switches.
    pub fn stop_cpu(&mut self, cpu: Cpu, cookie: u64) {
        self.signal(cpu, Kind::Stop, cookie);
    }

    fn signal(&mut self, cpu: Cpu, kind: Kind, cookie: u64) {
        let slot = self.cookies.put(cookie);
        let distance = self.machine.distance(self.actor, cpu);
        let delay = match distance {
            Distance::Same => 0,
            _ => self.notify(cpu, false, distance),
        };
        self.push(self.now + self.charged + delay, kind, cpu, slot);
    }

    /// Calls [`crate::policy::Policy::timer`] on `cpu` with the cookie at time `at`, or now if that is
    /// past. There is no cancelling: ignore it when it comes.
    pub fn set_timer(&mut self, cpu: Cpu, at: Nanos, cookie: u64) {
        self.arm_timer(
            cpu,
            TimerEntry {
                hard: at,
                soft: at,
                kind: TimerKind::Policy(cookie),
            },
        );
    }

    /// Books a queued task as belonging to another CPU, whose queue it now waits in. What its caches cost
    /// is charged when it runs.
    pub fn set_task_cpu(&mut self, task: TaskId, cpu: Cpu) {
        debug_assert!(self.tasks[task.index()].may_run_on(cpu));
        let now = self.now();
        let t = &mut self.tasks[task.index()];
        let from = std::mem::replace(&mut t.cpu, cpu);
        if !self.machine.same_llc(from, cpu) {
            t.waits_here_since = now;
        }
        self.touch_queue(from);
        self.touch_queue(cpu);
        self.touch_task(task);
    }

    // ---- costs ----

    /// Charges plain work, in ns of the strongest core type with the core to itself. It takes as much
    /// longer as the core is slower, and its threads that are busy now take their shares.
    #[inline]
    pub fn charge(&mut self, ns: Nanos) {
        let cpu = &self.cpus[self.actor.index()];
        let mut ns = ns;
        if cpu.kernel_scale != 0 {
            ns = (ns * u64::from(cpu.kernel_scale)) >> 10;
        }
        let siblings = self.busy_siblings(self.actor);
        if siblings > 0 {
            ns = (ns * u64::from(self.smt_scale[siblings])) >> 10;
        }
        self.charged += ns;
    }

    /// Threads of a CPU's core that are busy besides it; as many at most as the cost table tells apart.
    #[inline]
    pub(crate) fn busy_siblings(&self, cpu: Cpu) -> usize {
        let cpu = &self.cpus[cpu.index()];
        let busy = self.core_busy[cpu.core as usize] - u8::from(cpu.phase.is_busy());
        usize::from(busy).min(self.smt_scale.len() - 1)
    }

    /// A class of lines, counted together under this name. Asking for a name twice gives the same class.
    pub fn line_class(&mut self, name: &str) -> LineClass {
        self.lines.class(name)
    }

    /// A new line. `home` is the node of its memory; `None` for wherever it is first used.
    pub fn new_line(&mut self, class: LineClass, home: Option<Node>) -> LineId {
        self.lines.add(class, home)
    }

    /// This many new lines with consecutive ids.
    pub fn new_lines(&mut self, class: LineClass, count: usize) -> Vec<LineId> {
        (0..count).map(|_| self.lines.add(class, None)).collect()
    }

    /// Accesses a line from this CPU: charges what it costs, waiting for others included, and returns it.
    #[inline]
    pub fn access(&mut self, line: LineId, access: Access) -> Nanos {
        let core = self.cpus[self.actor.index()].core;
        let ns = self
            .lines
            .access(core, line, access, self.now + self.charged);
        self.charged += ns;
        ns
    }

    /// Reads a line from this CPU that is one of many to be looked at, none of which says where the next one is: a core fetches
    /// several at once, so that each is waited for in part (`line.line_scan_permille`).
    #[inline]
    pub fn scan(&mut self, line: LineId) {
        let whole = self.access(line, Access::Read);
        let share = self.machine.costs().n.line_scan_permille;
        self.charged = self.charged - whole + (whole * share).div_ceil(1000);
    }

    /// Takes a spin lock that has a line to itself, waiting for the holder. Returns what
    /// [`Host::unlock`] wants.
    #[inline]
    pub fn lock(&mut self, line: LineId) -> Nanos {
        self.access(line, Access::Rmw);
        self.now()
    }

    /// Lets go of a lock; `taken_at` is what [`Host::lock`] returned. Must happen in the same callback.
    #[inline]
    pub fn unlock(&mut self, line: LineId, taken_at: Nanos) {
        let at = self.now();
        self.lines.unlock(line, taken_at, at);
    }

    /// A run of lines that is addressed by byte offset, all of one class to begin with.
    pub fn new_region(&mut self, class: LineClass, bytes: u64, home: Option<Node>) -> RegionId {
        RegionId(self.lines.add_region(class, bytes, home))
    }

    /// The line at a byte offset of a region; the last one for offsets beyond its end.
    pub fn region_line(&self, region: RegionId, offset: u64) -> LineId {
        self.lines.at(region.0, offset)
    }

    /// Counts a line under another class from now on, and says where its memory is.
    pub fn describe_line(&mut self, line: LineId, class: LineClass, home: Option<Node>) {
        self.lines.set_class(line, class);
        if let Some(home) = home {
            self.lines.set_home(line, home);
        }
    }

    /// Accesses the line at a byte offset of a region.
    #[inline]
    pub fn access_raw(&mut self, region: RegionId, offset: u64, access: Access) -> Nanos {
        let line = self.lines.at(region.0, offset);
        self.access(line, access)
    }

    /// What happened to the lines so far.
    pub fn line_stats(&self) -> &[ClassStats] {
        self.lines.stats()
    }

    // ---- counting and chance ----

    /// A counter of the policy, reported under this name. Asking for a name twice gives the same counter.
    pub fn stat(&mut self, name: &str) -> StatId {
        let table = &mut self.stats.policy;
        let index = table
            .iter()
            .position(|(n, _)| n == name)
            .unwrap_or_else(|| {
                table.push((name.into(), 0));
                table.len() - 1
            });
        StatId(index as u32)
    }

    /// Adds to a counter.
    #[inline]
    pub fn count(&mut self, stat: StatId, n: u64) {
        self.stats.policy[stat.index()].1 += n;
    }

    /// A word of the policy's shared data, reported under this name with what loads of it cost. Asking for a
    /// name twice gives the same word.
    pub fn word(&mut self, name: &str) -> WordId {
        let table = &mut self.stats.words;
        let index = table
            .iter()
            .position(|word| word.name == name)
            .unwrap_or_else(|| {
                table.push(WordStats {
                    name: name.into(),
                    ..WordStats::default()
                });
                table.len() - 1
            });
        WordId(index as u32)
    }

    /// Counts a load of a word that took so long, waiting included.
    #[inline]
    pub fn loaded(&mut self, word: WordId, ns: Nanos) {
        let word = &mut self.stats.words[word.index()];
        word.loads += 1;
        word.load_ns += ns;
    }

    /// Records one search for an idle CPU: how many CPUs or words it looked at, what it cost, and whether
    /// it found one.
    pub fn note_search(&mut self, probes: u64, ns: Nanos, found: bool) {
        self.stats.searches += 1;
        self.stats.search_probes += probes;
        self.stats.search_ns += ns;
        self.stats.searches_failed += u64::from(!found);
    }

    /// The seed of the run: successive runs of an experiment have successive seeds.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The policy's own random numbers.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    // ---- helpers of the above ----

    pub(crate) fn ipi_ns(&self, distance: Distance) -> Nanos {
        let n = &self.machine.costs().n;
        match distance {
            Distance::Same => 0,
            Distance::Core => n.ipi_core_ns,
            Distance::Llc => n.ipi_llc_ns,
            Distance::Node => n.ipi_node_ns,
            Distance::Remote => n.ipi_remote_ns,
        }
    }

    pub(crate) fn line_ns(&self, distance: Distance, other: Cpu) -> Nanos {
        self.machine.line_ns(distance, self.actor, other)
    }

    pub(crate) fn push(&mut self, at: Nanos, kind: Kind, cpu: Cpu, arg: u32) {
        self.queue.push(at, Event { kind, cpu, arg }.pack());
    }
}
