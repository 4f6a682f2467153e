// SPDX-License-Identifier: GPL-2.0-only
//! Tests of the fair class, one file per part of mechanisms 6.

mod balance;
mod cfs;
mod domains;
mod eevdf;
mod fork;
mod rq;
mod search;
mod stage;
mod wake;
mod whole;

use super::rq::{Rq, Tasks};
use super::task::Task;
use crate::costs::Costs;
use crate::ids::{Cpu, TaskId};
use crate::machine::Machine;
use crate::program::Class;

/// Nice values of weight 1024 and 335.
const NICE: [i8; 2] = [0, 5];

/// An empty queue of CPU 0 and `nices.len()` tasks that are on no queue yet.
fn queue_and_tasks(nices: &[i8]) -> (Rq, Tasks) {
    let tasks = nices
        .iter()
        .map(|&nice| Task::new(Class::Normal { nice }, Cpu(0)))
        .collect();
    (Rq::new(Cpu(0), 1024), tasks)
}

/// Task `i`.
fn t(i: usize) -> TaskId {
    TaskId(i as u32)
}

/// A built-in machine with its costs.
fn machine(name: &str) -> Machine {
    built(usher_topo::machine::load(name).expect("a built-in machine"))
}

/// A machine from a machine file, with its costs or the generic ones.
fn built(file: usher_topo::machine::MachineFile) -> Machine {
    let raw = file.to_raw().expect("a machine");
    let topo = usher_topo::Topology::build(&raw, 64).expect("a topology");
    let costs = topo.costs().unwrap_or("generic").to_string();
    let costs = Costs::builtin(&costs)
        .or_else(|_| Costs::builtin("generic"))
        .expect("built in");
    Machine::new(topo, costs).expect("a machine")
}
