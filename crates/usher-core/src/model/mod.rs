// SPDX-License-Identifier: GPL-2.0-only
//! Checks the core's protocols in every order in which their steps can happen.
//!
//! A scenario (`core/tests/scenarios.h`) is a small machine, three or four actors that do something at the same
//! time, and what must hold once everything has come to rest. An actor is a plain C function; `core/env/model.h`
//! says how it is stopped at each access to shared memory. [`Scenario::explore`] walks through all states
//! that any order of these accesses can lead to, delays of plain stores included:
//!
//! ```
//! use usher_core::model::Build;
//!
//! let scenario = Build::real().scenario("take_against_look").unwrap();
//! let report = scenario.explore().unwrap_or_else(|failure| panic!("{failure}"));
//! assert!(report.interleavings > 1_000);
//! ```
//!
//! A state is the shared memory, what each actor has read so far (which is all that an actor depends on) and
//! what waits in the store buffers. Two orders that lead to the same state have the same future, so each
//! state is entered once; the number of orders is counted along the way. What no other actor can ever see or
//! disturb commutes with everything, and one order stands for all. A failure is a schedule, a string
//! with a digit for a step of that actor and a letter for a store of that actor that reaches memory, and
//! [`Scenario::replay`] tells it step by step.

mod actor;
mod explore;
mod ffi;

use std::ffi::c_void;
use std::fmt;

pub use explore::Report;

use actor::Actors;
use ffi::Api;

/// One build of the core and its scenarios.
#[derive(Clone, Copy)]
pub struct Build {
    api: &'static Api,
}

/// A scenario of a build.
pub struct Scenario {
    build: Build,
    handle: *const ffi::Scenario,
}

/// An order of steps after which something does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// The scenario's name.
    pub scenario: &'static str,
    /// What does not hold.
    pub property: &'static str,
    /// The order, for [`Scenario::replay`].
    pub schedule: String,
    /// What was tried until then.
    pub report: Report,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.scenario, self.property)?;
        write!(
            f,
            "cargo run -q -p usher-core --example check -- --replay {} {}",
            self.scenario, self.schedule
        )
    }
}

/// A schedule that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {at} of the schedule, `{choice}`, is not possible there: {why}")]
pub struct ScheduleError {
    /// Which step, from 0.
    pub at: usize,
    /// The step.
    pub choice: char,
    /// Why not.
    pub why: &'static str,
}

impl Build {
    /// The core as it is.
    pub fn real() -> Self {
        Self { api: &ffi::REAL }
    }

    /// Another copy of the core and its scenarios: `core/tests/model.c`, compiled with another
    /// `USHER_PREFIX` and loaded. `symbol` is asked for the address of `bytes`, `setup` and so on, which
    /// C calls `usher_<prefix>_model_bytes` and so on; null: there is none. `None` if one is missing.
    ///
    /// # Safety
    /// What `symbol` finds are the functions of `core/tests/model.c` in the version that this crate was
    /// built with, and they stay loaded.
    pub unsafe fn from_symbols(symbol: &mut dyn FnMut(&str) -> *const c_void) -> Option<Self> {
        // SAFETY: promised by the caller.
        let api = unsafe { Api::from_symbols(symbol)? };
        Some(Self {
            api: Box::leak(Box::new(api)),
        })
    }

    /// All scenarios, in the order of the list.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let handles = (0..).map(|index| {
            // SAFETY: any index may be asked for; past the end is null.
            unsafe { (self.api.scenario)(index) }
        });
        handles
            .take_while(|handle| !handle.is_null())
            .map(|handle| Scenario {
                build: *self,
                handle,
            })
            .collect()
    }

    /// The scenario of that name.
    pub fn scenario(&self, name: &str) -> Option<Scenario> {
        self.scenarios().into_iter().find(|s| s.name() == name)
    }
}

impl Scenario {
    /// Its name, which the comments of the core refer to.
    pub fn name(&self) -> &'static str {
        // SAFETY: the handle comes from the build; names are literals of the C code.
        unsafe { ffi::text((self.build.api.name)(self.handle)) }
    }

    /// How many actors it has.
    pub fn nr_actors(&self) -> usize {
        // SAFETY: the handle comes from the build.
        unsafe { (self.build.api.nr_actors)(self.handle) as usize }
    }

    /// Tries every order.
    ///
    /// # Errors
    /// One of the shortest orders after which a property does not hold.
    pub fn explore(&self) -> Result<Report, Failure> {
        self.explore_some(None)
    }

    /// Tries every order in which actors are interrupted so many times at most: another actor steps though the one
    /// that stepped last could go on. How long they are interrupted, and when stores reach memory, is not bounded. For
    /// scenarios too large to try all orders.
    ///
    /// # Errors
    /// One of the shortest such orders after which a property does not hold.
    pub fn explore_bounded(&self, preemptions: u8) -> Result<Report, Failure> {
        self.explore_some(Some(preemptions))
    }

    fn explore_some(&self, preemptions: Option<u8>) -> Result<Report, Failure> {
        explore::explore(&mut Actors::new(self.build.api, self.handle), preemptions).map_err(
            |(why, schedule, report)| Failure {
                scenario: self.name(),
                property: why,
                schedule,
                report,
            },
        )
    }

    /// Follows one order and tells what happens, a line per step, with the verdict at the end if
    /// everything came to rest.
    ///
    /// # Errors
    /// The schedule asks for a step that is not possible.
    pub fn replay(&self, schedule: &str) -> Result<Vec<String>, ScheduleError> {
        explore::replay(&mut Actors::new(self.build.api, self.handle), schedule)
    }
}
