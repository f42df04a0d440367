//! `cushion replay`: traces through pools of different policies, with no GPU.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::trace::load;
use super::{clean, escape_controls, say, Failure, READER_EXIT_CODES};
use crate::replay::{replay, table, Costs, Name, Options, Outcome, Workload};
use crate::source;
use crate::units::parse_size;

/// Replay allocation traces through different pools, with no GPU
///
/// The cushion policies use the settings of the environment (CUSHION_*), but for limits: that is --limit, for every policy.
#[derive(Debug, Args)]
#[command(after_help = READER_EXIT_CODES)]
pub struct ReplayArgs {
    /// Traces of any format that `cushion trace` reads
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// cushion, cushion-vmm, torch, torch-expandable, power-of-two or none; give it again for more. All of them if left out
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<Name>,
    /// Memory of the device (16G); without it there is no end to it
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub limit: Option<u64>,
    /// Costs of driver calls as JSON (docs/fragmentation.md shows the form)
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Also give this many points of reserved memory over the trace (with --json)
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub samples: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "expected a size: 512M, 16G, bytes".to_owned())
}

/// Version of the JSON that `--json` prints.
const FORMAT_VERSION: u32 = 1;

/// Runs the subcommand.
pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let config = super::config_of_environment();
    let mut options = Options {
        costs: args
            .costs
            .as_deref()
            .map(costs)
            .transpose()?
            .unwrap_or_default(),
        limit_bytes: args.limit,
        samples: args.samples,
        ..Options::default()
    };
    let policies = if args.policy.is_empty() {
        Name::ALL.to_vec()
    } else {
        args.policy.clone()
    };
    let mut rows: Vec<(String, Outcome)> = Vec::new();
    let mut files = Vec::new();
    for path in &args.files {
        let trace = load(path)?;
        let first = rows.len();
        let workloads = Workload::of(&trace);
        if workloads.is_empty() {
            let name = path.display();
            say(format!("{name}: no allocations that a pool could serve"));
        }
        for workload in &workloads {
            let mut label = label(path);
            if workloads.len() > 1 {
                label += &format!(", device {}", workload.device);
            }
            options.settings = config.pool_settings(Some(workload.device));
            let outcomes = policies
                .iter()
                .map(|name| replay(workload, *name, &options));
            rows.extend(outcomes.map(|outcome| (label.clone(), outcome)));
        }
        let outcomes: Vec<_> = rows[first..].iter().map(|(_, outcome)| outcome).collect();
        files.push(
            json!({ "file": path.to_string_lossy(), "header": trace.header, "outcomes": outcomes }),
        );
    }
    let text = if args.json {
        let report = json!({ "format_version": FORMAT_VERSION, "costs": options.costs.source, "files": files });
        escape_controls(&format!("{report:#}\n"))
    } else {
        table(&rows)
    };
    Failure::unless_closed(io::stdout().write_all(text.as_bytes()))
}

/// The file's name without the endings that every trace has.
fn label(path: &Path) -> String {
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    clean(name.strip_suffix(".trace").unwrap_or(name))
}

/// A cost file has some ten lines.
const COSTS_BYTES_MAX: u64 = 1 << 20;

fn costs(path: &Path) -> Result<Costs, Failure> {
    let text = source::read(path, COSTS_BYTES_MAX).map_err(|e| Failure::input(path, e))?;
    Costs::from_json(&text).map_err(|e| Failure::input(path, e))
}
