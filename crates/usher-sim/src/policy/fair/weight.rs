// SPDX-License-Identifier: GPL-2.0-only
//! Weights of tasks: nice 0 is 1024, and a nice level changes the share of a CPU by about 10 %.
//!
//! The table is part of the kernel's interface to users (each level a factor of about 1.25), so its
//! exact values matter: `kernel/sched/core.c`, `sched_prio_to_weight`.

use crate::program::Class;

/// Weight of nice 0.
pub const NICE_0: u64 = 1024;

/// Weight of `SCHED_IDLE` tasks.
pub const IDLE: u64 = 3;

/// From nice -20 to nice 19.
const BY_NICE: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// The weight of a class; real-time tasks have that of nice 0, which nothing reads while they are
/// real-time.
pub fn of(class: Class) -> u64 {
    match class {
        Class::Idle => IDLE,
        _ => {
            let index = (i32::from(class.nice()) + 20).clamp(0, 39) as usize;
            u64::from(BY_NICE[index])
        }
    }
}

/// `delta` of running time as virtual time of a task of this weight.
#[inline]
pub fn to_virtual(delta: u64, weight: u64) -> i64 {
    if weight == NICE_0 {
        delta as i64
    } else {
        (u128::from(delta) * u128::from(NICE_0) / u128::from(weight)) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the table is the published one, and levels are a factor of about 1.25 apart.
    // Method: the anchors named in mechanisms 5 and 8 (nice -5: 3121, nice 5: 335), the ends, ratios.
    #[test]
    fn nice_levels_are_a_quarter_apart() {
        let at = |nice| of(Class::Normal { nice });
        assert_eq!(
            (at(-20), at(-5), at(0), at(5), at(19)),
            (88761, 3121, 1024, 335, 15)
        );
        for nice in -20..15 {
            let percent = at(nice) * 100 / at(nice + 1);
            assert!((115..=135).contains(&percent), "nice {nice}: {percent} %");
        }
        assert_eq!(of(Class::Idle), IDLE);
    }

    // Goal: virtual time runs slower for heavier tasks, in proportion.
    // Method: exact values.
    #[test]
    fn virtual_time_scales_with_weight() {
        assert_eq!(to_virtual(1_000_000, NICE_0), 1_000_000);
        assert_eq!(to_virtual(1_000_000, 2 * NICE_0), 500_000);
        assert_eq!(to_virtual(335, 335), 1024);
        assert_eq!(
            to_virtual(u64::from(u32::MAX), IDLE),
            i64::from(u32::MAX) * 1024 / 3
        );
    }
}
