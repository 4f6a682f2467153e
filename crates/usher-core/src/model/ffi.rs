// SPDX-License-Identifier: GPL-2.0-only
//! The border to `core/tests/model.c`.

use std::ffi::{c_char, c_void, CStr};
use std::marker::{PhantomData, PhantomPinned};

/// `struct model_scenario`; only C looks inside.
#[repr(C)]
pub(crate) struct Scenario {
    opaque: [u8; 0],
    marker: PhantomData<(*mut u8, PhantomPinned)>,
}

const CIDS: usize = 4;

/// `struct model_outcome`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome {
    spare: [i32; CIDS],
    waits: [u32; CIDS],
    refused: u32,
    endless: u32,
    found: i32,
    level: u32,
    lower_before: u32,
    lower_after: u32,
    met: u32,
}

/// The most actors a scenario may have: `MODEL_ACTORS`.
pub(crate) const MAX_ACTORS: usize = 4;

/// The most words that actors may share.
pub(crate) const MAX_CELLS: usize = 64;

macro_rules! builds {
    (
        $(fn $name:ident($($arg:ty),*) $(-> $result:ty)?;)*
    ) => {
        /// The checker's functions of one build.
        pub(crate) struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl Api {
            /// The functions that `symbol` finds under their names; `None` if it lacks one.
            ///
            /// # Safety
            /// What `symbol` finds are these functions, for as long as the process lives.
            pub(crate) unsafe fn from_symbols(
                symbol: &mut dyn FnMut(&str) -> *const c_void,
            ) -> Option<Self> {
                Some(Self {
                    $($name: {
                        let found = symbol(stringify!($name));
                        if found.is_null() {
                            return None;
                        }
                        // SAFETY: it is not null, and the caller promises the rest.
                        unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

builds! {
    fn bytes() -> u64;
    fn state_bytes() -> u32;
    fn scenario(u32) -> *const Scenario;
    fn setup(*const Scenario, *mut u64);
    fn cells(*mut u64, *mut u32, u32) -> u32;
    fn next(
        *const Scenario, *mut u64, u32, *const u64, u32, *mut u32, *mut u32, *mut u64, *mut u8, *mut Outcome
    ) -> u32;
    fn verdict(*const Scenario, *mut u64, *const Outcome) -> *const c_char;
    fn name(*const Scenario) -> *const c_char;
    fn nr_actors(*const Scenario) -> u32;
    fn actor_name(*const Scenario, u32) -> *const c_char;
    fn cell_name(*mut u64, u32, *mut u32) -> *const c_char;
}

/// The functions of the build with these symbols.
macro_rules! build {
    ($bytes:ident $state_bytes:ident $scenario:ident $setup:ident $cells:ident $next:ident $verdict:ident $name:ident
     $nr_actors:ident $actor_name:ident $cell_name:ident) => {{
        extern "C" {
            fn $bytes() -> u64;
            fn $state_bytes() -> u32;
            fn $scenario(index: u32) -> *const Scenario;
            fn $setup(scenario: *const Scenario, world: *mut u64);
            fn $cells(world: *mut u64, cells: *mut u32, max: u32) -> u32;
            fn $next(
                scenario: *const Scenario,
                world: *mut u64,
                actor: u32,
                answers: *const u64,
                nr_answers: u32,
                step: *mut u32,
                cell: *mut u32,
                value: *mut u64,
                state: *mut u8,
                outcome: *mut Outcome,
            ) -> u32;
            fn $verdict(
                scenario: *const Scenario,
                world: *mut u64,
                outcomes: *const Outcome,
            ) -> *const c_char;
            fn $name(scenario: *const Scenario) -> *const c_char;
            fn $nr_actors(scenario: *const Scenario) -> u32;
            fn $actor_name(scenario: *const Scenario, actor: u32) -> *const c_char;
            fn $cell_name(world: *mut u64, cell: u32, index: *mut u32) -> *const c_char;
        }
        Api {
            bytes: $bytes,
            state_bytes: $state_bytes,
            scenario: $scenario,
            setup: $setup,
            cells: $cells,
            next: $next,
            verdict: $verdict,
            name: $name,
            nr_actors: $nr_actors,
            actor_name: $actor_name,
            cell_name: $cell_name,
        }
    }};
}

pub(crate) static REAL: Api = build!(
    usher_real_model_bytes usher_real_model_state_bytes usher_real_model_scenario usher_real_model_setup usher_real_model_cells
    usher_real_model_next usher_real_model_verdict usher_real_model_name usher_real_model_nr_actors
    usher_real_model_actor_name usher_real_model_cell_name
);

/// A literal of the C code.
///
/// # Safety
/// `text` is one, ending in NUL.
pub(crate) unsafe fn text(text: *const c_char) -> &'static str {
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().expect("the C code is ASCII")
}
