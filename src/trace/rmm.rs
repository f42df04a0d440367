//! The CSV log of RMM's logging adaptor: `Thread,Time,Action,Pointer,Size,Stream`.

use super::live::Builder;
use super::{Event, ReadError, Trace};

/// The header line.
pub(super) const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Parses a whole file. Several logs joined into one (repeated header lines) are accepted.
pub(super) fn parse(text: &str) -> Result<Trace, ReadError> {
    let mut builder = Builder::new();
    let mut first_ns = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.trim_end();
        if line == HEADER || line.is_empty() {
            continue;
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [thread, time, action, pointer, size, stream] = fields[..] else {
            return Err(ReadError::line(
                number,
                format!("the 6 columns {HEADER}, and found {}", fields.len()),
            ));
        };
        let figure = |name: &str, field: &str| {
            number_of(field).ok_or_else(|| {
                ReadError::line(number, format!("{name}, a number, and found '{field}'"))
            })
        };
        let at_ns = time_of(time).ok_or_else(|| {
            ReadError::line(
                number,
                format!("Time as HH:MM:SS.ffffff or seconds, and found '{time}'"),
            )
        })?;
        let event = Event {
            thread: figure("Thread", thread)?,
            time_ns: at_ns.saturating_sub(*first_ns.get_or_insert(at_ns)),
            ..Event::alloc(
                figure("Pointer", pointer)?,
                figure("Size", size)?,
                figure("Stream", stream)?,
            )
        };
        match action {
            "allocate" if event.size_bytes == 0 => {}
            "allocate" => {
                if !builder.alloc(event) {
                    return Err(ReadError::line(
                        number,
                        format!("a Pointer that is not live, and found {pointer} again"),
                    ));
                }
            }
            "free" | "deallocate" if event.size_bytes == 0 => {}
            "free" | "deallocate" => builder.free_if_known(event),
            "allocate failure" => {}
            other => {
                return Err(ReadError::line(
                    number,
                    format!("Action 'allocate', 'free' or 'allocate failure', and found '{other}'"),
                ))
            }
        }
    }
    Ok(builder.trace)
}

/// Decimal, or hexadecimal with `0x`. The pointer of a failed allocation is printed as `(nil)`.
fn number_of(field: &str) -> Option<u64> {
    match field.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if field == "(nil)" => Some(0),
        None => field.parse().ok(),
    }
}

/// `HH:MM:SS.ffffff`, `HH:MM:SS:ffffff` or seconds with a fraction, as nanoseconds.
fn time_of(field: &str) -> Option<u64> {
    let parts: Vec<&str> = field.split(':').collect();
    let (hours, minutes, seconds) = match parts[..] {
        [s] => ("0", "0", s.to_owned()),
        [h, m, s] => (h, m, s.to_owned()),
        [h, m, s, fraction] => (h, m, format!("{s}.{fraction}")),
        _ => return None,
    };
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let (whole, fraction) = seconds.split_once('.').unwrap_or((&seconds, ""));
    let nanos: u64 = format!("{:0<9}", fraction).get(..9)?.parse().ok()?;
    let seconds = hours
        .checked_mul(60)?
        .checked_add(minutes)?
        .checked_mul(60)?
        .checked_add(whole.parse().ok()?)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Action;

    #[test]
    fn reads_a_log() {
        let log = format!(
            "{HEADER}\n7,15:47:02.841961,allocate,0x10012400000,1048576,0x2\n7,15:47:02.841977,allocate failure,(nil),99,0\n\
             7,15:47:02.841978,free,0xdead,8,0\n7,15:47:02.841979,free,0x10012400000,1048576,0x2\n"
        );
        let trace = parse(&log).unwrap();
        assert_eq!(trace.events.len(), 2);
        assert_eq!(
            (
                trace.events[0].size_bytes,
                trace.events[0].stream,
                trace.events[0].thread
            ),
            (1048576, 2, 7)
        );
        assert_eq!(
            (trace.events[1].action, trace.events[1].time_ns),
            (Action::Free, 18_000)
        );
        assert_eq!(trace.unmatched_frees, 1);
    }

    #[test]
    fn names_the_line() {
        let bad = format!("{HEADER}\n7,15:47:02.841961,allocate,0x10012400000,big,0\n");
        assert_eq!(
            parse(&bad).unwrap_err().to_string(),
            "line 2: expected Size, a number, and found 'big'"
        );
    }

    #[test]
    fn times_in_every_form() {
        assert_eq!(time_of("00:01:02.5"), Some(62_500_000_000));
        assert_eq!(time_of("00:01:02:000001"), Some(62_000_001_000));
        assert_eq!(
            time_of("1634567890.123456"),
            Some(1_634_567_890_123_456_000)
        );
        assert_eq!(time_of("noon"), None);
    }
}
