//! Judges the pool's placement policy by more than one file: each recorded trace with its larger sizes scaled by several
//! factors, so that a rule that fits one file by luck shows. Usage: `cargo run --release --example judge [FOLDER]`.

use std::path::{Path, PathBuf};

use cushion::pool::Settings;
use cushion::replay::{replay, Name, Options, Workload};
use cushion::trace::{read_file, Action, ReadError};

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
    println!("utilisation in %: as recorded, mean, worst; driver calls over PyTorch's: as recorded, worst");
    let (mut means, mut worsts) = (0.0, 0.0);
    for name in NAMES {
        let trace = read_file(&folder.join(format!("{name}.trace.gz")))?;
        let (mut utilisation, mut calls) = (Vec::new(), Vec::new());
        for factor in FACTORS {
            let mut scaled = trace.clone();
            let large = |e: &&mut cushion::trace::Event| {
                e.action == Action::Alloc && e.size_bytes > SCALED_ABOVE_BYTES
            };
            for event in scaled.events.iter_mut().filter(large) {
                event.size_bytes = (event.size_bytes as f64 * factor) as u64;
            }
            for workload in Workload::of(&scaled) {
                let ours = replay(&workload, Name::Cushion, &options);
                let torch = replay(&workload, Name::Torch, &options);
                utilisation.push(100.0 * ours.utilisation);
                calls.push(ours.driver_calls as f64 / torch.driver_calls as f64);
            }
        }
        let mean = utilisation.iter().sum::<f64>() / utilisation.len() as f64;
        let worst = utilisation.iter().copied().fold(f64::INFINITY, f64::min);
        let most_calls = calls.iter().copied().fold(0.0, f64::max);
        println!(
            "{name:10} {:5.1} {mean:5.1} {worst:5.1}   {:5.1} {most_calls:5.1}",
            utilisation[0], calls[0]
        );
        means += mean / NAMES.len() as f64;
        worsts += worst / NAMES.len() as f64;
    }
    println!("{:10} {:5} {means:5.1} {worsts:5.1}", "all", "");
    Ok(())
}
