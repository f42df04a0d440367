//! The plain text form: `a ID SIZE STREAM` and `f ID`, one a line, after an optional `# {json}`.

use std::io::{self, Write};

use super::live::Builder;
use super::{Action, Event, ReadError, Trace};

/// Parses a whole file.
pub fn parse(text: &str) -> Result<Trace, ReadError> {
    let mut builder = Builder::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(comment) = line.strip_prefix('#') {
            if number == 1 {
                builder.trace.header = serde_json::from_str(comment.trim())
                    .map_err(|e| ReadError::line(1, format!("a JSON object after '#' ({e})")))?;
            }
            continue;
        }
        parse_line(&mut builder, number, line)?;
    }
    Ok(builder.trace)
}

fn parse_line(builder: &mut Builder, number: usize, line: &str) -> Result<(), ReadError> {
    let mut words = line.split_ascii_whitespace();
    let action = words.next();
    let mut figure = |what: &str| -> Result<u64, ReadError> {
        let word = words.next().unwrap_or("the end of the line");
        word.parse().map_err(|_| {
            ReadError::line(
                number,
                format!("{what}, a whole number, and found '{word}'"),
            )
        })
    };
    match action {
        Some("a") => {
            let (id, size, stream) = (figure("ID")?, figure("SIZE in bytes")?, figure("STREAM")?);
            if !builder.alloc(Event::alloc(id, size, stream)) {
                return Err(ReadError::line(
                    number,
                    format!("an ID that is not live, and found {id} again"),
                ));
            }
        }
        Some("f") => {
            let id = figure("ID")?;
            if !builder.free(Event::free(id)) {
                return Err(ReadError::line(
                    number,
                    format!("the ID of a live allocation, and found {id}"),
                ));
            }
        }
        _ => {
            let found: String = line.chars().take(40).collect();
            return Err(ReadError::line(
                number,
                format!("'a ID SIZE STREAM' or 'f ID', and found '{found}'"),
            ));
        }
    }
    match words.next() {
        None => Ok(()),
        Some(word) => Err(ReadError::line(
            number,
            format!("the end of the line, and found '{word}'"),
        )),
    }
}

/// Writes a trace in this form. Device, thread, time and site have no place in it, nor has memory that no pool serves.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    if !trace.header.is_empty() {
        writeln!(out, "# {}", serde_json::Value::Object(trace.header.clone()))?;
    }
    for event in trace.for_a_pool() {
        match event.action {
            Action::Alloc => writeln!(out, "a {} {} {}", event.id, event.size_bytes, event.stream)?,
            Action::Free => writeln!(out, "f {}", event.id)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse(text).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn reads_what_it_writes() {
        let text = "# {\"workload\":\"x\"}\na 0 512 0\na 1 1000 7\nf 0\na 2 1 0\nf 1\n";
        let trace = parse(text).unwrap();
        assert_eq!(trace.events.len(), 5);
        let mut out = Vec::new();
        write(&trace, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn names_the_line_and_what_it_expected() {
        assert!(message("a 0 512 0\na 1 many 0\n").starts_with("line 2: expected SIZE"));
        assert!(message("a 0 512\n").contains("STREAM"));
        assert!(message("a 0 512 0 9\n").contains("end of the line"));
        assert!(message("f 3\n").contains("live allocation"));
        assert!(message("a 0 1 0\na 0 1 0\n").starts_with("line 2"));
        assert!(message("x\n").contains("'a ID SIZE STREAM' or 'f ID'"));
        assert!(message("# not json\n").contains("JSON"));
    }
}
