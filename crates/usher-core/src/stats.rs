// SPDX-License-Identifier: GPL-2.0-only
//! What the core counted.

use std::ops::{AddAssign, Index};

use crate::kinds::{Event, Reason};

/// Decisions by reason and what happened on the way, of one CPU or summed over all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub(crate) reasons: [u64; Reason::COUNT],
    pub(crate) events: [u64; Event::COUNT],
}

impl Statistics {
    /// Decisions by reason, in the order of the steps.
    pub fn reasons(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.iter().copied().zip(self.reasons)
    }

    /// Events, in the order of the enumeration.
    pub fn events(&self) -> impl Iterator<Item = (Event, u64)> + '_ {
        Event::ALL.iter().copied().zip(self.events)
    }

    /// How many decisions fell.
    pub fn decisions(&self) -> u64 {
        self.reasons.iter().sum()
    }

    /// What was counted since `earlier`, a reading of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut now = *self;
        for (count, before) in now.reasons.iter_mut().zip(earlier.reasons) {
            *count = count.wrapping_sub(before);
        }
        for (count, before) in now.events.iter_mut().zip(earlier.events) {
            *count = count.wrapping_sub(before);
        }
        now
    }
}

impl Index<Reason> for Statistics {
    type Output = u64;

    fn index(&self, reason: Reason) -> &u64 {
        &self.reasons[reason.index()]
    }
}

impl Index<Event> for Statistics {
    type Output = u64;

    fn index(&self, event: Event) -> &u64 {
        &self.events[event.index()]
    }
}

impl AddAssign for Statistics {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.reasons.iter_mut().zip(other.reasons) {
            *count += more;
        }
        for (count, more) in self.events.iter_mut().zip(other.events) {
            *count += more;
        }
    }
}
