// SPDX-License-Identifier: GPL-2.0-only
//! The utilisation of a task beside its definition in floating point.

use usher_core::{Core, Utilisation};
use usher_topo::Cid;

use crate::machine::Machine;
use crate::random::Random;

/// After so many nanoseconds half is left: 32 periods of 2^20.
const HALF_NS: f64 = 32.0 * 1_048_576.0;
/// Times are rounded to a microsecond, and a quarter of a difference to a whole number, which leaves up to 2.
const TOLERANCE: f64 = 4.0;

/// In 1024ths of the strongest CPU.
struct Exact {
    average: f64,
    settled: f64,
    ran: bool,
}

impl Exact {
    fn sleep(&mut self, ns: u64) {
        self.average *= (-(ns as f64) / HALF_NS).exp2();
    }

    fn run(&mut self, ns: u64, capacity: u32) {
        let capacity = f64::from(capacity);
        if !self.ran {
            (self.average, self.ran) = (capacity / 2.0, true);
        }
        self.average = capacity + (self.average - capacity) * (-(ns as f64) / HALF_NS).exp2();
    }

    fn settle(&mut self) {
        self.settled = if self.average > self.settled {
            self.average
        } else {
            self.settled - (self.settled - self.average) / 4.0
        };
    }
}

/// From nanoseconds to seconds, every magnitude alike.
fn stretch(random: &mut Random) -> u64 {
    let most = 10_u32.pow(random.between(0, 9));
    u64::from(random.below(most))
}

/// A thousand stretches of running and sleeping.
pub fn check(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let machine = Machine::draw(&mut random, 16, usher_core::Granularity::Shard);
    let mut core: Core = machine.core(false);
    let mut util = Utilisation::default();
    let mut exact = Exact {
        average: 0.0,
        settled: 0.0,
        ran: false,
    };
    let mut now = 1 + stretch(&mut random);
    for step in 0..1000 {
        let (slept, ran) = (stretch(&mut random), stretch(&mut random));
        let cid = random.below(machine.nr_cids());
        exact.sleep(slept);
        exact.run(ran, machine.tables.capacity[cid as usize]);
        now += slept + ran;
        core.util_ran(&mut util, Cid(cid), now, ran);
        if random.one_in(2) {
            exact.settle();
            core.util_slept(&mut util);
        }
        let later = stretch(&mut random);
        let faded = exact.average * (-(later as f64) / HALF_NS).exp2();
        let expected = faded.max(exact.settled).max(1.0);
        let found = f64::from(core.util_now(&util, now + later));
        if (found - expected).abs() > TOLERANCE {
            return Err(format!(
                "step {step}, slept {slept} ns, ran {ran} ns, asked {later} ns later: {found} instead of {expected:.2}"
            ));
        }
    }
    Ok(())
}
