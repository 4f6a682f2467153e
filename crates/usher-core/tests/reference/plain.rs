// SPDX-License-Identifier: GPL-2.0-only
//! What the core promises, with ordered sets and no cleverness. Where the core may choose, the answer is the
//! set of all choices that keep the promise.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use usher_core::{Demand, Granularity, Hints, PickError, Reason, Wake};

use crate::machine::Machine;

/// Who may be taken.
#[derive(Clone, Default)]
pub struct Wanted {
    /// `None`: any. May name cids that the machine does not have.
    pub allowed: Option<BTreeSet<u32>>,
    /// Tiers, as far as told apart; `None`: any.
    pub tiers: Option<BTreeSet<u32>>,
    /// Of the node-aware calls: only CPUs of idle cores.
    pub idle_core: bool,
    /// Of the node-aware calls: not beyond the node.
    pub in_node: bool,
}

impl Wanted {
    /// The same, but of these tiers.
    pub fn of_tiers(&self, tiers: &[u32]) -> Self {
        Self {
            tiers: Some(tiers.iter().copied().collect()),
            ..self.clone()
        }
    }

    fn restricts(&self) -> bool {
        self.allowed.is_some() || self.tiers.is_some()
    }
}

/// Some answers that are all right.
#[derive(Clone, Debug)]
pub struct Answer {
    pub reason: Reason,
    pub claimed: bool,
    pub cids: BTreeSet<u32>,
    /// Only right if a search for whole cores stopped at its bound.
    pub gave_up: bool,
}

impl Answer {
    pub fn taken(reason: Reason, cids: BTreeSet<u32>) -> Self {
        Self {
            reason,
            claimed: true,
            cids,
            gave_up: false,
        }
    }

    fn waits(reason: Reason, cid: u32) -> Self {
        Self {
            reason,
            claimed: false,
            cids: [cid].into(),
            gave_up: false,
        }
    }
}

/// The state of a machine.
pub struct Plain<'a> {
    pub machine: &'a Machine,
    /// The idle map.
    pub idle: BTreeSet<u32>,
    /// CPUs whose last report was that they are idle.
    reported: BTreeSet<u32>,
    /// CPUs that found themselves claimed when they left idle, and have not been rescued since.
    pub poke: BTreeSet<u32>,
    /// Per CPU: the LLC it shall look at once more.
    late: BTreeMap<u32, u32>,
    /// CPUs whose next turn is the LLC's.
    turned: BTreeSet<u32>,
    pub queued: Vec<u64>,
    /// Per CPU: how often it looked for another queue.
    turns: Vec<u32>,
    /// When who runs there began; not of all CPUs.
    pub turns_ns: BTreeMap<u32, u64>,
    /// LLCs whose queue was announced and not seen empty since.
    pub announced: BTreeSet<u32>,
    /// ... or only to the CPUs of its LLC.
    pub near: BTreeSet<u32>,
    /// Per queue: the mean time between two turns of its CPUs; 0: unknown.
    pub gaps_ns: Vec<u64>,
    /// Per queue: since when a tick knows that it was not empty; 0: not.
    pub waits_ns: Vec<u64>,
    /// Per LLC: hinted tasks that live there.
    pub settled: Vec<u32>,
    /// CPUs whose task waits for a stronger one.
    pub misfits: BTreeSet<u32>,
    /// Per CPU where somebody ran: until when.
    pub ran: BTreeMap<u32, u64>,
}

impl<'a> Plain<'a> {
    pub fn new(machine: &'a Machine) -> Self {
        Self {
            machine,
            idle: BTreeSet::new(),
            reported: BTreeSet::new(),
            poke: BTreeSet::new(),
            late: BTreeMap::new(),
            turned: BTreeSet::new(),
            queued: vec![0; machine.queues.len()],
            turns: vec![0; machine.tables.llc.len()],
            turns_ns: BTreeMap::new(),
            announced: BTreeSet::new(),
            near: BTreeSet::new(),
            gaps_ns: vec![0; machine.queues.len()],
            waits_ns: vec![0; machine.queues.len()],
            settled: vec![0; machine.llcs.len()],
            misfits: BTreeSet::new(),
            ran: BTreeMap::new(),
        }
    }

    /// True: there is work.
    pub fn idle_enter(&mut self, cid: u32) -> bool {
        if !self.reported.insert(cid) {
            return false;
        }
        self.idle.insert(cid);
        self.work(cid)
    }

    pub fn claimed(&self, cid: u32) -> bool {
        self.reported.contains(&cid) && !self.idle.contains(&cid)
    }

    pub fn idle_again(&mut self, cid: u32) -> bool {
        self.reported.contains(&cid) && self.idle.insert(cid) && self.work(cid)
    }

    pub fn idle_exit(&mut self, cid: u32) {
        if self.reported.remove(&cid) && !self.idle.remove(&cid) {
            self.poke.insert(cid);
        }
    }

    pub fn test_and_clear(&mut self, cid: u32) -> bool {
        self.idle.remove(&cid)
    }

    pub fn settle(&mut self, from: Option<u32>, to: Option<u32>) {
        if let Some(llc) = from {
            self.settled[llc as usize] -= 1;
        }
        if let Some(llc) = to {
            self.settled[llc as usize] += 1;
        }
    }

    /// 0: nobody.
    pub fn pinned_first(&mut self, cid: u32, own: u64, shared: u64) -> bool {
        if shared > 0 && own != shared {
            return own < shared;
        }
        if self.turned.remove(&cid) {
            return false;
        }
        self.turned.insert(cid)
    }

    /// True: somebody has come to the empty queue meanwhile, which nobody can where calls follow each other.
    pub fn queue_retire(&mut self, queue: u32) -> bool {
        if self.queued[queue as usize] == 0 {
            self.empty(queue);
        }
        false
    }

    /// The queues that a CPU without work looks into, in order.
    pub fn walk(&self, cid: u32) -> Vec<u32> {
        let tables = &self.machine.tables;
        let (own, llc) = (tables.queue[cid as usize], tables.llc[cid as usize]);
        let first = |queue: u32| self.machine.queues[queue as usize].start as usize;
        let here = |queue: &&u32| tables.llc[first(**queue)] == llc;
        let far: Vec<u32> = (self.announced.iter().copied())
            .filter(|queue| !here(&queue))
            .collect();
        let known = self.announced.union(&self.near);
        let near: Vec<u32> = known.filter(here).copied().collect();
        let (before, from_own): (Vec<u32>, Vec<u32>) =
            near.into_iter().partition(|&queue| queue < own);
        let mut walk = [from_own, before].concat();
        for &node in &self.machine.order[tables.node[cid as usize] as usize] {
            walk.extend(
                far.iter()
                    .filter(|&&queue| tables.node[first(queue)] == node),
            );
        }
        walk
    }

    pub fn look_late(&mut self, cid: u32, queue: u32) {
        self.late.insert(cid, queue);
    }

    /// Who may answer a late look; nobody if the list is empty.
    pub fn late_look(&mut self, cid: u32) -> Vec<Answer> {
        let Some(queue) = self.late.remove(&cid) else {
            return Vec::new();
        };
        if self.queued[queue as usize] == 0 {
            return Vec::new();
        }
        self.fill(queue, false);
        let from = self.machine.queues[queue as usize].start;
        self.look(from, &Wanted::default())
    }
}

/// Searches.
impl Plain<'_> {
    pub fn may(&self, cid: u32, wanted: &Wanted) -> bool {
        let tier = self.machine.tables.tier[cid as usize].min(usher_core::MAX_TIERS - 1);
        wanted.allowed.as_ref().is_none_or(|set| set.contains(&cid))
            && wanted.tiers.as_ref().is_none_or(|set| set.contains(&tier))
    }

    pub fn core_idle(&self, cid: u32) -> bool {
        let mut core = self.machine.cores[cid as usize].clone();
        core.all(|thread| self.idle.contains(&thread))
    }

    /// Whom a search of these cids may take. Of whole cores, who accepts anybody is offered first threads.
    pub fn takers(&self, cids: &Range<u32>, whole_core: bool, wanted: &Wanted) -> BTreeSet<u32> {
        let fits = |&cid: &u32| {
            let first = self.machine.cores[cid as usize].start == cid;
            self.may(cid, wanted)
                && (!whole_core || (self.core_idle(cid) && (first || wanted.restricts())))
        };
        self.idle
            .range(cids.clone())
            .copied()
            .filter(fits)
            .collect()
    }

    /// The own shard first, from `from` on and then from its start; then the LLC's other shards in a circle,
    /// each from its start.
    pub fn in_llc(&self, from: u32, whole_core: bool, wanted: &Wanted) -> Option<u32> {
        let tables = &self.machine.tables;
        let (own, llc) = (tables.shard[from as usize], tables.llc[from as usize]);
        let takers = self.takers(&self.machine.shards[own as usize], whole_core, wanted);
        if let Some(&cid) = takers.range(from..).chain(takers.iter()).next() {
            return Some(cid);
        }
        let in_llc = |shard: &u32| {
            let first = self.machine.shards[*shard as usize].start;
            tables.llc[first as usize] == llc
        };
        let all = 0..self.machine.shards.len() as u32;
        let behind = all.clone().filter(|&shard| shard > own);
        let before = all.filter(|&shard| shard < own);
        behind.chain(before).filter(in_llc).find_map(|shard| {
            let cids = &self.machine.shards[shard as usize];
            self.takers(cids, whole_core, wanted).first().copied()
        })
    }

    /// Whether a search for whole cores of a node may stop at its bound: it looks into shards that are
    /// empty or have no whole core, and core_probes of those are enough.
    pub fn may_give_up(&self, node: u32, cores: &BTreeSet<u32>) -> bool {
        let cids = &self.machine.nodes[node as usize];
        let useless = self.machine.shards.iter().filter(|shard| {
            cids.contains(&shard.start) && cores.range((*shard).clone()).next().is_none()
        });
        useless.count() as u32 >= self.machine.settings.core_probes.max(1)
    }

    /// A node: a whole core, else anybody. True: there is nothing to look for beyond.
    pub fn in_node(
        &self,
        node: u32,
        wanted: &Wanted,
        reasons: [Reason; 2],
        answers: &mut Vec<Answer>,
    ) -> bool {
        let cids = &self.machine.nodes[node as usize];
        if self.machine.smt > 1 || wanted.idle_core {
            let cores = self.takers(cids, true, wanted);
            let give_up = !wanted.idle_core && self.may_give_up(node, &cores);
            let some = !cores.is_empty();
            if some {
                answers.push(Answer::taken(reasons[0], cores));
            }
            if wanted.idle_core || (some && !give_up) {
                return some;
            }
        }
        let gave_up = answers.iter().any(|answer| answer.reason == reasons[0]);
        let any = self.takers(cids, false, wanted);
        let some = !any.is_empty();
        if some {
            answers.push(Answer {
                gave_up,
                ..Answer::taken(reasons[1], any)
            });
        }
        some
    }

    /// Steps 6 to 9: whoever is idle where no core of the LLC is.
    pub fn beside_others_or_far(&self, from: u32, wanted: &Wanted) -> Vec<Answer> {
        let tables = &self.machine.tables;
        let home = tables.node[from as usize];
        let cids = &self.machine.nodes[home as usize];
        let threads = self.machine.smt > 1;
        let one_llc = tables.llc[cids.start as usize] == tables.llc[cids.end as usize - 1];
        let mut answers = Vec::new();
        // 6. A search that gives up leaves it to the later steps to find somebody.
        if !one_llc {
            let cores = self.takers(cids, threads, wanted);
            if !cores.is_empty() {
                let give_up = threads && self.may_give_up(home, &cores);
                answers.push(Answer::taken(Reason::NodeCore, cores));
                if !give_up {
                    return answers;
                }
            }
        }
        let gave_up = !answers.is_empty();
        // 7.
        let beside = self.in_llc(from, false, wanted);
        // 8.
        let in_node = self.takers(cids, false, wanted);
        let found = match beside {
            Some(cid) => Some((Reason::LlcCpu, [cid].into())),
            None if in_node.is_empty() => None,
            None => Some((Reason::NodeCpu, in_node)),
        };
        if let Some((reason, cids)) = found {
            answers.push(Answer {
                gave_up,
                ..Answer::taken(reason, cids)
            });
            return answers;
        }
        assert!(!gave_up, "who finds a core finds a CPU");
        // 9.
        let far = &self.machine.order[home as usize][1..];
        let reasons = [Reason::RemoteCore, Reason::RemoteCpu];
        for &node in far {
            if self.in_node(node, wanted, reasons, &mut answers) {
                break;
            }
        }
        answers
    }

    /// How many cores of an LLC or a node idle, and how many there are.
    fn cores_of(&self, cids: &Range<u32>) -> (usize, usize) {
        let first = |cid: u32| self.machine.cores[cid as usize].start;
        let cores: BTreeSet<u32> = cids.clone().map(first).collect();
        let idle = cores.iter().filter(|&&core| self.core_idle(core)).count();
        (idle, cores.len())
    }

    /// How full an LLC is, and how many tasks it has room for.
    fn fullness(&self, llc: u32) -> (usize, usize) {
        let (idle, cores) = self.cores_of(&self.machine.llcs[llc as usize]);
        let settled = self.settled[llc as usize] as usize;
        (settled.max(cores - idle), cores)
    }

    /// Whether a task of one LLC has a place in another: more cores than inhabitants, or fewer of them for each core.
    fn has_place(&self, llc: u32, from: u32) -> bool {
        let [(live, cores), (ours, own_cores)] = [llc, from].map(|llc| {
            let (_, cores) = self.cores_of(&self.machine.llcs[llc as usize]);
            (self.settled[llc as usize] as usize, cores)
        });
        live < cores || live * own_cores < ours * cores
    }

    fn llcs_of(&self, node: u32) -> Vec<u32> {
        let cids = &self.machine.nodes[node as usize];
        let llcs = (0..).zip(&self.machine.llcs);
        llcs.filter(|(_, llc)| cids.contains(&llc.start))
            .map(|(llc, _)| llc)
            .collect()
    }

    /// core/src/hint.c: whom the hint sends a newborn to; `None`: it lapses.
    fn fork_hint(&self, from: u32, wanted: &Wanted, spread: bool) -> Option<u32> {
        let tables = &self.machine.tables;
        let (own, node) = (tables.llc[from as usize], tables.node[from as usize]);
        let core_in = |llc: u32| {
            let first = self.machine.llcs[llc as usize].start;
            self.in_llc(if llc == own { from } else { first }, true, wanted)
        };
        if !spread {
            let near = self.llcs_of(node);
            let (before, rest): (Vec<u32>, Vec<u32>) = near.iter().partition(|&&llc| llc < own);
            let room = |llc: &u32| {
                let (full, cores) = self.fullness(*llc);
                full < cores
            };
            return rest
                .into_iter()
                .chain(before)
                .filter(room)
                .find_map(core_in);
        }
        let (mut best, (mut full, mut cores)) = (own, self.fullness(own));
        for &node in &self.machine.order[node as usize] {
            for llc in self.llcs_of(node) {
                let (its_full, its_cores) = self.fullness(llc);
                if (its_full + 1) * cores <= full * its_cores {
                    (best, full, cores) = (llc, its_full, its_cores);
                }
            }
        }
        core_in(best)
    }

    /// The steps of core/src/place.c. The answers that are all right.
    pub fn place(
        &mut self,
        wake: Wake,
        prev: u32,
        waker: u32,
        wanted: &Wanted,
        hints: Hints,
        demand: Demand,
    ) -> Vec<Answer> {
        let tables = &self.machine.tables;
        let in_machine = 0..self.machine.nr_cids();
        let from = match &wanted.allowed {
            None => prev,
            Some(set) if set.contains(&prev) => prev,
            Some(set) if set.contains(&waker) => waker,
            Some(set) => match set.range(in_machine).next() {
                Some(&first) => first,
                None => return vec![Answer::waits(Reason::Nowhere, prev)],
            },
        };
        // 1.
        if wanted.allowed.as_ref().is_some_and(|set| set.len() == 1) {
            let mut answer = Answer::waits(Reason::Pinned, from);
            answer.claimed = self.idle.contains(&from);
            return vec![answer];
        }
        let fit = self.fit(wanted, demand);
        let anybody = wanted;
        let wanted = &fit
            .as_ref()
            .map_or_else(|| anybody.clone(), |(enough, _)| anybody.of_tiers(enough));
        // The wish of the task.
        let has = |hint: Hints| hints.bits() & hint.bits() != 0;
        let other_llc = tables.llc[from as usize] != tables.llc[waker as usize];
        let fork_hint = has(Hints::FORK_AFFINE) || has(Hints::FORK_SPREAD);
        let wish = match wake {
            Wake::Fork if fork_hint => {
                let found = self.fork_hint(from, wanted, has(Hints::FORK_SPREAD));
                found.map(|cid| (Reason::HintFork, cid))
            }
            Wake::Wake | Wake::Sync if has(Hints::WAKE_AFFINE) && other_llc => {
                let [llc, own] = [waker, from].map(|cid| tables.llc[cid as usize]);
                let comes = has(Hints::FORK_SPREAD) || self.has_place(llc, own);
                let found = comes.then(|| self.in_llc(waker, true, wanted));
                found.flatten().map(|cid| (Reason::HintWake, cid))
            }
            _ => None,
        };
        if let Some((reason, cid)) = wish {
            return vec![Answer::taken(reason, [cid].into())];
        }
        // 2.
        let place = |cid: u32| (tables.node[cid as usize], tables.llc[cid as usize]);
        let ((from_node, from_llc), (waker_node, waker_llc)) = (place(from), place(waker));
        if wake == Wake::Sync
            && !has(Hints::WAKE_HOLD)
            && from_node == waker_node
            && from_llc != waker_llc
        {
            for (whole, reason) in [(true, Reason::SyncCore), (false, Reason::SyncCpu)] {
                if let Some(cid) = self.in_llc(waker, whole, wanted) {
                    return vec![Answer::taken(reason, [cid].into())];
                }
            }
        }
        let (mut answers, found) = match &fit {
            None if wake == Wake::Fork && !fork_hint => self.cores_for_newborn(from, wanted),
            _ => (Vec::new(), false),
        };
        if found {
            return answers;
        }
        let gave_up = !answers.is_empty();
        let others = match &fit {
            None => self.idle_from(wake, from, wanted),
            Some((enough, rest)) => self.idle_unequal(from, anybody, demand, [enough, rest]),
        };
        answers.extend(others.into_iter().map(|answer| Answer {
            gave_up: gave_up || answer.gave_up,
            ..answer
        }));
        if answers.is_empty() {
            vec![self.waits(wake, from, prev, waker, anybody)]
        } else {
            answers
        }
    }

    /// The node to which newborns are sent before they are looked after at home.
    fn node_for_newborn(&self, home: u32) -> Option<u32> {
        let cores_of = |node: u32| self.cores_of(&self.machine.nodes[node as usize]);
        let (idle, cores) = cores_of(home);
        if !self.machine.settings.fork_balance || 4 * (cores - idle) <= cores {
            return None;
        }
        let (mut best, mut idle, mut cores) = (None, idle + cores / 16, cores);
        for &node in &self.machine.order[home as usize][1..] {
            let (more, of) = cores_of(node);
            if more * cores > idle * of {
                (best, idle, cores) = (Some(node), more, of);
            }
        }
        best
    }

    /// Step 2 for a newborn: whole cores, nearest first. True: one of them it is; else a search for them may stop at
    /// its bound, and the later steps find somebody.
    fn cores_for_newborn(&self, from: u32, wanted: &Wanted) -> (Vec<Answer>, bool) {
        let mut answers = Vec::new();
        let home = self.machine.tables.node[from as usize];
        if let Some(node) = self.node_for_newborn(home) {
            let cores = self.takers(&self.machine.nodes[node as usize], true, wanted);
            if !cores.is_empty() {
                let found = !self.may_give_up(node, &cores);
                answers.push(Answer::taken(Reason::RemoteCore, cores));
                if found {
                    return (answers, true);
                }
            }
        }
        if self.machine.smt == 1 {
            return (answers, false);
        }
        if let Some(cid) = self.in_llc(from, true, wanted) {
            answers.push(Answer {
                gave_up: !answers.is_empty(),
                ..Answer::taken(Reason::LlcCore, [cid].into())
            });
            return (answers, true);
        }
        for &node in &self.machine.order[home as usize] {
            let cores = self.takers(&self.machine.nodes[node as usize], true, wanted);
            if cores.is_empty() {
                continue;
            }
            let found = !self.may_give_up(node, &cores);
            let reason = match node == home {
                true => Reason::NodeCore,
                false => Reason::RemoteCore,
            };
            answers.push(Answer {
                gave_up: !answers.is_empty(),
                ..Answer::taken(reason, cores)
            });
            if found {
                return (answers, true);
            }
        }
        (answers, false)
    }

    /// Whether who runs on cid is to look for a core of its own.
    pub fn crowded(&self, cid: u32, now_ns: u64) -> bool {
        let slice_ns = i128::from(self.machine.settings.slice_ns);
        let lasts = |cid: u32| i128::from(now_ns) - i128::from(self.turns_ns[&cid]);
        let core = self.machine.cores[cid as usize].clone();
        let busy: Vec<u32> = core.filter(|other| !self.idle.contains(other)).collect();
        let first = busy.iter().all(|&other| other >= cid);
        let enough = if first { 2 * slice_ns } else { slice_ns };
        let mut others = busy.into_iter().filter(|&other| other != cid);
        lasts(cid) >= enough && others.any(|other| lasts(other) >= slice_ns)
    }

    /// Who may be claimed for the task on cid, which shares its core; nobody if the list is empty.
    pub fn uncrowd(&self, cid: u32, wanted: &Wanted, hints: Hints, now_ns: u64) -> Vec<Answer> {
        let lasted = i128::from(now_ns) - i128::from(self.turns_ns[&cid]);
        let far = lasted >= 8 * i128::from(self.machine.settings.slice_ns);
        self.whole_core(cid, wanted, hints, far)
    }

    /// Whole cores near cid, of which one may be claimed; in another node only if far.
    pub fn whole_core(&self, cid: u32, wanted: &Wanted, hints: Hints, far: bool) -> Vec<Answer> {
        let answer = |cids| vec![Answer::taken(Reason::Crowded, cids)];
        let tables = &self.machine.tables;
        let wanted = match self.asymmetric() {
            true => wanted.of_tiers(&[self.tier(cid)]),
            false => wanted.clone(),
        };
        if let Some(near) = self.in_llc(cid, true, &wanted) {
            return answer([near].into());
        }
        if hints.bits() & Hints::WAKE_HOLD.bits() != 0 {
            return Vec::new();
        }
        let home = tables.node[cid as usize];
        for &node in &self.machine.order[home as usize] {
            let cids = &self.machine.nodes[node as usize];
            let firsts = cids
                .clone()
                .filter(|&cid| self.machine.cores[cid as usize].start == cid);
            let idle = firsts.clone().filter(|&cid| self.core_idle(cid)).count();
            let quiet = 4 * idle >= firsts.count();
            let cores = self.takers(cids, true, &wanted);
            if (node == home || (far && quiet)) && !cores.is_empty() {
                return answer(cores);
            }
        }
        Vec::new()
    }

    /// Steps 3 to 9.
    fn idle_from(&self, wake: Wake, from: u32, wanted: &Wanted) -> Vec<Answer> {
        let found = |reason, cid| vec![Answer::taken(reason, [cid].into())];
        let from_idle = self.idle.contains(&from) && self.may(from, wanted);
        // 3.
        if from_idle && self.core_idle(from) {
            return found(Reason::PrevCore, from);
        }
        // 4.
        if let Some(cid) = self.in_llc(from, true, wanted) {
            return found(Reason::LlcCore, cid);
        }
        // 5.
        if from_idle {
            return found(Reason::Prev, from);
        }
        self.beyond_cores(wake, from, wanted)
    }

    /// Step 10.
    fn waits(&mut self, wake: Wake, from: u32, prev: u32, waker: u32, wanted: &Wanted) -> Answer {
        let queue = |cid: u32| self.machine.tables.queue[cid as usize];
        let waker_may = wanted
            .allowed
            .as_ref()
            .is_none_or(|set| set.contains(&waker));
        let no_more_wait = !self.quarters_shorter(queue(from), queue(waker), 4);
        let comes = wake == Wake::Sync && waker_may && queue(waker) != queue(from) && no_more_wait;
        let from = if comes { waker } else { from };
        let from = self.shorter(wake == Wake::Fork, waker, from, wanted);
        let reason = if from == prev {
            Reason::Queued
        } else {
            Reason::QueuedElsewhere
        };
        Answer::waits(reason, from)
    }

    /// Where a task waits that is put back, after a whole slice or not.
    pub fn queue_again(&mut self, by: u32, cid: u32, whole: bool) -> u32 {
        let tables = &self.machine.tables;
        let (own, llc) = (tables.queue[cid as usize], tables.llc[cid as usize]);
        let cids = self.machine.llcs[llc as usize].clone();
        let mut queues: Vec<u32> = cids.map(|c| tables.queue[c as usize]).collect();
        queues.dedup();
        if queues.len() == 1 || !whole {
            return own;
        }
        let other = queues[self.turns[by as usize] as usize % queues.len()];
        self.turns[by as usize] += 1;
        let [theirs, ours] = [other, own].map(|queue| self.queued[queue as usize]);
        match theirs * self.power(own) > (ours + 1) * self.power(other) {
            true => own,
            false => other,
        }
    }

    /// Whether the other's queue is more than so many quarters of that of `queue`, for what their CPUs do.
    fn quarters_shorter(&self, queue: u32, other: u32, quarters: u64) -> bool {
        let queued = |queue: u32| self.queued[queue as usize];
        queued(queue) * self.power(other) * quarters < queued(other) * self.power(queue) * 4
    }

    /// Where a task waits: by turns another queue is asked whether it is much shorter than a long one; by a newborn, whether
    /// its parent's is longer by a quarter.
    fn shorter(&mut self, born: bool, waker: u32, from: u32, wanted: &Wanted) -> u32 {
        let queues = &self.machine.queues;
        let own = self.machine.tables.queue[from as usize] as usize;
        let long = if born { 1 } else { 4 * queues[own].len() };
        if queues.len() == 1 || self.queued[own] < long as u64 {
            return from;
        }
        let turn = self.turns[waker as usize] as usize;
        self.turns[waker as usize] += 1;
        let mut others = (own + 1..queues.len()).chain(0..own);
        let other = others.nth(turn % (queues.len() - 1)).expect("two queues");
        let may = |cid: &u32| wanted.allowed.as_ref().is_none_or(|set| set.contains(cid));
        let node = |queue: usize| self.machine.tables.node[queues[queue].start as usize];
        let quarters = match (born, node(other) == node(own)) {
            (true, _) => 5,
            (false, near) => 4 * if near { 4 } else { 8 },
        };
        let first = queues[other].clone().find(may);
        first
            .filter(|_| self.quarters_shorter(other as u32, own as u32, quarters))
            .unwrap_or(from)
    }
}

/// The node-aware calls.
impl Plain<'_> {
    /// Why there is no answer about this node at all.
    pub fn refusal(&self, node: u32) -> Option<PickError> {
        if self.machine.settings.granularity == Granularity::Global {
            return Some(PickError::NodeAwareOff);
        }
        (node as usize >= self.machine.nodes.len()).then_some(PickError::NoSuchNode)
    }

    fn reach(&self, node: u32, wanted: &Wanted) -> &[u32] {
        let order = &self.machine.order[node as usize];
        &order[..if wanted.in_node { 1 } else { order.len() }]
    }

    /// Idle CPUs in or near a node, or why there are none.
    pub fn pick_idle(&self, node: u32, wanted: &Wanted) -> Result<Vec<Answer>, PickError> {
        if let Some(error) = self.refusal(node) {
            return Err(error);
        }
        let mut answers = Vec::new();
        let reasons = [Reason::NodeCore, Reason::NodeCpu];
        for &near in self.reach(node, wanted) {
            if self.in_node(near, wanted, reasons, &mut answers) {
                return Ok(answers);
            }
        }
        match self.any(node, wanted) {
            Some(_) => Err(PickError::NoneIdle),
            None => Err(PickError::EmptySet),
        }
    }

    /// The CPUs, idle or not, of the nearest node that has one that may be taken.
    pub fn any(&self, node: u32, wanted: &Wanted) -> Option<BTreeSet<u32>> {
        self.reach(node, wanted).iter().find_map(|&near| {
            let cids = self.machine.nodes[near as usize].clone();
            let set: BTreeSet<u32> = cids.filter(|&cid| self.may(cid, wanted)).collect();
            (!set.is_empty()).then_some(set)
        })
    }

    /// The idle CPUs of a node.
    pub fn idle_cpus(&self, node: u32) -> BTreeSet<u32> {
        self.takers(
            &self.machine.nodes[node as usize],
            false,
            &Wanted::default(),
        )
    }

    /// The CPUs of its wholly idle cores.
    pub fn idle_cores(&self, node: u32) -> BTreeSet<u32> {
        let all = self.idle_cpus(node);
        all.into_iter().filter(|&cid| self.core_idle(cid)).collect()
    }
}
