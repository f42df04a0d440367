//! Recorded work through the pool: how much it reserves, and how often it asks the driver.

mod pool_support;

use cushion::pool::Settings;
use pool_support::trace;

const MIB: u64 = 1 << 20;

fn fast() -> Settings {
    Settings {
        alignment_bytes: 64 << 10,
        scrub: None,
        ..Settings::default()
    }
}

#[test]
fn utilisation_on_recorded_work() {
    let policies = [
        ("fast", fast()),
        (
            "faithful",
            Settings {
                scrub: None,
                ..Settings::default()
            },
        ),
        (
            "split 32M",
            Settings {
                max_split_size_bytes: Some(32 * MIB),
                ..fast()
            },
        ),
        (
            "split 128M",
            Settings {
                max_split_size_bytes: Some(128 * MIB),
                ..fast()
            },
        ),
        (
            "split 512M",
            Settings {
                max_split_size_bytes: Some(512 * MIB),
                ..fast()
            },
        ),
    ];
    for name in ["gnn", "resnet", "gpt", "llama_gen", "streams"] {
        let Some(trace) = trace::read(name) else {
            eprintln!("SKIP {name}: set CUSHION_TRACES to the folder with {name}.trace.gz");
            continue;
        };
        for (policy, settings) in policies {
            let outcome = trace::replay(&trace, settings);
            eprintln!(
                "{name:10} {policy:10} utilisation {:5.1} % (torch {:4.1}), calls {:4} + {:4} (torch {:3}), {:5.0} ns/event",
                outcome.utilisation_percent(),
                100.0 * outcome.peak_live_bytes as f64 / trace.torch_peak_bytes as f64,
                outcome.reserve_calls,
                outcome.release_calls,
                trace.torch_calls,
                outcome.nanoseconds_per_event,
            );
        }
    }
}
