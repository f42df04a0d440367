//! `cushion watch`: a report file as it changes.

use std::fs::Metadata;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;

use super::report::short;
use super::symbols::Symbols;
use super::Failure;
use crate::report::{read, Reason};
use crate::units::parse_duration;

/// Show a report file and each new version of it, until the process has written its last
///
/// On a terminal the view is refreshed in place; otherwise one follows the other.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the process has ended, or --count is reached; 1 the output cannot be written; \
2 the file is no report or cannot be read."
)]
pub struct WatchArgs {
    /// The report file; it need not be there yet
    file: PathBuf,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = pause)]
    interval: Duration,
    /// End after so many versions
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
}

fn pause(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).ok_or("expected a duration: 1s, 500ms")?;
    // Zero would keep a processor busy.
    Ok(duration.max(Duration::from_millis(10)))
}

/// Runs the subcommand.
pub fn run(args: &WatchArgs) -> Result<(), Failure> {
    let is_terminal = io::stdout().is_terminal();
    let mut last = None;
    let mut shown = 0;
    if !args.file.exists() {
        eprintln!("cushion: waiting for {}", args.file.display());
    }
    while args.count.is_none_or(|count| shown < count) {
        let version = args
            .file
            .metadata()
            .ok()
            .map(|metadata| identity(&metadata));
        if version.is_none() || version == last {
            sleep(args.interval);
            continue;
        }
        last = version;
        let report = read(&args.file).map_err(|error| Failure::input(&args.file, error))?;
        let text = short(&report, &mut Symbols::of(&report));
        let start = if is_terminal {
            // Home, and clear from there.
            "\x1b[H\x1b[2J"
        } else if shown > 0 {
            "\n"
        } else {
            ""
        };
        let written = io::stdout().write_all(format!("{start}{text}").as_bytes());
        shown += 1;
        // A reader that has gone (`| head`) ends the watch as the process's end does.
        if written.is_err() || report.report.reason == Reason::Exit {
            return Failure::unless_closed(written);
        }
    }
    Ok(())
}

/// Differs between versions of the file, each of which is a new one.
fn identity(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.ino(), metadata.mtime(), metadata.mtime_nsec())
}
