//! `cushion run`: an unmodified program under libcushion.so.
//!
//! The command sets variables and becomes the program, so that exit status, signals and the process id are the
//! program's own.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::Args;

use super::{sockets, Failure};
use crate::config::Variable;

/// Run a program under cushion
///
/// The options are the settings of the same meaning (see `cushion config`) and win over the environment.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: that of the program; 1 libcushion.so is not found; 2 an argument that cannot be used; \
126 the program cannot be started; 127 the program is not there."
)]
pub struct RunArgs {
    /// Share of each device's memory (0.8; 0:0.5,1:0.8)
    #[arg(long, value_name = "SHARE", value_parser = of("CUSHION_MEMORY_FRACTION"))]
    fraction: Option<OsString>,
    /// Bytes of each device's memory (20G; 0:20G,1:10G)
    #[arg(long, value_name = "SIZE", value_parser = of("CUSHION_MEMORY_LIMIT"))]
    limit: Option<OsString>,
    /// Blocks of at least this size are never split
    #[arg(long, value_name = "SIZE", value_parser = of("CUSHION_MAX_SPLIT_SIZE"))]
    max_split: Option<OsString>,
    /// Per cent of the limit beyond which the pool gives free segments back before it grows
    #[arg(long, value_name = "PERCENT", value_parser = of("CUSHION_GC_THRESHOLD"))]
    gc_threshold: Option<OsString>,
    /// Free segments that nothing was allocated from for so long are given back
    #[arg(long, value_name = "DURATION", value_parser = of("CUSHION_IDLE_TRIM"))]
    idle_trim: Option<OsString>,
    /// Memory taken when a context first allocates (20G; 0:20G,1:10G)
    #[arg(long, value_name = "SIZE", value_parser = of("CUSHION_PREALLOCATE"))]
    preallocate: Option<OsString>,
    /// faithful or fast
    #[arg(long, value_name = "MODE", value_parser = of("CUSHION_MODE"))]
    mode: Option<OsString>,
    /// What a free waits for: auto, device or host
    #[arg(long, value_name = "MODE", value_parser = of("CUSHION_FREE_SYNC"))]
    free_sync: Option<OsString>,
    /// What reused memory holds: on (zeros), off or poison
    #[arg(long, value_name = "MODE", value_parser = of("CUSHION_ZERO"))]
    zero: Option<OsString>,
    /// Where memory comes from: segments, or vmm (mapped where it is needed)
    #[arg(long, value_name = "BACKING", value_parser = of("CUSHION_BACKING"))]
    backing: Option<OsString>,
    /// Least alignment above 1 MiB (64K to 2M)
    #[arg(long, value_name = "SIZE", value_parser = of("CUSHION_ALIGNMENT"))]
    alignment: Option<OsString>,
    /// Path pattern of the report, or off
    #[arg(long, value_name = "PATTERN", value_parser = of("CUSHION_REPORT"))]
    report: Option<OsString>,
    /// Time between reports; 0 writes only the last
    #[arg(long, value_name = "DURATION", value_parser = of("CUSHION_REPORT_INTERVAL"))]
    interval: Option<OsString>,
    /// Which allocations have their call stack taken: off, sampled or all
    #[arg(long, value_name = "MODE", value_parser = of("CUSHION_STACKS"))]
    stacks: Option<OsString>,
    /// Path pattern of a trace of every allocation and free, or off
    #[arg(long, value_name = "PATTERN", value_parser = of("CUSHION_TRACE"))]
    trace: Option<OsString>,
    /// Size at which the trace stops growing, or off
    #[arg(long, value_name = "SIZE", value_parser = of("CUSHION_TRACE_LIMIT"))]
    trace_limit: Option<OsString>,
    /// Whether `cushion ctl` can speak to the program: on unless CUSHION_CTL says otherwise
    #[arg(long, value_name = "SWITCH", value_parser = of("CUSHION_CTL"))]
    ctl: Option<OsString>,
    /// Use the simulated driver in place of a GPU; tests/sim-driver/scripts/sim-lib.sh of the sources makes it
    #[arg(long)]
    sim: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// A parser that takes what the variable takes.
fn of(name: &'static str) -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(move |value| {
        let variable = Variable::named(name).ok_or_else(|| format!("{name} is not a setting"))?;
        variable.check(&value).map(|()| value)
    })
}

impl RunArgs {
    /// Variables to set, with their values.
    fn settings(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        let all = [
            ("CUSHION_MEMORY_FRACTION", &self.fraction),
            ("CUSHION_MEMORY_LIMIT", &self.limit),
            ("CUSHION_MAX_SPLIT_SIZE", &self.max_split),
            ("CUSHION_GC_THRESHOLD", &self.gc_threshold),
            ("CUSHION_IDLE_TRIM", &self.idle_trim),
            ("CUSHION_PREALLOCATE", &self.preallocate),
            ("CUSHION_MODE", &self.mode),
            ("CUSHION_FREE_SYNC", &self.free_sync),
            ("CUSHION_ZERO", &self.zero),
            ("CUSHION_ALIGNMENT", &self.alignment),
            ("CUSHION_BACKING", &self.backing),
            ("CUSHION_REPORT", &self.report),
            ("CUSHION_REPORT_INTERVAL", &self.interval),
            ("CUSHION_STACKS", &self.stacks),
            ("CUSHION_TRACE", &self.trace),
            ("CUSHION_TRACE_LIMIT", &self.trace_limit),
            ("CUSHION_CTL", &self.ctl),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }
}

/// Becomes the program. Returns only when that failed.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let here = directory_of_this_program()?;
    let library = find(
        &here,
        &[
            "libcushion.so",
            "../lib/libcushion.so",
            "../lib/cushion/libcushion.so",
        ],
    )?;
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Failure::Input("no program is given".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    if env::var_os("CUSHION_CTL").is_none() {
        command.env("CUSHION_CTL", "on");
    }
    command.envs(args.settings());
    command.env("LD_PRELOAD", prepended(&library, "LD_PRELOAD", b": \t\n")?);
    if args.sim {
        let driver = find(
            &here,
            &["sim/libcuda.so.1", "../lib/cushion/sim/libcuda.so.1"],
        )?;
        let folder = driver.parent().unwrap_or(&here);
        command.env(
            "LD_LIBRARY_PATH",
            prepended(folder, "LD_LIBRARY_PATH", b":;")?,
        );
    }
    sockets::sweep();
    let error = command.exec();
    let text = format!("cannot run {}: {error}", program.display());
    Err(match error.kind() {
        io::ErrorKind::NotFound => Failure::NotThere(text),
        _ => Failure::NotStarted(text),
    })
}

/// Links resolved, so that a link to the command elsewhere still finds its library.
fn directory_of_this_program() -> Result<PathBuf, Failure> {
    let path = env::current_exe().and_then(|path| path.canonicalize());
    let path = path
        .map_err(|error| Failure::Other(format!("cannot tell where this program is: {error}")))?;
    Ok(path.parent().map(Path::to_owned).unwrap_or_default())
}

/// The first of `places` that is a file, seen from `here`.
fn find(here: &Path, places: &[&str]) -> Result<PathBuf, Failure> {
    let mut paths = places.iter().map(|place| here.join(place));
    let found = paths.find(|path| path.is_file());
    // Only the directory is resolved: the name of the file itself matters to the loader.
    let resolved =
        found.and_then(|path| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)));
    resolved.ok_or_else(|| {
        let places = places.join(", ");
        Failure::Other(format!("found none of {places} from {}", here.display()))
    })
}

/// The list in an environment variable, with `first` put before it.
fn prepended(first: &Path, variable: &str, separators: &[u8]) -> Result<OsString, Failure> {
    if first
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| separators.contains(byte))
    {
        let text = format!(
            "{variable} cannot hold {}: it has a space or a colon in it",
            first.display()
        );
        return Err(Failure::Other(text));
    }
    let mut list = first.as_os_str().to_owned();
    let rest = env::var_os(variable).filter(|rest| !rest.is_empty());
    for part in rest.iter().flat_map(|rest| [OsStr::new(":"), rest]) {
        list.push(part);
    }
    Ok(list)
}
