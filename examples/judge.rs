//! Judges the pool's placement policy by more than one file: each recorded trace with its larger sizes scaled by several
//! factors, so that a rule that fits one file by luck shows.
//! Usage: `cargo run --release --example judge [FOLDER [POLICY...]]`, where a policy is `cushion` or `cushion-vmm`.

use std::path::{Path, PathBuf};

use cushion::pool::Settings;
use cushion::replay::{replay, Name, Options, Workload};
use cushion::trace::{read_file, Action, ReadError};

const POLICIES: [(Name, Name); 2] = [
    (Name::Cushion, Name::Torch),
    (Name::CushionVmm, Name::TorchExpandable),
];
const NAMES: [&str; 5] = ["gnn", "resnet", "gpt", "llama_gen", "streams"];
const FACTORS: [f64; 6] = [1.0, 0.55, 0.8, 1.13, 1.3, 1.77];
/// Smaller requests keep their size: those sizes come from the framework, not from the data.
const SCALED_ABOVE_BYTES: u64 = 64 << 10;

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
    for (ours, other) in POLICIES {
        if chosen.is_empty() || chosen.iter().any(|name| name == ours.as_str()) {
            println!("{ours}, utilisation in %: as recorded, mean, worst; over {other}'s, calls and time: as recorded, worst");
            judge(&folder, &options, ours, other)?;
        }
    }
    Ok(())
}

fn judge(folder: &Path, options: &Options, ours: Name, other: Name) -> Result<(), ReadError> {
    let (mut means, mut worsts) = (0.0, 0.0);
    for name in NAMES {
        let trace = read_file(&folder.join(format!("{name}.trace.gz")))?;
        let (mut utilisation, mut calls, mut time) = (Vec::new(), Vec::new(), Vec::new());
        for factor in FACTORS {
            let mut scaled = trace.clone();
            let large = |e: &&mut cushion::trace::Event| {
                e.action == Action::Alloc && e.size_bytes > SCALED_ABOVE_BYTES
            };
            for event in scaled.events.iter_mut().filter(large) {
                event.size_bytes = (event.size_bytes as f64 * factor) as u64;
            }
            for workload in Workload::of(&scaled) {
                let ours = replay(&workload, ours, options);
                let other = replay(&workload, other, options);
                utilisation.push(100.0 * ours.utilisation);
                calls.push(ours.driver_calls as f64 / other.driver_calls as f64);
                time.push(ours.driver_seconds / other.driver_seconds);
            }
        }
        let mean = utilisation.iter().sum::<f64>() / utilisation.len() as f64;
        let worst = utilisation.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        println!(
            "{name:10} {:5.1} {mean:5.1} {worst:5.1}   {:5.1} {:5.1}   {:6.2} {:6.2}",
            utilisation[0],
            calls[0],
            most(&calls),
            time[0],
            most(&time)
        );
        means += mean / NAMES.len() as f64;
        worsts += worst / NAMES.len() as f64;
    }
    println!("{:10} {:5} {means:5.1} {worsts:5.1}", "all", "");
    Ok(())
}
