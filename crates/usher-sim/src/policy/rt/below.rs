// SPDX-License-Identifier: GPL-2.0-only
//! What runs below the real-time class: a small fair scheduler, so that mixed workloads run.
//!
//! Not a model of a kernel's fair class (that is `policy/fair`), only its outline: per-CPU queues by
//! virtual runtime, wakeups to idle CPUs nearest first, a slice of 3 ms while others wait, and a CPU that
//! runs dry takes the task that waits at the head of the fullest queue, nearest first.

use std::collections::BTreeSet;

use crate::cpuset::CpuSet;
use crate::host::Host;
use crate::ids::{Cpu, Id, Nanos, Node, TaskId};
use crate::policy::fair::weight;

/// How long a task runs while others wait.
pub(super) const SLICE_NS: Nanos = 3_000_000;
/// A woken task preempts one that is this far ahead.
const PREEMPT_NS: i64 = 1_000_000;

#[derive(Clone, Copy, Default)]
struct Entity {
    vruntime: i64,
    /// [`Host::runtime`] when `vruntime` was last brought up to date.
    accounted: Nanos,
    /// The same when it was picked.
    picked: Nanos,
}

#[derive(Clone, Default)]
struct Queue {
    tasks: BTreeSet<(i64, TaskId)>,
    /// Never goes back; tasks that join do not start far behind it.
    floor: i64,
}

/// All fair queues.
#[derive(Default)]
pub(super) struct Below {
    queues: Vec<Queue>,
    entities: Vec<Entity>,
}

impl Below {
    pub fn new(nr_cpu_numbers: usize) -> Self {
        Below {
            queues: vec![Queue::default(); nr_cpu_numbers],
            entities: Vec::new(),
        }
    }

    pub fn add_task(&mut self, task: TaskId) {
        self.entities.resize(task.index() + 1, Entity::default());
    }

    pub fn nr_waiting(&self, cpu: Cpu) -> usize {
        self.queues[cpu.0 as usize].tasks.len()
    }

    /// An idle CPU for a task, nearest first (it, whether it is `near`); else `near`, if allowed, else
    /// the allowed CPU with the shortest queue.
    pub fn select(&self, host: &Host, task: TaskId, near: Cpu) -> (Cpu, bool) {
        let machine = host.machine();
        let allowed = host.task(task).allowed();
        let free = |c: &Cpu| allowed.contains(*c) && host.is_idle(*c) && !host.needs_resched(*c);
        if free(&near) {
            return (near, true);
        }
        let at = machine.cpu(near);
        let (llc, node) = (machine.llc_cpus(at.llc), machine.node_cpus(at.node));
        let outward = machine.topo()[at.node]
            .near
            .iter()
            .map(|&n: &Node| machine.node_cpus(n));
        let mut sets = [llc, node].into_iter().chain(outward);
        if let Some(cpu) = sets.find_map(|set: &CpuSet| set.iter_wrap(near).find(free)) {
            return (cpu, true);
        }
        if allowed.contains(near) {
            return (near, false);
        }
        let usable = machine.online().and(allowed);
        let shortest = usable.iter().min_by_key(|&c| self.nr_waiting(c));
        (shortest.expect("a task may run somewhere"), false)
    }

    /// A CPU for a new task: as for a woken one, but in the node with the most idle CPUs, the parent's
    /// among equals (6.4, has-spare).
    pub fn select_fork(&self, host: &Host, task: TaskId, near: Cpu) -> (Cpu, bool) {
        let machine = host.machine();
        let allowed = host.task(task).allowed();
        let free = |c: &Cpu| allowed.contains(*c) && host.is_idle(*c) && !host.needs_resched(*c);
        let home = machine.cpu(near).node;
        let outward = machine.topo()[home].near.iter().copied();
        let nodes = std::iter::once(home).chain(outward);
        let idle = nodes.map(|n| (machine.node_cpus(n).iter().filter(free).count(), n));
        // The first of equals: nearer nodes come first.
        let best = idle.reduce(|best, next| if next.0 > best.0 { next } else { best });
        match best {
            Some((n, node)) if n > 0 && node != home => {
                let found = machine.node_cpus(node).iter().find(free);
                (found.expect("some are idle"), true)
            }
            _ => self.select(host, task, near),
        }
    }

    /// Brings the virtual runtime of a task that runs, or just did, up to date.
    pub fn account(&mut self, host: &Host, task: TaskId) {
        let runtime = host.runtime(task);
        let entity = &mut self.entities[task.index()];
        let ran = runtime - std::mem::replace(&mut entity.accounted, runtime);
        entity.vruntime += weight::to_virtual(ran, weight::of(host.task(task).class()));
    }

    pub fn insert(&mut self, task: TaskId, cpu: Cpu) {
        let queue = &mut self.queues[cpu.0 as usize];
        let entity = &mut self.entities[task.index()];
        entity.vruntime = entity.vruntime.max(queue.floor - SLICE_NS as i64);
        queue.tasks.insert((entity.vruntime, task));
    }

    pub fn remove(&mut self, task: TaskId, cpu: Cpu) {
        let key = (self.entities[task.index()].vruntime, task);
        let was = self.queues[cpu.0 as usize].tasks.remove(&key);
        debug_assert!(was, "task {task} waits on cpu {cpu}");
    }

    /// Whether `task`, which has just joined, should run instead of `curr`.
    pub fn preempts(&mut self, host: &Host, task: TaskId, curr: TaskId) -> bool {
        self.account(host, curr);
        let ahead = self.entities[curr.index()].vruntime - self.entities[task.index()].vruntime;
        ahead > PREEMPT_NS
    }

    /// Takes the next task of a CPU.
    pub fn pick(&mut self, host: &Host, cpu: Cpu) -> Option<TaskId> {
        let queue = &mut self.queues[cpu.0 as usize];
        let (vruntime, task) = queue.tasks.pop_first()?;
        queue.floor = queue.floor.max(vruntime);
        self.start(host, task);
        Some(task)
    }

    fn start(&mut self, host: &Host, task: TaskId) {
        let runtime = host.runtime(task);
        let entity = &mut self.entities[task.index()];
        entity.accounted = runtime;
        entity.picked = runtime;
    }

    /// Takes a waiting task from another CPU: the fullest queue of the LLC, then the node, then the rest.
    pub fn steal(&mut self, host: &Host, cpu: Cpu) -> Option<TaskId> {
        let machine = host.machine();
        let at = machine.cpu(cpu);
        let levels = [
            machine.llc_cpus(at.llc),
            machine.node_cpus(at.node),
            machine.online(),
        ];
        let found = levels.into_iter().find_map(|set| {
            let movable = |c: Cpu| {
                let mut tasks = self.queues[c.0 as usize].tasks.iter();
                tasks.find(|(_, t)| host.task(*t).may_run_on(cpu)).copied()
            };
            let victims = set.iter().filter(|&c| c != cpu);
            let victims = victims.filter_map(|c| movable(c).map(|t| (self.nr_waiting(c), c, t)));
            victims.max_by_key(|&(nr, c, _)| (nr, std::cmp::Reverse(c)))
        });
        let (_, victim, key) = found?;
        self.queues[victim.0 as usize].tasks.remove(&key);
        // Its lead over its old queue's floor is its lead over the new one's.
        let shift = self.queues[cpu.0 as usize].floor - self.queues[victim.0 as usize].floor;
        self.entities[key.1.index()].vruntime += shift;
        self.start(host, key.1);
        Some(key.1)
    }

    /// Whether the current task has had its slice and somebody waits.
    pub fn slice_over(&self, host: &Host, cpu: Cpu, curr: TaskId) -> bool {
        let ran = host.runtime(curr) - self.entities[curr.index()].picked;
        ran >= SLICE_NS && self.nr_waiting(cpu) > 0
    }

    /// An idle CPU that may run something that waits on `cpu`.
    pub fn idle_helper(&self, host: &Host, cpu: Cpu) -> Option<Cpu> {
        let (_, first) = self.queues[cpu.0 as usize].tasks.first()?;
        let (found, idle) = self.select(host, *first, cpu);
        idle.then_some(found)
    }
}

/// The domains of a CPU above each other: core, LLC, node, and the nodes within each distance. Levels
/// that add nobody are left out.
pub(super) fn domains(host: &Host, cpu: Cpu) -> Vec<CpuSet> {
    let machine = host.machine();
    let topo = machine.topo();
    let at = machine.cpu(cpu);
    let core: CpuSet = machine.core_cpus(at.core).iter().copied().collect();
    let mut levels = vec![
        core,
        machine.llc_cpus(at.llc).clone(),
        machine.node_cpus(at.node).clone(),
    ];
    let distances = &topo[at.node].distances;
    let mut steps: Vec<u32> = distances.clone();
    steps.sort_unstable();
    steps.dedup();
    for step in steps {
        let near = distances.iter().enumerate().filter(|(_, &d)| d <= step);
        let cpus = near.flat_map(|(n, _)| machine.node_cpus(Node::from_index(n)).iter());
        levels.push(cpus.collect());
    }
    levels.dedup_by_key(|set| set.len());
    levels.retain(|set| set.len() > 1);
    levels
}
