//! Which settings suit a workload: tries those that exist, keeps the best.

use super::{replay, Name, Options, Outcome, Workload};
use crate::config::{Config, Variable};

/// Settings tried, as the environment would hold them.
pub type Environment = Vec<(&'static str, String)>;

/// One candidate and what it comes to.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// What differs from the defaults.
    pub environment: Environment,
    /// Summed over the workloads: peak reserved bytes.
    pub reserved_bytes: u64,
    /// Summed: peak requested bytes.
    pub requested_bytes: u64,
    /// Summed: driver calls.
    pub driver_calls: u64,
    /// Summed: driver time by the cost model.
    pub driver_seconds: f64,
}

/// The best candidates, by what one cares for.
#[derive(Debug, Clone)]
pub struct Advice {
    /// Least memory.
    pub lowest_reserved: Candidate,
    /// Fewest calls.
    pub fewest_calls: Candidate,
    /// The fewest calls among those within [`BALANCE_PERCENT`] of the least memory.
    pub balanced: Candidate,
}

/// How much more memory than the least a balanced setting may take.
pub const BALANCE_PERCENT: u64 = 3;

/// A setting of the user's that makes things worse than leaving it out.
#[derive(Debug, Clone)]
pub struct Worse {
    /// The variable.
    pub name: &'static str,
    /// With it.
    pub with: Candidate,
    /// Without it, all else the same.
    pub without: Candidate,
}

/// Values tried for each variable; none: the default. Only variables that change where memory goes are here, and only those
/// that this build has are tried.
const TRIED: [(&str, &[&str]); 3] = [
    (BACKING, &[MAPPED]),
    ("CUSHION_ALIGNMENT", &["64K"]),
    (
        "CUSHION_MAX_SPLIT_SIZE",
        &["32M", "64M", "128M", "256M", "512M", "1G"],
    ),
];

/// What the memory comes from, and the value for which it is mapped.
const BACKING: &str = "CUSHION_BACKING";
const MAPPED: &str = "vmm";

fn tried() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    TRIED
        .into_iter()
        .filter(|(name, _)| Variable::named(name).is_some())
}

/// The policy of the backing that an environment asks for.
fn policy_of(environment: &Environment) -> Name {
    let is_mapped = environment
        .iter()
        .any(|(name, value)| *name == BACKING && value == MAPPED);
    if is_mapped {
        Name::CushionVmm
    } else {
        Name::Cushion
    }
}

/// Replays with the settings of `environment` and no others.
pub fn evaluate(workloads: &[Workload], environment: Environment, options: &Options) -> Candidate {
    let policy = policy_of(&environment);
    let vars = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.into()));
    let (config, _) = Config::from_vars(vars);
    let mut options = Options {
        samples: 0,
        ..options.clone()
    };
    let outcomes: Vec<Outcome> = workloads
        .iter()
        .map(|workload| {
            options.settings = config.pool_settings(Some(workload.device));
            replay(workload, policy, &options)
        })
        .collect();
    let sum =
        |figure: fn(&Outcome) -> u64| outcomes.iter().map(figure).fold(0, u64::saturating_add);
    Candidate {
        environment,
        reserved_bytes: sum(|o| o.peak_reserved_bytes),
        requested_bytes: sum(|o| o.peak_requested_bytes),
        driver_calls: sum(|o| o.driver_calls),
        driver_seconds: outcomes.iter().map(|o| o.driver_seconds).sum(),
    }
}

/// Every combination of the tried values on top of `base`, the settings that the advice is not about.
pub fn search(workloads: &[Workload], base: &Environment, options: &Options) -> Option<Advice> {
    let mut environments: Vec<Environment> = vec![base.clone()];
    for (name, values) in tried() {
        let with = |e: &Environment, v: &str| [e.as_slice(), &[(name, v.to_owned())]].concat();
        let more: Vec<_> = environments
            .iter()
            .flat_map(|e| values.iter().map(move |v| with(e, v)))
            .collect();
        environments.extend(more);
    }
    let candidates: Vec<_> = environments
        .into_iter()
        .map(|e| evaluate(workloads, e, options))
        .collect();
    // Ties go to fewer settings: candidates stand in that order, and `min_by_key` takes the first.
    let lowest_reserved = candidates
        .iter()
        .min_by_key(|c| (c.reserved_bytes, c.driver_calls))?
        .clone();
    let fewest_calls = candidates
        .iter()
        .min_by_key(|c| (c.driver_calls, c.reserved_bytes))?
        .clone();
    let bound = u128::from(lowest_reserved.reserved_bytes) * u128::from(100 + BALANCE_PERCENT);
    let within = candidates
        .iter()
        .filter(|c| u128::from(c.reserved_bytes) * 100 <= bound);
    let balanced = within
        .min_by_key(|c| (c.driver_calls, c.reserved_bytes))?
        .clone();
    Some(Advice {
        lowest_reserved,
        fewest_calls,
        balanced,
    })
}

/// The settings of `user` that take over 2 % more memory than leaving them out, or twice the driver time and 1 ms.
pub fn worse(workloads: &[Workload], user: &Environment, options: &Options) -> Vec<Worse> {
    let mut found = Vec::new();
    let with = evaluate(workloads, user.clone(), options);
    for (name, _) in user {
        let rest: Environment = user.iter().filter(|(n, _)| n != name).cloned().collect();
        let without = evaluate(workloads, rest, options);
        let memory = with.reserved_bytes as f64 > 1.02 * without.reserved_bytes as f64;
        let more_seconds = with.driver_seconds - without.driver_seconds;
        let time = more_seconds > 1e-3 && more_seconds > without.driver_seconds;
        if memory || time {
            found.push(Worse {
                name,
                with: with.clone(),
                without,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, Trace};

    fn workloads() -> Vec<Workload> {
        let mut trace = Trace::default();
        for i in 0..40u64 {
            trace.events.push(Event::alloc(i, (3 + i % 7) << 20 | 1, 0));
            if i % 3 == 2 {
                trace.events.push(Event::free(i - 1));
            }
        }
        Workload::of(&trace)
    }

    #[test]
    fn the_best_are_the_best() {
        let options = Options::default();
        let advice = search(&workloads(), &Vec::new(), &options).unwrap();
        let plain = evaluate(&workloads(), Vec::new(), &options);
        assert!(advice.lowest_reserved.reserved_bytes <= plain.reserved_bytes);
        assert!(advice.fewest_calls.driver_calls <= plain.driver_calls);
        assert!(
            advice.balanced.reserved_bytes * 100 <= advice.lowest_reserved.reserved_bytes * 103
        );
    }

    #[test]
    fn the_policy_is_that_of_the_backing() {
        let of = |value: &str| policy_of(&vec![(BACKING, value.to_owned())]);
        assert_eq!(policy_of(&Vec::new()), Name::Cushion);
        assert_eq!(of("segments"), Name::Cushion);
        assert_eq!(of(MAPPED), Name::CushionVmm);
    }

    #[test]
    fn every_variable_tried_exists_and_takes_its_values() {
        assert!(tried().count() >= 2);
        for (name, values) in tried() {
            let variable = Variable::named(name).unwrap();
            assert!(
                values.iter().all(|v| variable.check(v.as_ref()).is_ok()),
                "{name}"
            );
        }
    }
}
