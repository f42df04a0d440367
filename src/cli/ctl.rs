//! `cushion ctl`: speaks to a running process.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{clean, escape_controls, print, Failure};
use crate::config::{Config, Ctl};
use crate::ctl::{directory, own_uid, peer, socket_name, Command};
use crate::units::{parse_duration, Bytes};

/// Tell a running process to give idle memory back, to write a report, or to say how it stands
///
/// The process must be the same user's, and have been started with `cushion run` or CUSHION_CTL=on.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done; 1 the process did not do it; 2 there is no such process, or none that can be spoken to."
)]
pub struct CtlArgs {
    /// The process's number
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,
    /// What it is to do
    what: Word,
    /// Print the process's answer as JSON
    #[arg(long)]
    json: bool,
    /// Give up after so long
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = patience)]
    timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Word {
    /// Give free segments of every context back to the driver, where no work is under way
    Trim,
    /// Write a report now, and print its path
    Report,
    /// Print the current figures
    Stats,
}

/// The longest answer that is read.
const ANSWER_MAX_BYTES: u64 = 16 << 20;

fn patience(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "expected a duration: 10s, 500ms".to_owned())
}

/// Runs the subcommand.
pub fn run(args: &CtlArgs) -> Result<(), Failure> {
    let command = match args.what {
        Word::Trim => Command::Trim,
        Word::Report => Command::Report,
        Word::Stats => Command::Stats,
    };
    let deadline = Instant::now() + args.timeout;
    let stream = connect(args.pid)?;
    let line = ask(stream, command, deadline).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no answer within {} s", args.timeout.as_secs_f64())
            }
            _ => error.to_string(),
        };
        Failure::Other(format!("process {}: {why}", args.pid))
    })?;
    let answer: Value = serde_json::from_str(&line).map_err(|_| {
        Failure::Other(format!(
            "process {}: its answer is not one of this version's",
            args.pid
        ))
    })?;
    if args.json {
        print(&escape_controls(&format!("{answer}\n")))?;
    }
    if let Some(error) = answer["error"].as_str() {
        return Err(Failure::Other(format!(
            "process {}: {}",
            args.pid,
            clean(error)
        )));
    }
    if args.json {
        return Ok(());
    }
    print(&match args.what {
        Word::Trim => trimmed(&answer),
        Word::Report => format!("{}\n", clean(answer["path"].as_str().unwrap_or_default())),
        Word::Stats => stats(&answer),
    })
}

/// A connection to the process, after making sure that it is it.
fn connect(pid: u32) -> Result<UnixStream, Failure> {
    let uid = own_uid();
    let process = PathBuf::from(format!("/proc/{pid}"));
    let Ok(metadata) = fs::metadata(&process) else {
        return Err(Failure::Input(format!("there is no process {pid}")));
    };
    if metadata.uid() != uid {
        return Err(Failure::Input(format!(
            "process {pid} belongs to another user; only its own user can speak to it"
        )));
    }
    let mut why = why_not(&process, pid);
    let name = socket_name(own_number(&process).unwrap_or(pid));
    for directory in directories(&process, uid) {
        let path = directory.join(&name);
        if fs::symlink_metadata(&path).is_err() {
            continue;
        }
        match connect_in(&directory, &path, uid, pid) {
            Ok(stream) => return Ok(stream),
            // A process of the same number had it once.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => why = format!("process {pid}: {}: {error}", path.display()),
        }
    }
    Err(Failure::Input(why))
}

fn connect_in(directory: &Path, path: &Path, uid: u32, pid: u32) -> io::Result<UnixStream> {
    directory::check(directory, uid)?;
    let stream = UnixStream::connect(path)?;
    let peer = peer(&stream)?;
    if peer.uid != uid || peer.pid != pid {
        return Err(io::Error::other(format!(
            "process {} of user {} is behind it",
            peer.pid, peer.uid
        )));
    }
    Ok(stream)
}

/// The number that a process has for itself, which in a container is another one.
fn own_number(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

/// Where its socket can be: by its environment, in its own view of the files (a container's is not ours) and in ours; then
/// by our environment.
fn directories(process: &Path, uid: u32) -> Vec<PathBuf> {
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    let its = |name: &str| value_in(&environment, name);
    let ours = |name: &str| std::env::var_os(name);
    let from = |variable: &dyn Fn(&str) -> Option<OsString>| {
        let (runtime, temporary) = (variable("XDG_RUNTIME_DIR"), variable("TMPDIR"));
        directory::candidates(runtime.as_deref(), temporary.as_deref(), uid)
    };
    let by_its = from(&its);
    let root = process.join("root");
    let inside = |path: &PathBuf| Some(root.join(path.strip_prefix("/").ok()?));
    let mut all: Vec<PathBuf> = by_its.iter().filter_map(inside).collect();
    all.extend(by_its);
    all.extend(from(&ours));
    all
}

fn value_in(environment: &[u8], name: &str) -> Option<OsString> {
    let mut entries = environment.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    value.map(|value| OsString::from_vec(value.to_vec()))
}

/// Why a process has no socket, as far as can be seen from outside.
fn why_not(process: &Path, pid: u32) -> String {
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let is_loaded = maps
        .split(|byte| *byte == b'\n')
        .any(|line| line.ends_with(b"libcushion.so"));
    let setting = value_in(&environment, "CUSHION_CTL").unwrap_or_default();
    let (config, _) = Config::from_vars([("CUSHION_CTL".to_owned(), setting)]);
    let is_on = config.ctl.value == Ctl::On;
    if !is_loaded {
        format!("process {pid} does not run under cushion")
    } else if !is_on {
        format!("process {pid} runs under cushion and does not listen: start it with `cushion run` or CUSHION_CTL=on")
    } else {
        format!("process {pid} runs under cushion and has not allocated yet, or found no place for its socket (its report says why)")
    }
}

fn ask(mut stream: UnixStream, command: Command, deadline: Instant) -> io::Result<String> {
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(command.line().as_bytes())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
        if answer.len() as u64 > ANSWER_MAX_BYTES {
            return Err(io::Error::other("its answer has no end"));
        }
    }
    if answer.is_empty() {
        return Err(io::Error::other("it ended, or has too much to do"));
    }
    String::from_utf8(answer).map_err(io::Error::other)
}

fn trimmed(answer: &Value) -> String {
    let bytes = answer["released_bytes"].as_u64().unwrap_or(0);
    let mut text = format!("gave back {} ({bytes} bytes)\n", Bytes(bytes));
    if answer["stream_captures"] == true {
        text.push_str("a stream captures; nothing is given back until it has ended\n");
    }
    if answer["device_busy"] == true {
        text.push_str("a device is at work; what is idle there was kept\n");
    }
    text
}

fn stats(answer: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut text = format!("process {}\n", number(&answer["pid"]));
    for device in answer["devices"].as_array().into_iter().flatten() {
        let bytes =
            |gauge: &str, value: &str| Bytes(number(&device["figures"][gauge][value])).to_string();
        let limit = match device["limit_bytes"].as_u64() {
            Some(limit) => format!("limit {}", Bytes(limit)),
            None => "no limit".to_owned(),
        };
        let name = clean(device["name"].as_str().unwrap_or_default());
        let ordinal = number(&device["ordinal"]);
        text.push_str(&format!("device {ordinal}: {name}, {limit}\n"));
        for (label, gauge) in [
            ("requested", "requested_bytes"),
            ("allocated", "allocated_bytes"),
            ("reserved", "reserved_bytes"),
            ("cached", "cached_bytes"),
        ] {
            let (now, peak) = (bytes(gauge, "current"), bytes(gauge, "peak"));
            text.push_str(&format!("  {label:<10} {now:>12} now {peak:>12} at most\n"));
        }
    }
    for kind in answer["kinds"].as_array().into_iter().flatten() {
        let bytes = Bytes(number(&kind["bytes"]["current"]));
        let name = clean(kind["kind"].as_str().unwrap_or_default());
        let count = number(&kind["count"]["current"]);
        text.push_str(&format!("  {name}: {count} in {bytes}\n"));
    }
    text
}
