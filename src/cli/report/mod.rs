//! `cushion report`: what a report says, for people.

mod coverage;
mod fragmentation;
mod leaks;
mod named;
mod summary;

use std::path::PathBuf;

use clap::Args;

use super::symbols::Symbols;
use super::{clean, print, Failure};
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
            let name = clean(&path.to_string_lossy());
            text = format!("{gap}==> {name} <==\n");
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Calls `change` with every plain value of a document.
    fn each_leaf(value: &mut Value, change: &mut impl FnMut(&mut Value)) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| each_leaf(item, change)),
            Value::Object(fields) => fields
                .values_mut()
                .for_each(|field| each_leaf(field, change)),
            leaf => change(leaf),
        }
    }

    /// Another value that the format allows in the same place.
    fn changed(leaf: &Value, odd: u64) -> Value {
        match leaf {
            Value::String(text) if text.starts_with("0x") => {
                format!("{:#x}", odd.wrapping_sub(1)).into()
            }
            Value::String(_) => "\u{1b}[2J\n\u{7f}".into(),
            // Larger figures are bytes and the like: signed ones are among them.
            Value::Number(number) if number.as_u64() > Some(5_000) => {
                (i64::MAX as u64 >> odd).into()
            }
            Value::Number(_) => odd.into(),
            other => other.clone(),
        }
    }

    proptest! {
        /// Reports come from anywhere: none may end the command other than by a line.
        #[test]
        fn no_report_upsets_the_printer(
            picks in proptest::collection::vec((2usize..400, 0u64..4), 1..40),
            sites in 0usize..4,
        ) {
            let golden = include_str!("../../../tests/golden/exit.json");
            let mut value: Value = serde_json::from_str(golden).unwrap();
            for (at, odd) in picks {
                let mut next = 0;
                each_leaf(&mut value, &mut |leaf| {
                    if next == at {
                        *leaf = changed(leaf, odd);
                    }
                    next += 1;
                });
            }
            let report: Report = serde_json::from_value(value).unwrap();
            let args = ReportArgs { files: vec![], json: false, no_map: false, sites, segments: 2 };
            let text = whole(&report, &args);
            prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
            let json = named::json(&[(&PathBuf::new(), report)]).unwrap();
            prop_assert!(!json.contains(|c: char| c.is_control() && c != '\n'));
            serde_json::from_str::<Value>(&json).unwrap();
        }
    }
}
