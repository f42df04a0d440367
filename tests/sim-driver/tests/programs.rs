//! Builds each C program against the driver and runs its cases.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::OnceLock;

/// The folder with `libcuda.so` and `libcuda.so.1`, made beside the test program.
fn library_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("the test's own path");
        let deps = test.parent().expect("target/<profile>/deps");
        // Cargo builds no cdylib for tests.
        let release = deps.ends_with("release/deps");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "sim-driver"])
            .args(release.then_some("--release"))
            .status()
            .expect("cargo");
        assert!(status.success(), "sim-driver does not build");
        let library = deps.with_file_name("libsimcuda.so");
        let folder = deps.with_file_name("sim-test");
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["libcuda.so", "libcuda.so.1"] {
            let link = folder.join(name);
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&library, &link).expect("a link");
        }
        folder
    })
}

/// A file name that no other test uses.
fn fresh(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Relaxed);
    library_folder().join(format!("{name}-{}-{n}", std::process::id()))
}

fn build(name: &str, flags: &[&str]) -> PathBuf {
    let folder = library_folder();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let program = fresh(if flags.is_empty() { name } else { "libcushion" });
    let status = Command::new("gcc")
        .args([
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-function",
            "-pthread",
            "-o",
        ])
        .arg(&program)
        .arg(sources.join(format!("{name}.c")))
        .arg(format!("-L{}", folder.display()))
        .args(["-lcuda", "-ldl"])
        .args(flags)
        .status()
        .expect("gcc");
    assert!(status.success(), "{name}.c does not build");
    program
}

fn run(name: &str, arguments: &[&str], environment: &[(&str, &str)]) {
    let program = build(name, &[]);
    let out = Command::new(&program)
        .args(arguments)
        .envs(environment.iter().copied())
        .env("LD_LIBRARY_PATH", library_folder())
        .output()
        .expect("the program");
    let _ = std::fs::remove_file(&program);
    assert!(
        out.status.success(),
        "{name} {arguments:?} {environment:?}: {}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(out.stdout.is_empty(), "something was printed on stdout");
}

#[test]
fn time() {
    run("time", &[], &[]);
}

#[test]
fn capture() {
    run("capture", &[], &[]);
}

#[test]
fn memory() {
    for case in [
        "zeros",
        "bounds",
        "host-cannot-touch",
        "host-memory",
        "asynchronous",
        "mapped-memory",
        "external-memory",
    ] {
        run("memory", &[case], &[]);
    }
    run("memory", &["capacity"], &[("SIMCUDA_MEMORY", "256M")]);
}

#[test]
fn other_processes() {
    run("ipc", &[], &[]);
}

#[test]
fn life() {
    for case in ["before-init", "contexts", "threads", "forks", "names"] {
        run("process", &[case], &[]);
    }
}

#[test]
fn environment() {
    run(
        "process",
        &["old-driver"],
        &[("SIMCUDA_DRIVER_VERSION", "12000")],
    );
    run(
        "process",
        &["two-devices"],
        &[("SIMCUDA_DEVICES", "2"), ("SIMCUDA_MEMORY", "1GiB")],
    );
    run("process", &["no-device"], &[("SIMCUDA_DEVICES", "0")]);
    let rules = "cuMemAlloc_v2:2:2,cuMemFree*:3+:999,cuEventCreate:all:1:caller=shim";
    run("process", &["injected"], &[("SIMCUDA_FAIL", rules)]);
    let random = [
        ("SIMCUDA_FAIL", "cuMemAlloc_v2:random:0.2:2"),
        ("SIMCUDA_SEED", "7"),
    ];
    run("process", &["at-random"], &random);
    run(
        "time",
        &["late-write"],
        &[("SIMCUDA_SEED", "3"), ("SIMCUDA_LATENCY", "h200")],
    );
}

#[test]
fn failures_of_the_shim_only() {
    let shim = build(
        "shimlike",
        &["-shared", "-fPIC", "-fno-optimize-sibling-calls"],
    );
    let path = shim.to_string_lossy().into_owned();
    let rule = "cuEventCreate:all:999:caller=shim";
    run(
        "process",
        &["only-the-shim"],
        &[("SIMCUDA_FAIL", rule), ("SHIM", &path)],
    );
    let _ = std::fs::remove_file(shim);
}

#[test]
fn books() {
    let (log, stats) = (fresh("log"), fresh("stats"));
    let (l, s) = (
        log.to_string_lossy().into_owned(),
        stats.to_string_lossy().into_owned(),
    );
    run(
        "process",
        &["contexts"],
        &[("SIMCUDA_LOG", &l), ("SIMCUDA_STATS", &s)],
    );
    let text = std::fs::read_to_string(&log).expect("a log");
    assert!(text
        .lines()
        .any(|l| l.contains("cuMemAlloc_v2") && l.contains("size=100") && l.contains("= 0 (")));
    assert!(text
        .lines()
        .any(|l| l.contains("cuMemFree_v2") && l.contains("= 1 (")));
    let text = std::fs::read_to_string(&stats).expect("the books");
    assert!(
        text.contains("\"live_allocations\": 1, \"live_bytes\": 1,"),
        "{text}"
    );
    assert!(
        text.contains("\"cuDevicePrimaryCtxReset_v2\": {\"calls\": 1, \"failures\": 0}"),
        "{text}"
    );
    let _ = (std::fs::remove_file(log), std::fs::remove_file(stats));
}

#[test]
fn bad_settings() {
    let program = build("process", &[]);
    let out = Command::new(&program)
        .arg("before-init")
        .env("LD_LIBRARY_PATH", library_folder())
        .env("SIMCUDA_MEMORY", "lots")
        .env("SIMCUDA_FAIL", "cuMemAlloc_v2")
        .output()
        .expect("the program");
    let _ = std::fs::remove_file(&program);
    assert!(out.status.success());
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        text.lines().filter(|l| l.starts_with("simcuda: ")).count(),
        2,
        "{text}"
    );
}
