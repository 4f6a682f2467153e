// SPDX-License-Identifier: GPL-2.0-only
//! What CPUs are worth, if the kernel says otherwise than what the tables were built of.
//!
//! The tables are built of what sysfs says, or of what the loader makes of it where it says nothing. The kernel's own
//! figures (`scx_bpf_cpuperf_cap()`) it tells only to a scheduler that is being attached: `bpf/main.bpf.c` asks for them
//! then. Where they differ the scheduler starts anew, with tables of the kernel's figures. When CPUs come or go it
//! starts anew in any case, reads sysfs again and asks again, so no figure outlives a CPU's absence unseen.
//!
//! A kernel whose figures are all 1024 has none: on x86 it has them only without SMT, with `intel_pstate`, for hybrid
//! CPUs. What the loader made out by itself stands then.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use usher_core::Tables;
use usher_topo::{Cpu, CAPACITY_MAX};

/// How often in a row tables are built anew for the kernel's figures before they are taken as they are: figures that
/// change all the time must not keep the scheduler from running.
const TRIES_MAX: u32 = 3;

/// What the kernel said so far.
#[derive(Debug, Default)]
pub struct Capacities {
    known: BTreeMap<Cpu, u32>,
    corrected: BTreeSet<Cpu>,
    tries: u32,
}

/// For the statistics at the end.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CapacityReport {
    /// By capacity as the tables have it: how many CPUs.
    cpus: BTreeMap<u32, u64>,
    /// CPUs whose capacity in the tables is the kernel's because the topology said otherwise.
    corrected: u64,
}

impl Capacities {
    /// What to build the tables with.
    pub fn known(&self) -> &BTreeMap<Cpu, u32> {
        &self.known
    }

    /// Compares what tables were built of with what the kernel then said, by cid. True if they are to be built anew.
    pub fn learn(&mut self, built: &Tables, kernels: &[u32]) -> bool {
        if kernels
            .iter()
            .all(|&said| said == 0 || said == CAPACITY_MAX)
        {
            return false;
        }
        let cpus = built.cpu.iter().map(|&cpu| Cpu(cpu));
        let told = cpus.zip(&built.capacity).zip(kernels);
        let differing: Vec<(Cpu, u32)> = told
            .map(|((cpu, capacity), &said)| (cpu, *capacity, said.min(CAPACITY_MAX)))
            .filter(|&(_, capacity, said)| said != 0 && said != capacity)
            .map(|(cpu, _, said)| (cpu, said))
            .collect();
        if differing.is_empty() {
            self.tries = 0;
            return false;
        }
        if self.tries == TRIES_MAX {
            log::warn!(
                "the kernel's capacities of CPUs change all the time: running with earlier ones"
            );
            self.tries = 0;
            return false;
        }
        self.tries += 1;
        self.corrected.extend(differing.iter().map(|(cpu, _)| *cpu));
        self.known.extend(differing);
        true
    }

    /// What stands in the tables.
    pub fn report(&self, built: &Tables) -> CapacityReport {
        let mut cpus = BTreeMap::new();
        for capacity in &built.capacity {
            *cpus.entry(*capacity).or_default() += 1;
        }
        let corrected = built.cpu.iter();
        let corrected = corrected.filter(|cpu| self.corrected.contains(&Cpu(**cpu)));
        CapacityReport {
            cpus,
            corrected: corrected.count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::{Core, Demand, Request, Settings};
    use usher_topo::{shape, sysfs, Cid, Id, Source, Topology};

    /// Four CPUs of which the loader believes this.
    fn built(capacities: &[u32]) -> Tables {
        let mut raw = shape::parse("1n1l4c1t").expect("a legal shape");
        raw.set_capacities(&(0..).map(Cpu).zip(capacities.iter().copied()).collect());
        Tables::from(&Topology::build(&raw, 64).expect("consistent"))
    }

    // Goal: the kernel's figures win where they tell CPUs apart, and only there; a kernel that gives none (0) or tells no two
    // apart (1024) changes nothing. Method: one of each against tables of two strong and two weak CPUs.
    #[test]
    fn the_kernels_figures_count_where_it_has_some() {
        let tables = built(&[1024, 1024, 768, 768]);
        let mut capacities = Capacities::default();
        for silent in [[0; 4], [1024; 4], [1024, 1024, 768, 768]] {
            assert!(!capacities.learn(&tables, &silent));
            assert!(capacities.known().is_empty());
        }
        assert!(capacities.learn(&tables, &[1024, 900, 768, 446]));
        let expected = BTreeMap::from([(Cpu(1), 900), (Cpu(3), 446)]);
        assert_eq!(*capacities.known(), expected);
        let report = capacities.report(&built(&[1024, 900, 768, 446]));
        assert_eq!(report.corrected, 2);
        assert_eq!(report.cpus[&446], 1);
    }

    // Goal: tables built of the kernel's figures agree with them, and figures that never settle do not keep the scheduler
    // from running. Method: learn, build, learn; then other figures each time.
    #[test]
    fn learning_ends() {
        let mut capacities = Capacities::default();
        assert!(capacities.learn(&built(&[1024; 4]), &[1024, 1024, 500, 500]));
        let anew: Vec<u32> = (0..4)
            .map(|cpu| capacities.known().get(&Cpu(cpu)).copied().unwrap_or(1024))
            .collect();
        assert!(!capacities.learn(&built(&anew), &[1024, 1024, 500, 500]));
        let times = (501..600)
            .take_while(|&said| capacities.learn(&built(&[1024; 4]), &[1024, 1024, 500, said]))
            .count();
        assert_eq!(times, TRIES_MAX as usize);
        assert!(capacities.learn(&built(&[1024; 4]), &[1024, 1024, 500, 700]));
    }

    // Goal: unequal CPUs of an x86 machine come as such out of its sysfs into the tables that the programs get, though its
    // kernel tells none apart. Method: a hybrid machine written as the files that Linux would have, and read back.
    #[test]
    fn a_hybrid_x86_machine_has_unequal_tables() {
        let hybrid = Source::Machine("hybrid-8p16e".into())
            .read()
            .expect("built in");
        let hybrid = Topology::build(&hybrid, 64).expect("consistent");
        let root = tempfile::tempdir().expect("a folder");
        sysfs::write(&hybrid, root.path()).expect("written");
        let raw = sysfs::read(root.path()).expect("as Linux would have it");
        let tables = Tables::from(&Topology::build(&raw, 64).expect("consistent"));
        let mut capacities = Capacities::default();
        assert!(!capacities.learn(&tables, &[CAPACITY_MAX; 32]));
        let report = capacities.report(&tables);
        let weak = hybrid.tiers()[1].capacity;
        assert_eq!(
            report.cpus,
            BTreeMap::from([(weak, 16), (CAPACITY_MAX, 16)])
        );
        // And so the core tells them apart: of a whole weak and a whole strong core that idle, the strong one.
        let mut core = Core::new(&tables, &Settings::default()).expect("buildable");
        let weak_cid = tables.capacity.iter().position(|&c| c == weak);
        let weak_cid = Cid::from_index(weak_cid.expect("some"));
        for cid in [weak_cid, Cid(0), Cid(1)] {
            core.idle_enter(cid);
        }
        let heavy = Demand {
            util: 1000,
            ..Demand::default()
        };
        let request = Request {
            demand: heavy,
            ..Request::wake(weak_cid, weak_cid)
        };
        let placed = core.place(&request).cid;
        assert_eq!(tables.capacity[placed.index()], CAPACITY_MAX);
    }
}
