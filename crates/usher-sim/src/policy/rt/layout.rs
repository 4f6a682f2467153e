// SPDX-License-Identifier: GPL-2.0-only
//! Which cache line each hot word of the kernel's root domain lies on: the subject of the patch series.
//!
//! The baseline, one root domain for the machine (`struct root_domain`, x86-64):
//!
//! ```text
//!  A  rto_push_work, rto_lock, rto_loop_next, rto_loop_start, pointer to rto_mask, {count, mask*}[0]
//!  B  rto_count, overloaded
//!  .  {count, mask*}[1..=4]  ...  25 lines of four levels  ...  E  {count, mask*}[97..=100]
//!  M  per level a bitmap of the CPUs: one line per 512 CPUs (C: level 0, D: level 99)
//!  F  the bitmap rto_mask
//! ```
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
                let levels = (0..LEVELS).scan(a, |line, level| {
                    if level % 4 == 1 {
                        let last = level + 4 == LEVELS;
                        *line = make(
                            if last {
                                "cpupri-count-last"
                            } else {
                                "cpupri-count"
                            },
                            None,
                        );
                    }
                    Some((*line, *line))
                });
                levels.unzip()
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
        assert_eq!(l.rto_count, [l.overloaded], "B");
        assert_eq!(l.count, l.mask_ptr);
        let mut lines = l.count.clone();
        lines.dedup();
        assert_eq!(lines.len(), 26, "A and 25 more");
        assert!(
            l.count[97] == l.count[100] && l.count[96] != l.count[97],
            "E"
        );
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
