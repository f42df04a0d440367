//! Valid inputs of every kind.

use std::path::Path;

use cushion::trace::{self, csv, encode, text, Event, Trace};

/// One valid input.
#[derive(Debug, Clone)]
pub struct Sample {
    pub name: &'static str,
    pub bytes: Vec<u8>,
}

fn read(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A short trace with every field in use.
pub fn short_trace() -> Trace {
    let mut events = Vec::new();
    for id in 0..24u64 {
        let alloc = Event::alloc(id, 512 << (id % 13), id % 3);
        events.push(Event {
            device: (id % 2) as u32,
            thread: 100 + id % 4,
            time_ns: id * 1_000,
            site: 1 + (id % 5) as u32,
            ..alloc
        });
        if id % 3 == 2 {
            let device = ((id - 1) % 2) as u32;
            let time_ns = id * 1_000 + 500;
            events.push(Event {
                device,
                time_ns,
                ..Event::free(id - 1)
            });
        }
    }
    Trace {
        header: [("workload".to_owned(), "short".into())]
            .into_iter()
            .collect(),
        events,
        sites: [(1, "train.py:12".to_owned()), (2, "ünï".to_owned())].into(),
        lost_events: 3,
        unmatched_frees: 1,
        complete: true,
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// A snapshot with the events of two devices.
fn two_devices() -> Vec<u8> {
    let text = |text: &str| [&[0x8c, text.len() as u8], text.as_bytes()].concat();
    let number = |number: u32| [&b"J"[..], &number.to_le_bytes()].concat();
    let event = |action: &str, address: u32, time_us: u32| {
        let mut fields = b"}(".to_vec();
        fields.extend([text("action"), text(action)].concat());
        for (name, value) in [
            ("addr", address),
            ("size", 4096),
            ("stream", 0),
            ("time_us", time_us),
        ] {
            fields.extend([text(name), number(value)].concat());
        }
        fields.push(b'u');
        fields
    };
    let list = |events: &[Vec<u8>]| [&b"]("[..], &events.concat(), b"e"].concat();
    let first = list(&[
        event("alloc", 64, 10),
        event("alloc", 128, 12),
        event("free_completed", 64, 14),
    ]);
    let second = list(&[
        event("alloc", 64, 11),
        event("free_completed", 64, 13),
        event("alloc", 64, 15),
    ]);
    let start = [b"\x80\x04}".to_vec(), text("device_traces"), b"](".to_vec()].concat();
    [start, first, second, b"es.".to_vec()].concat()
}

/// Traces in every format.
pub fn traces() -> Vec<Sample> {
    let short = short_trace();
    let mut own = Vec::new();
    encode::write(&short, &mut own).unwrap();
    let mut lines = Vec::new();
    text::write(&short, &mut lines).unwrap();
    let mut table = Vec::new();
    csv::write(&short, &mut table).unwrap();
    let zipped = gzip(&lines);
    let samples = [
        ("cushion", own),
        ("text", lines),
        ("csv", table),
        ("gzip", zipped),
        ("rmm", read("data/foreign/rmm.csv")),
        ("snapshot", read("data/foreign/snapshot.pickle")),
        ("snapshot of two devices", two_devices()),
        ("kineto", read("data/foreign/kineto.json")),
    ];
    for (name, bytes) in &samples {
        if let Err(error) = trace::parse(bytes) {
            panic!("{name} is no valid sample: {error}");
        }
    }
    samples
        .into_iter()
        .map(|(name, bytes)| Sample { name, bytes })
        .collect()
}

/// Reports.
pub fn reports() -> Vec<Sample> {
    [
        ("exit", "golden/exit.json"),
        ("periodic", "golden/periodic.json"),
    ]
    .into_iter()
    .map(|(name, path)| Sample {
        name,
        bytes: read(path),
    })
    .collect()
}

/// Values of settings.
pub fn settings() -> Vec<Sample> {
    [
        "1",
        "off",
        "faithful",
        "fast",
        "auto",
        "device",
        "host",
        "poison",
        "sampled",
        "all",
        "64K",
        "2M",
        "1.5G",
        "0.5",
        "0.5,1:0.25",
        "16G,0:8G,1:24576M",
        "100ms",
        "30s",
        "1m",
        "max_split_size_mb:128,per_process_memory_fraction:0.8",
        "garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,>:4]",
        "/tmp/%h.%e.%r.%p.%n.100%%.json",
    ]
    .into_iter()
    .map(|value| Sample {
        name: "setting",
        bytes: value.as_bytes().to_vec(),
    })
    .collect()
}

/// IPC handles.
pub fn handles() -> Vec<Sample> {
    use cushion::ipc_handle::{encode, encode_shared, encode_start, Block, Shared};
    let mut driver = [0u8; 64];
    for (at, byte) in driver.iter_mut().take(40).enumerate() {
        *byte = (at as u8).wrapping_mul(37) | 1;
    }
    let block = Block {
        offset_bytes: 512 * 77,
        size_bytes: 3_000_000,
    };
    let shared = encode_shared(&Shared {
        exporter: [7; 16],
        base: 0x7f00_0000_0000,
        sequence: 12_345,
    });
    let pieces = [encode(&driver, block), encode_start(&driver, 3 << 20)];
    pieces
        .into_iter()
        .chain([Some(shared)])
        .flatten()
        .map(|bytes| Sample {
            name: "handle",
            bytes: bytes.to_vec(),
        })
        .collect()
}
