//! Traces and replay as a user meets them: the recorded traces, the files of other tools, and files that are broken.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cushion::replay::{replay, Costs, Name, Options, Workload};
use cushion::trace::{self, Event, TraceOptions, TraceWriter};
use proptest::prelude::*;

const RECORDED: [&str; 5] = ["gnn", "gpt", "llama_gen", "resnet", "streams"];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn recorded(name: &str) -> trace::Trace {
    trace::read_file(&data(&format!("traces/{name}.trace.gz"))).unwrap()
}

fn cushion(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cushion"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CUSHION_")) {
        command.env_remove(name);
    }
    command.args(args).output().unwrap()
}

/// The simulator is believed because it finds what PyTorch found on the GPU: the peak and the number of segments.
#[test]
fn torch_lands_on_the_recorded_figures() {
    for name in RECORDED {
        let trace = recorded(name);
        let workloads = Workload::of(&trace);
        let outcome = replay(&workloads[0], Name::Torch, &Options::default());
        assert_eq!(
            outcome.peak_reserved_bytes, trace.header["peak_reserved"],
            "{name}"
        );
        assert_eq!(outcome.calls.malloc, trace.header["segments"], "{name}");
        assert_eq!(
            outcome.peak_requested_bytes, trace.header["peak_requested"],
            "{name}"
        );
    }
}

/// Measured on the GPU with `expandable_segments:True`: 5.21, 16.29 and 18.60 GB.
#[test]
fn torch_expandable_lands_on_the_measured_peaks() {
    for (name, gigabytes) in [("resnet", 5.21), ("gnn", 16.29), ("gpt", 18.60)] {
        let workloads = Workload::of(&recorded(name));
        let outcome = replay(&workloads[0], Name::TorchExpandable, &Options::default());
        let found = outcome.peak_reserved_bytes as f64 / 1e9;
        assert!((found - gigabytes).abs() < 0.006, "{name}: {found} GB");
    }
}

#[test]
fn a_limit_is_kept_or_refused_by_every_policy() {
    let workloads = Workload::of(&recorded("streams"));
    let limit_bytes = Some(100 << 20);
    for name in Name::ALL {
        let free = replay(&workloads[0], name, &Options::default());
        let tight = replay(
            &workloads[0],
            name,
            &Options {
                limit_bytes,
                ..Options::default()
            },
        );
        assert!(tight.peak_reserved_bytes <= 100 << 20, "{name}");
        assert!(
            free.peak_reserved_bytes <= 100 << 20 || tight.driver_calls != free.driver_calls,
            "{name}"
        );
        let none = replay(
            &workloads[0],
            name,
            &Options {
                limit_bytes: Some(0),
                ..Options::default()
            },
        );
        assert_eq!(
            (none.peak_reserved_bytes, none.driver_calls),
            (0, 0),
            "{name}"
        );
        assert_eq!(
            none.refused_requests as usize,
            workloads[0]
                .events
                .iter()
                .filter(|e| e.size_bytes > 0)
                .count()
        );
    }
}

/// What was refused uses nothing.
#[test]
fn utilisation_is_of_what_was_served() {
    let workloads = Workload::of(&recorded("streams"));
    for (limit_bytes, is_refused) in [(None, false), (Some(30 << 20), true)] {
        for name in Name::ALL {
            let options = Options {
                limit_bytes,
                ..Options::default()
            };
            let outcome = replay(&workloads[0], name, &options);
            let reserved_bytes = outcome.peak_reserved_bytes as f64;
            let of_all = outcome.peak_requested_bytes as f64 / reserved_bytes;
            let utilisation = outcome.utilisation;
            assert_eq!(outcome.refused_requests > 0, is_refused, "{name}");
            assert!(utilisation <= 1.0, "{name}: {utilisation}");
            assert_eq!(utilisation == of_all, !is_refused, "{name}");
        }
    }
}

#[test]
fn costs_come_from_the_file() {
    let workloads = Workload::of(&recorded("gnn"));
    let costs = Costs {
        malloc_us: vec![(1, 1e6)],
        ..Costs::default()
    };
    let outcome = replay(
        &workloads[0],
        Name::Torch,
        &Options {
            costs,
            ..Options::default()
        },
    );
    assert!((outcome.driver_seconds - 22.0).abs() < 1e-6);
}

#[test]
fn forms_convert_without_loss() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let original = data("traces/streams.trace.gz");
    let original = original.to_str().unwrap();
    let mut from = original.to_owned();
    for form in ["cushion", "csv", "cushion", "text"] {
        let to = path(form);
        let done = cushion(&["trace", &from, "--to", form, "-o", &to]);
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        from = to;
    }
    let last = trace::read_file(Path::new(&from)).unwrap();
    assert_eq!(last.events, recorded("streams").events);
}

#[test]
fn files_of_other_tools_are_read() {
    for (name, events, unmatched) in [
        ("snapshot.pickle", 3, 1),
        ("rmm.csv", 3, 0),
        ("kineto.json", 2, 0),
    ] {
        let trace = trace::read_file(&data(&format!("foreign/{name}"))).unwrap();
        assert_eq!(
            (trace.events.len(), trace.unmatched_frees),
            (events, unmatched),
            "{name}"
        );
        assert!(
            trace.events[0].size_bytes > 0 && trace.events[1].time_ns > 0,
            "{name}"
        );
    }
}

#[test]
fn a_broken_file_is_named_with_its_line_and_exits_2() {
    let directory = tempfile::tempdir().unwrap();
    let long = [b"a ", &[b'9'; 100_000][..]].concat();
    let cases: [(&str, &[u8], &str); 10] = [
        ("empty", b"", "expected a trace, and the file is empty"),
        (
            "escapes",
            b"a 0 \x1b[2J 0\n",
            "line 1: expected SIZE in bytes, a whole number, and found '\\u{1b}[2J'",
        ),
        ("long", &long, "99..."),
        (
            "table.csv",
            b"action,id,size_bytes,device,stream,thread,time_ns,site,kind\ngarbage\n",
            "line 2: expected 9 fields",
        ),
        (
            "text",
            b"# {}\na 0 512 0\na one 512 0\n",
            "line 3: expected ID",
        ),
        (
            "rmm.csv",
            b"Thread,Time,Action,Pointer,Size,Stream\n1,2,grab,0x1,1,0\n",
            "line 2: expected Action",
        ),
        (
            "kineto.json",
            b"{\n\"traceEvents\": [\n",
            "line 3: expected JSON",
        ),
        (
            "snapshot.pickle",
            b"\x80\x04}\x94.",
            "byte 0: expected a dict with the list 'device_traces'",
        ),
        (
            "own",
            b"CUSHTR01\x05\x00\x00\x00{}",
            "byte 12: expected 5 more bytes",
        ),
        ("future", b"CUSHTR99", "version 01"),
    ];
    for (name, content, message) in cases {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        for command in ["replay", "trace"] {
            let done = cushion(&[command, path.to_str().unwrap()]);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(2), "{name}: {said}");
            assert!(
                said.contains(message) && said.contains(path.to_str().unwrap()),
                "{name}: {said}"
            );
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(
                !said.contains('\x1b') && said.len() < 1000,
                "{name}: {said}"
            );
        }
    }
    let zeros = "/dev/zero";
    for (name, message) in [("/nonexistent/trace", "No such file"), (zeros, "a device")] {
        for arguments in [
            &["replay", name][..],
            &["trace", name],
            &["advise", name],
            &["report", name],
            &["replay", "--costs", name, "/dev/null"],
        ] {
            let done = cushion(arguments);
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(
                said.starts_with(&format!("cushion: {name}: {message}")),
                "{said}"
            );
        }
    }
}

#[test]
fn output_that_cannot_be_written_ends_with_1() {
    let trace = data("traces/streams.trace.gz");
    let trace = trace.to_str().unwrap();
    for (output, status, message) in [
        ("/dev/full", 1, "cannot write /dev/full: No space left"),
        (
            "/no/such/folder/out",
            2,
            "/no/such/folder/out: No such file",
        ),
    ] {
        let done = cushion(&["trace", trace, "--to", "csv", "-o", output]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(status), "{said}");
        assert!(said.starts_with(&format!("cushion: {message}")), "{said}");
    }
    for word in ["trace", "replay", "advise"] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cushion"));
        command.args([word, trace]).stdout(full);
        let status = command.stderr(std::process::Stdio::null()).status();
        assert_eq!(status.unwrap().code(), Some(1), "{word}");
    }
}

#[test]
fn a_name_is_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"a\xff\n\x1b[2J");
    let path = directory.path().join(name);
    std::fs::write(&path, "a 0 512 0\n").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cushion"));
        let done = command.args(arguments).arg(&path).output().unwrap();
        for text in [&done.stdout, &done.stderr] {
            let text = String::from_utf8(text.clone()).unwrap();
            assert!(!text.contains('\x1b'), "{arguments:?}: {text}");
            assert!(!text.contains("panicked"), "{arguments:?}: {text}");
        }
        (
            done.status.code(),
            String::from_utf8(done.stderr).unwrap().lines().count(),
        )
    };
    for arguments in [
        &["replay"][..],
        &["replay", "--json"],
        &["trace"],
        &["advise"],
    ] {
        assert_eq!(run(arguments), (Some(0), 0), "{arguments:?}");
    }
    let report = std::fs::read(data("../golden/exit.json")).unwrap();
    std::fs::write(&path, report).unwrap();
    for (arguments, status) in [
        (&["report"][..], 0),
        (&["report", "--json"], 0),
        (&["watch"], 0),
        (&["replay"], 2),
        (&["replay", "--costs"], 2),
    ] {
        let twice = data("../golden/exit.json");
        let twice = twice.to_str().unwrap();
        let arguments = match arguments {
            ["report", ..] => [arguments, &[twice]].concat(),
            _ => arguments.to_vec(),
        };
        assert_eq!(run(&arguments).0, Some(status), "{arguments:?}");
    }
}

/// Each with the settings that it has, and told apart.
#[test]
fn devices_are_replayed_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("two.trace");
    let head = trace::csv::HEADER;
    let rows = "alloc,0,512,0,0,0,0,0,pooled\nalloc,1,512,1,0,0,0,0,pooled\n";
    std::fs::write(&path, format!("{head}\n{rows}")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cushion"));
        command.args(arguments).arg(&path);
        let done = command
            .env("CUSHION_PREALLOCATE", "1:64M")
            .output()
            .unwrap();
        assert!(done.status.success());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(done.stdout), text(done.stderr))
    };
    let (table, _) = run(&["replay", "--policy", "cushion"]);
    let reserved = |device: &str| {
        let row = table.lines().find_map(|row| row.strip_prefix(device));
        row.unwrap_or_default().split_whitespace().nth(1)
    };
    let both = [reserved("two, device 0"), reserved("two, device 1")];
    assert_eq!(both, [Some("2.0"), Some("66.0")], "{table}");
    let (advice, said) = run(&["advise"]);
    assert!(advice.contains("68.00 MiB"), "{advice}");
    assert!(
        said.contains("CUSHION_PREALLOCATE makes it worse"),
        "{said}"
    );
    let (_, said) = run(&["trace", "--to", "text"]);
    assert!(said.contains("has no devices"), "{said}");
}

/// In the text form there is no word for other kinds, and so they are left out of it, as of every replay.
#[test]
fn the_text_form_replays_as_the_trace_does() {
    let pinned = Event {
        kind: cushion::ledger::Kind::PinnedHost,
        ..Event::alloc(1, 1 << 30, 0)
    };
    let events = vec![
        Event::alloc(0, 512, 0),
        pinned,
        Event::free(1),
        Event::free(0),
    ];
    let trace = trace::Trace {
        events,
        ..trace::Trace::default()
    };
    let mut text = Vec::new();
    trace::text::write(&trace, &mut text).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "a 0 512 0\nf 0\n");
    assert_eq!(Workload::of(&trace)[0].peak_requested_bytes, 512);
}

#[test]
fn json_has_a_version_and_every_figure() {
    let file = data("traces/streams.trace.gz");
    let args = [
        "replay",
        file.to_str().unwrap(),
        "--json",
        "--policy",
        "torch",
        "--samples",
        "10",
    ];
    let done = cushion(&args);
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["format_version"], 1);
    let outcome = &report["files"][0]["outcomes"][0];
    assert_eq!(outcome["policy"], "torch");
    assert_eq!(outcome["peak_reserved_bytes"], 205520896);
    assert_eq!(outcome["samples"].as_array().unwrap().len(), 10);
    assert_eq!(
        cushion(&args).stdout,
        done.stdout,
        "the same figures every time"
    );
}

#[test]
fn advice_is_a_line_to_paste_and_a_warning() {
    let file = data("traces/gnn.trace.gz");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cushion"));
    let done = command
        .args(["advise", file.to_str().unwrap()])
        .env("CUSHION_MAX_SPLIT_SIZE", "32M")
        .env("CUSHION_PREALLOCATE", "20G")
        .output()
        .unwrap();
    let (said, warned) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(done.status.success(), "{warned}");
    for what in [
        "defaults",
        "your settings",
        "lowest memory",
        "fewest calls",
        "balanced",
    ] {
        assert!(said.contains(what), "{said}");
    }
    for name in ["CUSHION_MAX_SPLIT_SIZE", "CUSHION_PREALLOCATE"] {
        assert!(
            warned.contains(&format!("{name} makes it worse")),
            "{warned}"
        );
    }
}

/// What a program can see of its memory is not what advice is about: it is given on top of that.
#[test]
fn advice_keeps_the_mode() {
    let file = data("traces/streams.trace.gz");
    let advice = |settings: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cushion"));
        command.args(["advise", file.to_str().unwrap()]);
        let done = command.envs(settings.iter().copied()).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let plain = advice(&[("CUSHION_ALIGNMENT", "2M")]);
    assert!(!plain.contains("CUSHION_MODE"), "{plain}");
    let fast = advice(&[("CUSHION_MODE", "fast"), ("CUSHION_ALIGNMENT", "2M")]);
    let kept = fast
        .lines()
        .filter(|l| l.starts_with("  CUSHION_MODE=fast"));
    assert_eq!(kept.count(), 3, "{fast}");
}

#[test]
fn a_recording_costs_little_per_event() {
    let directory = tempfile::tempdir().unwrap();
    let writer = TraceWriter::create(
        &directory.path().join("t"),
        &serde_json::json!({}),
        TraceOptions::default(),
    );
    let writer = writer.unwrap();
    let count = 1_000u64;
    let round = |round: u64| {
        let start = std::time::Instant::now();
        for i in 0..count {
            writer.record(None, Event::alloc(round * count + i, 512, 0));
        }
        start.elapsed() / count as u32
    };
    // The best of many: others use the machine, too.
    let each = (0..30).map(round).min().unwrap();
    assert_eq!(writer.finish().unwrap().lost_events, 0);
    // The bound is 200 ns in a release build on an idle machine; this only catches what is far off.
    assert!(each.as_nanos() < 2_000, "{each:?} an event");
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0..8usize) {
        let start: &[u8] = [
            b"".as_slice(), b"CUSHTR01\x02\0\0\0{}", b"\x80\x04", b"[", b"a 0 1 0\n", b"\x1f\x8b\x08",
            b"Thread,Time,Action,Pointer,Size,Stream\n", b"action,id,size_bytes,device,stream,thread,time_ns,site,kind\n",
        ][kind];
        let _ = trace::parse(&[start, &bytes].concat());
    }

    #[test]
    fn a_damaged_trace_never_panics(at in 0..13_000usize, byte in any::<u8>()) {
        let mut own = Vec::new();
        trace::encode::write(&recorded("streams"), &mut own).unwrap();
        let at = at % own.len();
        own[at] = byte;
        let _ = trace::parse(&own);
    }

    #[test]
    fn a_damaged_snapshot_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = std::fs::read(data("foreign/snapshot.pickle")).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = trace::parse(&bytes);
    }

    #[test]
    fn any_events_survive_the_compact_form(steps in proptest::collection::vec((any::<u64>(), any::<u64>(), 0..4u32, any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>(), 0..12usize), 0..200)) {
        let mut events = Vec::new();
        let mut live = Vec::new();
        for (size_bytes, stream, device, thread, time_ns, site, free, kind) in steps {
            let id_now = events.iter().filter(|e: &&Event| e.action == trace::Action::Alloc).count() as u64;
            match (free, live.pop()) {
                (true, Some((id, device))) => events.push(Event { device, thread, time_ns, ..Event::free(id) }),
                (_, kept) => {
                    live.extend(kept);
                    live.push((id_now, device));
                    let alloc = Event::alloc(id_now, size_bytes, stream);
                    events.push(Event { device, thread, time_ns, site, kind: cushion::ledger::Kind::ALL[kind], ..alloc });
                }
            }
        }
        let trace = trace::Trace { events, complete: true, ..trace::Trace::default() };
        let mut bytes = Vec::new();
        trace::encode::write(&trace, &mut bytes).unwrap();
        prop_assert_eq!(trace::parse(&bytes).unwrap().0, trace);
    }
}
