// SPDX-License-Identifier: GPL-2.0-only
//! Asking the processor to fetch what the next events will need. Changes nothing but speed: a simulation
//! of thousands of CPUs jumps from CPU to CPU and would wait for memory at each jump.

/// Fetches the first `lines` cache lines of `item`.
#[inline]
pub fn prefetch<T>(item: &T, lines: usize) {
    let own = std::mem::size_of::<T>().div_ceil(64);
    prefetch_at(std::ptr::from_ref(item).cast(), lines.min(own));
}

/// Fetches `lines` cache lines from an address on.
#[inline]
#[allow(unused_variables)]
pub fn prefetch_at(address: *const u8, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        let at = address.cast::<i8>().wrapping_add(line * 64);
        // SAFETY: a prefetch reads nothing that the program sees and cannot fault, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
}
