//! What reads untrusted input, each with what is then done to it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Command;

use cushion::config::{Config, VARIABLES};
use cushion::ipc_handle;
use cushion::replay::{replay, Name, Options, Workload};
use cushion::trace::{csv, encode, text, Action, Trace};
use cushion::{report, trace};

/// Traces longer than this are not replayed: it is not what is in question.
const REPLAYED_EVENTS: usize = 20_000;

/// Reads a trace of any format, writes it in every form, and replays it through every policy.
pub fn trace(bytes: &[u8]) {
    let (trace, _) = match trace::parse(bytes) {
        Ok(read) => read,
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
            return assert!(line.len() < 2_000, "a line of {} bytes", line.len());
        }
    };
    assert_rules(&trace);
    if trace.events.len() > REPLAYED_EVENTS {
        return;
    }
    let mut out = Vec::new();
    text::write(&trace, &mut out).unwrap();
    csv::write(&trace, &mut out).unwrap();
    let mut own = Vec::new();
    encode::write(&trace, &mut own).unwrap();
    let (again, _) = trace::parse(&own).expect("what was written is read");
    assert_eq!(again.events.len(), trace.events.len());
    for limit_bytes in [None, Some(1 << 34)] {
        let options = Options {
            limit_bytes,
            samples: 7,
            ..Options::default()
        };
        for workload in Workload::of(&trace) {
            for name in Name::ALL {
                let outcome = replay(&workload, name, &options);
                assert!(outcome.peak_reserved_bytes <= limit_bytes.unwrap_or(u64::MAX));
            }
        }
    }
}

/// Every free names a live allocation, and no two live ones share an id.
fn assert_rules(trace: &Trace) {
    let mut live = std::collections::HashSet::new();
    for event in &trace.events {
        match event.action {
            Action::Alloc => assert!(live.insert(event.id), "an id twice"),
            Action::Free => assert!(live.remove(&event.id), "a free of nothing"),
        }
    }
}

/// Reads a report. With `print`, the command prints it too, with a bound on its memory.
pub fn report(bytes: &[u8], print: bool) {
    let read = report::parse(bytes);
    if read.is_err() || !print {
        return;
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("hostile.{}.json", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    for form in [&["report"][..], &["report", "--json"]] {
        let output = Command::new("/bin/sh")
            .args([
                "-c",
                "ulimit -v 2000000; ulimit -t 10; exec \"$@\"",
                "sh",
                env!("CARGO_BIN_EXE_cushion"),
            ])
            .args(form)
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            matches!(output.status.code(), Some(0..=2)),
            "{:?}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            !text.contains(|c: char| c.is_control() && c != '\n'),
            "control characters"
        );
    }
    std::fs::remove_file(&path).unwrap();
}

/// Reads settings.
pub fn settings(values: &[Vec<u8>]) {
    let names = VARIABLES.iter().map(|variable| variable.name.to_owned());
    let values = values.iter().map(|value| OsString::from_vec(value.clone()));
    let (config, warnings) = Config::from_vars(names.zip(values));
    for line in warnings.iter().map(ToString::to_string) {
        assert!(line.starts_with("cushion:"), "{line}");
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
        assert!(line.len() < 1_000, "a line of {} bytes", line.len());
    }
    for device in [0, 1, u32::MAX] {
        for total_bytes in [0, 1 << 37, u64::MAX] {
            config.device_limit_bytes(device, total_bytes);
        }
    }
    let texts = |config: &Config| {
        config
            .settings()
            .into_iter()
            .map(|setting| (setting.name, setting.value))
    };
    let (again, _) = Config::from_vars(texts(&config).map(|(name, value)| (name, value.into())));
    assert!(
        texts(&config).eq(texts(&again)),
        "a setting does not read back"
    );
}

/// Decodes a handle: to nothing, or to what encodes to the same bytes.
pub fn handle(bytes: &[u8]) {
    let mut handle = [0u8; 64];
    for (to, from) in handle.iter_mut().zip(bytes) {
        *to = *from;
    }
    if let Some(shared) = ipc_handle::decode_shared(&handle) {
        assert_eq!(ipc_handle::encode_shared(&shared), handle);
        assert_eq!(ipc_handle::decode(&handle), None, "one meaning");
    }
    if let Some((segment, block)) = ipc_handle::decode(&handle) {
        assert_ne!(block.size_bytes, 0);
        assert!(block.offset_bytes.checked_add(block.size_bytes).is_some());
        let encoded = ipc_handle::encode(&segment, block);
        let start = ipc_handle::encode_start(&segment, block.size_bytes);
        assert!(
            encoded == Some(handle) || start == Some(handle),
            "{handle:?}"
        );
    }
}
