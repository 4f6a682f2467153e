// SPDX-License-Identifier: GPL-2.0-only
//! Policy names with switches, such as `cfs-6.0+fork-hints+wake-hints`, and the parameters of the models.

use super::config::{CfsTimes, Class, Config, EevdfTimes, Hints, LlcMask, MS};
use super::Fair;
use crate::error::{nearest, SimError};
use crate::params::Params;
use crate::policy::Policy;

/// What may be switched on: name, what it does.
pub const SWITCHES: &[(&str, &str)] = &[
    (
        "llc-idle-mask",
        "proposal 0 as posted (v2): set when the tick stops, cleared at a busy tick",
    ),
    (
        "llc-idle-mask-v3",
        "proposal 0, v3 to v8: set at every idle entry",
    ),
    (
        "llc-idle-mask-claim",
        "v3, and who takes an idle CPU clears its bit",
    ),
    (
        "hints",
        "proposal 1 as posted: fork and wake hints, and the balancer's exception",
    ),
    ("fork-hints", "the fork hints of proposal 1"),
    ("wake-hints", "the wake hints of proposal 1"),
    ("hint-balance", "the balancer's exception of proposal 1"),
];

/// Turns a switch on.
fn turn_on(cfg: &mut Config, switch: &str) -> bool {
    match switch {
        "llc-idle-mask" => cfg.llc_mask = LlcMask::TickStop,
        "llc-idle-mask-v3" => cfg.llc_mask = LlcMask::IdleEntry,
        "llc-idle-mask-claim" => cfg.llc_mask = LlcMask::Claim,
        "hints" => {
            cfg.hints = Hints {
                fork: true,
                wake: true,
                balance: true,
            }
        }
        "fork-hints" => cfg.hints.fork = true,
        "wake-hints" => cfg.hints.wake = true,
        "hint-balance" => cfg.hints.balance = true,
        _ => return false,
    }
    true
}

/// The configuration of a name: a base, then `+` and a switch, any number of times.
///
/// # Errors
/// Unknown switch; the nearest are suggested.
pub fn configure(base: Config, name: &str) -> Result<Config, SimError> {
    let mut cfg = base;
    for switch in name.split('+').skip(1) {
        if !turn_on(&mut cfg, switch) {
            let known: Vec<&str> = SWITCHES.iter().map(|(name, _)| *name).collect();
            return Err(SimError::Unknown {
                kind: format!("switch of policy {}", cfg.name),
                name: switch.into(),
                nearest: nearest(switch, &known),
            });
        }
    }
    cfg.name = name.into();
    Ok(cfg)
}

/// Makes the policy of a name that begins with the name of a model of the fair class, in any combination of
/// switches; `None` if it does not.
///
/// # Errors
/// Unknown switch, bad value.
pub fn by_name(name: &str, params: &mut Params) -> Result<Option<Box<dyn Policy>>, SimError> {
    let base = match name.split('+').next() {
        Some("eevdf") => Config::eevdf(),
        Some("cfs-6.0") => Config::cfs60(),
        Some("cfs-5.9") => Config::cfs59(),
        _ => return Ok(None),
    };
    build(base, name, params).map(Some)
}

/// Makes the policy of a name that begins with the name of `base`. Parameters, of which durations of a
/// class are `default` if not given, the kernel's for a machine of that size:
///
/// | parameter | kernel's name |
/// |---|---|
/// | `latency` | `sched_latency_ns` (CFS) |
/// | `min_granularity` | `sched_min_granularity_ns` (CFS) |
/// | `wakeup_granularity` | `sched_wakeup_granularity_ns` (CFS) |
/// | `base_slice` | `base_slice_ns` (EEVDF) |
/// | `migration_cost` | `sched_migration_cost_ns` |
/// | `nr_migrate` | `sched_nr_migrate` (a number) |
/// | `wakeup_preemption`, `run_to_parity`, `preempt_short`, `delay_dequeue` | `sched_features` of that name (`true` or `false`; all but the first EEVDF) |
///
/// # Errors
/// Unknown switch, bad value.
pub fn build(base: Config, name: &str, params: &mut Params) -> Result<Box<dyn Policy>, SimError> {
    let mut cfg = configure(base, name)?;
    cfg.migration_cost_ns = params.duration("migration_cost", cfg.migration_cost_ns)?;
    cfg.nr_migrate = params.u64("nr_migrate", cfg.nr_migrate.into(), 1..=100_000)? as u32;
    let mut fixed = |key| -> Result<Option<u64>, SimError> {
        let ns = params.duration_or(key, "default")?.unwrap_or(0);
        if ns > 100_000 * MS {
            let what = "must be at most 100s".into();
            return Err(SimError::Parameter {
                key: key.into(),
                what,
            });
        }
        Ok((ns > 0).then_some(ns))
    };
    match cfg.class {
        Class::Cfs(times) => {
            cfg.class = Class::Cfs(CfsTimes {
                fixed_latency_ns: fixed("latency")?,
                fixed_min_granularity_ns: fixed("min_granularity")?,
                fixed_wakeup_granularity_ns: fixed("wakeup_granularity")?,
                wakeup_preemption: params.bool("wakeup_preemption", times.wakeup_preemption)?,
                ..times
            });
        }
        Class::Eevdf(times) => {
            cfg.class = Class::Eevdf(EevdfTimes {
                fixed_slice_ns: fixed("base_slice")?,
                run_to_parity: params.bool("run_to_parity", times.run_to_parity)?,
                delay_dequeue: params.bool("delay_dequeue", times.delay_dequeue)?,
                preempt_short: params.bool("preempt_short", times.preempt_short)?,
                wakeup_preemption: params.bool("wakeup_preemption", times.wakeup_preemption)?,
                ..times
            });
        }
    }
    Ok(Fair::boxed(cfg))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: switches add up; an unknown one is refused with the nearest names.
    // Method: parts of proposal 1 one by one; typos.
    #[test]
    fn switches_add_up() {
        let parts = configure(
            Config::cfs60(),
            "cfs-6.0+fork-hints+wake-hints+hint-balance",
        );
        let whole = configure(Config::cfs60(), "cfs-6.0+hints");
        assert_eq!(parts.expect("known").hints, whole.expect("known").hints);
        let v3 = configure(Config::cfs59(), "cfs-5.9+llc-idle-mask-v3").expect("known");
        assert_eq!(
            (v3.llc_mask, v3.name.as_str()),
            (LlcMask::IdleEntry, "cfs-5.9+llc-idle-mask-v3")
        );
        let error = configure(Config::cfs60(), "cfs-6.0+wake-hint")
            .expect_err("a typo")
            .to_string();
        assert!(
            error.contains("`wake-hint`") && error.contains("wake-hints"),
            "{error}"
        );
        for (name, _) in SWITCHES {
            assert!(
                configure(Config::eevdf(), &format!("eevdf+{name}")).is_ok(),
                "{name}"
            );
        }
    }

    // Goal: a time given by the user is not scaled by the machine's size, others are.
    // Method: one of each.
    #[test]
    fn given_times_are_not_scaled() {
        let base = CfsTimes {
            fixed_latency_ns: Some(10 * MS),
            ..CfsTimes::BASE
        };
        let times = base.scaled(64);
        assert_eq!(
            (times.latency_ns, times.min_granularity_ns),
            (10 * MS, 3 * MS)
        );
        let slice = EevdfTimes {
            fixed_slice_ns: Some(MS),
            ..EevdfTimes::BASE
        };
        assert_eq!(slice.scaled(64).slice_ns, MS);
    }

    // Goal: parameters of the other class, or out of bounds, are refused.
    // Method: `base_slice` for CFS is left over for `Params::finish`; an absurd latency.
    #[test]
    fn parameters_belong_to_their_class() {
        let mut params = Params::parse(["base_slice=3ms"]).expect("a pair");
        assert!(build(Config::cfs60(), "cfs-6.0", &mut params).is_ok());
        assert!(params.finish("policy cfs-6.0").is_err());
        let mut params = Params::parse(["latency=1000s"]).expect("a pair");
        assert!(build(Config::cfs60(), "cfs-6.0", &mut params).is_err());
    }
}
