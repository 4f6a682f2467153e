// SPDX-License-Identifier: GPL-2.0-only
//! 5.2: the arithmetic of the 3.9 balancer, and what the two patches (5.3, 5.4) change in it.
//!
//! Everything here is a function of numbers: the loads of the CPUs of a domain's groups in, the busiest
//! group and the amount to move out.

/// `SCHED_POWER_SCALE` and `SCHED_LOAD_SCALE`.
pub(super) const SCALE: u64 = 1024;

/// What the balancing CPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    Not,
    /// It has been idle.
    Yes,
    /// It is about to become idle.
    Newly,
}

/// One CPU, as a balancer sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuView {
    /// `cpu_power`.
    pub power: u64,
    /// Load with the bias for its role (`source_load()` or `target_load()`).
    pub biased: u64,
    /// Load (`weighted_cpuload()`).
    pub load: u64,
    /// `cfs.runnable_load_avg`.
    pub runnable: u64,
    /// Tasks queued or running.
    pub nr: u64,
    pub idle: bool,
}

/// One balancing attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Env {
    pub idle: Idle,
    /// `imbalance_pct` of the domain.
    pub pct: u64,
    /// The CPU that would get the load.
    pub dst: CpuView,
    /// The proposal's two patches.
    pub patches: bool,
    /// The level below prefers its tasks spread over siblings (`SD_PREFER_SIBLING`).
    pub prefer_sibling: bool,
    /// CPUs of the level share the power of a core (`SD_SHARE_CPUPOWER`).
    pub share_power: bool,
}

impl Env {
    /// 5.3: moving to the destination gives a task markedly more power.
    pub fn is_upward(&self, src: &CpuView) -> bool {
        src.power * self.pct < self.dst.power * 100
    }
}

/// Sums over a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupStats {
    pub power: u64,
    pub load: u64,
    /// load * 1024 / power.
    pub avg_load: u64,
    pub weighted: u64,
    pub nr: u64,
    pub weight: u64,
    pub idle: u64,
    /// How many tasks it is thought to have room for: power in units of 1024, rounded.
    pub capacity: u64,
    pub has_capacity: bool,
    /// Its CPUs are loaded unequally, or a patch wants a pull from it.
    pub imbalanced: bool,
}

/// `DIV_ROUND_CLOSEST(power, SCHED_POWER_SCALE)`; a thread of a core counts if it has most of its power.
pub(super) fn slots(power: u64, share_power: bool) -> u64 {
    match (power + SCALE / 2) / SCALE {
        0 => u64::from(share_power),
        n => n,
    }
}

/// `update_sg_lb_stats()`: of a group of this power.
pub(super) fn group_stats(env: &Env, cpus: &[CpuView], power: u64, local: bool) -> GroupStats {
    let mut g = GroupStats {
        power,
        weight: cpus.len() as u64,
        ..GroupStats::default()
    };
    for cpu in cpus {
        g.load += cpu.biased;
        g.weighted += cpu.load;
        g.nr += cpu.nr;
        g.idle += u64::from(cpu.idle);
        // Patch 1: a remote CPU is overloaded by what the destination could carry.
        let over = cpu.runnable > cpu.power && cpu.runnable > env.dst.runnable;
        g.imbalanced |= env.patches && !local && over && env.is_upward(cpu);
    }
    g.avg_load = g.load * SCALE / g.power.max(1);
    if !local {
        let spread = |of: fn(&CpuView) -> u64| {
            let values = cpus.iter().map(of);
            values.clone().max().unwrap_or(0) - values.min().unwrap_or(0)
        };
        let per_task = g.weighted / g.nr.max(1);
        g.imbalanced |= spread(|c| c.biased) >= per_task && spread(|c| c.nr) > 1;
    }
    // Patch 2: more tasks than CPUs, and the destination has none.
    g.imbalanced |= env.patches && env.idle != Idle::Not && g.nr > g.weight;
    g.capacity = slots(g.power, env.share_power);
    g.has_capacity = g.capacity > g.nr;
    g
}

/// The busiest group, and how much load to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busiest {
    /// Its place in the list.
    pub group: usize,
    pub imbalance: u64,
}

/// `find_busiest_group()`: `groups[0]` is the local one. `None`: balanced.
pub(super) fn find_busiest_group(env: &Env, groups: &[GroupStats]) -> Option<Busiest> {
    let this = &groups[0];
    let mut found: Option<(usize, GroupStats)> = None;
    for (i, g) in groups.iter().enumerate().skip(1) {
        let mut g = *g;
        if env.prefer_sibling && this.has_capacity {
            g.capacity = g.capacity.min(1);
        }
        let max = found.as_ref().map_or(0, |(_, b)| b.avg_load);
        if g.avg_load > max && (g.nr > g.capacity || g.imbalanced) {
            found = Some((i, g));
        }
    }
    let (group, busiest) = found.filter(|(_, b)| b.nr > 0)?;
    let total = |of: fn(&GroupStats) -> u64| groups.iter().map(of).sum::<u64>();
    let average = SCALE * total(|g| g.load) / total(|g| g.power).max(1);
    if !is_forced(env, this, &busiest) && is_balanced(env, this, &busiest, average) {
        return None;
    }
    Some(Busiest {
        group,
        imbalance: imbalance(env, this, &busiest, average),
    })
}

fn is_forced(env: &Env, this: &GroupStats, busiest: &GroupStats) -> bool {
    let room = env.idle == Idle::Newly && this.has_capacity && !busiest.has_capacity;
    busiest.imbalanced || room
}

fn is_balanced(env: &Env, this: &GroupStats, busiest: &GroupStats, average: u64) -> bool {
    if this.avg_load >= busiest.avg_load || this.avg_load >= average {
        return true;
    }
    match env.idle {
        Idle::Yes => this.idle <= busiest.idle + 1 && busiest.nr <= busiest.weight,
        _ => 100 * busiest.avg_load <= env.pct * this.avg_load,
    }
}

/// `calculate_imbalance()`.
fn imbalance(env: &Env, this: &GroupStats, busiest: &GroupStats, average: u64) -> u64 {
    let mut per_task = busiest.weighted / busiest.nr;
    if busiest.imbalanced {
        per_task = per_task.min(average);
    }
    if busiest.avg_load < average {
        return small_imbalance(env, this, busiest, per_task, 0);
    }
    let above_capacity = match busiest.imbalanced {
        true => u64::MAX,
        // A group is the busiest without being imbalanced only with more tasks than capacity.
        false => (busiest.nr - busiest.capacity) * SCALE * SCALE / busiest.power,
    };
    let pull = (busiest.avg_load - average).min(above_capacity);
    // A forced pull into a local group that is above the average: the kernel's difference wraps around
    // to a huge number there, so only the other term limits.
    let room = match average.checked_sub(this.avg_load) {
        Some(room) => room.saturating_mul(this.power),
        None => u64::MAX,
    };
    let amount = pull.saturating_mul(busiest.power).min(room) / SCALE;
    if amount < per_task {
        return small_imbalance(env, this, busiest, per_task, amount);
    }
    amount
}

/// `fix_small_imbalance()`: less than a task's load. Move one task if the difference is large all the
/// same, or if the loads, each counted only up to what its group can use, add up to more afterwards.
fn small_imbalance(
    env: &Env,
    this: &GroupStats,
    busiest: &GroupStats,
    per_task: u64,
    amount: u64,
) -> u64 {
    // The destination's average stands for the local group's if that runs nothing.
    let here = this
        .weighted
        .checked_div(this.nr)
        .unwrap_or(env.dst.load / env.dst.nr.max(1));
    let tasks = if this.nr > 0 && per_task > here { 1 } else { 2 };
    let scaled = per_task * SCALE / busiest.power;
    // Unsigned, as in the kernel: a forced pull into a much worse local group passes this test.
    let difference = busiest
        .avg_load
        .wrapping_sub(this.avg_load)
        .wrapping_add(scaled);
    if difference >= scaled * tasks {
        return per_task;
    }
    // Patch 2: more tasks than CPUs there, none here.
    if env.patches && env.idle != Idle::Not && busiest.nr > busiest.weight {
        return per_task;
    }
    let now = busiest.power * per_task.min(busiest.avg_load) + this.power * here.min(this.avg_load);
    let mut moved = 0;
    if busiest.avg_load > scaled {
        moved += busiest.power * per_task.min(busiest.avg_load - scaled);
    }
    let arriving = (busiest.avg_load * busiest.power).min(per_task * SCALE) / this.power;
    moved += this.power * here.min(this.avg_load + arriving);
    if moved / SCALE > now / SCALE {
        per_task
    } else {
        amount
    }
}

/// `find_busiest_queue()`: the CPU of the group with the highest load over power; a CPU with one task that
/// is more than the imbalance is left alone. Patch 1: if there is none, a CPU with one task that overloads
/// it, if the destination is markedly stronger.
pub(super) fn find_busiest_queue(env: &Env, cpus: &[CpuView], imbalance: u64) -> Option<usize> {
    let mut best: Option<(usize, u64)> = None;
    for (i, cpu) in cpus.iter().enumerate() {
        let room = slots(cpu.power, env.share_power);
        if room > 0 && cpu.nr == 1 && cpu.load > imbalance {
            continue;
        }
        let scaled = cpu.load * SCALE / cpu.power;
        if scaled > best.map_or(0, |(_, load)| load) {
            best = Some((i, scaled));
        }
    }
    let forced = |cpu: &CpuView| {
        let over = cpu.runnable > cpu.power && cpu.runnable > env.dst.runnable;
        cpu.nr == 1 && over && env.is_upward(cpu)
    };
    let fallback = || cpus.iter().position(forced).filter(|_| env.patches);
    best.map(|(i, _)| i).or_else(fallback)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIG: u64 = 1441;
    const LITTLE: u64 = 606;

    /// A CPU with this many hogs.
    fn hogs(power: u64, nr: u64) -> CpuView {
        let load = nr * 1024;
        CpuView {
            power,
            biased: load,
            load,
            runnable: load,
            nr,
            idle: nr == 0,
        }
    }

    fn env(idle: Idle, dst: CpuView, patches: bool) -> Env {
        Env {
            idle,
            pct: 125,
            dst,
            patches,
            prefer_sibling: false,
            share_power: false,
        }
    }

    /// Balancing across the clusters, from one to the other.
    fn across(env: &Env, this: &[CpuView], other: &[CpuView]) -> Option<Busiest> {
        let power = |cpus: &[CpuView]| cpus.iter().map(|c| c.power).sum();
        let groups = [
            group_stats(env, this, power(this), true),
            group_stats(env, other, power(other), false),
        ];
        find_busiest_group(env, &groups)
    }

    // Goal: rounded slots: 3 on the pair of A15s, 2 on the triple of A7s, 1 on each CPU of either kind.
    // Method: the rounding.
    #[test]
    fn slots_are_rounded() {
        assert_eq!((slots(2 * BIG, false), slots(3 * LITTLE, false)), (3, 2));
        assert_eq!((slots(BIG, false), slots(LITTLE, false)), (1, 1));
        assert_eq!((slots(500, false), slots(500, true)), (0, 1));
    }

    // Goal: five equal tasks stay at 3 on the A15s and 2 on the A7s with one A7 idle, whoever looks.
    // Method: every CPU balances across the clusters, as its state has it, in 3.9.
    #[test]
    fn five_tasks_settle_with_an_idle_cpu() {
        let bigs = [hogs(BIG, 2), hogs(BIG, 1)];
        let littles = [hogs(LITTLE, 1), hogs(LITTLE, 1), hogs(LITTLE, 0)];
        for idle in [Idle::Yes, Idle::Newly] {
            let env = env(idle, littles[2], false);
            assert_eq!(
                across(&env, &littles, &bigs),
                None,
                "{idle:?}: 3 tasks in 3 slots"
            );
        }
        assert_eq!(
            across(&env(Idle::Not, bigs[1], false), &bigs, &littles),
            None
        );
        assert_eq!(
            across(&env(Idle::Not, littles[0], false), &littles, &bigs),
            None
        );
    }

    // Goal: 4 on the A15s are too many, and 3 on the A7s.
    // Method: a newly idle CPU of the other side is told to pull about a task.
    #[test]
    fn what_exceeds_the_slots_moves() {
        let bigs = [hogs(BIG, 2), hogs(BIG, 2)];
        let littles = [hogs(LITTLE, 1), hogs(LITTLE, 0), hogs(LITTLE, 0)];
        let env1 = env(Idle::Newly, littles[2], false);
        let found = across(&env1, &littles, &bigs).expect("imbalance");
        assert!(found.imbalance >= 512, "a task of 1024 may go: {found:?}");
        let bigs = [hogs(BIG, 1), hogs(BIG, 0)];
        let littles = [hogs(LITTLE, 1), hogs(LITTLE, 1), hogs(LITTLE, 2)];
        let env2 = env(Idle::Newly, bigs[1], false);
        let found = across(&env2, &bigs, &littles).expect("imbalance");
        assert!(found.imbalance >= 512, "{found:?}");
        assert_eq!(
            find_busiest_queue(&env2, &littles, found.imbalance),
            Some(2)
        );
    }

    // Goal: one task on an A7 stays there in 3.9; patch 1 calls the group imbalanced and picks the lone
    // task's CPU, for an A15 that looks and for no other A7. Downwards nothing is forced.
    // Method: all five pairs of idle destination and source that matter.
    #[test]
    fn patch_1_forces_a_lone_hog_up() {
        let bigs = [hogs(BIG, 0), hogs(BIG, 0)];
        let littles = [hogs(LITTLE, 0), hogs(LITTLE, 1), hogs(LITTLE, 0)];
        let pull = |patches| {
            let env = env(Idle::Yes, bigs[0], patches);
            let found = across(&env, &bigs, &littles)?;
            find_busiest_queue(&env, &littles, found.imbalance)
        };
        assert_eq!((pull(false), pull(true)), (None, Some(1)));
        let env_little = env(Idle::Yes, littles[0], true);
        assert!(!env_little.is_upward(&littles[1]));
        let busy_bigs = [hogs(BIG, 1), hogs(BIG, 0)];
        let down = across(&env_little, &[hogs(LITTLE, 0); 3], &busy_bigs);
        assert_eq!(down, None, "a hog does not overload an A15 (1024 < 1441)");
        // The threshold is a matter of weight (defect 34): nice 5 never overloads, nice -5 always.
        let light = CpuView {
            runnable: 335,
            load: 335,
            biased: 335,
            ..hogs(LITTLE, 1)
        };
        let heavy = CpuView {
            runnable: 3121,
            load: 3121,
            biased: 3121,
            ..hogs(BIG, 1)
        };
        let e = env(Idle::Yes, bigs[0], true);
        assert!(!group_stats(&e, &[light], LITTLE, false).imbalanced);
        assert!(
            heavy.runnable > heavy.power,
            "so does an A15, but there is nowhere stronger to go"
        );
        assert!(!group_stats(&e, &[heavy], BIG, false).imbalanced);
    }

    // Goal: patch 2 lets the idle A7 take one of the three tasks of the A15 pair.
    // Method: the state in which 3.9 settles, seen by the idle CPU.
    #[test]
    fn patch_2_leaves_no_cpu_idle_beside_a_queue() {
        let bigs = [hogs(BIG, 2), hogs(BIG, 1)];
        let littles = [hogs(LITTLE, 1), hogs(LITTLE, 1), hogs(LITTLE, 0)];
        for idle in [Idle::Yes, Idle::Newly] {
            let env = env(idle, littles[2], true);
            let found = across(&env, &littles, &bigs).expect("the group has more tasks than CPUs");
            assert_eq!(
                find_busiest_queue(&env, &bigs, found.imbalance),
                Some(0),
                "{found:?}"
            );
            assert!(found.imbalance > 0);
        }
        let busy = env(Idle::Not, littles[0], true);
        assert_eq!(across(&busy, &littles, &bigs), None, "only idle CPUs");
    }

    // Goal: within the A15 pair three hogs take turns: the CPU with one takes one from the CPU with two.
    // Method: balancing between the two CPUs as groups of one.
    #[test]
    fn three_hogs_take_turns_on_a_pair() {
        let (two, one) = (hogs(BIG, 2), hogs(BIG, 1));
        let e = env(Idle::Not, one, false);
        let found = across(&e, &[one], &[two]).expect("imbalance");
        assert_eq!(found.imbalance, 1024, "by way of the small-imbalance rule");
        assert_eq!(across(&env(Idle::Not, two, false), &[two], &[one]), None);
    }

    // Goal: equal CPUs with equal load are left alone, with and without the patches.
    // Method: symmetric states.
    #[test]
    fn symmetric_machines_are_balanced() {
        for patches in [false, true] {
            for nr in 0..3 {
                let cpu = hogs(1024, nr);
                let idle = if nr == 0 { Idle::Yes } else { Idle::Not };
                assert_eq!(
                    across(&env(idle, cpu, patches), &[cpu], &[cpu]),
                    None,
                    "{patches} {nr}"
                );
            }
        }
    }
}
