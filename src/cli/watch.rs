//! `cushion watch`: a report file as it changes.

use std::fs::{read_link, Metadata};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;

use super::report::short;
use super::symbols::Symbols;
use super::{say, Failure};
use crate::report::{read, Process, Reason};
use crate::units::parse_duration;

/// Show a report file and each new version of it, until the process has written its last
///
/// On a terminal the view is refreshed in place; otherwise one follows the other. A process that is killed writes no last
/// report: that ends it, too, where the process could be seen from here.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the process has ended, by itself or killed, or --count is reached; 1 the output cannot be written; \
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
    let mut seen: Option<Process> = None;
    let mut shown = 0;
    if !args.file.exists() {
        say(format!("waiting for {}", args.file.display()));
    }
    while args.count.is_none_or(|count| shown < count) {
        // Asked before the file, which may have the process's last word.
        let gone = seen.as_ref().filter(|process| has_gone(process));
        let version = args
            .file
            .metadata()
            .ok()
            .map(|metadata| identity(&metadata));
        if version.is_none() || version == last {
            if let Some(process) = gone {
                let pid = process.pid;
                say(format!("process {pid} has gone without a last report"));
                return Ok(());
            }
            sleep(args.interval);
            continue;
        }
        last = version;
        let report = read(&args.file).map_err(|error| Failure::input(&args.file, error))?;
        let pid = report.process.pid;
        if seen.as_ref().map(|process| process.pid) != Some(pid) {
            seen = Some(report.process.clone()).filter(is_here);
        }
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
        if seen.is_none() && shown == 1 {
            say(format!(
                "process {pid} is not to be seen from here; waiting for its next report"
            ));
        }
    }
    Ok(())
}

/// What the process runs, by its number here.
fn program(process: &Process) -> io::Result<PathBuf> {
    read_link(format!("/proc/{}/exe", process.pid))
}

/// Whether the process is to be seen: not one of another machine or container that has the same number.
fn is_here(process: &Process) -> bool {
    program(process).is_ok_and(|path| path.to_string_lossy() == process.program)
}

fn has_gone(process: &Process) -> bool {
    program(process).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Differs between versions of the file, each of which is a new one.
fn identity(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.ino(), metadata.mtime(), metadata.mtime_nsec())
}
