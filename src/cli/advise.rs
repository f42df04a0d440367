//! `cushion advise`: the settings that suit a recorded workload.

use std::path::PathBuf;

use clap::Args;

use super::trace::load;
use super::{config_of_environment, print, say, Failure, READER_EXIT_CODES};
use crate::config::Origin;
use crate::replay::advise::{evaluate, search, worse, Candidate, Environment, BALANCE_PERCENT};
use crate::replay::{Options, Workload};
use crate::units::Bytes;

/// Find the settings that suit a recorded workload
///
/// Settings that the environment has already are shown for comparison, and named if they make things worse. The advice keeps
/// CUSHION_MODE and CUSHION_ZERO, which say what the program can see of its memory.
#[derive(Debug, Args)]
#[command(after_help = READER_EXIT_CODES)]
pub struct AdviseArgs {
    /// Traces of any format that `cushion trace` reads; with several, their figures are summed
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

/// Variables that change where memory goes, and so what a replay shows.
const RELEVANT: [&str; 7] = [
    "CUSHION_MODE",
    "CUSHION_BACKING",
    "CUSHION_ZERO",
    "CUSHION_ALIGNMENT",
    "CUSHION_MAX_SPLIT_SIZE",
    "CUSHION_PREALLOCATE",
    "CUSHION_CONF",
];

/// Of these, what says what a program can see of its memory: advice is given on top of it.
const KEPT: [&str; 2] = ["CUSHION_MODE", "CUSHION_ZERO"];

/// Runs the subcommand.
pub fn run(args: &AdviseArgs) -> Result<(), Failure> {
    let mut workloads = Vec::new();
    for path in &args.files {
        workloads.extend(Workload::of(&load(path)?));
    }
    if workloads.is_empty() {
        return Err(Failure::Input(
            "no allocations in these traces: nothing to advise on".to_owned(),
        ));
    }
    let options = Options::default();
    let user = user_settings();
    let kept = user.iter().filter(|(name, _)| KEPT.contains(name));
    let kept: Environment = kept.cloned().collect();
    let Some(advice) = search(&workloads, &kept, &options) else {
        return Ok(());
    };
    let mut text = heading();
    text += &row("defaults", &evaluate(&workloads, Vec::new(), &options));
    if !user.is_empty() {
        text += &row(
            "your settings",
            &evaluate(&workloads, user.clone(), &options),
        );
    }
    text += &row("lowest memory", &advice.lowest_reserved);
    text += &row("fewest calls", &advice.fewest_calls);
    text += &row("balanced", &advice.balanced);
    text += &format!(
        "\nbalanced: fewest driver calls within {BALANCE_PERCENT} % of the lowest memory\n"
    );
    for (what, best) in [
        ("lowest memory", &advice.lowest_reserved),
        ("fewest calls", &advice.fewest_calls),
        ("balanced", &advice.balanced),
    ] {
        text += &format!("\n{what}:\n  {}\n", line(&best.environment));
    }
    print(&text)?;
    for found in worse(&workloads, &user, &options) {
        let (with, without) = (&found.with, &found.without);
        say(format!(
            "{} makes it worse: {} reserved and {} driver calls with it, {} and {} without",
            found.name,
            Bytes(with.reserved_bytes),
            with.driver_calls,
            Bytes(without.reserved_bytes),
            without.driver_calls,
        ));
    }
    Ok(())
}

/// What the environment sets of the relevant variables, in its own words.
fn user_settings() -> Environment {
    let config = config_of_environment();
    let set = |setting: &crate::config::SettingText| setting.origin != Origin::Default.to_string();
    let settings: Vec<_> = config.settings().into_iter().filter(set).collect();
    let of = |name: &'static str| {
        settings
            .iter()
            .find(|s| s.name == name && s.origin == name)
            .map(|s| (name, s.value.clone()))
    };
    RELEVANT.into_iter().filter_map(of).collect()
}

fn heading() -> String {
    format!(
        "{:14} {:>12} {:>11} {:>12} {:>11}\n",
        "", "reserved", "utilisation", "driver calls", "driver time"
    )
}

fn row(what: &str, c: &Candidate) -> String {
    let utilisation = 100.0 * c.requested_bytes as f64 / c.reserved_bytes.max(1) as f64;
    let (reserved, ms) = (Bytes(c.reserved_bytes), 1e3 * c.driver_seconds);
    format!(
        "{what:14} {reserved:>12} {utilisation:>9.1} % {:>12} {ms:>8.1} ms\n",
        c.driver_calls
    )
}

/// The line to paste.
fn line(environment: &Environment) -> String {
    if environment.is_empty() {
        return "(the defaults: nothing to set)".to_owned();
    }
    let words: Vec<_> = environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    words.join(" ")
}
