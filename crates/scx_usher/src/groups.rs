// SPDX-License-Identifier: GPL-2.0-only
//! Control groups: what the tasks of each weigh beside those of others, so that groups get CPU time by their `cpu.weight`.
//!
//! The BPF programs add up, per CPU, how long the tasks of each group ran or waited ([`crate::shared::GroupTime`]). Every
//! [`PERIOD`] these are summed: a group's demand, in CPUs that it would keep busy if it had them. The machine's CPUs are
//! divided from the root downwards, by weight, and what a group does not ask for, or may not have (`cpu.max`), goes to the others of its parent. A task's weight is then
//! multiplied by what its group may have over what it asks for, times a factor for all groups that leaves the sum of all weights
//! as it is. So where nobody wants more than there is nothing changes, nor where one group alone does.

use std::collections::BTreeMap;
use std::path::Path;
use std::ptr::{addr_of, addr_of_mut};
use std::time::{Duration, Instant};

use crate::shared::{GroupEntry, GroupTime, GroupsHead};

/// How often the parts of groups are reckoned.
pub const PERIOD: Duration = Duration::from_millis(500);

/// A part of one: the tasks of a group weigh what their nice values say.
pub const WHOLE: u32 = 1024;

/// Who gets less than this part of what it asks for is short of it.
const SHORT: f64 = 0.99;

/// After so many rounds without one of its tasks a group is forgotten. Until then what it asked for halves each time, since they may wait.
const FORGOTTEN: u32 = 16;

/// No group's tasks weigh more or less than by this factor.
const LEAST: f64 = 1.0 / 64.0;
const MOST: f64 = 64.0;

/// What `cpu.weight` is by default, and the weight of a task of nice 0.
const NORMAL: f64 = 100.0;
/// Shares of the kernel's for that.
const NORMAL_SHARES: f64 = 1024.0;

/// In what limits are counted, of a CPU.
const LIMITS: f64 = 1024.0;

/// The kernel's id of a group.
type Id = u32;

/// Tasks of no group, of one of autogroup's, or of one with too high an id: they count as the root's own.
const OTHERS: Id = 0;

/// How many groups there is room for: what a machine has now, twice, and some.
pub fn room() -> u32 {
    let there = directories(Path::new("/sys/fs/cgroup"), 16);
    (1024 + 2 * there).next_power_of_two().min(16_384)
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
    times: *const GroupTime,
    groups: usize,
    cpus: usize,
}

impl Table {
    /// Bytes that it needs.
    fn bytes(groups: u32, cpus: usize) -> usize {
        Self::times_at(groups) + cpus * groups as usize * size_of::<GroupTime>()
    }

    fn times_at(groups: u32) -> usize {
        (size_of::<GroupsHead>() + groups as usize * size_of::<GroupEntry>()).next_multiple_of(64)
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

    fn set_part(&self, id: Id, part: u32) {
        assert!((id as usize) < self.groups);
        // SAFETY: within the tables, which are there as `Sharing::build()` was promised.
        unsafe { addr_of_mut!((*self.entries.add(id as usize)).part).write_volatile(part) }
    }

    /// What its tasks ran and waited on all CPUs.
    fn time(&self, id: Id) -> GroupTime {
        assert!((id as usize) < self.groups);
        let mut sum = GroupTime::default();
        for cpu in 0..self.cpus {
            let at = cpu * self.groups + id as usize;
            // SAFETY: within the tables, which are there as `Sharing::build()` was promised.
            let time = unsafe { self.times.add(at).read_volatile() };
            sum.ns = sum.ns.wrapping_add(time.ns);
            sum.weighted = sum.weighted.wrapping_add(time.weighted);
        }
        sum
    }
}

/// Divides CPU time among groups for as long as a scheduler is attached.
pub struct Sharing {
    table: Table,
    began: Instant,
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
        Table::bytes(groups, cpus)
    }

    /// Builds the tables.
    ///
    /// # Safety
    /// There is zeroed memory of [`Self::bytes`] behind `at`, aligned to 64, for longer than this. BPF programs write to it,
    /// and nobody else.
    pub unsafe fn build(at: *mut u8, groups: u32, cpus: usize) -> Self {
        // SAFETY: both are behind `at`, where there are so many bytes.
        let (entries, times) = unsafe {
            (
                at.add(size_of::<GroupsHead>()),
                at.add(Table::times_at(groups)),
            )
        };
        let table = Table {
            head: at.cast(),
            entries: entries.cast(),
            times: times.cast(),
            groups: groups as usize,
            cpus,
        };
        (0..groups).for_each(|id| table.set_part(id, WHOLE));
        table.begin_round(1);
        Self {
            table,
            began: Instant::now(),
            seen: BTreeMap::new(),
            groups: BTreeMap::new(),
            shares: Shares::default(),
            told: false,
        }
    }

    /// Where BPF programs find the groups, and the times of their tasks.
    pub fn addresses(&self) -> (u64, u64) {
        (self.table.head as u64, self.table.times as u64)
    }

    /// Reckons anew what the tasks of each group weigh.
    pub fn reckon(&mut self) {
        let now = Instant::now();
        let elapsed_ns = (now - self.began).as_nanos() as f64;
        let round = self.table.round();
        let mut groups = BTreeMap::new();
        for id in 0..self.table.groups as u32 {
            let entry = self.table.entry(id);
            let unseen = match self.groups.get(&id) {
                _ if entry.round == round => 0,
                Some(group) => group.unseen + 1,
                None => continue,
            };
            if unseen < FORGOTTEN {
                groups.insert(id, self.look(id, entry, unseen, elapsed_ns));
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
            let most = self.table.groups;
            log::warn!("more than {most} control groups: tasks of those beyond count as tasks of none; start scx_usher again");
        }
        log::trace!("control groups: {groups:?}, parts of {WHOLE}: {parts:?}");
        (self.groups, self.shares, self.began) = (groups, shares, now);
        self.table.begin_round(round.wrapping_add(1).max(1));
    }

    /// What became of a group since it was last looked at; half as much counts what was there before.
    fn look(&mut self, id: Id, entry: GroupEntry, unseen: u32, elapsed_ns: f64) -> Group {
        let time = self.table.time(id);
        let before = self.seen.insert(id, time).unwrap_or_default();
        let since = |now: u64, before: u64| now.wrapping_sub(before) as f64 / elapsed_ns;
        let mut group = Group {
            parent: entry.parent,
            weight: f64::from(entry.shares.max(1)) * NORMAL / NORMAL_SHARES,
            limit: match entry.limit {
                0 => f64::INFINITY,
                limit => f64::from(limit) / LIMITS,
            },
            tasks: since(time.ns, before.ns),
            weights: since(time.weighted, before.weighted),
            unseen,
        };
        if let Some(last) = self.groups.get(&id) {
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

/// What the weights of each group's tasks are to be multiplied by, in parts of [`WHOLE`]; nothing for groups without tasks of their own.
fn parts(groups: &BTreeMap<Id, Group>, cpus: f64) -> (BTreeMap<Id, u32>, Shares) {
    let tree = Tree::of(groups);
    let mut gets = BTreeMap::new();
    tree.divide(Tree::ROOT, cpus, &mut gets);
    let weights: f64 = tree.nodes.values().map(|node| node.weights).sum();
    let scale = weights / gets.values().sum::<f64>();
    let mut shares = Shares::default();
    let mut of_nodes = BTreeMap::new();
    for (id, node) in tree.nodes.iter().filter(|(_, node)| node.weights > 0.0) {
        let part = (gets[id] / node.weights * scale).clamp(LEAST, MOST);
        of_nodes.insert(*id, (part * f64::from(WHOLE)).round() as u32);
        shares.groups += 1;
        shares.short += usize::from(gets[id] < SHORT * node.tasks);
    }
    let of = |&id| Some((id, *of_nodes.get(&tree.node_of(id))?));
    (groups.keys().filter_map(of).collect(), shares)
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
            (node.weight, node.limit) = (group.weight, group.limit);
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

    /// Divides so many CPUs among a node's own tasks and those below it.
    fn divide(&self, id: Id, cpus: f64, gets: &mut BTreeMap<Id, f64>) {
        let node = &self.nodes[&id];
        // Its own tasks stand beside the groups below it, each with its weight.
        let mut wants = vec![(node.weights, node.tasks)];
        wants.extend(node.below.iter().map(|id| {
            let below = &self.nodes[id];
            (below.weight, below.demand)
        }));
        let mut each = fill(cpus, &wants).into_iter();
        gets.insert(id, each.next().expect("its own"));
        for (&below, cpus) in node.below.iter().zip(each) {
            self.divide(below, cpus, gets);
        }
    }
}

/// Divides so many CPUs by weight among some who want so many each at most: what one does not want the others get.
fn fill(cpus: f64, wants: &[(f64, f64)]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    let fullness = |&i: &usize| wants[i].1 / wants[i].0.max(f64::MIN_POSITIVE);
    order.sort_by(|a, b| fullness(a).total_cmp(&fullness(b)));
    let (mut left, mut weights) = (cpus, wants.iter().map(|want| want.0).sum::<f64>());
    let mut gets = vec![0.0; wants.len()];
    for i in order {
        let (weight, wanted) = wants[i];
        let may = if weights > 0.0 {
            left * weight / weights
        } else {
            0.0
        };
        gets[i] = wanted.min(may).max(0.0);
        left -= gets[i];
        weights -= weight;
    }
    gets
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
        assert!(
            !parts.contains_key(&2) && !parts.contains_key(&5),
            "{parts:?}"
        );
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

    // Goal: nothing changes where nobody wants more than there is, nor for one group that wants more. Method: both; tasks of several nice
    // values in the second.
    #[test]
    fn who_is_alone_or_has_enough_weighs_what_it_did() {
        let enough = [
            (ROOT, group(ROOT, 100.0, 0.5)),
            (2, group(ROOT, 20.0, 3.0)),
            (3, group(ROOT, 900.0, 0.01)),
        ];
        let (parts, shares) = parts_of(&enough, 4.0);
        assert!(parts.values().all(|&part| part == WHOLE), "{parts:?}");
        assert_eq!(
            shares,
            Shares {
                groups: 3,
                short: 0
            }
        );
        let niced = Group {
            weights: 123.0,
            ..group(ROOT, 100.0, 90.0)
        };
        assert_eq!(parts_of(&[(7, niced)], 4.0).0[&7], WHOLE);
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

    // Goal: what CPUs wrote becomes what tasks weigh, and is forgotten when a group has gone. Method: the tables in memory of this process, written
    // as BPF programs do: two CPUs that groups of one and of three tasks keep busy for a round.
    #[test]
    fn times_become_parts() {
        const GROUPS: u32 = 8;
        let mut memory = vec![Line([0; 8]); Sharing::bytes(GROUPS, 2).div_ceil(64)];
        // SAFETY: zeroed, long enough, and there until the end.
        let mut sharing = unsafe { Sharing::build(memory.as_mut_ptr().cast(), GROUPS, 2) };
        let part = |sharing: &Sharing, id| sharing.table.entry(id).part;
        assert_eq!(part(&sharing, 3), WHOLE);
        for (id, tasks) in [(2, 3), (3, 1)] {
            // SAFETY: within the tables.
            unsafe {
                let entry = sharing.table.entries.add(id);
                (*entry).round = 1;
                (*entry).parent = ROOT;
                (*entry).shares = 1024;
                for cpu in 0..2 {
                    let time = sharing
                        .table
                        .times
                        .cast_mut()
                        .add(cpu * GROUPS as usize + id);
                    (*time).ns = tasks * 500_000_000;
                    (*time).weighted = tasks * 500_000_000 * 100;
                }
            }
        }
        sharing.began = Instant::now() - PERIOD;
        sharing.reckon();
        let (many, one) = (part(&sharing, 2), part(&sharing, 3));
        assert!(one.abs_diff(3 * many) < one / 50, "{many} and {one}");
        assert_eq!(
            sharing.shares,
            Shares {
                groups: 2,
                short: 2
            }
        );
        assert_eq!(sharing.table.round(), 2);
        for _ in 0..FORGOTTEN {
            sharing.began = Instant::now() - PERIOD;
            sharing.reckon();
        }
        assert_eq!((part(&sharing, 2), part(&sharing, 3)), (WHOLE, WHOLE));
        assert_eq!(sharing.shares, Shares::default());
    }
}
