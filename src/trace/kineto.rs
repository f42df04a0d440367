//! The `[memory]` events of a Kineto (Chrome) trace, as PyTorch's profiler writes them with `profile_memory=True`.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::Deserialize;
use serde_json::error::Category;

use super::live::Builder;
use super::{Event, Position, ReadError, Trace};

/// What a file is to be.
const CHROME_TRACE: &str =
    "a Chrome trace: a list of events, or an object with the list 'traceEvents'";

/// Device types in these events; others are not device memory.
const CUDA: i64 = 1;

/// Only what is needed: a profile has many events of other kinds, with fields of any type.
#[derive(Deserialize)]
struct Record {
    #[serde(default)]
    name: Option<serde_json::Value>,
    #[serde(default)]
    ts: Option<serde_json::Value>,
    #[serde(default)]
    tid: Option<serde_json::Value>,
    #[serde(default)]
    args: Option<serde_json::Value>,
}

/// The `[memory]` events of the file so far. Others go by without being kept: they are most of a profile.
#[derive(Default)]
struct Memory {
    events: Vec<(f64, Event, bool)>,
    error: Option<ReadError>,
}

/// A list of events goes into the memory of them.
struct List<'a>(&'a mut Memory);
/// The same for a file: a list, or an object with the list `traceEvents`.
struct File<'a>(&'a mut Memory);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();
    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a list of events")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(record) = list.next_element::<Record>()? {
            let is_memory = record.name.as_ref().and_then(|n| n.as_str()) == Some("[memory]");
            if is_memory && self.0.error.is_none() {
                match event_of(index, &record) {
                    Ok(event) => self.0.events.extend(event),
                    Err(error) => self.0.error = Some(error),
                }
            }
            index += 1;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for File<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for File<'_> {
    type Value = ();
    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a Chrome trace")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        List(self.0).visit_seq(list)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = object.next_key::<std::borrow::Cow<'_, str>>()? {
            if key == "traceEvents" && !found {
                object.next_value_seed(List(self.0))?;
                found = true;
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        if !found {
            // What is not there has no line of its own.
            self.0.error = Some(ReadError::line(1, CHROME_TRACE));
        }
        Ok(())
    }
}

/// Parses a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<Trace, ReadError> {
    let mut memory = Memory::default();
    let mut input = serde_json::Deserializer::from_slice(bytes);
    let read = File(&mut memory).deserialize(&mut input);
    // What is not JSON is said by the parser, what is JSON of another kind by what is missing.
    read.and_then(|()| input.end())
        .map_err(|e| match e.classify() {
            Category::Data => ReadError::line(e.line().max(1), CHROME_TRACE),
            _ => ReadError::line(e.line(), format!("JSON ({e})")),
        })?;
    if let Some(error) = memory.error {
        return Err(error);
    }
    let mut memory = memory.events;
    // Written thread by thread; the order of the program is that of the time stamps. The sort keeps ties in file order.
    memory.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = memory.first().map_or(0.0, |m| m.0);
    let mut builder = Builder::new();
    for (ts, event, is_alloc) in memory {
        let event = Event {
            time_ns: ((ts - first) * 1000.0) as u64,
            ..event
        };
        if !is_alloc {
            builder.free_if_known(event);
        } else if !builder.alloc(event) {
            // Events of two threads within one time stamp can be swapped: the free of the earlier user comes late.
            builder.free_if_known(event);
            builder.alloc(event);
        }
    }
    Ok(builder.trace)
}

/// Time stamp in microseconds, the event, and whether it is an allocation. None: not CUDA memory.
fn event_of(index: usize, record: &Record) -> Result<Option<(f64, Event, bool)>, ReadError> {
    let missing = |what: &str| ReadError::Malformed {
        at: Position::Entry(index),
        expected: format!("{what} in a [memory] event"),
    };
    let args = record.args.as_ref().ok_or_else(|| missing("'args'"))?;
    if args.get("Device Type").and_then(|v| v.as_i64()) != Some(CUDA) {
        return Ok(None);
    }
    let bytes = args
        .get("Bytes")
        .and_then(|v| v.as_i64())
        .ok_or_else(|| missing("'Bytes', a whole number,"))?;
    let address = args
        .get("Addr")
        .and_then(address_of)
        .ok_or_else(|| missing("'Addr', a whole number,"))?;
    let device = match args.get("Device Id") {
        None => 0,
        Some(id) => id
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| missing("'Device Id', a number below 2^32,"))?,
    };
    let ts = record
        .ts
        .as_ref()
        .and_then(time_of)
        .ok_or_else(|| missing("'ts', a number,"))?;
    let thread = record.tid.as_ref().and_then(|v| v.as_u64()).unwrap_or(0);
    if bytes == 0 {
        return Ok(None);
    }
    let event = Event {
        device,
        thread,
        ..Event::alloc(address, bytes.unsigned_abs(), 0)
    };
    Ok(Some((ts, event, bytes > 0)))
}

fn address_of(value: &serde_json::Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_i64().map(|v| v as u64))
}

fn time_of(value: &serde_json::Value) -> Option<f64> {
    value
        .as_f64()
        .or_else(|| value.as_str()?.parse().ok())
        .filter(|t: &f64| t.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Action;

    #[test]
    fn reads_cuda_memory_events_in_time_order() {
        let json = br#"{"schemaVersion": 1, "traceEvents": [
            {"ph": "X", "name": "aten::mm", "ts": 1.0, "tid": "stream 7"},
            {"ph": "i", "name": "[memory]", "ts": 30, "tid": 9, "args": {"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": -512}},
            {"ph": "i", "name": "[memory]", "ts": 10.5, "tid": 9, "args": {"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": 512}},
            {"ph": "i", "name": "[memory]", "ts": 11, "tid": 9, "args": {"Device Type": 0, "Device Id": -1, "Addr": 64, "Bytes": 4}}]}"#;
        let trace = parse(json).unwrap();
        assert_eq!(trace.events.len(), 2);
        assert_eq!(trace.events[0].size_bytes, 512);
        assert_eq!(trace.events[1].time_ns, 19_500);
    }

    #[test]
    fn a_free_that_comes_late_ends_the_earlier_allocation() {
        let event = |ts: u32, bytes: i32| {
            format!(
                r#"{{"name": "[memory]", "ts": {ts}, "args": {{"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": {bytes}}}}}"#
            )
        };
        let list = [
            event(1, 512),
            event(2, 1024),
            event(2, -512),
            event(3, -1024),
        ];
        let trace = parse(format!("[{}]", list.join(",")).as_bytes()).unwrap();
        let ids: Vec<_> = trace.events.iter().map(|e| (e.action, e.id)).collect();
        let (alloc, free) = (Action::Alloc, Action::Free);
        assert_eq!(ids, [(alloc, 0), (free, 0), (alloc, 1), (free, 1)]);
        assert_eq!(trace.unmatched_frees, 1);
    }

    #[test]
    fn names_what_is_missing() {
        let json = br#"[{"name": "[memory]", "ts": 1, "args": {"Device Type": 1, "Addr": 1}}]"#;
        assert_eq!(
            parse(json).unwrap_err().to_string(),
            "entry 0: expected 'Bytes', a whole number, in a [memory] event"
        );
        assert!(parse(b"{\"a\": 1,\n\"b\": 2}")
            .unwrap_err()
            .to_string()
            .starts_with("line 1: expected a Chrome trace"));
        let no_device = br#"[{"name": "[memory]", "ts": 1, "args": {"Device Type": 1, "Addr": 1, "Bytes": 4, "Device Id": -1}}]"#;
        assert!(parse(no_device)
            .unwrap_err()
            .to_string()
            .starts_with("entry 0: expected 'Device Id'"));
        assert!(parse(b"[\n\n1]")
            .unwrap_err()
            .to_string()
            .starts_with("line 3: expected a Chrome trace"));
        assert!(parse(b"[\n{,}")
            .unwrap_err()
            .to_string()
            .starts_with("line 2"));
    }
}
