// SPDX-License-Identifier: GPL-2.0-only
//! Everything a model of the fair class keeps, and the questions that all its parts ask.

use std::sync::Arc;

use super::config::{CfsTimes, Class, Config, LlcMask, NewidleGate};
use super::domains::{Domains, Rules};
use super::llc::LlcShared;
use super::rq::{Rq, Tasks};
use super::rt_above::RtQueue;
use super::scratch::Scratch;
use super::task::Task;
use crate::coherence::Access;
use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Cpu, Id, LineId, Nanos, StatId, TaskId};

/// Plain work of a model's code paths in ns, apart from the lines it touches (6.10: nothing is free).
/// All assumed: tens to hundreds of instructions each.
pub mod work {
    /// Entering the wakeup path of the class: `select_task_rq_fair` without its searches.
    pub const SELECT_NS: u64 = 40;
    /// Looking at one CPU of a search, besides fetching its line.
    pub const PROBE_NS: u64 = 3;
    /// Enqueue or dequeue of a task: tree, averages.
    pub const QUEUE_NS: u64 = 60;
    /// Pick of a task.
    pub const PICK_NS: u64 = 40;
    /// Adding one CPU to a group's statistics, besides fetching its line.
    pub const STAT_NS: u64 = 8;
    /// Classifying a group.
    pub const GROUP_NS: u64 = 15;
    /// Setting up one balancing of one domain.
    pub const BALANCE_NS: u64 = 100;
}

/// A CPU's state of one of its domains.
#[derive(Clone, Copy, Debug, Default)]
pub struct SdState {
    /// 6.5: when it was last balanced; negative: before the run.
    pub last_balance: i64,
    /// 6.5: current interval between balancings of an idle CPU.
    pub interval: Nanos,
    /// 6.5: failures in a row.
    pub failed: u32,
    /// 6.5 newidle: longest search, slowly forgotten.
    pub max_newidle_cost: Nanos,
    /// 6.3 SIS_PROP: average cost of a search in the LLC.
    pub avg_scan_cost: Nanos,
    /// When that was last forgotten a little.
    pub cost_decayed_at: Nanos,
    /// 6.2 deltas: newidle attempts and successes, and their ratio of 1024.
    pub newidle_calls: u32,
    /// See `newidle_calls`.
    pub newidle_success: u32,
    /// See `newidle_calls`.
    pub newidle_ratio: u32,
}

impl SdState {
    /// When it is to be balanced next.
    pub fn due(&self, interval: Nanos) -> Nanos {
        (self.last_balance + interval as i64).max(0) as Nanos
    }
}

/// How far a newly idle CPU's search for work has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// It has left a task, and has not switched to the idle task yet.
    pub leaving: bool,
    /// The next domain to look at, by place in the CPU's chain.
    pub place: usize,
    /// What the search took so far.
    pub spent: Nanos,
    /// Tasks that the present look has found. They are queued already, but for others only when it is over.
    pub pulled: u32,
}

/// A CPU.
#[derive(Clone, Debug)]
pub struct CpuState {
    /// Its fair tasks.
    pub rq: Rq,
    /// Its real-time tasks.
    pub rt: RtQueue,
    /// Line of the run queue's lock, counters and current task.
    pub rq_line: LineId,
    /// Line of the load averages.
    pub load_line: LineId,
    /// Wakeups on their way (`ttwu_pending`).
    pub pending: u32,
    /// 6.1: since when it is idle, for `avg_idle`; 0 once that is accounted.
    pub idle_stamp: Nanos,
    /// 6.1: average idle period.
    pub avg_idle: Nanos,
    /// 6.1: the cap of that is twice this.
    pub max_idle_cost: Nanos,
    /// 6.5: when some domain is due for balancing.
    pub next_balance: Nanos,
    /// 5.6: load of the current task if it does not fit this CPU.
    pub misfit: u64,
    /// 6.5: a stopper is on its way to push the current task to this CPU.
    pub push_to: Option<Cpu>,
    /// 1.2: in the global mask of idle CPUs without tick.
    pub tick_stopped: bool,
    /// 1.2: not counted in `nr_busy` of the LLC.
    pub nohz_idle: bool,
    /// 1.6 (v8): what the CPU last wrote to its bit of the LLC's mask.
    pub marked_idle: bool,
    /// An interrupt that asks it to balance for all idle CPUs is on its way.
    pub kicked: bool,
    /// 6.5: it looks for work before it idles.
    pub(super) search: Option<Search>,
    /// Its averages want decaying although it is idle.
    pub has_blocked: bool,
    /// 6.3 `wake_wide` of the idle task: wakeups by interrupts that hit an idle CPU.
    pub idle_task: Task,
    /// By place in the CPU's chain of domains.
    pub sds: Vec<SdState>,
}

/// State of the machine's idle balancing.
#[derive(Clone, Debug, Default)]
pub struct Nohz {
    /// Idle CPUs whose tick is stopped.
    pub idle: CpuSet,
    /// How many.
    pub nr: u32,
    /// Not kicked before this time.
    pub next_balance: Nanos,
    /// When averages of idle CPUs are decayed next.
    pub next_blocked: Nanos,
    /// Whether any idle CPU has averages to decay.
    pub has_blocked: bool,
    /// Line of the mask.
    pub line: LineId,
    /// Line of the counter.
    pub count_line: LineId,
}

/// Counters that the models report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub(super) newidle: StatId,
    pub(super) newidle_pulled: StatId,
    pub(super) balanced: StatId,
    pub(super) pulled: [StatId; 5],
    pub(super) active: StatId,
    pub(super) kicks: StatId,
    pub(super) stacked: StatId,
    pub(super) mask_set: StatId,
    pub(super) mask_clear: StatId,
    pub(super) hint_wake: StatId,
    pub(super) hint_fork: StatId,
    pub(super) hint_veto: StatId,
    pub(super) delayed: StatId,
}

/// A model of the fair class.
pub struct Fair {
    /// Which version.
    pub cfg: Config,
    /// Its times, scaled by the machine's size.
    pub class: Class,
    pub(super) cpus: Vec<CpuState>,
    pub(super) tasks: Tasks,
    pub(super) domains: Arc<Domains>,
    pub(super) llcs: Vec<LlcShared>,
    /// By cpu number: index into `llcs`.
    pub(super) llc_of: Vec<u32>,
    pub(super) nohz: Nohz,
    /// Some CPU has more than one task (`rd->overload`).
    pub(super) overload: bool,
    pub(super) overload_line: LineId,
    /// By domain and group: affinity kept tasks from leaving the group (`sgc->imbalance`, 6.5).
    pub(super) imbalanced: Vec<Vec<bool>>,
    pub(super) asym: bool,
    pub(super) smt: bool,
    pub(super) tick_ns: Nanos,
    pub(super) nr_cpus: usize,
    pub(super) scratch: Scratch,
    pub(super) counters: Counters,
    /// Rotor of `cpumask_any_distribute`.
    pub(super) rotor: Cpu,
}

impl Fair {
    /// A model that has not seen its machine yet.
    pub fn new(cfg: Config) -> Fair {
        Fair {
            class: cfg.class,
            cfg,
            cpus: Vec::new(),
            tasks: Vec::new(),
            domains: Arc::default(),
            llcs: Vec::new(),
            llc_of: Vec::new(),
            nohz: Nohz::default(),
            overload: false,
            overload_line: LineId::default(),
            imbalanced: Vec::new(),
            asym: false,
            smt: false,
            tick_ns: 0,
            nr_cpus: 0,
            scratch: Scratch::default(),
            counters: Counters::default(),
            rotor: Cpu(0),
        }
    }

    /// Sizes everything for the machine.
    pub(super) fn set_up(&mut self, host: &mut Host) {
        let machine = host.machine().clone();
        let rules = Rules {
            pct_above_llc: self.cfg.pct_above_llc,
            reclaim_distance: 32,
            cluster: self.cfg.cluster_first,
        };
        self.domains = Arc::new(Domains::new(&machine, &rules));
        self.imbalanced = self
            .domains
            .all
            .iter()
            .map(|d| vec![false; d.groups.len()])
            .collect();
        self.nr_cpus = machine.cpus().len();
        self.class = match self.cfg.class {
            Class::Cfs(times) => Class::Cfs(times.scaled(self.nr_cpus)),
            Class::Eevdf(times) => Class::Eevdf(times.scaled(self.nr_cpus)),
        };
        self.tick_ns = machine.tick_ns();
        self.smt = machine.topo().smt_width() > 1;
        self.asym = self.domains.asym.iter().any(Option::is_some);
        self.add_lines_and_cpus(host);
        self.add_llcs(host);
        self.add_counters(host);
        self.nohz.idle = CpuSet::new();
        for &cpu in machine.cpus() {
            self.start_idle(cpu);
        }
    }

    fn add_lines_and_cpus(&mut self, host: &mut Host) {
        let machine = host.machine().clone();
        let rq_class = host.line_class("run queues");
        let load_class = host.line_class("load averages");
        let nohz_class = host.line_class("nohz mask and counter");
        self.nohz.line = host.new_line(nohz_class, None);
        self.nohz.count_line = host.new_line(nohz_class, None);
        let rd_class = host.line_class("root domain overload");
        self.overload_line = host.new_line(rd_class, None);
        self.cpus = (0..machine.nr_cpu_numbers())
            .map(|i| {
                let cpu = Cpu(i as u32);
                let online = machine.online().contains(cpu);
                let home = online.then(|| machine.cpu(cpu).node);
                let capacity = self.domains.strengths.capacity[cpu.index()];
                let rq_line = host.new_line(rq_class, home);
                let load_line = host.new_line(load_class, home);
                self.new_cpu(cpu, capacity, rq_line, load_line)
            })
            .collect();
        // The machine has been up for long: every domain was balanced at some time within its interval, which nothing to
        // do has made as long as it gets.
        for sd in self.cpus.iter_mut().flat_map(|cpu| &mut cpu.sds) {
            sd.last_balance = -(host.rng().below(sd.interval) as i64);
        }
    }

    fn new_cpu(&self, cpu: Cpu, capacity: u32, rq_line: LineId, load_line: LineId) -> CpuState {
        let sds = self.domains.chain[cpu.index()].iter().map(|step| {
            let interval = 2 * self.domains.all[step.domain].weight() * super::config::MS;
            SdState {
                interval,
                newidle_calls: 512,
                newidle_success: 256,
                newidle_ratio: 512,
                ..SdState::default()
            }
        });
        let cost = self.cfg.migration_cost_ns;
        CpuState {
            rq: Rq::new(cpu, capacity),
            rt: RtQueue::default(),
            rq_line,
            load_line,
            pending: 0,
            idle_stamp: 0,
            avg_idle: 2 * cost,
            max_idle_cost: cost,
            next_balance: 0,
            misfit: 0,
            push_to: None,
            tick_stopped: false,
            nohz_idle: false,
            marked_idle: true,
            kicked: false,
            search: None,
            has_blocked: false,
            idle_task: Task::new(crate::program::Class::NORMAL, cpu),
            sds: sds.collect(),
        }
    }

    fn add_llcs(&mut self, host: &mut Host) {
        let machine = host.machine().clone();
        let class = host.line_class("llc shared state");
        self.llc_of = vec![0; machine.nr_cpu_numbers()];
        self.llcs.clear();
        for llc in 0..machine.topo().llcs().len() {
            let llc = crate::ids::Llc::from_index(llc);
            let cpus = machine.llc_cpus(llc);
            cpus.iter()
                .for_each(|c| self.llc_of[c.index()] = self.llcs.len() as u32);
            let home = machine.topo()[llc].node;
            self.llcs.push(LlcShared::new(
                host,
                class,
                home,
                cpus,
                machine.nr_cpu_numbers(),
            ));
        }
    }

    fn add_counters(&mut self, host: &mut Host) {
        self.counters = Counters {
            newidle: host.stat("newidle_balances"),
            newidle_pulled: host.stat("newidle_pulls"),
            balanced: host.stat("balances"),
            pulled: ["smt", "cls", "mc", "pkg", "numa"]
                .map(|level| host.stat(&format!("tasks_pulled_{level}"))),
            active: host.stat("active_balances"),
            kicks: host.stat("nohz_kicks"),
            stacked: host.stat("wakes_stacked"),
            delayed: host.stat("delayed_dequeues"),
            ..Counters::default()
        };
        if self.cfg.llc_mask != LlcMask::Off {
            self.counters.mask_set = host.stat("idle_mask_sets");
            self.counters.mask_clear = host.stat("idle_mask_clears");
        }
        if self.cfg.hints != super::config::Hints::default() {
            self.counters.hint_wake = host.stat("hint_wakes");
            self.counters.hint_fork = host.stat("hint_forks_kept");
            self.counters.hint_veto = host.stat("hint_balance_vetoes");
        }
    }

    /// After boot a CPU has been idle for long: its tick is stopped.
    fn start_idle(&mut self, cpu: Cpu) {
        self.nohz.idle.insert(cpu);
        self.nohz.nr += 1;
        let shared = self.domains.llc[cpu.index()].is_some();
        let state = &mut self.cpus[cpu.index()];
        (state.tick_stopped, state.nohz_idle) = (true, shared);
        self.llcs[self.llc_of[cpu.index()] as usize].nr_busy -= u32::from(shared);
    }

    // ---- questions ----

    #[inline]
    pub(super) fn cpu(&self, cpu: Cpu) -> &CpuState {
        &self.cpus[cpu.index()]
    }

    #[inline]
    pub(super) fn cpu_mut(&mut self, cpu: Cpu) -> &mut CpuState {
        &mut self.cpus[cpu.index()]
    }

    #[inline]
    pub(super) fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// Tasks queued or running, of all classes.
    #[inline]
    pub(super) fn nr_running(&self, cpu: Cpu) -> u32 {
        let state = self.cpu(cpu);
        state.rq.nr + state.rt.nr()
    }

    /// `idle_cpu()`: runs the idle task, has nothing queued, and nothing is on its way.
    #[inline]
    pub(super) fn is_idle(&self, cpu: Cpu) -> bool {
        let state = self.cpu(cpu);
        state.rq.nr == 0 && state.pending == 0 && state.rt.nr() == 0 && !self.is_leaving(cpu)
    }

    /// Tasks queued or running, of all classes, as others see it.
    pub(super) fn nr_seen(&self, cpu: Cpu) -> u32 {
        let pulled = self.cpu(cpu).search.map_or(0, |search| search.pulled);
        self.nr_running(cpu).saturating_sub(pulled)
    }

    /// Whether it has left a task and looks for another: the idle task is not its current one yet.
    #[inline]
    pub(super) fn is_leaving(&self, cpu: Cpu) -> bool {
        self.cpu(cpu).search.is_some_and(|search| search.leaving)
    }

    /// `sched_idle_cpu()`: all it has to run is `SCHED_IDLE`.
    #[inline]
    pub(super) fn only_idle_policy(&self, cpu: Cpu) -> bool {
        self.cpu(cpu).rq.only_idle_policy() && self.cpu(cpu).rt.nr() == 0
    }

    /// Looks at a CPU: whether a wakeup finds it free (6.3, "idle" accepts SCHED_IDLE). Costs a line.
    #[inline]
    pub(super) fn probe(&self, host: &mut Host, cpu: Cpu) -> bool {
        host.access(self.cpu(cpu).rq_line, Access::Read);
        host.charge(work::PROBE_NS);
        self.is_idle(cpu) || self.only_idle_policy(cpu)
    }

    /// Looks at a CPU: whether it is idle in the strict sense. Costs a line.
    #[inline]
    pub(super) fn probe_idle(&self, host: &mut Host, cpu: Cpu) -> bool {
        host.access(self.cpu(cpu).rq_line, Access::Read);
        host.charge(work::PROBE_NS);
        self.is_idle(cpu)
    }

    /// One of many looks at CPUs in a row: costs part of a line.
    #[inline]
    pub(super) fn glance(&self, host: &mut Host, cpu: Cpu) {
        host.scan(self.cpu(cpu).rq_line);
        host.charge(work::PROBE_NS);
    }

    /// Such a look: as [`Fair::probe`].
    #[inline]
    pub(super) fn scan(&self, host: &mut Host, cpu: Cpu) -> bool {
        self.glance(host, cpu);
        self.is_idle(cpu) || self.only_idle_policy(cpu)
    }

    #[inline]
    pub(super) fn same_llc(&self, a: Cpu, b: Cpu) -> bool {
        self.llc_of[a.index()] == self.llc_of[b.index()]
    }

    /// 5.6: whether a utilisation fits a CPU: 80 % of its capacity.
    #[inline]
    pub(super) fn fits(&self, util: u64, cpu: Cpu) -> bool {
        util * 1280 < self.cpu(cpu).rq.capacity * 1024
    }

    pub(super) fn cfs(&self) -> Option<CfsTimes> {
        match self.class {
            Class::Cfs(times) => Some(times),
            Class::Eevdf(_) => None,
        }
    }

    /// Whether newidle balancing is worth trying at all on this CPU (6.5).
    pub(super) fn newidle_worth(&self, cpu: Cpu) -> bool {
        let state = self.cpu(cpu);
        match (self.cfg.newidle_gate, state.sds.first()) {
            (_, None) => false,
            (NewidleGate::MigrationCost, _) => state.avg_idle >= self.cfg.migration_cost_ns,
            (NewidleGate::DomainCost, Some(sd)) => state.avg_idle >= sd.max_newidle_cost,
        }
    }
}
