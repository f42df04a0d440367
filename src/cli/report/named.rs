//! `--json`: reports as they are, with a name for each frame.

use std::path::PathBuf;

use serde_json::{json, Value};

use crate::cli::symbols::{Name, Symbols};
use crate::cli::{escape_controls, Failure};
use crate::report::Report;

/// Version of this JSON; each report in it has its own.
const FORMAT_VERSION: u32 = 1;

/// All reports in one document.
pub fn json(reports: &[(&PathBuf, Report)]) -> Result<String, Failure> {
    let one = |(path, report): &(&PathBuf, Report)| {
        let report = named(report).map_err(|error| Failure::input(path, error))?;
        Ok(json!({ "file": path.to_string_lossy(), "report": report }))
    };
    let files: Vec<Value> = reports.iter().map(one).collect::<Result<_, Failure>>()?;
    let whole = json!({ "format_version": FORMAT_VERSION, "files": files });
    Ok(escape_controls(&format!("{whole:#}\n")))
}

/// A report whose frames have an additional `names`.
fn named(report: &Report) -> serde_json::Result<Value> {
    let mut symbols = Symbols::of(report);
    let mut value = serde_json::to_value(report)?;
    for (site, known) in report.sites.iter().enumerate() {
        for (frame, place) in known.frames.iter().enumerate() {
            let names: Vec<Value> = symbols.names(place).iter().map(name).collect();
            value["sites"][site]["frames"][frame]["names"] = names.into();
        }
    }
    Ok(value)
}

fn name(name: &Name) -> Value {
    json!({ "function": name.function, "file": name.file, "line": name.line, "inlined": name.inlined })
}
