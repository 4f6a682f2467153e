// SPDX-License-Identifier: GPL-2.0-only
//! The map beside a list of levels, and operations drawn at random for both.

use usher_core::{CidSet, Core, Level, LevelQuery, Tiers, MAX_TIERS};
use usher_topo::{Cid, Node, Shard, Tier};

use crate::machine::Machine;
use crate::random::Random;

/// One operation. Cids are plain numbers here.
#[derive(Clone, Debug)]
pub enum Op {
    /// All CPUs go to levels of the palette.
    Load {
        seed: u64,
        palette: Vec<Option<u32>>,
    },
    Set(u32, Option<u32>),
    Find {
        from: u32,
        below: u32,
        lowest: bool,
        in_node: bool,
        allowed: Option<Allowed>,
        tiers: u32,
    },
}

/// An allowed set: cids of some ranges, past the machine's end, too, and of those one in so many.
#[derive(Clone, Debug)]
pub struct Allowed {
    ranges: Vec<(u32, u32)>,
    seed: u64,
    one_in: u32,
}

/// How often what was asked and answered.
#[derive(Clone, Default)]
pub struct Seen {
    pub ops: usize,
    pub largest: u32,
    places: [u64; 3],
    none: u64,
    /// Nobody lower fitted, so somebody who does not was taken.
    unfit: u64,
    /// There was somebody lower farther away.
    nearer: u64,
    offline: u64,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.places.iter_mut().zip(other.places) {
            *sum += count;
        }
        self.none += other.none;
        self.unfit += other.unfit;
        self.nearer += other.nearer;
        self.offline += other.offline;
    }

    pub fn counts(&self) -> [(&'static str, u64); 7] {
        [
            ("found in the own shard", self.places[0]),
            ("found in the own node", self.places[1]),
            ("found in another node", self.places[2]),
            ("found nobody", self.none),
            ("nobody lower fits", self.unfit),
            ("nearest, not lowest", self.nearer),
            ("taken offline", self.offline),
        ]
    }
}

/// Levels that occur together: few as in a kernel host, two as under real-time load, all.
fn draw_palette(random: &mut Random) -> Vec<Option<u32>> {
    let some: &[u32] = random.pick(&[
        [0].as_slice(),
        &[0, 99],
        &[0, 1, 2, 3, 4],
        &[2, 63, 64, 100],
        &[100],
        &[99],
    ]);
    let mut palette: Vec<Option<u32>> = some.iter().map(|&level| Some(level)).collect();
    if random.one_in(3) {
        palette.extend((0..Level::COUNT).map(Some));
    }
    if random.one_in(3) {
        palette.push(None);
    }
    palette
}

fn draw_allowed(random: &mut Random, machine: &Machine) -> Option<Allowed> {
    let nr = machine.nr_cids();
    let one = |cid: u32| vec![(cid, cid)];
    let some = |range: &std::ops::Range<u32>| vec![(range.start, range.end.saturating_sub(1))];
    let ranges = match random.below(12) {
        0 => one(random.below(nr)),
        1 => [one(random.below(nr)), one(random.below(nr))].concat(),
        2 => some(&machine.llcs[random.below(machine.llcs.len() as u32) as usize]),
        3 => some(&machine.nodes[random.below(machine.nodes.len() as u32) as usize]),
        4 => vec![(random.below(nr), nr + 7)],
        5 => vec![(0, nr - 1)],
        6 if random.one_in(4) => vec![],
        6 => [one(4095), one(random.below(nr))].concat(),
        _ => return None,
    };
    Some(Allowed {
        ranges,
        seed: random.next(),
        one_in: random.pick(&[1, 1, 2, 10]),
    })
}

/// So many operations, with one palette after the other.
pub fn draw(random: &mut Random, machine: &Machine, nr: usize) -> Vec<Op> {
    let phase = (nr / 12).max(1);
    let mut ops = Vec::with_capacity(nr);
    let mut palette = vec![Some(0)];
    while ops.len() < nr {
        if ops.len() % phase == 0 {
            palette = draw_palette(random);
            ops.push(Op::Load {
                seed: random.next(),
                palette: palette.clone(),
            });
            // Then a few others move on other levels.
            palette.extend(draw_palette(random));
            continue;
        }
        let cid = random.below(machine.nr_cids());
        ops.push(if random.one_in(2) {
            Op::Set(cid, palette[random.below(palette.len() as u32) as usize])
        } else {
            Op::Find {
                from: cid,
                below: random.pick(&[0, 1, 3, 50, 64, 99, 100, 100]),
                lowest: random.one_in(2),
                in_node: random.one_in(5),
                allowed: draw_allowed(random, machine),
                tiers: if random.one_in(3) {
                    random.below(256)
                } else {
                    0
                },
            }
        });
    }
    ops
}

type Checked = Result<(), String>;

/// What a search wants, spelled out per cid.
struct Wanted {
    allowed: Vec<bool>,
    below: u32,
    tiers: u32,
    lowest: bool,
}

/// The core and the levels of one machine's CPUs.
pub struct Pair<'a> {
    machine: &'a Machine,
    core: Core,
    levels: Vec<Option<u32>>,
    pub seen: Seen,
}

impl<'a> Pair<'a> {
    pub fn new(machine: &'a Machine, traced: bool) -> Self {
        Self {
            machine,
            core: machine.core(traced),
            levels: vec![None; machine.nr_cids() as usize],
            seen: Seen::default(),
        }
    }

    fn set(&mut self, cid: u32, level: Option<u32>) {
        self.core.set_level(Cid(cid), level.and_then(Level::new));
        self.seen.offline += u64::from(level.is_none() && self.levels[cid as usize].is_some());
        self.levels[cid as usize] = level;
    }

    /// Does one operation on both.
    pub fn step(&mut self, op: &Op) -> Checked {
        let lost = self.core.clear_accesses();
        if lost > 0 {
            return Err(format!("the log of accesses was too short by {lost}"));
        }
        match *op {
            Op::Load { seed, ref palette } => {
                let mut random = Random::new(seed);
                for cid in 0..self.machine.nr_cids() {
                    self.core.clear_accesses();
                    self.set(cid, palette[random.below(palette.len() as u32) as usize]);
                }
                Ok(())
            }
            Op::Set(cid, level) => {
                self.set(cid, level);
                Ok(())
            }
            Op::Find {
                from,
                below,
                lowest,
                in_node,
                ref allowed,
                tiers,
            } => {
                let set: Option<CidSet> = allowed.as_ref().map(|allowed| self.set_of(allowed));
                let near = |cid| !in_node || self.place(from, cid) <= 1;
                let wanted = Wanted {
                    allowed: (0..self.machine.nr_cids())
                        .map(|cid| near(cid) && set.as_ref().is_none_or(|s| s.contains(Cid(cid))))
                        .collect(),
                    below,
                    tiers,
                    lowest,
                };
                let of_bits = |bits: u32| {
                    let each = (0..MAX_TIERS).filter(|tier| bits >> tier & 1 != 0);
                    let each = each.map(|tier| Tiers::only(Tier(tier)));
                    each.reduce(Tiers::or).unwrap_or(Tiers::ANY)
                };
                let found = self.core.find_lower(&LevelQuery {
                    allowed: set.as_ref(),
                    tiers: of_bits(tiers),
                    below: Level::new(below).expect("levels are drawn from 0 to 100"),
                    lowest,
                    in_node,
                    from: Cid(from),
                });
                let seen = self.check(from, &wanted, found)?;
                self.seen.add(&seen);
                Ok(())
            }
        }
    }

    fn set_of(&self, allowed: &Allowed) -> CidSet {
        let mut random = Random::new(allowed.seed);
        let cids = allowed
            .ranges
            .iter()
            .flat_map(|&(first, last)| first..=last.min(4095));
        cids.filter(|_| random.one_in(allowed.one_in))
            .map(Cid)
            .collect()
    }

    /// How far away: 0 is the own shard, 1 the own node, then nodes by distance.
    fn place(&self, from: u32, cid: u32) -> usize {
        let tables = &self.machine.tables;
        let (from, cid) = (from as usize, cid as usize);
        if tables.shard[from] == tables.shard[cid] {
            return 0;
        }
        let order = &self.machine.order[tables.node[from] as usize];
        let rank = order.iter().position(|&node| node == tables.node[cid]);
        1 + rank.expect("the order has all nodes")
    }

    fn fits(&self, cid: u32, tiers: u32) -> bool {
        let tier = self.machine.tables.tier[cid as usize].min(MAX_TIERS - 1);
        tiers == 0 || tiers >> tier & 1 != 0
    }

    /// Whether this is a right answer; if so, what it was.
    fn check(
        &self,
        from: u32,
        wanted: &Wanted,
        found: Option<(Cid, Level)>,
    ) -> Result<Seen, String> {
        let mut seen = Seen::default();
        let lower: Vec<u32> = (0..self.machine.nr_cids())
            .filter(|&cid| {
                wanted.allowed[cid as usize]
                    && self.levels[cid as usize].is_some_and(|level| level < wanted.below)
            })
            .collect();
        let fit: Vec<u32> = lower
            .iter()
            .copied()
            .filter(|&cid| self.fits(cid, wanted.tiers))
            .collect();
        let takers = if fit.is_empty() { &lower } else { &fit };
        let level = |cid: u32| self.levels[cid as usize].expect("it is at a level");
        let rank = |cid: u32| {
            let (place, level) = (self.place(from, cid), level(cid) as usize);
            if wanted.lowest {
                (level, place)
            } else {
                (place, level)
            }
        };
        let best = takers.iter().map(|&cid| rank(cid)).min();
        let wrong = |why: &str| {
            Err(format!(
                "{why}: the core says {found:?}, right is one of {:?} (level and place {best:?})",
                takers
                    .iter()
                    .filter(|&&cid| Some(rank(cid)) == best)
                    .collect::<Vec<_>>()
            ))
        };
        let Some((cid, found_level)) = found else {
            seen.none += 1;
            return if takers.is_empty() {
                Ok(seen)
            } else {
                wrong("somebody runs lower")
            };
        };
        if !takers.contains(&cid.0) {
            return wrong("not to be taken");
        }
        if Some(rank(cid.0)) != best {
            return wrong("not the best");
        }
        if found_level.get() != level(cid.0) {
            return wrong("not its level");
        }
        let place = self.place(from, cid.0);
        if place == 0 {
            // From the own CPU on, then from the start of the shard.
            let same = |other: &&u32| rank(**other) == rank(cid.0);
            let mut behind = takers.iter().filter(same).filter(|&&other| other >= from);
            let first = behind.next().or_else(|| takers.iter().find(same));
            if first != Some(&cid.0) {
                return wrong("not the nearest of the shard");
            }
        }
        let lowest = takers.iter().map(|&cid| level(cid)).min();
        seen.nearer += u64::from(lowest < Some(found_level.get()));
        seen.unfit += u64::from(fit.is_empty());
        seen.places[place.min(2)] += 1;
        Ok(seen)
    }

    /// The whole map: every CPU at its level and nowhere else, and in the summaries.
    pub fn compare(&self) -> Checked {
        for (shard, cids) in (0..).zip(&self.machine.shards) {
            let node = Node(self.machine.tables.node[cids.start as usize]);
            let mut online = 0;
            for cid in cids.clone() {
                let level = self.levels[cid as usize];
                if self.core.level(Cid(cid)).map(Level::get) != level {
                    return Err(format!(
                        "cid {cid} is at {level:?}, the core says otherwise"
                    ));
                }
                let Some(level) = level.and_then(Level::new) else {
                    continue;
                };
                online += 1;
                let bits = self.core.bits_at_level(Shard(shard), level);
                if bits >> (cid - cids.start) & 1 == 0 {
                    return Err(format!("cid {cid} is not in its level {level}"));
                }
                if !self.core.shard_in_level(Shard(shard), level) {
                    return Err(format!("shard {shard} is not named at level {level}"));
                }
                if !self.core.node_in_level(node, level) {
                    return Err(format!("node {node} is not named at level {level}"));
                }
            }
            let all = (0..Level::COUNT).filter_map(Level::new);
            let count: u32 = all.map(|l| self.core.count_at_level(Shard(shard), l)).sum();
            if count != online {
                return Err(format!(
                    "shard {shard}: {online} CPUs are at a level, the core counts {count}"
                ));
            }
        }
        Ok(())
    }
}
