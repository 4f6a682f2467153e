// SPDX-License-Identifier: GPL-2.0-only
//! The idle masks and the selection, step by step, on small machines.

use std::sync::Arc;

use super::idle_mask::{IdleMasks, PickFlags};
use super::select::{select_cpu_dfl, Ask, Rules, Step, SyncWaker, STEPS};
use super::topology_rules;
use crate::coherence::Access;
use crate::costs::Costs;
use crate::cpuset::CpuSet;
use crate::ids::{Cpu, Id, LineId, Node};
use crate::machine::Machine;
use crate::policy::mask::recorder::Recorder;
use crate::policy::mask::Within;

/// Lines of the masks: node n has cpu mask 2n and smt mask 2n + 1.
fn cpu_line(node: u32) -> LineId {
    LineId(2 * node)
}

fn smt_line(node: u32) -> LineId {
    LineId(2 * node + 1)
}

fn machine(shape: &str) -> Arc<Machine> {
    let raw = usher_topo::shape::parse(shape).expect("a shape");
    let topo = usher_topo::Topology::build(&raw, 64).expect("a topology");
    Arc::new(Machine::new(topo, Costs::builtin("generic").expect("costs")).expect("a machine"))
}

fn masks(machine: &Arc<Machine>, per_node: bool, idle: &CpuSet) -> IdleMasks {
    let pairs = if per_node {
        machine.topo().nodes().len() as u32
    } else {
        1
    };
    let lines = (0..pairs)
        .map(|n| (vec![cpu_line(n)], vec![smt_line(n)]))
        .collect();
    let mut masks = IdleMasks::with_lines(Arc::clone(machine), per_node, lines);
    masks.set_idle(idle);
    masks
}

fn rules(machine: &Machine, per_node: bool) -> Rules {
    let newest = Rules {
        sibling_step: true,
        sync_claims: true,
        llc_steps: false,
        node_steps: false,
    };
    topology_rules(newest, machine, per_node)
}

/// A scenario on 2 nodes x 2 LLCs x 2 cores x 2 threads. CPUs go by place: node, LLC, core, thread.
struct Case {
    machine: Arc<Machine>,
    per_node: bool,
    idle: CpuSet,
    affinity: CpuSet,
    sync: Option<SyncWaker>,
}

impl Case {
    fn new() -> Self {
        let machine = machine("2n2l2c2t");
        let affinity = machine.online().clone();
        Case {
            machine,
            per_node: false,
            idle: CpuSet::new(),
            affinity,
            sync: None,
        }
    }

    fn at(&self, node: usize, llc: usize, core: usize, thread: usize) -> Cpu {
        let topo = self.machine.topo();
        let llc = topo.nodes()[node].llcs.as_usize().start + llc;
        let core = topo.llcs()[llc].cores.as_usize().start + core;
        self.machine.core_cpus(crate::ids::Core::from_index(core))[thread]
    }

    fn idle(mut self, places: &[(usize, usize, usize, usize)]) -> Self {
        self.idle = places
            .iter()
            .map(|&(n, l, c, t)| self.at(n, l, c, t))
            .collect();
        self
    }

    /// Selects for a task whose prev is the very first CPU.
    fn run(&self) -> Option<(Cpu, Step)> {
        let mut masks = masks(&self.machine, self.per_node, &self.idle);
        let prev = self.at(0, 0, 0, 0);
        let found = self.select(&mut masks, prev);
        if let Some((cpu, _)) = found {
            assert_eq!(masks.peek(cpu), (false, false), "what is found is claimed");
        }
        found
    }

    fn select(&self, masks: &mut IdleMasks, prev: Cpu) -> Option<(Cpu, Step)> {
        let ask = Ask {
            this: prev,
            prev,
            sync: self.sync,
            affinity: &self.affinity,
            everywhere: self.affinity == *self.machine.online(),
            flags: PickFlags::ANY,
        };
        let rules = rules(&self.machine, self.per_node);
        select_cpu_dfl(masks, &mut Recorder::default(), rules, &ask)
    }

    fn expect(self, place: (usize, usize, usize, usize), step: Step) {
        let cpu = self.at(place.0, place.1, place.2, place.3);
        assert_eq!(self.run(), Some((cpu, step)));
    }
}

/// Both threads of a core.
fn core(n: usize, l: usize, c: usize) -> [(usize, usize, usize, usize); 2] {
    [(n, l, c, 0), (n, l, c, 1)]
}

// Goal: whole idle cores come before idle threads, near before far: step 2 in its order.
// Method: the idle set shrinks from the outside of the order inwards; the step that decided is checked.
// Thread 1 or 0 of a core: whichever comes after the rotor, which starts behind CPU 0.
#[test]
fn whole_cores_are_preferred_nearest_first() {
    let far_core = core(1, 1, 1);
    let node_core = core(0, 1, 0);
    let llc_core = core(0, 0, 1);
    let own_core = core(0, 0, 0);
    let prev_only = [(0, 0, 0, 0)];
    let step = |places: &[&[(usize, usize, usize, usize)]]| {
        Case::new()
            .idle(&places.concat())
            .run()
            .map(|(_, step)| step)
    };
    assert_eq!(
        step(&[&far_core, &node_core, &llc_core, &own_core]),
        Some(Step::PrevCore)
    );
    assert_eq!(
        step(&[&far_core, &node_core, &llc_core, &prev_only]),
        Some(Step::LlcCore)
    );
    assert_eq!(
        step(&[&far_core, &node_core, &prev_only]),
        Some(Step::NodeCore)
    );
    assert_eq!(step(&[&far_core, &prev_only]), Some(Step::AnyCore));
    assert_eq!(step(&[&prev_only]), Some(Step::Prev));
    assert_eq!(step(&[]), None);
}

// Goal: without whole cores the order is prev, its sibling, LLC, node, anywhere: steps 3 to 7.
// Method: single idle threads, from the outside of the order inwards.
#[test]
fn idle_threads_nearest_first() {
    let (far, node, llc, sibling) = ((1, 0, 0, 1), (0, 1, 1, 0), (0, 0, 1, 1), (0, 0, 0, 1));
    Case::new()
        .idle(&[far, node, llc, sibling])
        .expect(sibling, Step::Sibling);
    Case::new().idle(&[far, node, llc]).expect(llc, Step::Llc);
    Case::new().idle(&[far, node]).expect(node, Step::Node);
    Case::new().idle(&[far]).expect(far, Step::Any);
}

// Goal: before 7.0 there was no sibling step.
// Method: with it switched off, the idle sibling is found as one of the LLC.
#[test]
fn the_sibling_step_can_be_off() {
    let case = Case::new().idle(&[(0, 0, 0, 1)]);
    let mut masks = masks(&case.machine, false, &case.idle);
    let ask = Ask {
        this: case.at(0, 0, 0, 0),
        prev: case.at(0, 0, 0, 0),
        sync: None,
        affinity: &case.affinity,
        everywhere: true,
        flags: PickFlags::ANY,
    };
    let old = Rules {
        sibling_step: false,
        ..rules(&case.machine, false)
    };
    let found = select_cpu_dfl(&mut masks, &mut Recorder::default(), old, &ask);
    assert_eq!(found, Some((case.at(0, 0, 0, 1), Step::Llc)));
}

// Goal: affinity restricts every step, and sets that it empties are skipped.
// Method: the own LLC is idle, but only the other node is allowed.
#[test]
fn affinity_restricts_every_step() {
    let mut case = Case::new().idle(&[core(0, 0, 0), core(1, 0, 1)].concat());
    case.affinity = case.machine.node_cpus(Node::from_index(1)).clone();
    assert_eq!(case.run().map(|(_, step)| step), Some(Step::AnyCore));
    case.idle = case.machine.node_cpus(Node::from_index(0)).clone();
    assert_eq!(case.run(), None);
}

// Goal: the rules for synchronous wakeups: an idle prev near the waker first; else the waker's CPU if its
// queue is empty and somebody is idle somewhere, allowed or not; never a waker that exits.
// Method: one variation at a time.
#[test]
fn synchronous_wakeups() {
    let waker = |case: &Case, llc| SyncWaker {
        cpu: case.at(0, llc, 1, 0),
        exiting: false,
        local_queue_empty: true,
    };
    let far_core = core(1, 1, 1);
    // prev is idle and shares the waker's LLC.
    let mut case = Case::new().idle(&[&far_core[..], &[(0, 0, 0, 0)]].concat());
    case.sync = Some(waker(&case, 0));
    assert_eq!(case.run().map(|f| f.1), Some(Step::SyncPrev));
    // prev is idle, but in another LLC than the waker.
    case.sync = Some(waker(&case, 1));
    assert_eq!(case.run(), Some((case.at(0, 1, 1, 0), Step::SyncWaker)));
    // Something waits in the waker's queue; the waker exits: the usual steps.
    let variations = [
        SyncWaker {
            local_queue_empty: false,
            ..waker(&case, 1)
        },
        SyncWaker {
            exiting: true,
            ..waker(&case, 1)
        },
    ];
    for sync in variations {
        case.sync = Some(sync);
        assert_eq!(case.run().map(|f| f.1), Some(Step::AnyCore));
    }
    // "Somebody is idle" does not ask about affinity (defect 22): the task may not use the idle CPU.
    let mut case = Case::new().idle(&[(1, 1, 1, 1)]);
    case.affinity = case.machine.node_cpus(Node::from_index(0)).clone();
    case.sync = Some(waker(&case, 1));
    assert_eq!(case.run().map(|f| f.1), Some(Step::SyncWaker));
    // Nobody is idle at all, or the waker's CPU is not allowed.
    case.idle = CpuSet::new();
    assert_eq!(case.run(), None);
    let mut case = Case::new().idle(&[(1, 1, 1, 1)]);
    case.affinity = case.machine.node_cpus(Node::from_index(1)).clone();
    case.sync = Some(waker(&case, 1));
    assert_eq!(case.run().map(|f| f.1), Some(Step::Any));
}

// Goal: LLC steps exist only with several LLCs, node steps only with one mask for the machine, several
// nodes, and nodes that are not LLCs.
// Method: machines with and without.
#[test]
fn topology_switches() {
    let on = |shape: &str, per_node| {
        let rules = rules(&machine(shape), per_node);
        (rules.llc_steps, rules.node_steps)
    };
    assert_eq!(on("1n1l8c2t", false), (false, false));
    assert_eq!(on("1n2l4c2t", false), (true, false));
    assert_eq!(
        on("2n1l4c2t", false),
        (true, false),
        "node and LLC are the same CPUs"
    );
    assert_eq!(on("2n2l4c2t", false), (true, true));
    assert_eq!(on("2n2l4c2t", true), (true, false));
}

// Goal: per-node masks are searched from prev's node outwards, nearest first; with one mask the rotor
// decides.
// Method: one idle thread in every other node of four; each pick must come from the next node in order
// of distance from the first, and its line, and no line of a later node, is touched.
#[test]
fn nodes_are_walked_by_distance() {
    let machine = machine("4n1l2c2t");
    let nodes: Vec<Node> = (0..4).map(Node::from_index).collect();
    let last = |n: Node| machine.node_cpus(n).iter().last().expect("a CPU");
    let idle: CpuSet = nodes[1..].iter().map(|&n| last(n)).collect();
    let mut masks = masks(&machine, true, &idle);
    let prev = machine.node_cpus(nodes[0]).first().expect("a CPU");
    let order = &machine.topo()[nodes[0]].near;
    let everywhere = Within::one(machine.online());
    for (i, &node) in order.iter().enumerate() {
        let mut bus = Recorder::default();
        let found = masks.pick(&mut bus, prev, everywhere, prev, PickFlags::ANY);
        assert_eq!(found, Some(last(node)), "step {i}");
        for &later in &order[i + 1..] {
            assert_eq!(bus.count(cpu_line(later.0), Access::Read), 0);
        }
    }
    let in_node = PickFlags {
        core: false,
        in_node: true,
    };
    masks.set_idle(&idle);
    let mut bus = Recorder::default();
    assert_eq!(masks.pick(&mut bus, prev, everywhere, prev, in_node), None);
    assert!(bus
        .log
        .iter()
        .all(|&(line, _)| line == cpu_line(0) || line == smt_line(0)));
}

// Goal: picks spread by the rotor: each starts behind the last one of the same CPU, wrapping around.
// Method: all CPUs idle, no SMT; the picks of one CPU, then of another.
#[test]
fn the_rotor_spreads_picks() {
    let machine = machine("1n1l4c1t");
    let everywhere = machine.online().clone();
    let mut masks = masks(&machine, false, &everywhere);
    let mut pick = |this, refill: bool| {
        if refill {
            masks.set_idle(&everywhere);
        }
        let set = Within::one(&everywhere);
        let key = masks.key(Cpu(0));
        masks
            .pick_in(&mut Recorder::default(), Cpu(this), set, key, false)
            .map(|c| c.0)
    };
    assert_eq!(
        (0..4).map(|_| pick(0, true)).collect::<Vec<_>>(),
        [1, 2, 3, 0].map(Some)
    );
    assert_eq!(pick(3, true), Some(1), "CPU 3 has a rotor of its own");
    assert_eq!(
        (0..4).map(|_| pick(0, false)).collect::<Vec<_>>(),
        [Some(2), Some(3), Some(0), None]
    );
}

// Goal: a claim clears the core's smt bits even if the CPU itself was gone, and reads before it writes.
// Method: a core with a stale smt bit (its thread was claimed by atomic means); then again, when there is
// nothing to clear. The accesses are counted by hand: 16 CPUs are one word.
#[test]
fn a_claim_clears_smt_first() {
    let case = Case::new().idle(&core(0, 0, 0));
    let mut m = masks(&case.machine, false, &case.idle);
    let (a, b) = (case.at(0, 0, 0, 0), case.at(0, 0, 0, 1));
    let mut bus = Recorder::default();
    assert!(m.claim(&mut bus, a));
    assert_eq!(
        m.peek(b),
        (true, false),
        "the sibling is idle, the core is not"
    );
    let (read, write, rmw) = (Access::Read, Access::Write, Access::Rmw);
    let (cpu, smt) = (cpu_line(0), smt_line(0));
    assert_eq!(
        bus.take(),
        [(smt, read), (smt, read), (smt, write), (cpu, rmw)]
    );
    assert!(!m.claim(&mut bus, a), "taken already");
    assert_eq!(
        bus.take(),
        [(smt, read), (cpu, rmw)],
        "nothing to clear, so nothing dirtied"
    );
}

// Goal: transitions write what the kernel writes: idle sets the cpu bit, and the smt bits once the whole
// core is idle; busy clears both, and dirties the smt line although there is nothing to clear.
// Method: one core goes idle thread by thread, then busy thread by thread; accesses counted by hand.
#[test]
fn transitions_write_what_the_kernel_writes() {
    let case = Case::new();
    let mut m = masks(&case.machine, false, &CpuSet::new());
    let (a, b) = (case.at(0, 0, 0, 0), case.at(0, 0, 0, 1));
    let (read, write, rmw) = (Access::Read, Access::Write, Access::Rmw);
    let (cpu, smt) = (cpu_line(0), smt_line(0));
    let mut bus = Recorder::default();
    m.update(&mut bus, a, true);
    assert_eq!((m.peek(a), m.peek(b)), ((true, false), (false, false)));
    assert_eq!(bus.take(), [(cpu, rmw), (cpu, read)]);
    m.update(&mut bus, b, true);
    assert_eq!((m.peek(a), m.peek(b)), ((true, true), (true, true)));
    assert_eq!(
        bus.take(),
        [(cpu, rmw), (cpu, read), (smt, read), (smt, write)]
    );
    m.update(&mut bus, a, false);
    assert_eq!((m.peek(a), m.peek(b)), ((false, false), (true, false)));
    m.update(&mut bus, b, false);
    let busy = [(cpu, rmw), (smt, read), (smt, write)];
    assert_eq!(
        bus.take(),
        [busy, busy].concat(),
        "the second clears nothing and dirties all the same"
    );
}

// Goal: per-node masks keep the writes of a node on its own lines.
// Method: transitions of CPUs of both nodes.
#[test]
fn per_node_masks_confine_writes() {
    let case = Case::new();
    let mut m = masks(&case.machine, true, &CpuSet::new());
    for node in 0..2 {
        let mut bus = Recorder::default();
        m.update(&mut bus, case.at(node, 1, 0, 0), true);
        m.update(&mut bus, case.at(node, 1, 0, 0), false);
        let own = [cpu_line(node as u32), smt_line(node as u32)];
        assert!(bus.log.iter().all(|(line, _)| own.contains(line)));
    }
}

// Goal: the names in reports are those of the steps.
// Method: the last step's name.
#[test]
fn reasons_match_steps() {
    assert_eq!(STEPS[Step::Stays as usize], "stays");
    assert_eq!(STEPS.len(), Step::Stays as usize + 1);
}
