//! The command `cushion`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cushion::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("cushion: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}
