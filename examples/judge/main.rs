//! Judges the pool's placement policy by more than the recorded files, so that a rule that fits one file by luck shows: by a
//! hundred workloads (`workloads`), by their mean and by the worst five.
//!
//! Usage: `cargo run --release --example judge [FOLDER [POLICY...]]`, where a policy is `cushion` or `cushion-vmm`.
//! `CUSHION_JUDGE_EACH=1` lists each workload.

mod sketches;
mod workloads;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cushion::pool::Settings;
use cushion::replay::{replay, Name, Options, Workload};
use cushion::trace::{ReadError, Trace};
use workloads::Given;

const POLICIES: [(Name, Name); 2] = [
    (Name::Cushion, Name::Torch),
    (Name::CushionVmm, Name::TorchExpandable),
];
/// How many of the worst count.
const WORST: usize = 5;

/// What one policy came to on one workload, beside another policy.
#[derive(Debug, Clone, Copy, Default)]
struct Verdict {
    utilisation_percent: f64,
    /// The other's.
    other_percent: f64,
    /// Over the other's.
    calls: f64,
    seconds: f64,
}

fn main() -> Result<(), ReadError> {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces");
    let folder = std::env::args().nth(1).map_or(traces, PathBuf::from);
    let settings = Settings {
        alignment_bytes: 64 << 10,
        scrub: None,
        ..Settings::default()
    };
    let options = Options {
        settings,
        ..Options::default()
    };
    let chosen: Vec<String> = std::env::args().skip(2).collect();
    let given = workloads::all(&folder)?;
    for (ours, other) in POLICIES {
        if chosen.is_empty() || chosen.iter().any(|name| name == ours.as_str()) {
            println!("{ours}: utilisation in %, and {other}'s; calls and time over {other}'s");
            // On one thread: several would have their blocks in lanes of different numbers, and their figures folded at other times.
            let judge = |given| verdict(given, &options, ours, other);
            let verdicts: Vec<Verdict> = given.iter().map(judge).collect();
            print(&given, &verdicts);
        }
    }
    Ok(())
}

fn verdict(given: &Given, options: &Options, ours: Name, other: Name) -> Verdict {
    let trace = Trace {
        events: given.events.clone(),
        ..Trace::default()
    };
    let Some(workload) = Workload::of(&trace).into_iter().next() else {
        return Verdict::default();
    };
    let ours = replay(&workload, ours, options);
    let other = replay(&workload, other, options);
    Verdict {
        utilisation_percent: 100.0 * ours.utilisation,
        other_percent: 100.0 * other.utilisation,
        calls: ours.driver_calls as f64 / other.driver_calls as f64,
        seconds: ours.driver_seconds / other.driver_seconds,
    }
}

fn print(given: &[Given], verdicts: &[Verdict]) {
    let each = std::env::var_os("CUSHION_JUDGE_EACH").is_some();
    let mut groups: BTreeMap<&str, Vec<Verdict>> = BTreeMap::new();
    for (given, verdict) in given.iter().zip(verdicts) {
        groups.entry(given.group).or_default().push(*verdict);
        if each || given.group == "recorded" {
            let Verdict {
                utilisation_percent,
                other_percent,
                calls,
                seconds,
            } = verdict;
            let name = &given.name;
            println!(
                "{name:24} {utilisation_percent:5.1} {other_percent:5.1} {calls:6.2} {seconds:6.2}"
            );
        }
    }
    println!("group, number: utilisation, and the other's, mean; calls and time, geometric mean");
    for (group, verdicts) in &groups {
        summary(group, verdicts);
    }
    summary("all", verdicts);
    let mut worst: Vec<f64> = verdicts.iter().map(|v| v.utilisation_percent).collect();
    worst.sort_by(f64::total_cmp);
    worst.truncate(WORST);
    println!("worst {WORST}: {:.2}", mean(&worst));
}

fn summary(name: &str, verdicts: &[Verdict]) {
    let of = |figure: fn(&Verdict) -> f64| mean(&verdicts.iter().map(figure).collect::<Vec<f64>>());
    let count = verdicts.len();
    let utilisation = of(|v| v.utilisation_percent);
    let other = of(|v| v.other_percent);
    let (calls, seconds) = (of(|v| v.calls.ln()).exp(), of(|v| v.seconds.ln()).exp());
    println!("{name:12} {count:3} {utilisation:6.2} {other:6.2} {calls:6.2} {seconds:6.2}");
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}
