// SPDX-License-Identifier: GPL-2.0-only
//! Cases: a random machine and a list of random operations each, run on two sides that must agree. What fails is
//! made as short as it goes before it is shown.

use std::fmt::Debug;

use usher_core::Granularity;

use crate::machine::Machine;
use crate::random::Random;

/// Cases per granularity, and operations per case.
const CASES: u64 = 160;
const OPS: usize = 2100;

/// How many operations were done, and what went wrong then.
pub type Failure = (usize, String);

/// One pair of sides. `Seen` is what came up.
pub struct Cases<Op, Seen> {
    /// The name of the test, for the command that repeats a case.
    pub test: &'static str,
    /// Tells the machines of one test from those of another.
    pub salt: u64,
    /// With the CPU priority map.
    pub cpupri: bool,
    /// So many random operations for a machine.
    pub draw: fn(&mut Random, &Machine, usize) -> Vec<Op>,
    /// Runs operations; the flag is for the simulator's build of the core.
    pub run: fn(&Machine, &[Op], bool, &mut Seen) -> Result<(), Failure>,
}

impl<Op: Clone + Debug, Seen: Default> Cases<Op, Seen> {
    /// All cases of a granularity; `None` if USHER_CASE chose others, or one.
    pub fn all(&self, granularity: Granularity) -> Option<Seen> {
        let mut seen = Seen::default();
        let chosen = std::env::var("USHER_CASE").ok();
        let Some(chosen) = chosen else {
            (0..CASES).for_each(|number| self.case(granularity, number, &mut seen));
            return Some(seen);
        };
        let (name, number) = chosen
            .split_once(':')
            .expect("USHER_CASE is GRANULARITY:NUMBER");
        let number = number.parse().expect("USHER_CASE ends in a number");
        if name == granularity.as_str() {
            self.case(granularity, number, &mut seen);
        }
        None
    }

    /// Most machines are small, some large, a few as large as they may be.
    fn case(&self, granularity: Granularity, number: u64, seen: &mut Seen) {
        let mut random = Random::new(number << 8 | self.salt | u64::from(granularity as u32));
        let (low, high) = match number % 32 {
            0..=9 => (1, 16),
            10..=22 => (17, 128),
            23..=29 => (129, 600),
            30 => (601, 4096),
            _ => (4096, 4096),
        };
        let cpus = random.between(low, high);
        let mut machine = Machine::draw(&mut random, cpus, granularity);
        machine.settings.cpupri = self.cpupri;
        let ops = (self.draw)(&mut random, &machine, OPS);
        let traced = number % 8 == 5;
        if (self.run)(&machine, &ops, traced, seen).is_err() {
            let (ops, wrong) = self.shorten(&machine, ops, traced);
            let list: Vec<String> = ops.iter().map(|op| format!("    {op:?}")).collect();
            panic!(
                "{wrong}\n  machine: {}\n  the shortest list that fails, {} operations:\n{}\n  \
                 USHER_CASE={granularity}:{number} cargo test -p usher-core --test {}",
                machine.describe(),
                ops.len(),
                list.join("\n"),
                self.test,
            );
        }
    }

    /// Leaves out operations, by halves, quarters, ... and one by one, as long as the rest still fails.
    fn shorten(&self, machine: &Machine, mut ops: Vec<Op>, traced: bool) -> (Vec<Op>, String) {
        let fails = |ops: &[Op]| (self.run)(machine, ops, traced, &mut Seen::default()).err();
        let (len, mut wrong) = fails(&ops).expect("it failed before");
        ops.truncate(len);
        let mut chunk = ops.len();
        while chunk > 0 {
            let mut at = 0;
            while at < ops.len() {
                let mut fewer = ops.clone();
                fewer.drain(at..(at + chunk).min(ops.len()));
                match fails(&fewer) {
                    Some((len, why)) => {
                        fewer.truncate(len);
                        (ops, wrong) = (fewer, why);
                    }
                    None => at += chunk,
                }
            }
            chunk /= 2;
        }
        (ops, wrong)
    }
}
