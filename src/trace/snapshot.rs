//! PyTorch's memory snapshots: the `device_traces` of a file that `torch.cuda.memory._dump_snapshot` wrote.

use super::live::Builder;
use super::pickle::{Id, Pickle};
use super::{Event, Position, ReadError, Trace};

/// An event has some ten fields.
const FIELDS_MAX: usize = 64;

/// Parses a whole file. Allocations made before the history began are unknown to it, and so are their frees.
pub(super) fn parse(bytes: &[u8]) -> Result<Trace, ReadError> {
    let pickle = Pickle::parse(bytes)?;
    let devices = pickle
        .get(pickle.root(), "device_traces")
        .and_then(|id| pickle.sequence(id))
        .ok_or_else(|| ReadError::byte(0, "a dict with the list 'device_traces'"))?;
    let mut builder = Builder::new();
    let mut first_us = None;
    // Shared parts make a pickle larger than its bytes; the events of a device are nobody else's.
    let mut left = bytes.len();
    for (device, entries) in devices.iter().enumerate() {
        let entries = pickle
            .sequence(*entries)
            .ok_or_else(|| ReadError::byte(0, format!("device_traces[{device}] to be a list")))?;
        left = left.checked_sub(1 + entries.len()).ok_or_else(|| {
            ReadError::byte(0, "no more devices and events than the file has bytes")
        })?;
        for (index, entry) in entries.iter().enumerate() {
            add(&pickle, *entry, device as u32, &mut first_us, &mut builder).map_err(
                |expected| ReadError::Malformed {
                    at: Position::Entry(index),
                    expected: format!("{expected} of device_traces[{device}]"),
                },
            )?;
        }
    }
    // Each device has a list of its own: with several, the order between them is that of the time stamps.
    if devices.len() > 1 {
        builder.trace.events.sort_by_key(|e| e.time_ns);
    }
    Ok(builder.trace)
}

fn add(
    pickle: &Pickle<'_>,
    entry: Id,
    device: u32,
    first_us: &mut Option<i128>,
    builder: &mut Builder,
) -> Result<(), String> {
    if pickle.field_count(entry) > FIELDS_MAX {
        return Err(format!("at most {FIELDS_MAX} fields in an event"));
    }
    let integer = |key: &str| pickle.get(entry, key).and_then(|id| pickle.integer(id));
    let needed = |key: &str, is: fn(i128) -> Option<u64>| {
        let number = integer(key).and_then(is);
        number.ok_or_else(|| format!("'{key}', a whole number of 64 bits, in an event"))
    };
    let action = pickle.get(entry, "action").and_then(|id| pickle.text(id));
    let action = action.ok_or("a string 'action' in an event")?;
    // Segment events say what PyTorch's own pool did; free_requested is the call, free_completed its end.
    if !matches!(action, b"alloc" | b"free_completed") {
        return Ok(());
    }
    let time_us = integer("time_us").unwrap_or(0);
    let since_start = time_us.saturating_sub(*first_us.get_or_insert(time_us));
    let time_ns = u64::try_from(since_start.saturating_mul(1000)).unwrap_or(0);
    // A device's events are in order, whatever their times say; sorting by time must not undo that.
    let last = builder.trace.events.last().filter(|e| e.device == device);
    let event = Event {
        device,
        time_ns: last.map_or(0, |e| e.time_ns).max(time_ns),
        ..Event::alloc(
            needed("addr", address)?,
            needed("size", |size| u64::try_from(size).ok())?,
            integer("stream").and_then(address).unwrap_or(0),
        )
    };
    if action == b"free_completed" {
        builder.free_if_known(event);
    } else if !builder.alloc(event) {
        return Err(format!(
            "an address that is not live, and found {:#x} again, in an event",
            event.id
        ));
    }
    Ok(())
}

/// Addresses above 2^63 may have been written as negative numbers.
fn address(value: i128) -> Option<u64> {
    let negative = || i64::try_from(value).ok().map(|value| value as u64);
    u64::try_from(value).ok().or_else(negative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_missing() {
        // {'device_traces': [[{'action': 'alloc'}]]}
        let bytes = b"\x80\x04}\x8c\x0ddevice_traces]]}(\x8c\x06action\x8c\x05allocuaas.";
        assert_eq!(
            parse(bytes).unwrap_err().to_string(),
            "entry 0: expected 'addr', a whole number of 64 bits, in an event of device_traces[0]"
        );
        assert!(parse(b"\x80\x04}.")
            .unwrap_err()
            .to_string()
            .contains("device_traces"));
    }

    #[test]
    fn figures_are_taken_as_they_are_or_not_at_all() {
        let event = |address: i64, size: &[u8]| {
            let address = [&b"\x8c\x04addr\x8a\x08"[..], &address.to_le_bytes()].concat();
            let size = [b"\x8c\x04size", size].concat();
            let start = b"\x80\x04}\x8c\x0ddevice_traces]]}(\x8c\x06action\x8c\x05alloc";
            [&start[..], &address, &size, b"uaas."].concat()
        };
        let trace = parse(&event(-4096, b"K\x05")).unwrap();
        assert_eq!(trace.events[0].size_bytes, 5, "a high address");
        for size in [
            &b"J\xfb\xff\xff\xff"[..],
            b"\x8a\x09\0\0\0\0\0\0\0\0\x01",
            b"G\x46\x29\x3e\x59\x39\xa0\x8c\xea",
            b"G\x7f\xf0\0\0\0\0\0\0",
        ] {
            let error = parse(&event(64, size)).unwrap_err().to_string();
            assert!(error.starts_with("entry 0: expected 'size', a whole number"));
        }
    }
}
