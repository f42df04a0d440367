//! `cushion report`: what a report says, for people.

mod coverage;
mod fragmentation;
mod leaks;
mod named;
mod summary;

use std::path::PathBuf;

use clap::Args;

use super::symbols::Symbols;
use super::{print, Failure};
use crate::report::{read, Report};

/// Print reports: totals, leaks by call site, fragmentation with a map of the segments, coverage
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done; 1 the output cannot be written; 2 a file is no report or cannot be read."
)]
pub struct ReportArgs {
    /// Report files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print JSON: the reports as they are, each frame with its names
    #[arg(long)]
    json: bool,
    /// Leave the map of the segments out
    #[arg(long)]
    no_map: bool,
    /// Show so many call sites of each kind of list
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    sites: usize,
    /// Draw so many segments of each pool
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    segments: usize,
}

/// Runs the subcommand.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let mut reports = Vec::new();
    for path in &args.files {
        reports.push((
            path,
            read(path).map_err(|error| Failure::input(path, error))?,
        ));
    }
    if args.json {
        return print(&named::json(&reports)?);
    }
    for (at, (path, report)) in reports.iter().enumerate() {
        let mut text = String::new();
        if reports.len() > 1 {
            let gap = if at > 0 { "\n" } else { "" };
            text = format!("{gap}==> {} <==\n", path.display());
        }
        text += &whole(report, args);
        print(&text)?;
    }
    Ok(())
}

fn whole(report: &Report, args: &ReportArgs) -> String {
    let mut symbols = Symbols::of(report);
    let segments = if args.no_map { 0 } else { args.segments };
    [
        summary::heading(report),
        summary::devices(report),
        summary::other_kinds(report),
        leaks::section(report, &mut symbols, args.sites),
        fragmentation::section(report, segments),
        coverage::section(report),
        coverage::settings(report),
    ]
    .concat()
}

/// The short form that `cushion watch` shows.
pub(super) fn short(report: &Report, symbols: &mut Symbols) -> String {
    const SITES: usize = 10;
    [
        summary::heading(report),
        summary::devices(report),
        summary::other_kinds(report),
        leaks::section(report, symbols, SITES),
    ]
    .concat()
}
