// SPDX-License-Identifier: GPL-2.0-only
//! `scx-simple`: sched_ext's example scheduler on the kernel's built-in idle selection.
//!
//! The scheduler (`tools/sched_ext/scx_simple.bpf.c`):
//!
//! 1. `select_cpu`: the kernel's default selection ([`select`]). An idle CPU found gets the task in its
//!    local queue, for a slice of 20 ms.
//! 2. `enqueue`, for everybody else: into one queue ordered by vtime, at no less than a slice behind the
//!    vtime of now.
//! 3. A CPU takes from its local queue, then the head of the shared queue, then goes on with what it ran,
//!    then is idle. What ran and has slice left stays first in the local queue.
//! 4. vtime grows by the part of the slice that was used, times 100 over the weight. A task that is kept
//!    because nobody else waits gets a new slice and is not charged for the old one, as in the kernel.
//!
//! Variants, each an addition to the one before:
//!
//! - `+node-idle-mask`: idle CPUs are tracked per node (`SCX_OPS_BUILTIN_IDLE_PER_NODE`).
//! - `+node-aware-policy`: the scheduler itself uses the node-aware calls. The shared queue becomes one
//!   per node; `enqueue` of a task for which no CPU was selected asks for an idle CPU of its node
//!   (`scx_bpf_pick_idle_cpu_node()` with `SCX_PICK_IDLE_IN_NODE`); `dispatch` takes from its own node's
//!   queue first, then by distance.
//!
//! Not modelled: real-time tasks above it (they count as weight 100), the watchdog, bypass, and the time
//! of BPF code beyond what is charged here.

mod idle_mask;
mod queues;
mod select;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::idle_mask::{IdleMasks, PickFlags};
use self::queues::{Place, Queues};
use self::select::{select_cpu_dfl, Ask, Rules, Step, SyncWaker, STEPS};
use super::mask::Within;
use super::{EnqueueWhy, Host, Placement, Policy, StopWhy, WakeInfo, WakeKind};
use crate::coherence::Access;
use crate::error::SimError;
use crate::ids::{Cpu, Id, LineId, Nanos, Node, StatId, TaskId};
use crate::machine::Machine;
use crate::params::Params;
use crate::policy::fair::weight;
use crate::task::Todo;

/// `SCX_SLICE_DFL`.
const SLICE_NS: Nanos = 20_000_000;
/// Plain work of one selection: the call into BPF and back, and the steps' arithmetic. Assumed.
const SELECT_NS: Nanos = 100;

/// What the variants add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// `scx-simple`.
    GlobalMask,
    /// `scx-simple+node-idle-mask`.
    NodeMask,
    /// `scx-simple+node-aware-policy`.
    NodeAware,
}

#[derive(Clone, Copy, Default)]
struct TaskState {
    vtime: u64,
    slice_left: Nanos,
    /// [`Host::runtime`] when `slice_left` was last brought up to date.
    accounted: Nanos,
    /// Where `select` dispatched it to.
    direct: Option<Cpu>,
}

/// See the module.
pub struct ScxSimple {
    name: &'static str,
    variant: Variant,
    rules: Rules,
    masks: Option<IdleMasks>,
    queues: Queues,
    tasks: Vec<TaskState>,
    vtime_now: u64,
    vtime_line: LineId,
    /// Per CPU: the task that was running when it was told to reschedule.
    prev: Vec<Option<TaskId>>,
    /// Per node: the shared queues in the order in which `dispatch` looks.
    order: Vec<Vec<usize>>,
    lost_stat: StatId,
    lost_seen: u64,
}

/// Makes a variant.
///
/// # Errors
/// A parameter with a bad value.
pub fn build(params: &mut Params, variant: Variant) -> Result<Box<dyn Policy>, SimError> {
    // The variants were posted for 6.15 and merged there.
    let kernel = params.choice("kernel", "6.15", &["6.15", "7.2"])?;
    let name = match variant {
        Variant::GlobalMask => "scx-simple",
        Variant::NodeMask => "scx-simple+node-idle-mask",
        Variant::NodeAware => "scx-simple+node-aware-policy",
    };
    let newer = kernel == "7.2";
    Ok(Box::new(ScxSimple {
        name,
        variant,
        rules: Rules {
            sibling_step: newer,
            sync_claims: newer,
            llc_steps: false,
            node_steps: false,
        },
        masks: None,
        queues: Queues::default(),
        tasks: Vec::new(),
        vtime_now: 0,
        vtime_line: LineId::default(),
        prev: Vec::new(),
        order: Vec::new(),
        lost_stat: StatId::default(),
        lost_seen: 0,
    }))
}

/// The switches of `scx_idle_update_selcpu_topology()`: LLC steps with more than one LLC, node steps with
/// one mask for the machine, more than one node, and nodes that are not LLCs.
fn topology_rules(rules: Rules, machine: &Machine, per_node: bool) -> Rules {
    let topo = machine.topo();
    let nodes = topo
        .nodes()
        .iter()
        .filter(|n| !n.cids.as_usize().is_empty())
        .count();
    let mismatch = topo
        .llcs()
        .iter()
        .any(|l| machine.topo()[l.node].cids.as_usize().len() != l.cids.as_usize().len());
    Rules {
        llc_steps: topo.llcs().len() > 1,
        node_steps: !per_node && nodes > 1 && mismatch,
        ..rules
    }
}

impl ScxSimple {
    fn per_node(&self) -> bool {
        self.variant >= Variant::NodeMask
    }

    fn masks(&mut self) -> &mut IdleMasks {
        self.masks.as_mut().expect("attach comes first")
    }

    /// The shared queue for a task of `cpu`.
    fn queue_of(&self, machine: &Machine, cpu: Cpu) -> usize {
        match self.variant {
            Variant::NodeAware => machine.cpu(cpu).node.index(),
            _ => 0,
        }
    }

    /// Brings a task's slice up to date.
    fn account(&mut self, host: &Host, task: TaskId) {
        let runtime = host.runtime(task);
        let state = &mut self.tasks[task.index()];
        state.slice_left = state.slice_left.saturating_sub(runtime - state.accounted);
        state.accounted = runtime;
    }

    /// `ops.stopping()`.
    fn stopping(&mut self, host: &Host, task: TaskId) {
        let weight = scx_weight(host, task);
        let state = &mut self.tasks[task.index()];
        state.vtime += (SLICE_NS - state.slice_left) * 100 / weight;
    }

    /// `ops.running()`: the vtime of now follows the tasks that run.
    fn running(&mut self, host: &mut Host, task: TaskId) {
        host.access(self.vtime_line, Access::Read);
        let vtime = self.tasks[task.index()].vtime;
        if self.vtime_now < vtime {
            host.access(self.vtime_line, Access::Write);
            self.vtime_now = vtime;
        }
    }

    /// `ops.enqueue()`: into the shared queue; node-aware: to an idle CPU of the node, if no CPU was
    /// selected for it before (`selected`).
    fn ops_enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, selected: bool) {
        if self.variant == Variant::NodeAware && !selected && host.task(task).nr_allowed() > 1 {
            let machine = Arc::clone(host.machine());
            let allowed = Arc::clone(host.task(task).allowed());
            let set = Within {
                first: machine.online(),
                second: Some(&allowed),
            };
            let flags = PickFlags {
                core: false,
                in_node: true,
            };
            let this = host.this_cpu();
            if let Some(idle) = self.masks().pick(host, this, set, cpu, flags) {
                self.insert_local(host, task, idle);
                return;
            }
        }
        host.access(self.vtime_line, Access::Read);
        let floor = self.vtime_now.saturating_sub(SLICE_NS);
        let state = &mut self.tasks[task.index()];
        state.vtime = state.vtime.max(floor);
        state.slice_left = SLICE_NS;
        let vtime = state.vtime;
        let queue = self.queue_of(host.machine(), cpu);
        self.queues.push_shared(host, task, cpu, queue, vtime);
    }

    /// Dispatches a task to a CPU's local queue and wakes the CPU if it is idle.
    fn insert_local(&mut self, host: &mut Host, task: TaskId, cpu: Cpu) {
        self.tasks[task.index()].slice_left = SLICE_NS;
        if host.task(task).cpu() != cpu {
            host.set_task_cpu(task, cpu);
        }
        self.queues.push_local(host, task, cpu, false);
        if host.is_idle(cpu) {
            host.resched(cpu);
        }
    }

    fn select_any(&mut self, host: &mut Host, wake: &WakeInfo) -> Option<(Cpu, Step)> {
        let allowed = Arc::clone(host.task(wake.task).allowed());
        let online = host.machine().cpus().len();
        let sync = wake.sync.then(|| SyncWaker {
            cpu: wake.waker_cpu,
            exiting: wake
                .waker
                .is_some_and(|w| matches!(host.task(w).todo, Todo::Exit)),
            local_queue_empty: self.queues.local_is_empty(wake.waker_cpu),
        });
        let ask = Ask {
            this: host.this_cpu(),
            prev: wake.prev,
            sync,
            affinity: &allowed,
            everywhere: host.task(wake.task).nr_allowed() as usize == online,
            flags: PickFlags::ANY,
        };
        let rules = self.rules;
        let (before, looked) = (host.now(), self.masks().looked);
        host.charge(SELECT_NS);
        let found = select_cpu_dfl(self.masks(), host, rules, &ask);
        let looked = self.masks().looked - looked;
        host.note_search(looked, host.now() - before, found.is_some());
        found
    }

    fn count_lost(&mut self, host: &mut Host) {
        let lost = self.masks().lost_updates();
        host.count(self.lost_stat, lost - self.lost_seen);
        self.lost_seen = lost;
    }

    /// The next task: local queue, shared queues.
    fn next_waiting(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        if let Some(task) = self.queues.pop_local(cpu) {
            return Some(task);
        }
        let node = match self.variant {
            Variant::NodeAware => host.machine().cpu(cpu).node.index(),
            _ => 0,
        };
        (0..self.order[node].len()).find_map(|i| {
            let queue = self.order[node][i];
            self.queues.take_shared(host, cpu, queue)
        })
    }
}

/// A task's weight on sched_ext's scale: 100 for nice 0, 1 to 10000.
fn scx_weight(host: &Host, task: TaskId) -> u64 {
    (weight::of(host.task(task).class()) * 100 / 1024).clamp(1, 10_000)
}

impl Policy for ScxSimple {
    fn name(&self) -> &str {
        self.name
    }

    fn reasons(&self) -> &'static [&'static str] {
        STEPS
    }

    fn limits(&self) -> &'static [&'static str] {
        &["no watchdog and bypass of sched_ext; real-time tasks run as normal ones"]
    }

    fn attach(&mut self, host: &mut Host) {
        self.rules = topology_rules(self.rules, host.machine(), self.per_node());
        self.masks = Some(IdleMasks::new(host, self.per_node()));
        let nodes: Vec<Node> = host
            .machine()
            .topo()
            .nodes_by_id()
            .map(|(node, _)| node)
            .collect();
        let homes: Vec<Option<Node>> = match self.variant {
            Variant::NodeAware => nodes.iter().copied().map(Some).collect(),
            _ => vec![None],
        };
        self.order = match self.variant {
            Variant::NodeAware => {
                let topo = host.machine().topo();
                let outward = |n: &Node| topo[*n].near.iter().map(|m| m.index());
                nodes
                    .iter()
                    .map(|n| std::iter::once(n.index()).chain(outward(n)).collect())
                    .collect()
            }
            _ => vec![vec![0]],
        };
        self.queues = Queues::new(host, &homes);
        let class = host.line_class("scx-vtime");
        self.vtime_line = host.new_line(class, None);
        self.prev = vec![None; host.machine().nr_cpu_numbers()];
        self.lost_stat = host.stat("idle_smt_updates_lost");
    }

    fn task_new(&mut self, _host: &mut Host, task: TaskId, _parent: Option<TaskId>) {
        self.tasks.resize(task.index() + 1, TaskState::default());
        // ops.enable(): a task joins at the vtime of now.
        self.tasks[task.index()].vtime = self.vtime_now;
    }

    fn select(&mut self, host: &mut Host, wake: &WakeInfo) -> Placement {
        if wake.kind == WakeKind::Exec {
            return Placement {
                cpu: wake.prev,
                reason: Step::Stays as u16,
            };
        }
        let found = self.select_any(host, wake);
        self.tasks[wake.task.index()].direct = found.map(|(cpu, _)| cpu);
        let fallback = || {
            if host.task(wake.task).may_run_on(wake.prev) {
                return wake.prev;
            }
            let usable = host.machine().online().and(host.task(wake.task).allowed());
            usable.first().expect("a task may run somewhere")
        };
        match found {
            Some((cpu, step)) => Placement {
                cpu,
                reason: step as u16,
            },
            None => Placement {
                cpu: fallback(),
                reason: Step::NoneIdle as u16,
            },
        }
    }

    fn enqueue(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: EnqueueWhy) {
        let direct = self.tasks[task.index()].direct.take();
        if direct == Some(cpu) {
            self.insert_local(host, task, cpu);
            return;
        }
        // The selection, if there was one, has just found nobody idle: no use asking again.
        let selected = matches!(why, EnqueueWhy::Placed { .. }) && host.task(task).nr_allowed() > 1;
        self.ops_enqueue(host, task, cpu, selected);
        // Any task preempts the idle task of the run queue it is accounted on.
        if host.is_idle(cpu) {
            host.resched(cpu);
        }
    }

    fn dequeue(&mut self, host: &mut Host, task: TaskId) {
        if let Place::Prev(cpu) = self.queues.place(task) {
            self.prev[cpu.0 as usize] = None;
            self.stopping(host, task);
        }
        self.queues.remove(host, task);
    }

    fn pick_next(&mut self, host: &mut Host, cpu: Cpu) -> Option<TaskId> {
        let prev = self.prev[cpu.0 as usize].take();
        let next = self.next_waiting(host, cpu);
        if let Some(prev) = prev {
            self.queues.set_place(prev, Place::None);
            let Some(next) = next else {
                // Nobody else: it goes on with a new slice.
                self.tasks[prev.index()].slice_left = SLICE_NS;
                return Some(prev);
            };
            self.stopping(host, prev);
            self.ops_enqueue(host, prev, cpu, false);
            self.running(host, next);
            return Some(next);
        }
        let next = next?;
        self.tasks[next.index()].accounted = host.runtime(next);
        self.running(host, next);
        Some(next)
    }

    fn put_prev(&mut self, host: &mut Host, task: TaskId, cpu: Cpu, why: StopWhy) {
        self.account(host, task);
        if why == StopWhy::Yielded {
            self.tasks[task.index()].slice_left = 0;
        }
        if !why.is_runnable() {
            self.stopping(host, task);
            return;
        }
        if self.tasks[task.index()].slice_left > 0 {
            // Slice left: it stays first in line.
            self.stopping(host, task);
            self.queues.push_local(host, task, cpu, true);
            return;
        }
        self.prev[cpu.0 as usize] = Some(task);
        self.queues.set_place(task, Place::Prev(cpu));
    }

    fn tick(&mut self, host: &mut Host, cpu: Cpu, curr: TaskId) {
        self.account(host, curr);
        if self.tasks[curr.index()].slice_left == 0 {
            host.resched(cpu);
        }
    }

    fn idle_enter(&mut self, host: &mut Host, cpu: Cpu, _again: bool) {
        // Entering idle and being told to look again in vain both mark the CPU idle.
        self.masks().update(host, cpu, true);
        self.count_lost(host);
    }

    fn idle_exit(&mut self, host: &mut Host, cpu: Cpu) {
        self.masks().update(host, cpu, false);
        self.count_lost(host);
    }

    fn idle_bound_ns(&self, host: &Host, task: TaskId, cpu: Cpu) -> Option<Nanos> {
        match self.queues.place(task) {
            // Nobody else takes from a local queue; its own CPU has been told.
            Place::Local(owner) => (owner == cpu).then_some(5_000_000),
            // A task that found nobody idle and was queued just after a CPU had looked waits until some
            // CPU next looks: at the end of a slice, seen by a tick.
            Place::Shared { .. } => Some(2 * SLICE_NS + 2 * host.machine().tick_ns()),
            Place::Prev(_) | Place::None => None,
        }
    }
}
