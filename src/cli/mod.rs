//! One file a subcommand: argument, call, text or JSON, exit code. Figures come from the rooms below.

pub mod advise;
mod config;
mod ctl;
pub mod replay;
mod report;
mod run;
mod sockets;
mod symbols;
pub mod trace;
mod watch;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Config;
use crate::line::one_line;

/// A caching pool, memory limits and leak reports for unmodified CUDA programs
#[derive(Debug, Parser)]
#[command(name = "cushion", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 something else failed; 2 a file or an argument that cannot be used. \
`cushion run` ends as its program does, or with 126 when it cannot be started and 127 when it is not there.";

/// Of the commands that read traces.
const READER_EXIT_CODES: &str =
    "Exit codes: 0 done; 1 the output cannot be written; 2 a file cannot be used: its name, the line and what was expected are said.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::RunArgs>),
    Report(report::ReportArgs),
    Watch(watch::WatchArgs),
    Ctl(ctl::CtlArgs),
    Config(config::ConfigArgs),
    Replay(replay::ReplayArgs),
    Trace(trace::TraceArgs),
    Advise(advise::AdviseArgs),
}

/// The whole program: reads the arguments, does what they ask for, says what went wrong.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Help that was asked for goes to standard output; all else is a line of ours.
fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let text = error.to_string();
        eprint!("cushion: {}", text.strip_prefix("error: ").unwrap_or(&text));
        return ExitCode::from(2);
    }
    // Nothing can be said to a reader that has gone.
    let _ = error.print();
    ExitCode::SUCCESS
}

impl Cli {
    /// Runs what was asked for.
    pub fn run(&self) -> Result<(), Failure> {
        match &self.command {
            Command::Run(args) => run::run(args),
            Command::Report(args) => report::run(args),
            Command::Watch(args) => watch::run(args),
            Command::Ctl(args) => ctl::run(args),
            Command::Config(args) => config::run(args),
            Command::Replay(args) => replay::run(args),
            Command::Trace(args) => trace::run(args),
            Command::Advise(args) => advise::run(args),
        }
    }
}

/// The settings in the environment of this command; what cannot be used is said on standard error.
fn config_of_environment() -> Config {
    let vars =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let (config, warnings) = Config::from_vars(vars);
    for warning in warnings {
        eprintln!("{warning}");
    }
    config
}

/// A line on standard error; names of files and what is in them neither break it nor make it endless.
fn say(text: impl AsRef<str>) {
    eprintln!("cushion: {}", one_line(text.as_ref(), LINE_LIMIT));
}

/// The most characters of a line: more than any path has.
const LINE_LIMIT: usize = 5_000;

/// Writes to standard output.
fn print(text: &str) -> Result<(), Failure> {
    Failure::unless_closed(io::stdout().write_all(text.as_bytes()))
}

/// Text from a file, made safe for a terminal: no control characters.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// JSON with strings from a file, made safe for a terminal: JSON escapes the control characters below a space only.
fn escape_controls(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() && c != '\n' {
            safe += &format!("\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Why a subcommand failed, with what the exit code tells.
#[derive(Debug)]
pub enum Failure {
    /// A file or an argument that cannot be used: exit code 2.
    Input(String),
    /// The program to run cannot be started: exit code 126.
    NotStarted(String),
    /// The program to run is not there: exit code 127.
    NotThere(String),
    /// Anything else: exit code 1.
    Other(String),
}

impl Failure {
    /// A file that cannot be used, and why.
    pub fn input(path: &Path, why: impl fmt::Display) -> Failure {
        Failure::Input(format!("{}: {why}", path.display()))
    }

    /// A reader that has seen enough (`| head`) is not a failure.
    pub fn unless_closed(written: io::Result<()>) -> Result<(), Failure> {
        match written {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::Other(format!("cannot write: {e}")))
            }
            _ => Ok(()),
        }
    }

    /// For the shell.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Input(_) => 2,
            Failure::NotStarted(_) => 126,
            Failure::NotThere(_) => 127,
            Failure::Other(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(text)
            | Failure::NotStarted(text)
            | Failure::NotThere(text)
            | Failure::Other(text) => f.write_str(text),
        }
    }
}
