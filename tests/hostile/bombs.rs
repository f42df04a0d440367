//! Inputs that ask for much with little.

use cushion::replay::{replay, Name, Options, Workload};
use cushion::{report, trace};

use crate::corpus::gzip;
use crate::measure::cost;

/// What an inflated file may cost whatever its length (`src/trace/inflate.rs`), as events.
const INFLATED_BYTES: usize = 64 << 20;

/// The input is judged within bounds; `flat_bytes` as in `must_fit`.
fn bounded(what: &str, bytes: &[u8], flat_bytes: usize) -> Result<usize, String> {
    let (read, cost) = cost(|| trace::parse(bytes).map(|(trace, _)| trace.events.len()));
    cost.must_fit(what, bytes.len(), flat_bytes);
    read.map_err(|error| error.to_string())
}

/// A gibibyte of one line in a mebibyte.
#[test]
fn a_compressed_file_that_grows_without_end() {
    for (what, line) in [
        ("spaces", &b"                "[..]),
        ("text", b"a 1 512 0\nf 1\n"),
        ("json", b"[[],{},[[]],1,"),
        ("pickle", b"\x80\x04]\x94]\x94]\x94]\x94]\x94]\x94]"),
    ] {
        let bomb = gzip(&line.repeat((256 << 20) / line.len()));
        let refused = bounded(what, &bomb, 3 * INFLATED_BYTES).expect_err(what);
        assert!(refused.contains("times"), "{what}: {refused}");
    }
}

/// Within the bound, what is inflated is read at a price for each of its bytes.
#[test]
fn a_compressed_file_just_below_the_bound() {
    for (what, start, piece, end) in [
        ("text", &b""[..], &b"a 1 512 0\nf 1\n"[..], &b""[..]),
        ("lists", b"[", b"[],", b"0]"),
        ("records", b"[", b"{},", b"{}]"),
        ("deep", b"", b"[", b""),
        ("values", b"\x80\x04(", b"N", b"l."),
        ("opcodes", b"\x80\x04", b"]\x94", b"."),
    ] {
        let count = (8 << 20) / piece.len();
        let bomb = gzip(&[start, &piece.repeat(count), end].concat());
        let (_, cost) = cost(|| trace::parse(&bomb).map(drop));
        cost.must_fit(what, 8 << 20, 1 << 20);
    }
}

/// Chunks that say they hold as much as a chunk may.
#[test]
fn chunks_of_the_own_format_that_grow_without_end() {
    use std::io::Write;
    // LOST records: two bytes each, and no event.
    let raw = [trace::codec::LOST, 1].repeat(1 << 24);
    let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    deflate.write_all(&raw).unwrap();
    let compressed = deflate.finish().unwrap();
    let lengths = [raw.len() as u32, compressed.len() as u32].map(u32::to_le_bytes);
    let chunk = [&lengths.concat(), &compressed[..]].concat();
    let head = [&trace::codec::MAGIC[..], &2u32.to_le_bytes(), b"{}"].concat();
    let one = [&head[..], &chunk].concat();
    assert_eq!(bounded("one chunk", &one, 2 * INFLATED_BYTES), Ok(0));
    let many = [&head[..], &chunk.repeat(40)].concat();
    let refused = bounded("many chunks", &many, 2 * INFLATED_BYTES).expect_err("too much");
    assert!(refused.contains("times"), "{refused}");
    // Twice compressed: what the first layer made does not buy more in the second.
    let refused = bounded("twice", &gzip(&many), 2 * INFLATED_BYTES).expect_err("too much");
    assert!(refused.contains("times"), "{refused}");
}

/// Lengths of which the file has not a byte.
#[test]
fn lengths_of_what_is_not_there() {
    let own = |rest: &[u8]| [&trace::codec::MAGIC[..], rest].concat();
    let inputs = [
        own(&[0xff; 4]),
        own(&[2, 0, 0, 0, b'{', b'}', 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff]),
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f".to_vec(),
        b"\x80\x04\x8b\xff\xff\xff\x7f".to_vec(),
        b"\x80\x04X\xff\xff\xff\xff".to_vec(),
    ];
    for bytes in inputs {
        bounded("lengths", &bytes, 1 << 16).expect_err("there is nothing");
    }
}

/// Shared parts make a pickle much larger than its bytes: the same list for each device, the same wide dict for each
/// event.
#[test]
fn a_pickle_that_repeats_itself() {
    let text = |text: &str| [&[0x8c, text.len() as u8], text.as_bytes()].concat();
    let event = |extra: &[u8]| {
        [
            b"}(".to_vec(),
            extra.to_vec(),
            text("action"),
            text("segment_free"),
            b"u".to_vec(),
        ]
        .concat()
    };
    // {'device_traces': [L] * 50,000} where L = [E] * 50,000: 2,500,000,000 events.
    let start = [b"\x80\x04}".to_vec(), text("device_traces"), b"](".to_vec()].concat();
    let list = [
        &b"]("[..],
        &event(b""),
        b"q\x00",
        &b"h\x00".repeat(50_000),
        b"eq\x01",
    ]
    .concat();
    let devices = [&start[..], &list, &b"h\x01".repeat(50_000), b"es."].concat();
    bounded("devices", &devices, 1 << 20).expect_err("no such snapshot");
    // An event of 50,000 fields, 50,000 times.
    let fields = b"NN".repeat(50_000);
    let list = [
        &b"]("[..],
        &event(&fields),
        b"q\x00",
        &b"h\x00".repeat(50_000),
        b"eq\x01",
    ]
    .concat();
    let wide = [&start[..], &list, b"es."].concat();
    bounded("fields", &wide, 1 << 20).expect_err("no such event");
    // A list that holds itself.
    let _ = bounded(
        "itself",
        b"\x80\x04}\x8c\x0ddevice_traces]q\x00h\x00as.",
        1 << 16,
    );
}

/// A device for each event, and sizes that add up to more than there are numbers for.
#[test]
fn a_trace_that_is_dear_to_replay() {
    let mut table = String::from(trace::csv::HEADER);
    let pooled = if table.ends_with(",kind") {
        ",pooled"
    } else {
        ""
    };
    table.push('\n');
    for id in 0..200_000u64 {
        table += &format!("alloc,{id},512,{id},0,0,0,0{pooled}\n");
    }
    let (trace, _) = trace::parse(table.as_bytes()).unwrap();
    let (workloads, spent) = cost(|| Workload::of(&trace));
    assert_eq!(workloads.len(), 200_000);
    spent.must_fit("a device for each event", table.len(), 1 << 20);
    for size_bytes in [0, 1, 1 << 40, 1 << 62, u64::MAX - 1, u64::MAX] {
        let lines: String = (0..40)
            .map(|id| format!("a {id} {size_bytes} {}\n", id % 3))
            .chain((0..20).map(|id| format!("f {id}\n")))
            .chain((0..20).map(|id| format!("a {id} 4096 0\n")))
            .collect();
        let (trace, _) = trace::parse(lines.as_bytes()).unwrap();
        let workload = &Workload::of(&trace)[0];
        for limit_bytes in [None, Some(0), Some(1 << 34), Some(u64::MAX)] {
            let options = Options {
                limit_bytes,
                ..Options::default()
            };
            for name in Name::ALL {
                let (outcome, spent) = cost(|| replay(workload, name, &options));
                assert!(outcome.peak_reserved_bytes <= limit_bytes.unwrap_or(u64::MAX));
                spent.must_fit(&format!("{name} of {size_bytes}"), lines.len(), 64 << 20);
            }
        }
    }
}

/// Reports that nest, repeat or count without end.
#[test]
fn reports_that_are_no_reports() {
    let golden = String::from_utf8(crate::corpus::reports()[0].bytes.clone()).unwrap();
    let head = "{\"format\":\"cushion-report\",\"format_version\":\"1.0\",\"x\":";
    let inputs = [
        "[".repeat(1 << 20),
        format!("{head}{}", "[".repeat(1 << 20)),
        format!("{head}{}", "{\"a\":".repeat(1 << 20)),
        format!("{head}[{}0]}}", "[],".repeat(1 << 20)),
        golden.replacen('{', &format!("{{{}", "\"x\":1e400,".repeat(1000)), 1),
        golden.replace(":0,", ":-1,"),
        golden.replace(": 0,", ": 18446744073709551616,"),
    ];
    for (at, text) in inputs.iter().enumerate() {
        let (read, cost) = cost(|| report::parse(text.as_bytes()));
        cost.must_fit(&format!("report {at}"), text.len(), 1 << 20);
        drop(read);
    }
}
