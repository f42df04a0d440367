//! `cushion trace`: what a trace holds, and conversion to other forms.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::{clean, say, Failure, READER_EXIT_CODES};
use crate::replay::Workload;
use crate::trace::{self, csv, encode, text, Action, Trace};

/// Print or convert an allocation trace
#[derive(Debug, Args)]
#[command(after_help = READER_EXIT_CODES)]
pub struct TraceArgs {
    /// A cushion trace, a text trace, an RMM log, a PyTorch memory snapshot or a Kineto trace; gzip is unpacked
    pub file: PathBuf,
    /// Write the trace in this form instead of a listing
    #[arg(long, value_name = "FORM")]
    pub to: Option<Form>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only the summary, not the events
    #[arg(long, conflicts_with = "to")]
    pub summary: bool,
}

/// Forms a trace can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// `a ID SIZE STREAM` and `f ID` lines
    Text,
    /// A table of every field
    Csv,
    /// cushion's own compact form
    Cushion,
}

/// Reads a trace; a failure names the file.
pub(super) fn load(path: &Path) -> Result<Trace, Failure> {
    let trace = trace::read_file(path).map_err(|e| Failure::input(path, e))?;
    let name = path.display();
    if let lost @ 1.. = trace.lost_events {
        say(format!(
            "{name}: {lost} events were lost while it was recorded; figures are lower bounds"
        ));
    }
    if !trace.complete {
        say(format!(
            "{name}: its end is missing: the program was killed, or still runs"
        ));
    }
    Ok(trace)
}

/// Runs the subcommand.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    let trace = load(&args.file)?;
    if args.to == Some(Form::Text) && devices(&trace) > 1 {
        say("the text form has no devices: what is written is a trace of one");
    }
    match &args.output {
        Some(path) => {
            let file = File::create(path).map_err(|e| Failure::input(path, e))?;
            let mut out = BufWriter::new(file);
            print(&trace, args, &mut out)
                .and_then(|()| out.flush())
                .map_err(|e| Failure::Other(format!("cannot write {}: {e}", path.display())))
        }
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            Failure::unless_closed(print(&trace, args, &mut out).and_then(|()| out.flush()))
        }
    }
}

fn devices(trace: &Trace) -> usize {
    let devices: BTreeSet<u32> = trace.for_a_pool().map(|e| e.device).collect();
    devices.len()
}

fn print(trace: &Trace, args: &TraceArgs, out: &mut impl Write) -> io::Result<()> {
    match args.to {
        Some(Form::Text) => text::write(trace, out),
        Some(Form::Csv) => csv::write(trace, out),
        Some(Form::Cushion) => encode::write(trace, out),
        None => {
            summary(trace, out)?;
            if args.summary {
                return Ok(());
            }
            events(trace, out)
        }
    }
}

fn summary(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    for (name, value) in &trace.header {
        writeln!(out, "# {}: {}", clean(name), clean(&value.to_string()))?;
    }
    let allocations = trace.events.iter().filter(|e| e.action == Action::Alloc);
    let streams: BTreeSet<_> = allocations.clone().map(|e| (e.device, e.stream)).collect();
    let threads: BTreeSet<_> = trace.events.iter().map(|e| e.thread).collect();
    let (count, total) = (allocations.clone().count(), trace.events.len());
    writeln!(
        out,
        "# events: {total} ({count} allocations, {} frees)",
        total - count
    )?;
    writeln!(
        out,
        "# streams: {}, threads: {}",
        streams.len(),
        threads.len()
    )?;
    let bytes = allocations.fold(0u64, |sum, e| sum.saturating_add(e.size_bytes));
    writeln!(out, "# allocated in total: {bytes} bytes")?;
    for workload in Workload::of(trace) {
        let Workload {
            device,
            peak_requested_bytes,
            ..
        } = workload;
        writeln!(
            out,
            "# device {device}: at most {peak_requested_bytes} bytes live at once"
        )?;
    }
    if let Some(last) = trace.events.last().filter(|e| e.time_ns > 0) {
        writeln!(out, "# duration: {:.6} seconds", last.time_ns as f64 * 1e-9)?;
    }
    writeln!(
        out,
        "# lost events: {}, frees of older memory: {}",
        trace.lost_events, trace.unmatched_frees
    )?;
    writeln!(
        out,
        "# ended by its recorder: {}",
        if trace.complete { "yes" } else { "no" }
    )
}

fn events(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>14} {:5} {:>9} {:>14} device stream thread kind site",
        "seconds", "event", "id", "bytes"
    )?;
    for e in &trace.events {
        let seconds = e.time_ns as f64 * 1e-9;
        match e.action {
            Action::Alloc => {
                let site = trace
                    .sites
                    .get(&e.site)
                    .cloned()
                    .unwrap_or_else(|| e.site.to_string());
                let site = clean(&site);
                let (id, size, device, stream, thread, kind) = (
                    e.id,
                    e.size_bytes,
                    e.device,
                    e.stream,
                    e.thread,
                    e.kind.name(),
                );
                writeln!(
                    out,
                    "{seconds:>14.9} alloc {id:>9} {size:>14} {device} {stream:#x} {thread} {kind} {site}"
                )?;
            }
            Action::Free => writeln!(
                out,
                "{seconds:>14.9} free  {:>9} {:>14} {} - {} - -",
                e.id, "", e.device, e.thread
            )?,
        }
    }
    Ok(())
}
