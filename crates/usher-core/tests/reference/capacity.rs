// SPDX-License-Identifier: GPL-2.0-only
//! CPUs of different capacity: what is enough for a task, where it goes, and which running task moves.

use std::collections::BTreeSet;

use usher_core::{Demand, Hints, Reason, TierOrder, MAX_TIERS};

use crate::plain::{Answer, Plain, Wanted};

/// A CPU that has been idle for so long is vacant.
const VACANT: u64 = 128;

/// ... and one for so long calm.
const CALM: u64 = 32;

/// 5.3 % more.
fn greater(a: u32, b: u32) -> bool {
    u64::from(a) * 1024 > u64::from(b) * 1078
}

/// Less than 80 % of a CPU, or no more than the clamps say.
fn fits(demand: Demand, capacity: u32) -> bool {
    let [util, min, max] = [demand.util, demand.clamp_min, demand.clamp_max].map(u32::from);
    let capped = max > 0;
    let min = if capped { min.min(max) } else { min };
    let enough = util * 5 < capacity * 4 || (capped && max <= capacity);
    let lacks_boost = min > capacity && util < min;
    enough && !lacks_boost
}

/// A task that has run, and that a quarter of the weakest CPU is enough for.
fn light(demand: Demand, weakest: u32) -> bool {
    let [util, min, max] = [demand.util, demand.clamp_min, demand.clamp_max].map(u32::from);
    let max = if max > 0 { max } else { u32::MAX };
    let need = (util * 5 / 4 + 1).min(max).max(min.min(max));
    util > 0 && need <= weakest / 4
}

/// A search: tiers that are enough in their order, and the others, strongest first.
struct Search<'a> {
    enough: &'a [u32],
    rest: &'a [u32],
    whole_only: bool,
}

impl Search<'_> {
    /// Why a CPU of these tiers is taken, with its core or without.
    fn reasons(&self, tiers: &[u32]) -> [Reason; 2] {
        if tiers.iter().any(|tier| self.rest.contains(tier)) {
            [Reason::Unfit, Reason::Unfit]
        } else {
            [Reason::FitCore, Reason::FitCpu]
        }
    }
}

impl Plain<'_> {
    pub fn tier(&self, cid: u32) -> u32 {
        self.machine.tables.tier[cid as usize].min(MAX_TIERS - 1)
    }

    /// Tiers, strongest first, and the least capacity of each.
    fn tiers(&self) -> Vec<(u32, u32)> {
        let all = 0..self.machine.nr_cids();
        let present: BTreeSet<u32> = all.clone().map(|cid| self.tier(cid)).collect();
        let least = |tier| {
            let of = all.clone().filter(|&cid| self.tier(cid) == tier);
            of.map(|cid| self.machine.tables.capacity[cid as usize])
                .min()
        };
        let each = present.into_iter();
        each.map(|tier| (tier, least(tier).expect("somebody is in it")))
            .collect()
    }

    fn capacity(&self, cid: u32) -> u32 {
        let own = self.tier(cid);
        let tiers = self.tiers();
        tiers
            .iter()
            .find(|(tier, _)| *tier == own)
            .expect("its own")
            .1
    }

    /// Whether both of a pair do better by turns on the CPU of one than with the other on its own.
    pub fn rather_here(&self, cid: u32, other: u32) -> bool {
        let strongest = self.machine.settings.tier_order == TierOrder::StrongestFirst;
        self.asymmetric() && strongest && greater(self.capacity(cid), self.capacity(other))
    }

    /// The most of any CPU.
    fn top(&self) -> u32 {
        *self.machine.tables.capacity.iter().max().expect("a CPU")
    }

    pub fn asymmetric(&self) -> bool {
        let least = *self.machine.tables.capacity.iter().min().expect("a CPU");
        self.machine.settings.capacity && greater(self.top(), least)
    }

    fn enough(&self, demand: Demand, capacity: u32) -> bool {
        !greater(self.top(), capacity) || fits(demand, capacity)
    }

    /// The tiers that are enough for a task in the order in which they are searched, and the others. `None`: all count
    /// as equal.
    pub fn fit(&self, wanted: &Wanted, demand: Demand) -> Option<(Vec<u32>, Vec<u32>)> {
        if !self.asymmetric() {
            return None;
        }
        let asked = |tier: &u32| wanted.tiers.as_ref().is_none_or(|set| set.contains(tier));
        let (enough, rest): (Vec<_>, Vec<_>) = self
            .tiers()
            .into_iter()
            .partition(|&(_, capacity)| self.enough(demand, capacity));
        let names = |tiers: Vec<(u32, u32)>| -> Vec<u32> {
            tiers
                .into_iter()
                .map(|(tier, _)| tier)
                .filter(asked)
                .collect()
        };
        let (mut enough, rest) = (names(enough), names(rest));
        if self.machine.settings.tier_order == TierOrder::WeakestFirst {
            enough.reverse();
        }
        Some((enough, rest))
    }

    /// Tier by tier, cores before CPUs: of each the LLC and then the node; then the other nodes. Nobody if the list is
    /// empty.
    fn by_tier(&self, from: u32, wanted: &Wanted, search: &Search) -> Vec<Answer> {
        let home = self.machine.tables.node[from as usize];
        let mut answers: Vec<Answer> = Vec::new();
        let rounds: &[bool] = match (self.machine.smt > 1, search.whole_only) {
            (true, false) => &[true, false],
            (true, true) => &[true],
            (false, _) => &[false],
        };
        for &whole in rounds {
            for &tier in search.enough.iter().chain(search.rest) {
                let wanted = wanted.of_tiers(&[tier]);
                let reason = search.reasons(&[tier])[usize::from(!whole)];
                let near = self.in_llc(from, whole, &wanted).map(|cid| [cid].into());
                let bounded = near.is_none() && whole && !search.whole_only;
                let set = near.unwrap_or_else(|| {
                    self.takers(&self.machine.nodes[home as usize], whole, &wanted)
                });
                if set.is_empty() {
                    continue;
                }
                let may_go_on = bounded && self.may_give_up(home, &set);
                answers.push(Answer {
                    gave_up: !answers.is_empty(),
                    ..Answer::taken(reason, set)
                });
                if !may_go_on {
                    return answers;
                }
            }
        }
        assert!(answers.is_empty(), "who finds a core finds a CPU");
        let others = &self.machine.order[home as usize][1..];
        for tiers in [search.enough, search.rest] {
            let wanted = Wanted {
                idle_core: search.whole_only,
                ..wanted.of_tiers(tiers)
            };
            let mut nodes = others.iter();
            if nodes.any(|&node| self.in_node(node, &wanted, search.reasons(tiers), &mut answers)) {
                return answers;
            }
        }
        answers
    }

    /// For how many milliseconds (of 2^20 ns) a CPU has been idle at a time, as far as is told apart. Times are known by
    /// their lowest 16 bits.
    fn idle_for(&self, cid: u32, at_ns: u64) -> u64 {
        let periods = |ns: u64| ns >> 20;
        self.ran.get(&cid).map_or(VACANT, |&ran| {
            let idle_for = periods(at_ns).wrapping_sub(periods(ran)) % (1 << 16);
            idle_for.min(VACANT)
        })
    }

    /// Step 12.
    fn idle_light(&self, from: u32, wanted: &Wanted, at_ns: u64, enough: &[u32]) -> Option<Answer> {
        let answer = |reason, cid| Answer::taken(reason, [cid].into());
        let tables = &self.machine.tables;
        let home = &self.machine.nodes[tables.node[from as usize] as usize];
        let own = tables.shard[from as usize];
        let of_node = |shard: &u32| home.contains(&self.machine.shards[*shard as usize].start);
        let all = 0..self.machine.shards.len() as u32;
        let (before, behind): (Vec<u32>, Vec<u32>) = all.filter(of_node).partition(|&s| s < own);
        let shards = behind.into_iter().chain(before);
        let probes = self.machine.settings.core_probes.max(1) as usize;
        let shards: Vec<u32> = shards.take(probes).collect();
        let mut tiers = enough.to_vec();
        tiers.sort_unstable_by(|a, b| b.cmp(a));
        // In the order in which they are looked at.
        let takers = |whole| {
            let each = tiers.iter().flat_map(|&tier| {
                let of = move |&shard: &u32| (tier, shard);
                shards.iter().map(of)
            });
            let of = |(tier, shard): (u32, u32)| {
                let cids = &self.machine.shards[shard as usize];
                self.takers(cids, whole, &wanted.of_tiers(&[tier]))
            };
            each.flat_map(of).collect::<Vec<u32>>()
        };
        let vacant = |cid: &u32| self.idle_for(*cid, at_ns) == VACANT;
        if self.machine.smt > 1 {
            if let Some(cid) = takers(true).into_iter().find(vacant) {
                return Some(answer(Reason::FitCore, cid));
            }
        }
        if self.idle.contains(&from) && enough.contains(&self.tier(from)) {
            return Some(answer(Reason::Prev, from));
        }
        let any = takers(false);
        let calm = |cid: &u32| self.idle_for(*cid, at_ns) >= CALM;
        // Of several the first.
        let longest = || {
            any.iter()
                .rev()
                .max_by_key(|&&cid| self.idle_for(cid, at_ns))
        };
        let found = any.iter().find(|&cid| vacant(cid));
        let found = found
            .or_else(|| any.iter().find(|&cid| calm(cid)))
            .or_else(longest);
        found.map(|&cid| answer(Reason::FitCpu, cid))
    }

    /// Steps 11 to 15; nobody if the list is empty.
    pub fn idle_unequal(
        &self,
        from: u32,
        wanted: &Wanted,
        demand: Demand,
        [enough, rest]: [&[u32]; 2],
    ) -> Vec<Answer> {
        let prev = self.idle.contains(&from) && enough.contains(&self.tier(from));
        // 11.
        if prev && self.core_idle(from) {
            return vec![Answer::taken(Reason::PrevCore, [from].into())];
        }
        // 12.
        let weakest = *self.machine.tables.capacity.iter().min().expect("a CPU");
        if light(demand, weakest) {
            if let Some(answer) = self.idle_light(from, wanted, demand.at_ns, enough) {
                return vec![answer];
            }
        }
        // 13 to 15.
        let search = Search {
            enough,
            rest,
            whole_only: false,
        };
        self.by_tier(from, wanted, &search)
    }

    /// What the CPUs of an LLC do together.
    pub fn power(&self, queue: u32) -> u64 {
        let cids = self.machine.queues[queue as usize].clone();
        let of = |cid: u32| match self.asymmetric() {
            true => u64::from(self.machine.tables.capacity[cid as usize]),
            false => 1,
        };
        cids.map(of).sum()
    }

    /// Who may be claimed for the partner of the task on cid, which gives way to it later; nobody if the list is empty. As if
    /// that one shared its core, but for strong CPUs.
    pub fn beside(&self, cid: u32, wanted: &Wanted, hints: Hints, demand: Demand) -> Vec<Answer> {
        let strongest = self.machine.settings.tier_order == TierOrder::StrongestFirst;
        let weakest = self.tiers().last().expect("a tier").1;
        if self.asymmetric() && strongest && !light(demand, weakest) {
            let here = self.capacity(cid);
            let stronger = self.tiers().into_iter().filter(|t| greater(t.1, here));
            let stronger: Vec<u32> = stronger.map(|(tier, _)| tier).collect();
            let near = self.in_llc(cid, true, &wanted.of_tiers(&stronger));
            if let Some(near) = near.filter(|_| !stronger.is_empty()) {
                return vec![Answer::taken(Reason::Crowded, [near].into())];
            }
        }
        self.whole_core(cid, wanted, hints, true)
    }

    /// A task runs on cid: who may be claimed for it; nobody if the list is empty.
    pub fn misfit(&mut self, cid: u32, wanted: &Wanted, demand: Demand) -> Vec<Answer> {
        let here = self.capacity(cid);
        if !self.asymmetric() || self.enough(demand, here) {
            self.misfits.remove(&cid);
            return Vec::new();
        }
        let stronger: Vec<(u32, u32)> = self
            .tiers()
            .into_iter()
            .filter(|&(_, capacity)| greater(capacity, here))
            .collect();
        let (mut enough, rest): (Vec<_>, Vec<_>) = stronger
            .iter()
            .partition(|(_, capacity)| self.enough(demand, *capacity));
        if self.machine.settings.tier_order == TierOrder::WeakestFirst {
            enough.reverse();
        }
        let names = |tiers: Vec<(u32, u32)>| -> Vec<u32> {
            tiers.into_iter().map(|(tier, _)| tier).collect()
        };
        let search = Search {
            enough: &names(enough),
            rest: &names(rest),
            whole_only: true,
        };
        let answers = self.by_tier(cid, wanted, &search);
        let tiers: Vec<u32> = stronger.into_iter().map(|(tier, _)| tier).collect();
        let wanted = wanted.of_tiers(&tiers);
        let possible = (0..self.machine.nr_cids()).any(|other| self.may(other, &wanted));
        if answers.is_empty() && possible {
            self.misfits.insert(cid);
        } else {
            self.misfits.remove(&cid);
        }
        answers
    }

    /// cid is idle: whose task moves there.
    pub fn misfit_call(&mut self, cid: u32) -> Option<u32> {
        if !self.core_idle(cid) {
            return None;
        }
        let mine = self.capacity(cid);
        let mut weaker = self.misfits.iter().copied();
        let weak = weaker.find(|&weak| greater(mine, self.capacity(weak)))?;
        self.misfits.remove(&weak);
        Some(weak)
    }

    /// Whether cid takes the task at v instead of the one at first.
    pub fn take_instead(&self, cid: u32, first: u64, v: u64, demand: Demand) -> bool {
        let behind = i128::from(v) - i128::from(first);
        let soon = behind <= i128::from(self.machine.settings.slice_ns);
        self.asymmetric() && soon && self.enough(demand, self.capacity(cid))
    }
}
