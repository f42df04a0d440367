//! `cushion config`: the settings, as this environment has them.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::{config_of_environment, print, Failure};
use crate::config::{markdown, SettingText, VARIABLES};

/// Show every setting: its value in this environment, where it comes from, its default and its meaning
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the table of README.md, which does not depend on the environment
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Version of the JSON that `--json` prints.
const FORMAT_VERSION: u32 = 1;

/// Runs the subcommand.
pub fn run(args: &ConfigArgs) -> Result<(), Failure> {
    if args.markdown {
        return print(&markdown());
    }
    let settings = config_of_environment().settings();
    let text = if args.json {
        as_json(&settings)
    } else {
        as_text(&settings)
    };
    print(&text)
}

fn as_json(settings: &[SettingText]) -> String {
    let rows = VARIABLES.iter().zip(settings).map(|(variable, setting)| {
        json!({
            "name": variable.name,
            "value": setting.value,
            "origin": setting.origin,
            "default": variable.default_text(),
            "allowed": variable.allowed,
            "meaning": variable.meaning,
            "since": variable.since,
        })
    });
    let rows: Vec<_> = rows.collect();
    format!(
        "{:#}\n",
        json!({ "format_version": FORMAT_VERSION, "settings": rows })
    )
}

fn as_text(settings: &[SettingText]) -> String {
    let shown = |text: &str| {
        if text.is_empty() {
            "none".to_owned()
        } else {
            text.to_owned()
        }
    };
    let mut out = String::new();
    for (variable, setting) in VARIABLES.iter().zip(settings) {
        let value = shown(&setting.value);
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "{} = {value}  (from {})\n    default: {}\n    allowed: {}\n    {}\n",
            variable.name,
            setting.origin,
            shown(&variable.default_text()),
            variable.allowed,
            variable.meaning
        );
    }
    out
}
