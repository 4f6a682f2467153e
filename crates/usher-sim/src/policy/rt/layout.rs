// SPDX-License-Identifier: GPL-2.0-only
//! Which cache line each hot word of the kernel's root domain lies on: the subject of the patch series.
//!
//! The baseline, one root domain for the machine (`struct root_domain` of 6.12 on x86-64, cpumasks off the stack and no
//! lock debugging; the hot words begin at byte 128 and `struct cpupri` at byte 184):
//!
//! ```text
//!  A  rto_push_work, rto_lock, rto_loop_next, rto_loop_start, pointer to rto_mask, count[0]
//!  B  rto_count, overloaded
//!  .  mask*[0], {count, mask*}[1..=3], count[4]  ...  as many lines as it takes, each 8 bytes out of step
//!  E  mask*[96], {count, mask*}[97..=99], count[100]
//!  M  per level a bitmap of the CPUs: one line per 512 CPUs (C: level 0, D: level 99)
//!  F  the bitmap rto_mask
//! ```
//!
//! So the count of level 0 shares its line with the pull's words, and the pointer to that level's bitmap does not.
//!
//! | switch | what moves |
//! |---|---|
//! | `pad-counts` (P1) | every count and every mask pointer gets a line of its own |
//! | `reorder` (P2) | the pointer to `rto_mask` leaves A, `overloaded` leaves B |
//! | `node-rto-count` (P3) | `rto_count` becomes one line per node; `overloaded` stays behind on B |
//! | `node-cpupri` (P4) | M becomes one line per node and level |

use super::core_map::Shape;
use crate::host::Host;
use crate::ids::{LineId, Node};
use crate::policy::mask::mask_lines;

/// Levels of the map: 0 for everything that is not real-time, 1 to 99 for real-time priorities, 100 for
/// deadline tasks and the stopper.
pub(super) const LEVELS: usize = 101;

/// Where on A `struct cpupri` begins, the size of its `struct cpupri_vec`, and where in that the pointer is.
const CPUPRI_OFFSET: usize = 56;
const VEC_SIZE: usize = 16;
const PTR_OFFSET: usize = 8;

/// The line, counted from A, of a level's count (offset 0) or of the pointer to its bitmap.
fn cpupri_line(level: usize, offset: usize) -> usize {
    (CPUPRI_OFFSET + level * VEC_SIZE + offset) / 64
}

/// How the bitmaps of the map are kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// One per level.
    Global,
    /// One per level and node, inverted for foreign CPUs (P4).
    Node,
    /// As the placement core keeps them, without counts.
    Core(Shape),
}

/// What is switched on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switches {
    pub pad_counts: bool,
    pub reorder: bool,
    pub node_rto_count: bool,
    pub form: Form,
}

impl Switches {
    pub const BASELINE: Switches = Switches {
        pad_counts: false,
        reorder: false,
        node_rto_count: false,
        form: Form::Global,
    };
}

/// The lines. Equal ids mean that two things share a line.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Lock, loop counters and work of the pull by interrupt.
    pub rto: LineId,
    /// The pointer to `rto_mask`.
    pub rto_mask_ptr: LineId,
    /// `rto_count`: one, or one per node.
    pub rto_count: Vec<LineId>,
    pub overloaded: LineId,
    /// The bitmap `rto_mask`.
    pub rto_mask: Vec<LineId>,
    /// Per level.
    pub count: Vec<LineId>,
    pub mask_ptr: Vec<LineId>,
}

impl Layout {
    /// Allocates them.
    pub fn new(host: &mut Host, switches: Switches) -> Self {
        let nr_nodes = host.machine().topo().nodes().len();
        let nr_mask_lines = mask_lines(host.machine().nr_cpu_numbers());
        let mut make = |class: &str, home| {
            let class = host.line_class(class);
            host.new_line(class, home)
        };
        Self::with(switches, nr_nodes, nr_mask_lines, &mut make)
    }

    /// The same with lines from `make(class, home)`.
    pub fn with(
        switches: Switches,
        nr_nodes: usize,
        nr_mask_lines: usize,
        make: &mut impl FnMut(&str, Option<Node>) -> LineId,
    ) -> Self {
        let a = make("rd-count0", None);
        let b = make("rd-rto-count", None);
        let (count, mask_ptr): (Vec<_>, Vec<_>) = match switches.pad_counts {
            false => {
                let last = cpupri_line(LEVELS - 2, 0);
                let lines: Vec<LineId> = (0..=cpupri_line(LEVELS - 1, PTR_OFFSET))
                    .map(|line| match line {
                        0 => a,
                        _ if line == last => make("cpupri-count-last", None),
                        _ => make("cpupri-count", None),
                    })
                    .collect();
                let words = |offset| {
                    let line = |level| lines[cpupri_line(level, offset)];
                    (0..LEVELS).map(line).collect()
                };
                (words(0), words(PTR_OFFSET))
            }
            true => (0..LEVELS)
                .map(|level| {
                    let class = match level {
                        0 => "rd-count0",
                        97.. => "cpupri-count-last",
                        _ => "cpupri-count",
                    };
                    (make(class, None), make("cpupri-mask-pointer", None))
                })
                .unzip(),
        };
        // With its count gone, what is left of A is the pull's.
        let rto = if switches.pad_counts {
            make("rd-rto", None)
        } else {
            a
        };
        let reordered = switches.reorder.then(|| make("rd-read-mostly", None));
        let rto_count = match switches.node_rto_count {
            false => vec![b],
            true => (0..nr_nodes)
                .map(|n| make("rd-rto-count", Some(crate::ids::Id::from_index(n))))
                .collect(),
        };
        Layout {
            rto,
            rto_mask_ptr: reordered.unwrap_or(rto),
            rto_count,
            overloaded: reordered.unwrap_or(b),
            rto_mask: (0..nr_mask_lines)
                .map(|_| make("rd-rto-mask", None))
                .collect(),
            count,
            mask_ptr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(switches: Switches) -> Layout {
        let mut next = 0;
        Layout::with(switches, 2, 1, &mut |_, _| {
            next += 1;
            LineId(next)
        })
    }

    // Goal: the baseline is the documented layout.
    // Method: who shares a line with whom, and how many lines the counts span.
    #[test]
    fn baseline_lines() {
        let l = layout(Switches::BASELINE);
        assert!(l.count[0] == l.rto && l.rto_mask_ptr == l.rto, "A");
        assert!(
            l.mask_ptr[0] != l.rto && l.mask_ptr[0] == l.count[1],
            "A ends"
        );
        assert_eq!(l.rto_count, [l.overloaded], "B");
        let mut lines = l.count.clone();
        lines.extend(&l.mask_ptr);
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), 27, "bytes 184 to 1800");
        let e = l.count[99];
        let on_e = |line: &LineId| *line == e;
        assert_eq!(l.count.iter().filter(|l| on_e(l)).count(), 4, "97 to 100");
        assert_eq!(l.mask_ptr.iter().filter(|l| on_e(l)).count(), 4, "96 to 99");
        assert!(l.count[97] == e && l.count[100] == e && l.mask_ptr[96] == e);
    }

    // Goal: each switch separates what its patch separates, and nothing else.
    // Method: equalities of lines per switch.
    #[test]
    fn switches_separate_lines() {
        let p1 = layout(Switches {
            pad_counts: true,
            ..Switches::BASELINE
        });
        let mut all: Vec<LineId> = p1.count.iter().chain(&p1.mask_ptr).copied().collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2 * LEVELS);
        assert!(p1.rto == p1.rto_mask_ptr && !all.contains(&p1.rto));
        assert_eq!(p1.rto_count, [p1.overloaded]);
        let p2 = layout(Switches {
            reorder: true,
            ..Switches::BASELINE
        });
        assert!(p2.count[0] == p2.rto && p2.rto_mask_ptr != p2.rto);
        assert_ne!(p2.rto_count, [p2.overloaded]);
        let p3 = layout(Switches {
            node_rto_count: true,
            ..Switches::BASELINE
        });
        assert!(p3.rto_count.len() == 2 && !p3.rto_count.contains(&p3.overloaded));
        assert_eq!(p3.rto_mask_ptr, p3.count[0]);
    }
}
