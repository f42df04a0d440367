//! One file a subcommand: argument, call, text or JSON, exit code. Figures come from the rooms below.

pub mod replay;
pub mod trace;

use std::fmt;
use std::io;
use std::path::Path;

use clap::{Parser, Subcommand};

use crate::config::Config;

/// A caching pool, memory limits and leak reports for unmodified CUDA programs
#[derive(Debug, Parser)]
#[command(name = "cushion", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Replay(replay::ReplayArgs),
    Trace(trace::TraceArgs),
}

impl Cli {
    /// Runs what was asked for.
    pub fn run(&self) -> Result<(), Failure> {
        match &self.command {
            Command::Replay(args) => replay::run(args),
            Command::Trace(args) => trace::run(args),
        }
    }
}

/// The settings in the environment of this command; what cannot be used is said on standard error.
#[allow(dead_code)]
fn config_of_environment() -> Config {
    let vars =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let (config, warnings) = Config::from_vars(vars);
    for warning in warnings {
        eprintln!("{warning}");
    }
    config
}

/// Why a subcommand failed, with what the exit code tells.
#[derive(Debug)]
pub enum Failure {
    /// A file or an argument that cannot be used: exit code 2.
    Input(String),
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
            Failure::Other(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Input(text) | Failure::Other(text)) = self;
        f.write_str(text)
    }
}
