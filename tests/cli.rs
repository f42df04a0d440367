//! The command line from outside: golden reports in, text out; what `run` sets, passes through and refuses; `config`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cushion::report::{to_json, Frame, Hex, Module, Report, Site, SiteFigures};
use object::Object;

const COMMAND: &str = env!("CARGO_BIN_EXE_cushion");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn golden(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/golden").join(name)
}

/// The command, in an environment without settings.
fn cushion() -> Command {
    bare(COMMAND)
}

fn bare(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

fn outcome(command: &mut Command) -> (Output, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

/// Set `CUSHION_BLESS=1` to write the files that these tests compare with.
fn compare_with_golden(name: &str, is: &str) {
    let path = golden(name);
    if std::env::var_os("CUSHION_BLESS").is_some() {
        fs::write(&path, is).unwrap();
    }
    let file = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        file == is,
        "{}: not what the command prints now (CUSHION_BLESS=1 writes it):\n{is}",
        path.display()
    );
}

#[test]
fn golden_reports_print_as_they_did() {
    for name in ["periodic", "exit"] {
        let (output, out, err) =
            outcome(cushion().arg("report").arg(golden(&format!("{name}.json"))));
        assert!(output.status.success() && err.is_empty(), "{err}");
        compare_with_golden(&format!("{name}.txt"), &out);
    }
}

#[test]
fn several_reports_have_headings_and_the_map_can_be_left_out() {
    let files = [golden("periodic.json"), golden("exit.json")];
    let (_, out, _) = outcome(cushion().args(["report", "--no-map"]).args(&files));
    assert!(
        out.contains("==> ") && out.contains("Leaks: never freed") && out.contains("Live memory")
    );
    assert!(!out.contains("segments: "));
}

#[test]
fn json_is_the_report_with_names() {
    let (output, out, _) = outcome(
        cushion()
            .args(["report", "--json"])
            .arg(golden("exit.json")),
    );
    assert!(output.status.success());
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    let report = &value["files"][0]["report"];
    assert_eq!(report["leaks"]["count"], 6);
    assert_eq!(
        report["sites"][1]["frames"][0]["names"][0]["function"],
        "train+0x1234"
    );
}

#[test]
fn a_file_that_is_no_report_is_named_and_ends_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.json");
    let long = "x".repeat(1 << 20);
    let long = format!(
        r#"{{"format": "cushion-report", "format_version": "1.0", "process": {{"pid": "{long}\u001b"}}}}"#
    );
    for (content, why) in [
        ("", "not a whole report"),
        (long.as_str(), "invalid type: string \"xxx"),
        ("{}", "not a cushion report"),
        (
            r#"{"format": "cushion-report", "format_version": "7.0"}"#,
            "\"7.0\" is not known",
        ),
    ] {
        fs::write(&path, content).unwrap();
        let (output, out, err) = outcome(cushion().arg("report").arg(&path));
        assert_eq!(output.status.code(), Some(2));
        assert!(
            out.is_empty()
                && err.starts_with("cushion: ")
                && err.contains("x.json")
                && err.contains(why),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1);
        assert!(err.len() < 6_000, "a line of {} bytes", err.len());
    }
    let (output, _, err) = outcome(cushion().args(["report", "/no/such.json"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(err.starts_with("cushion: "), "{err}");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    for arguments in [&["report"][..], &["watch"], &["config"]] {
        let mut command = cushion();
        command.args(arguments);
        if arguments[0] != "config" {
            command.arg(golden("exit.json"));
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        assert!(child.wait().unwrap().success(), "{arguments:?}");
        let mut err = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        assert_eq!(err, "", "{arguments:?}");
    }
}

#[test]
fn watch_shows_each_version_and_ends_with_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let (path, next) = (
        directory.path().join("r.json"),
        directory.path().join("next"),
    );
    fs::copy(golden("periodic.json"), &path).unwrap();
    let mut command = cushion();
    command.args(["watch", "--interval", "10ms"]).arg(&path);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("report 0 while it ran")));
    fs::copy(golden("exit.json"), &next).unwrap();
    fs::rename(&next, &path).unwrap();
    let out: String = lines.collect();
    assert!(child.wait().unwrap().success());
    assert!(out.contains("report 1 at its end"), "{out}");
    assert!(
        !out.contains('\x1b'),
        "no control sequences outside a terminal"
    );
}

#[test]
fn watch_ends_with_a_process_that_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.json");
    let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut report = cushion::report::read(&golden("periodic.json")).unwrap();
    report.process.pid = process.id();
    let program = fs::read_link(format!("/proc/{}/exe", process.id())).unwrap();
    report.process.program = program.to_str().unwrap().to_owned();
    to_json(&report, fs::File::create(&path).unwrap()).unwrap();
    let mut command = cushion();
    command.args(["watch", "--interval", "10ms"]).arg(&path);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("report 0 while it ran")));
    assert!(watch.try_wait().unwrap().is_none(), "the process is there");
    process.kill().unwrap();
    process.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while watch.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            watch.kill().unwrap();
        }
        sleep(Duration::from_millis(10));
    }
    let output = watch.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{err}");
    assert!(err.contains("has gone without a last report"), "{err}");
}

#[test]
fn watch_says_when_it_cannot_see_the_process() {
    let mut report = cushion::report::read(&golden("periodic.json")).unwrap();
    // The number is taken, by another program: as when the report comes from a container.
    report.process.pid = std::process::id();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.json");
    to_json(&report, fs::File::create(&path).unwrap()).unwrap();
    let mut command = cushion();
    command.args(["watch", "--interval", "10ms"]).arg(&path);
    let mut watch = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut err = BufReader::new(watch.stderr.take().unwrap());
    err.read_line(&mut line).unwrap();
    assert!(line.contains("is not to be seen from here"), "{line}");
    report.report.reason = cushion::report::Reason::Exit;
    let next = directory.path().join("next");
    to_json(&report, fs::File::create(&next).unwrap()).unwrap();
    fs::rename(&next, &path).unwrap();
    assert!(watch.wait().unwrap().success());
}

/// A C program with an inlined function, and a place in it that has a name.
const PROGRAM: &str = r#"
static inline __attribute__((always_inline)) void innermost(void) { __asm__ volatile(".globl probe\nprobe: nop"); }
__attribute__((noinline)) void load_weights(void) { innermost(); }
int main(void) { load_weights(); return 0; }
"#;

#[test]
fn frames_are_named_from_symbols_and_debug_information() {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (
        directory.path().join("prog.c"),
        directory.path().join("prog"),
    );
    fs::write(&source, PROGRAM).unwrap();
    let cc = Command::new("cc")
        .args(["-g", "-O1", "-Wl,--build-id=sha1", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(cc.unwrap().success());

    let data = fs::read(&program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let probe = file
        .symbol_by_name("probe")
        .map(|symbol| object::ObjectSymbol::address(&symbol))
        .unwrap();
    let build_id: String = file
        .build_id()
        .unwrap()
        .unwrap()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let frame = Frame {
        module: Some(0),
        offset: Hex(probe + 1),
    };
    let mut report = Report {
        format: "cushion-report".into(),
        format_version: "1.0".into(),
        sites: vec![Site {
            id: 2,
            frames: vec![frame],
        }],
        modules: vec![Module {
            path: program.to_str().unwrap().into(),
            build_id,
            base: Hex(0),
        }],
        ..Report::default()
    };
    report.leaks.sites = vec![SiteFigures {
        site: 2,
        count: 3,
        bytes: 3 << 20,
        kind: "pooled".into(),
        ..SiteFigures::default()
    }];
    let path = directory.path().join("r.json");
    to_json(&report, fs::File::create(&path).unwrap()).unwrap();

    let (_, out, _) = outcome(cushion().arg("report").arg(&path));
    let source = source.to_str().unwrap();
    for line in [
        "  3 blocks, 3145728 bytes (3.00 MiB): innermost".to_owned(),
        format!("      #0  innermost at {source}:2 (inlined)"),
        format!("          load_weights at {source}:3"),
    ] {
        assert!(out.lines().any(|printed| printed == line), "{line}\n{out}");
    }

    // Stripped of debug information, and the symbol table is left.
    assert!(Command::new("strip")
        .arg("--strip-debug")
        .arg(&program)
        .status()
        .unwrap()
        .success());
    let (_, out, _) = outcome(cushion().arg("report").arg(&path));
    assert!(
        out.contains("#0  probe\n") || out.contains("#0  load_weights\n"),
        "{out}"
    );

    // Another program in its place.
    fs::write(&program, fs::read(COMMAND).unwrap()).unwrap();
    let (_, out, _) = outcome(cushion().arg("report").arg(&path));
    assert!(
        out.contains("#0  prog+0x") && out.contains("Not named: "),
        "{out}"
    );
}

/// The command in a place of its own, with a library beside it that does nothing.
struct Installed {
    directory: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let installed = Installed::without_library();
        let library = installed.path("lib/libcushion.so");
        fs::create_dir(library.parent().unwrap()).unwrap();
        let cc = Command::new("cc")
            .args(["-shared", "-o"])
            .arg(&library)
            .args(["-x", "c", "/dev/null"])
            .status();
        assert!(cc.unwrap().success());
        installed
    }

    fn without_library() -> Self {
        let installed = Installed {
            directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        };
        fs::create_dir(installed.path("bin")).unwrap();
        // Not a copy: one that another thread's child has still open for writing cannot be started.
        fs::hard_link(COMMAND, installed.path("bin/cushion")).unwrap();
        installed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn run(&self) -> Command {
        let mut command = bare(self.path("bin/cushion"));
        command.arg("run");
        command
    }
}

#[test]
fn run_sets_what_the_options_say() {
    let installed = Installed::new();
    let mut command = installed.run();
    command
        .env("LD_PRELOAD", "libc.so.6")
        .env("CUSHION_MODE", "faithful");
    command.args(
        "--fraction 0.5 --limit 20G --max-split 128M --mode fast --free-sync host --zero poison"
            .split(' '),
    );
    command.args("--alignment 1M --report r.%p.json --interval 5s --stacks all".split(' '));
    command.args("--backing vmm --trace t.%p --trace-limit 1G --gc-threshold 80".split(' '));
    command.args("--idle-trim 30s --preallocate 1G --ctl off -- env".split(' '));
    let (output, out, err) = outcome(&mut command);
    assert!(output.status.success(), "{err}");
    let library = installed.path("lib/libcushion.so");
    let preload = format!("LD_PRELOAD={}:libc.so.6", library.display());
    let lines = [
        preload.as_str(),
        "CUSHION_MEMORY_FRACTION=0.5",
        "CUSHION_MEMORY_LIMIT=20G",
        "CUSHION_MAX_SPLIT_SIZE=128M",
        "CUSHION_GC_THRESHOLD=80",
        "CUSHION_IDLE_TRIM=30s",
        "CUSHION_PREALLOCATE=1G",
        "CUSHION_MODE=fast",
        "CUSHION_FREE_SYNC=host",
        "CUSHION_ZERO=poison",
        "CUSHION_ALIGNMENT=1M",
        "CUSHION_BACKING=vmm",
        "CUSHION_REPORT=r.%p.json",
        "CUSHION_REPORT_INTERVAL=5s",
        "CUSHION_STACKS=all",
        "CUSHION_TRACE=t.%p",
        "CUSHION_TRACE_LIMIT=1G",
        "CUSHION_CTL=off",
    ];
    for line in lines {
        assert!(out.lines().any(|printed| printed == line), "{line}\n{out}");
    }
    // To run without cushion, or in another tool's words, nobody needs this command.
    for name in cushion::config::VARIABLES.iter().map(|v| v.name) {
        let has_option = lines
            .iter()
            .any(|line| line.starts_with(&format!("{name}=")));
        let has_none = ["CUSHION_DISABLE", "CUSHION_CONF"].contains(&name);
        assert!(has_option != has_none, "{name} has an option");
    }
    assert!(!out.contains("LD_LIBRARY_PATH"));
}

#[test]
fn run_finds_the_simulated_driver() {
    let installed = Installed::new();
    let (output, _, err) = outcome(installed.run().args(["--sim", "--", "env"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err.starts_with("cushion: found none of sim/libcuda.so.1"),
        "{err}"
    );

    let driver = installed.path("lib/cushion/sim/libcuda.so.1");
    fs::create_dir_all(driver.parent().unwrap()).unwrap();
    fs::write(&driver, "").unwrap();
    let mut command = installed.run();
    command
        .env("LD_LIBRARY_PATH", "/opt/lib")
        .args(["--sim", "env"]);
    let (_, out, _) = outcome(&mut command);
    let line = format!(
        "LD_LIBRARY_PATH={}:/opt/lib",
        driver.parent().unwrap().display()
    );
    assert!(out.lines().any(|printed| printed == line), "{out}");
}

#[test]
fn run_ends_as_the_program_does() {
    let installed = Installed::new();
    let (output, out, err) = outcome(installed.run().args([
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7",
        "--mode",
    ]));
    assert_eq!(
        (output.status.code(), &*out, &*err),
        (Some(7), "out\n", "err\n")
    );
    let (output, ..) = outcome(installed.run().args(["sh", "-c", "kill -TERM $$"]));
    assert_eq!(output.status.signal(), Some(15));
    let (_, out, _) = outcome(
        installed
            .run()
            .args(["--", "printf", "%s,", "--", "--mode", "-x"]),
    );
    assert_eq!(out, "--,--mode,-x,", "the program's arguments are its own");
}

#[test]
fn run_says_what_is_wrong() {
    let installed = Installed::new();
    let plain = installed.path("plain");
    fs::write(&plain, "not a program").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    for (arguments, status, text) in [
        (
            vec!["--mode", "turbo", "--", "true"],
            2,
            "is not a mode; allowed: faithful, fast",
        ),
        (
            vec!["--limit", "lots", "--", "true"],
            2,
            "is not a limit; allowed: ",
        ),
        (
            vec!["--report", "%q", "--", "true"],
            2,
            "is not a path pattern",
        ),
        (vec!["--zero", "", "--", "true"], 2, "is not a zero mode"),
        (vec!["--what", "--", "true"], 2, "--what"),
        (vec![], 2, "PROGRAM"),
        (
            vec!["--", "/no/such/program"],
            127,
            "cannot run /no/such/program",
        ),
        (vec!["--", plain.to_str().unwrap()], 126, "cannot run"),
    ] {
        let (output, out, err) = outcome(installed.run().args(&arguments));
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {err}");
        assert!(
            err.starts_with("cushion: ") && err.contains(text),
            "{arguments:?}: {err}"
        );
        assert_eq!(out, "");
    }
    let (output, _, err) = outcome(Installed::without_library().run().args(["--", "true"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err.starts_with("cushion: found none of libcushion.so"),
        "{err}"
    );
}

#[test]
fn config_shows_values_origins_and_faults() {
    let mut command = cushion();
    command
        .args(["config", "--json"])
        .env("CUSHION_MODE", "fast")
        .env("CUSHION_ZERO", "maybe")
        .env("CUSHION_X", "1");
    let (output, out, err) = outcome(&mut command);
    assert!(output.status.success());
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    let row = |name: &str| {
        value["settings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(
        (
            row("CUSHION_MODE")["value"].as_str(),
            row("CUSHION_MODE")["origin"].as_str()
        ),
        (Some("fast"), Some("CUSHION_MODE"))
    );
    assert_eq!(
        (
            row("CUSHION_ZERO")["value"].as_str(),
            row("CUSHION_ZERO")["origin"].as_str()
        ),
        (Some("off"), Some("CUSHION_MODE"))
    );
    assert_eq!(err.lines().count(), 2, "{err}");
    assert!(err
        .lines()
        .all(|line| line.starts_with("cushion: CUSHION_")));

    let (_, out, _) = outcome(cushion().arg("config"));
    assert!(
        out.contains("CUSHION_REPORT = cushion.%p.json  (from default)"),
        "{out}"
    );
    let (_, out, _) = outcome(
        cushion()
            .args(["config", "--markdown"])
            .env("CUSHION_MODE", "fast"),
    );
    assert_eq!(out, cushion::config::markdown());
}

#[test]
fn help_states_the_exit_codes() {
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["report", "--help"],
        &["watch", "--help"],
        &["ctl", "--help"],
        &["trace", "--help"],
        &["replay", "--help"],
        &["advise", "--help"],
    ] {
        let (output, out, _) = outcome(cushion().args(arguments));
        assert!(
            output.status.success() && out.contains("Exit codes: "),
            "{arguments:?}"
        );
    }
    let (output, _, err) = outcome(&mut cushion());
    assert_eq!(output.status.code(), Some(2));
    assert!(err.starts_with("cushion: "), "{err}");
}
