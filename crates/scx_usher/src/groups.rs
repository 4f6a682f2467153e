// SPDX-License-Identifier: GPL-2.0-only
//! Control groups: what the tasks of each weigh beside those of others, so that groups get CPU time by their `cpu.weight`.
//!
//! The BPF programs add up, per CPU, how long the tasks of each group ran or waited ([`crate::shared::GroupTime`]). Every
//! [`PERIOD`] these are summed: a group's demand, in CPUs that it would keep busy if it had them. The machine's CPUs are
//! divided from the root downwards, by weight; what a group does not ask for, or may not have (`cpu.max`), goes to the others of its parent.
//! What it may have, over its tasks, is what each of these is to weigh, and at most a CPU each. All of it is then multiplied so that the
//! tasks of groups that ask for more than they may have weigh together what their nice values say, as how long turns are hangs on weights, too. If there is no
//! such group nothing changes.

use std::collections::BTreeMap;
use std::path::Path;
use std::ptr::{addr_of, addr_of_mut};
use std::time::{Duration, Instant};

use crate::shared::{Bandwidth, GroupEntry, GroupTime, GroupsHead};

/// How often the parts of groups are reckoned.
pub const PERIOD: Duration = Duration::from_millis(500);

/// A part of one: the tasks of a group weigh what their nice values say.
const WHOLE: u32 = 1024;

/// Who gets less than this part of what it asks for is short of it.
const SHORT: f64 = 0.99;

/// After so many rounds without one of its tasks a group is forgotten. Until then what it asked for halves each time, since they may wait.
const FORGOTTEN: u32 = 16;

/// A group of which less than so many tasks are runnable in the mean is not reckoned with.
const IDLE: f64 = 0.001;

/// No group's tasks weigh less than by this factor, ...
const LEAST: f64 = 1.0 / 64.0;
/// ... nor more than by this one. The more those weigh who run most, the more slowly virtual time goes on, and where that takes long the core pushes it on, lest
/// somebody waits until the kernel ejects usher; but then all have turns alike.
const MOST: f64 = 16.0;

/// What `cpu.weight` is by default, and the weight of a task of nice 0.
const NORMAL: f64 = 100.0;
/// Shares of the kernel's for that.
const NORMAL_SHARES: f64 = 1024.0;

/// The kernel's id of a group.
type Id = u32;

/// The pool of groups whose tasks may run on all CPUs.
const EVERYWHERE: u32 = 0;

/// Tasks of no group, of one of autogroup's, or of one with too high an id: they count as the root's own.
const OTHERS: Id = 0;

/// How many groups there is room for on so many CPUs: what a machine has now, twice, and some.
pub fn room(cpus: usize) -> u32 {
    let there = directories(Path::new("/sys/fs/cgroup"), 16);
    (1024 + 2 * there).next_power_of_two().min(most(cpus))
}

/// How many there may be at most: no more than 96 MiB of times.
fn most(cpus: usize) -> u32 {
    let most = (96 << 20) / (size_of::<GroupTime>() * cpus.max(1));
    1 << most.clamp(256, 16_384).ilog2()
}

/// How many directories there are, so many levels down.
fn directories(at: &Path, levels: u32) -> u32 {
    let entries = std::fs::read_dir(at).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    match levels {
        0 => 0,
        _ => below
            .map(|entry| 1 + directories(&entry.path(), levels - 1))
            .sum(),
    }
}

/// The tables that are shared with BPF.
struct Table {
    head: *mut GroupsHead,
    entries: *mut GroupEntry,
    bandwidths: *const Bandwidth,
    times: *const GroupTime,
    groups: usize,
    cpus: usize,
}

impl Table {
    /// Where in them the bandwidths begin.
    fn bandwidths_at(groups: u32) -> usize {
        (size_of::<GroupsHead>() + groups as usize * size_of::<GroupEntry>()).next_multiple_of(64)
    }

    /// And the times.
    fn times_at(groups: u32) -> usize {
        Self::bandwidths_at(groups) + groups as usize * size_of::<Bandwidth>()
    }

    fn round(&self) -> u32 {
        // SAFETY: within the tables, which are there as `Sharing::build()` was promised.
        unsafe { addr_of!((*self.head).round).read_volatile() }
    }

    fn begin_round(&self, round: u32) {
        // SAFETY: within the tables, which are there as `Sharing::build()` was promised.
        unsafe { addr_of_mut!((*self.head).round).write_volatile(round) }
    }

    fn beyond(&self) -> bool {
        // SAFETY: within the tables, which are there as `Sharing::build()` was promised.
        unsafe { addr_of!((*self.head).beyond).read_volatile() != 0 }
    }

    fn entry(&self, id: Id) -> GroupEntry {
        assert!((id as usize) < self.groups);
        // SAFETY: within the tables, which are there as `Sharing::build()` was promised.
        unsafe { self.entries.add(id as usize).read_volatile() }
    }

    /// `cpu.max` of a group, in CPUs.
    fn limit(&self, id: Id) -> f64 {
        assert!((id as usize) < self.groups);
        // SAFETY: within the tables, which are there as `Sharing::build()` was promised.
        let bandwidth = unsafe { self.bandwidths.add(id as usize).read_volatile() };
        match (bandwidth.quota_ns, bandwidth.period_ns) {
            (0, _) | (_, 0) => f64::INFINITY,
            (quota, period) => quota as f64 / period as f64,
        }
    }

    fn set_part(&self, id: Id, part: u32) {
        assert!((id as usize) < self.groups);
        // SAFETY: within the tables, which are there as `Sharing::build()` was promised.
        unsafe { addr_of_mut!((*self.entries.add(id as usize)).part).write_volatile(part) }
    }

    /// What the tasks of some groups ran and waited on all CPUs. CPU by CPU, as some groups share a line there, which that CPU then has to fetch again.
    fn times(&self, ids: &[Id]) -> Vec<GroupTime> {
        let mut sums = vec![GroupTime::default(); ids.len()];
        for cpu in 0..self.cpus {
            for (&id, sum) in ids.iter().zip(&mut sums) {
                assert!((id as usize) < self.groups);
                let at = cpu * self.groups + id as usize;
                // SAFETY: within the tables, which are there as `Sharing::build()` was promised.
                let time = unsafe { self.times.add(at).read_volatile() };
                sum.ns = sum.ns.wrapping_add(time.ns);
                sum.weighted = sum.weighted.wrapping_add(time.weighted);
            }
        }
        sums
    }
}

/// Where in memory the tables are.
pub struct Addresses {
    /// `struct usher_groups`.
    pub groups: u64,
    /// `struct usher_bandwidth`, by group.
    pub bandwidths: u64,
    /// `struct usher_group_time`, by CPU and there by group.
    pub times: u64,
}

/// Divides CPU time among groups for as long as a scheduler is attached.
pub struct Sharing {
    table: Table,
    /// Since when the times are added up that are looked at next.
    began: Option<Instant>,
    /// What each group had run and waited when it was last looked at.
    seen: BTreeMap<Id, GroupTime>,
    /// Groups of the last round.
    groups: BTreeMap<Id, Group>,
    /// What came of the last round.
    pub shares: Shares,
    /// Whether it was said that there are too many.
    told: bool,
}

impl Sharing {
    /// Bytes for so many groups, on so many CPUs.
    pub fn bytes(groups: u32, cpus: usize) -> usize {
        Table::times_at(groups) + cpus * groups as usize * size_of::<GroupTime>()
    }

    /// Builds the tables.
    ///
    /// # Safety
    /// There is zeroed memory of [`Self::bytes`] behind `at`, aligned to 64, for longer than this. BPF programs write to it,
    /// and nobody else.
    pub unsafe fn build(at: *mut u8, groups: u32, cpus: usize) -> Self {
        // SAFETY: all are behind `at`, where there are so many bytes.
        let (entries, bandwidths, times) = unsafe {
            (
                at.add(size_of::<GroupsHead>()),
                at.add(Table::bandwidths_at(groups)),
                at.add(Table::times_at(groups)),
            )
        };
        let table = Table {
            head: at.cast(),
            entries: entries.cast(),
            bandwidths: bandwidths.cast(),
            times: times.cast(),
            groups: groups as usize,
            cpus,
        };
        (0..groups).for_each(|id| table.set_part(id, WHOLE));
        table.begin_round(1);
        Self {
            table,
            began: None,
            seen: BTreeMap::new(),
            groups: BTreeMap::new(),
            shares: Shares::default(),
            told: false,
        }
    }

    /// Where BPF programs find them.
    pub fn addresses(&self) -> Addresses {
        Addresses {
            groups: self.table.head as u64,
            bandwidths: self.table.bandwidths as u64,
            times: self.table.times as u64,
        }
    }

    /// Reckons anew what the tasks of each group weigh, from what they did since the last time.
    pub fn reckon(&mut self) {
        let now = Instant::now();
        let round = self.table.round();
        let known = |id: &Id| self.table.entry(*id).round == round || self.groups.contains_key(id);
        let ids: Vec<Id> = (0..self.table.groups as u32).filter(known).collect();
        let times = self.table.times(&ids);
        let Some(began) = self.began.replace(now) else {
            self.seen.extend(ids.into_iter().zip(times));
            return;
        };
        let elapsed_ns = now.duration_since(began).as_nanos().max(1) as f64;
        let mut groups = BTreeMap::new();
        for (id, time) in ids.into_iter().zip(times) {
            let group = self.look(id, time, round, elapsed_ns);
            if group.unseen < FORGOTTEN {
                groups.insert(id, group);
            } else {
                // Whoever comes next does not find what was reckoned for a crowd.
                self.table.set_part(id, WHOLE);
            }
        }
        let (parts, shares) = parts(&groups, self.table.cpus as f64);
        for (&id, &part) in &parts {
            self.table.set_part(id, part);
        }
        if self.table.beyond() && !self.told {
            self.told = true;
            let room = self.table.groups as u32;
            let remedy = match room < most(self.table.cpus) {
                true => "; start scx_usher again, and there is room for them",
                false => "",
            };
            log::warn!("more than {room} control groups: tasks of the others count as tasks of none{remedy}");
        }
        log::trace!("control groups: {groups:?}, parts of {WHOLE}: {parts:?}");
        (self.groups, self.shares) = (groups, shares);
        self.table.begin_round(round.wrapping_add(1).max(1));
    }

    /// What became of a group since it was last looked at; half as much counts what was there before.
    fn look(&mut self, id: Id, time: GroupTime, round: u32, elapsed_ns: f64) -> Group {
        let entry = self.table.entry(id);
        let before = self.seen.insert(id, time).unwrap_or_default();
        let since = |now: u64, before: u64| now.wrapping_sub(before) as f64 / elapsed_ns;
        let mut group = Group {
            parent: entry.parent,
            weight: f64::from(entry.shares.max(1)) * NORMAL / NORMAL_SHARES,
            limit: self.table.limit(id),
            tasks: since(time.ns, before.ns),
            weights: since(time.weighted, before.weighted),
            pool: entry.pool,
            cpus: f64::from(entry.cpus),
            serial: entry.serial,
            unseen: 0,
        };
        // The id of a group that has gone is given to another.
        let last = self.groups.get(&id);
        if let Some(last) = last.filter(|last| last.serial == entry.serial) {
            if entry.round != round {
                group.unseen = last.unseen + 1;
            }
            group.tasks = (group.tasks + last.tasks) / 2.0;
            group.weights = (group.weights + last.weights) / 2.0;
        }
        group
    }
}

/// A group of which tasks ran of late, in it or below.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Group {
    /// Its parent. The root's is itself.
    parent: Id,
    /// `cpu.weight`, 100 by default.
    weight: f64,
    /// `cpu.max`, in CPUs.
    limit: f64,
    /// How many of its own tasks are runnable in the mean.
    tasks: f64,
    /// The sum of their weights; a nice value of 0 counts 100.
    weights: f64,
    /// The same for groups whose tasks may run on the same CPUs; 0: on all.
    pool: u32,
    /// How many these are.
    cpus: f64,
    /// Tells it from others that had its id.
    serial: u32,
    /// For how many rounds nobody has seen any.
    unseen: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Groups of which tasks ran of late.
    pub groups: usize,
    /// Of those, how many ask for more than they may have.
    pub short: usize,
}

/// What the weights of each group's tasks are to be multiplied by, in parts of [`WHOLE`].
fn parts(groups: &BTreeMap<Id, Group>, cpus: f64) -> (BTreeMap<Id, u32>, Shares) {
    let tree = Tree::of(groups);
    let mut dues = BTreeMap::new();
    tree.divide(Tree::ROOT, cpus, &mut dues);
    for (pool, cpus) in pools(groups) {
        let confined = Tree::of(&members(groups, pool));
        let mut theirs = BTreeMap::new();
        confined.divide(Tree::ROOT, cpus, &mut theirs);
        theirs.retain(|id, _| groups.get(id).is_some_and(|group| group.pool == pool));
        dues.extend(theirs);
    }
    dues.retain(|id, _| tree.nodes[id].tasks >= IDLE);
    let short = || dues.iter().filter(|(_, due)| due.short);
    let weights: f64 = short().map(|(id, _)| tree.nodes[id].weights).sum();
    let weigh: f64 = short()
        .map(|(id, due)| tree.nodes[id].weights * due.part)
        .sum();
    let shares = Shares {
        groups: dues.keys().filter(|id| **id != Tree::ROOT).count(),
        short: short().count(),
    };
    let mut scale = weights / weigh;
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for due in dues.values() {
        (least, most) = (least.min(due.part), most.max(due.part));
    }
    if scale * most > MOST {
        // Let the crowd weigh less, as far as that goes.
        scale = (MOST / most).max(LEAST / least).min(scale);
    }
    let of = |&id: &Id| {
        let due = dues.get(&tree.node_of(id)).filter(|_| shares.short > 0);
        let part = due.map_or(1.0, |due| (due.part * scale).clamp(LEAST, MOST));
        (id, (part * f64::from(WHOLE)).round() as u32)
    };
    (groups.keys().map(of).collect(), shares)
}

/// Some CPUs that are all that the tasks of some groups may run on, and how many there are.
fn pools(groups: &BTreeMap<Id, Group>) -> BTreeMap<u32, f64> {
    let confined = groups.values().filter(|group| group.pool != EVERYWHERE);
    confined.map(|group| (group.pool, group.cpus)).collect()
}

/// The groups of a pool, and those above them without their tasks.
fn members(groups: &BTreeMap<Id, Group>, pool: u32) -> BTreeMap<Id, Group> {
    let mut members = BTreeMap::new();
    for (&id, &group) in groups.iter().filter(|(_, group)| group.pool == pool) {
        members.insert(id, group);
        let mut above = group.parent;
        while let Some(&group) = groups.get(&above).filter(|_| !members.contains_key(&above)) {
            // One that is of the pool itself has its tasks from the loop around this one.
            let idle = Group {
                tasks: 0.0,
                weights: 0.0,
                ..group
            };
            members.insert(above, idle);
            above = group.parent;
        }
    }
    members
}

/// What the tasks of a node itself are to have.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// Over their weights, in CPUs for one of weight [`NORMAL`].
    part: f64,
    /// Whether it is less than they ask for.
    short: bool,
}

/// A node's own tasks, and the nodes below it.
#[derive(Debug, Default)]
struct Node {
    weight: f64,
    limit: f64,
    tasks: f64,
    weights: f64,
    below: Vec<Id>,
    /// All tasks in it and below, and no more than it may have.
    demand: f64,
}

struct Tree {
    nodes: BTreeMap<Id, Node>,
    root: Option<Id>,
}

impl Tree {
    /// The root's node; its own id is the kernel's matter.
    const ROOT: Id = OTHERS;

    fn of(groups: &BTreeMap<Id, Group>) -> Self {
        let root = groups
            .iter()
            .find(|(id, group)| **id != OTHERS && group.parent == **id);
        let mut tree = Self {
            nodes: BTreeMap::from([(Self::ROOT, Node::default())]),
            root: root.map(|(id, _)| *id),
        };
        for (&id, group) in groups {
            let node = tree.nodes.entry(tree.node_of(id)).or_default();
            node.weight = group.weight;
            node.limit = match group.pool {
                EVERYWHERE => group.limit,
                _ => group.limit.min(group.cpus),
            };
            node.tasks += group.tasks;
            node.weights += group.weights;
        }
        for (&id, group) in groups {
            let node = tree.node_of(id);
            if node == Self::ROOT {
                continue;
            }
            let above = tree.above(groups, group.parent);
            tree.nodes.get_mut(&above).expect("a node").below.push(node);
        }
        tree.sum(Self::ROOT);
        tree
    }

    fn node_of(&self, id: Id) -> Id {
        if Some(id) == self.root {
            Self::ROOT
        } else {
            id
        }
    }

    /// The node of a parent: the root's, if that is not known, or if it is below itself. For what was read of a group that went meanwhile
    /// may be of another.
    fn above(&self, groups: &BTreeMap<Id, Group>, parent: Id) -> Id {
        let mut at = parent;
        for _ in 0..groups.len() {
            match groups.get(&at) {
                Some(group) if self.node_of(at) != Self::ROOT => at = group.parent,
                _ if groups.contains_key(&parent) => return self.node_of(parent),
                _ => break,
            }
        }
        Self::ROOT
    }

    fn sum(&mut self, id: Id) -> f64 {
        let below = self.nodes[&id].below.clone();
        let demand = below.into_iter().map(|id| self.sum(id)).sum::<f64>();
        let node = self.nodes.get_mut(&id).expect("a node");
        node.demand = demand + node.tasks;
        if id != Self::ROOT {
            node.demand = node.demand.min(node.limit);
        }
        node.demand
    }

    /// Divides what a node may have among its own tasks and those below it.
    fn divide(&self, id: Id, cpus: f64, dues: &mut BTreeMap<Id, Due>) {
        let node = &self.nodes[&id];
        if node.below.is_empty() && id != Self::ROOT {
            // However briefly they run: it may be one that now goes on.
            let each = (cpus / node.tasks.max(1.0)).min(1.0);
            let due = Due {
                part: each * node.tasks * NORMAL / node.weights,
                short: cpus < SHORT * node.tasks,
            };
            dues.insert(id, due);
            return;
        }
        // Its own tasks stand beside the groups below it, each with its own weight.
        let below = node.below.iter().map(|id| &self.nodes[id]);
        let mut wants = vec![(node.weights, node.tasks)];
        wants.extend(below.map(|below| (below.weight, below.demand)));
        let level = level(cpus, &wants);
        let due = Due {
            part: level.map_or(1.0, |level| (level * NORMAL).min(1.0)),
            short: level.is_some_and(|level| level * node.weights < SHORT * node.tasks),
        };
        dues.insert(id, due);
        let left = cpus - wants.iter().map(|(_, wanted)| wanted).sum::<f64>();
        for id in &node.below {
            let below = &self.nodes[id];
            let may = level.map_or(below.demand + left, |level| level * below.weight);
            self.divide(*id, may.min(below.limit), dues);
        }
    }
}

/// Divides so many CPUs by weight among some who want so many each at most, and gives what one does not want to the others: how many CPUs there are for
/// each unit of weight of those who want more. Nothing if nobody does.
fn level(cpus: f64, wants: &[(f64, f64)]) -> Option<f64> {
    let mut order: Vec<(f64, f64)> = wants.iter().copied().filter(|want| want.0 > 0.0).collect();
    order.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let (mut left, mut weights) = (cpus, order.iter().map(|want| want.0).sum::<f64>());
    for (weight, wanted) in order {
        if wanted * weights > left * weight {
            return Some(left / weights);
        }
        left -= wanted;
        weights -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Id = 1;

    fn group(parent: Id, weight: f64, tasks: f64) -> Group {
        Group {
            parent,
            weight,
            limit: f64::INFINITY,
            tasks,
            weights: tasks * NORMAL,
            pool: EVERYWHERE,
            cpus: 0.0,
            serial: 0,
            unseen: 0,
        }
    }

    fn parts_of(groups: &[(Id, Group)], cpus: f64) -> (BTreeMap<Id, u32>, Shares) {
        parts(&groups.iter().copied().collect(), cpus)
    }

    /// What each of some groups gets, in thousandths, if their tasks get what they weigh.
    fn split(groups: &[(Id, Group)], cpus: f64) -> Vec<i64> {
        let (parts, _) = parts_of(groups, cpus);
        let part = |id: &Id| parts.get(id).copied().unwrap_or(0);
        let weigh = |(id, group): &(Id, Group)| group.weights * f64::from(part(id));
        let all: f64 = groups.iter().map(weigh).sum();
        let share = |group| (weigh(group) / all * 1000.0).round() as i64;
        groups.iter().map(share).collect()
    }

    // Goal: groups get CPU time by weight, however many tasks they have, on every level. Method: crowds of known sizes.
    #[test]
    fn crowds_get_what_their_groups_weigh() {
        let two = [
            (2, group(ROOT, 100.0, 600.0)),
            (3, group(ROOT, 300.0, 20.0)),
        ];
        assert_eq!(split(&two, 8.0), [250, 750]);
        let (_, shares) = parts_of(&two, 8.0);
        assert_eq!(
            shares,
            Shares {
                groups: 2,
                short: 2
            }
        );
        // Two in the one, and nobody in the other's two but in one of them.
        let nested = [
            (2, group(ROOT, 100.0, 0.0)),
            (3, group(2, 100.0, 30.0)),
            (4, group(2, 100.0, 10.0)),
            (5, group(ROOT, 100.0, 0.0)),
            (6, group(5, 1.0, 8.0)),
        ];
        let (parts, _) = parts_of(&nested, 4.0);
        let weigh = |id: Id, tasks: u32| parts[&id] * tasks;
        let of =
            [weigh(3, 30), weigh(4, 10), weigh(6, 8)].map(|weight| weight * 1000 / weigh(6, 8));
        assert!(
            of.iter()
                .zip([500, 500, 1000])
                .all(|(of, is)| of.abs_diff(is) < 5),
            "{of:?}"
        );
    }

    // Goal: nothing changes where nobody wants more than there is, whatever the nice values, nor for one group alone. Method: both, with tasks of other
    // nice values.
    #[test]
    fn who_is_alone_or_has_enough_weighs_what_it_did() {
        let niced = |tasks, weights| Group {
            weights,
            ..group(ROOT, 100.0, tasks)
        };
        let enough = [
            (ROOT, niced(0.1, 443.0)),
            (2, group(ROOT, 20.0, 3.0)),
            (3, niced(0.8, 1.2)),
        ];
        let (parts, shares) = parts_of(&enough, 4.0);
        assert!(parts.values().all(|&part| part == WHOLE), "{parts:?}");
        assert_eq!(
            shares,
            Shares {
                groups: 2,
                short: 0
            }
        );
        let (parts, shares) = parts_of(&[(7, niced(90.0, 123.0))], 4.0);
        assert_eq!((parts[&7], shares.short), (WHOLE, 1));
    }

    // Goal: who has enough weighs as much more as the crowd asks for too much, but not beyond what its group is due: of one that is due next to
    // nothing many may wake at once. Method: a task now and then beside a crowd, of as much and of little weight; tasks of no group.
    #[test]
    fn light_groups_weigh_what_they_are_due() {
        let beside = |weight| {
            let groups = [
                (ROOT, group(ROOT, 100.0, 0.05)),
                (2, group(ROOT, 100.0, 40.0)),
                (3, group(ROOT, weight, 0.01)),
            ];
            let (parts, shares) = parts_of(&groups, 4.0);
            assert_eq!(
                shares,
                Shares {
                    groups: 2,
                    short: 1
                }
            );
            assert_eq!(parts[&2], WHOLE, "the crowd's turns are as long as before");
            (parts[&ROOT], parts[&3])
        };
        let ten = 10 * WHOLE;
        let (root, alike) = beside(100.0);
        assert!(
            root.abs_diff(ten) < ten / 20 && alike.abs_diff(ten) < ten / 20,
            "{root}, {alike}"
        );
        let (root, little) = beside(1.0);
        assert!(
            root.abs_diff(ten) < ten / 20 && little.abs_diff(ten / 25) < ten / 250,
            "{little}"
        );
    }

    // Goal: very unequal crowds, too, get what they are due: the greater weighs less where the smaller may not weigh more. Method: hundreds of tasks
    // for each of the other group's.
    #[test]
    fn hundreds_may_stand_beside_one() {
        let split = |tasks| {
            split(
                &[(2, group(ROOT, 100.0, tasks)), (3, group(ROOT, 100.0, 1.0))],
                2.0,
            )
        };
        for tasks in [10.0, 100.0, 300.0, 1000.0] {
            assert!(
                split(tasks)[1].abs_diff(500) < 10,
                "{tasks}: {:?}",
                split(tasks)
            );
        }
    }

    // Goal: what a group does not want goes to the others of its parent before it goes to anybody else. Method: one with hardly anything beside a
    // crowd, under one parent, and a crowd elsewhere.
    #[test]
    fn what_one_leaves_its_siblings_get() {
        let groups = [
            (2, group(ROOT, 100.0, 0.0)),
            (3, group(2, 100.0, 40.0)),
            (4, group(2, 100.0, 0.02)),
            (5, group(ROOT, 100.0, 40.0)),
        ];
        let (parts, shares) = parts_of(&groups, 8.0);
        assert!(
            parts[&3].abs_diff(parts[&5]) <= parts[&5] / 100,
            "{parts:?}"
        );
        assert!(
            parts[&4] > 4 * parts[&3],
            "who has enough comes soon: {parts:?}"
        );
        assert_eq!(
            shares,
            Shares {
                groups: 3,
                short: 2
            }
        );
    }

    // Goal: a group gets no more than its limit, while others ask for more, and who is below it no more than that together. Method: limits of one
    // and of two CPUs, the second of a group of two.
    #[test]
    fn a_limit_is_what_a_group_asks_for_at_most() {
        let limited = |limit, group| Group { limit, ..group };
        let groups = [
            (2, limited(1.0, group(ROOT, 10_000.0, 30.0))),
            (3, limited(2.0, group(ROOT, 100.0, 0.0))),
            (4, group(3, 300.0, 9.0)),
            (5, group(3, 100.0, 9.0)),
            (6, group(ROOT, 100.0, 20.0)),
        ];
        assert_eq!(split(&groups, 8.0), [125, 0, 188, 63, 625]);
    }

    // Goal: groups whose tasks may run on the same few CPUs divide those, whatever idles elsewhere, and others are divided as before. Method: such
    // groups, by the machine's CPUs all with enough, in a group of one that may run everywhere; then a crowd beside them.
    #[test]
    fn groups_of_a_cpuset_divide_its_cpus() {
        let confined = |group| Group {
            pool: 77,
            cpus: 4.0,
            ..group
        };
        let groups = [
            (2, group(ROOT, 100.0, 1.0)),
            (3, confined(group(2, 100.0, 30.0))),
            (4, confined(group(2, 300.0, 3.0))),
            (5, group(ROOT, 100.0, 10.0)),
        ];
        let (parts, shares) = parts_of(&groups, 64.0);
        assert_eq!(
            shares,
            Shares {
                groups: 4,
                short: 1
            }
        );
        let ratio = f64::from(parts[&4] * 3) / f64::from(parts[&3] * 30);
        assert!((ratio - 3.0).abs() < 0.1, "{parts:?}");
        assert_eq!(
            (parts[&2], parts[&5]),
            (parts[&4], parts[&4]),
            "they have enough"
        );
        let (parts, shares) = parts_of(&[groups[1], (6, group(ROOT, 100.0, 240.0))], 64.0);
        let each = f64::from(parts[&3]) / f64::from(parts[&6]);
        assert!(
            (each - (4.0 / 30.0) / (60.0 / 240.0)).abs() < 0.05,
            "{parts:?}"
        );
        assert_eq!(shares.short, 2);
    }

    // Goal: tasks of the root, and those of no group, stand beside groups with their own weights. Method: as many of each as the group weighs.
    #[test]
    fn tasks_of_no_group_stand_for_themselves() {
        let groups = [
            (OTHERS, group(ROOT, 100.0, 3.0)),
            (ROOT, group(ROOT, 100.0, 1.0)),
            (9, group(ROOT, 400.0, 50.0)),
        ];
        assert_eq!(split(&groups, 2.0), [375, 125, 500]);
    }

    // Goal: nonsense does no harm, as ids of groups that went are given to others. Method: parents that are each other's, or not there.
    #[test]
    fn groups_that_hang_together_badly_count_as_the_roots() {
        let groups = [
            (2, group(3, 100.0, 10.0)),
            (3, group(2, 100.0, 20.0)),
            (4, group(77, 100.0, 5.0)),
        ];
        assert_eq!(split(&groups, 1.0), [333, 333, 333]);
        assert_eq!(parts_of(&[], 4.0), (BTreeMap::new(), Shares::default()));
    }

    #[repr(C, align(64))]
    #[derive(Clone, Copy)]
    struct Line([u64; 8]);

    /// What a test and `Sharing` share, as BPF programs and the loader do.
    struct Bench {
        sharing: Sharing,
        _memory: Vec<Line>,
    }

    impl Bench {
        const GROUPS: u32 = 8;

        /// For two CPUs; a round has begun.
        fn new() -> Self {
            let mut memory = vec![Line([0; 8]); Sharing::bytes(Self::GROUPS, 2).div_ceil(64)];
            let at = memory.as_mut_ptr().cast();
            // SAFETY: zeroed, long enough, and kept beside it.
            let mut sharing = unsafe { Sharing::build(at, Self::GROUPS, 2) };
            sharing.reckon();
            Self {
                sharing,
                _memory: memory,
            }
        }

        /// Tasks of a group ran and waited so many rounds' time on each of the CPUs.
        fn took(&mut self, id: Id, serial: u32, rounds: [u64; 2]) {
            let (table, round) = (&self.sharing.table, self.sharing.table.round());
            for (cpu, rounds) in rounds.into_iter().enumerate() {
                let at = cpu * Self::GROUPS as usize + id as usize;
                // SAFETY: within the tables.
                unsafe {
                    let entry = table.entries.add(id as usize);
                    (*entry).round = round;
                    (*entry).parent = ROOT;
                    (*entry).shares = 1024;
                    (*entry).serial = serial;
                    let time = table.times.cast_mut().add(at);
                    (*time).ns += rounds * PERIOD.as_nanos() as u64;
                    (*time).weighted += rounds * PERIOD.as_nanos() as u64 * 100;
                }
            }
        }

        fn reckon(&mut self) {
            self.sharing.began = Some(Instant::now() - PERIOD);
            self.sharing.reckon();
        }

        fn part(&self, id: Id) -> u32 {
            self.sharing.table.entry(id).part
        }

        fn tasks(&self, id: Id) -> f64 {
            (self.sharing.groups[&id].tasks * 100.0).round() / 100.0
        }
    }

    // Goal: the tables stay small on large machines. Method: sizes for some.
    #[test]
    fn there_is_room_for_fewer_on_many_cpus() {
        let rooms = [1, 256, 480, 4096].map(most);
        assert_eq!(rooms, [16_384, 16_384, 8192, 1024]);
        assert!(room(4).is_power_of_two() && room(4) >= 1024 && room(4096) == 1024);
    }

    // Goal: what CPUs wrote becomes what tasks weigh, and is forgotten when a group has gone. Method: times in the tables, as BPF programs write them, other
    // ones for either CPU.
    #[test]
    fn times_become_parts() {
        let mut bench = Bench::new();
        assert_eq!((bench.part(2), bench.part(3)), (WHOLE, WHOLE));
        bench.took(2, 1, [5, 1]);
        bench.took(3, 2, [0, 2]);
        bench.reckon();
        assert_eq!((bench.tasks(2), bench.tasks(3)), (6.0, 2.0));
        let (many, few) = (bench.part(2), bench.part(3));
        assert!(few.abs_diff(3 * many) < few / 50, "{many} and {few}");
        assert_eq!(
            bench.sharing.shares,
            Shares {
                groups: 2,
                short: 2
            }
        );
        // One of them goes on.
        bench.took(2, 1, [0, 2]);
        bench.reckon();
        assert_eq!((bench.tasks(2), bench.tasks(3)), (4.0, 1.0));
        for _ in 2..=FORGOTTEN {
            bench.reckon();
        }
        assert_eq!((bench.part(2), bench.part(3)), (WHOLE, WHOLE));
        assert!(!bench.sharing.groups.contains_key(&3));
        bench.took(3, 2, [1, 0]);
        bench.reckon();
        assert_eq!(
            bench.tasks(3),
            1.0,
            "what it had before is not counted again"
        );
    }

    // Goal: a group does not inherit from one that had its id. Method: another serial number under the same id.
    #[test]
    fn who_has_the_id_of_another_begins_anew() {
        let mut bench = Bench::new();
        bench.took(2, 1, [50, 50]);
        bench.took(3, 2, [1, 0]);
        bench.reckon();
        bench.took(2, 7, [1, 0]);
        bench.took(3, 2, [1, 0]);
        bench.reckon();
        assert_eq!(bench.tasks(2), 1.0);
        assert_eq!((bench.part(2), bench.part(3)), (WHOLE, WHOLE));
    }
}
