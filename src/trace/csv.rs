//! Every field of every event as a table, for other programs: one header line, one event a line.

use std::io::{self, Write};

use super::live::Builder;
use super::{Action, Event, ReadError, Trace};
use crate::ledger::Kind;

/// The header line.
pub const HEADER: &str = "action,id,size_bytes,device,stream,thread,time_ns,site,kind";

/// Parses a whole file.
pub fn parse(text: &str) -> Result<Trace, ReadError> {
    let mut builder = Builder::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if number == 1 {
            if line != HEADER {
                return Err(ReadError::line(1, format!("'{HEADER}'")));
            }
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let fields: Vec<&str> = line.split(',').collect();
        let [action, figures @ .., kind]: [&str; 9] =
            fields.try_into().map_err(|fields: Vec<&str>| {
                ReadError::line(number, format!("9 fields, and found {}", fields.len()))
            })?;
        let mut values = [0u64; 7];
        for ((value, field), name) in values
            .iter_mut()
            .zip(figures)
            .zip(HEADER.split(',').skip(1))
        {
            *value = field.parse().map_err(|_| {
                ReadError::line(
                    number,
                    format!("{name}, a whole number, and found '{field}'"),
                )
            })?;
        }
        let [id, size_bytes, device, stream, thread, time_ns, site] = values;
        let narrow =
            |v: u64| u32::try_from(v).map_err(|_| ReadError::line(number, "a number below 2^32"));
        let (device, site) = (narrow(device)?, narrow(site)?);
        let named = Kind::ALL.into_iter().find(|known| known.name() == kind);
        let kind = named.ok_or_else(|| {
            ReadError::line(number, format!("a kind of memory, and found '{kind}'"))
        })?;
        let event = Event {
            action: Action::Alloc,
            id,
            kind,
            size_bytes,
            device,
            stream,
            thread,
            time_ns,
            site,
        };
        let (known, rule) = match action {
            "alloc" => (builder.alloc(event), "an id that is not live"),
            "free" => (builder.free(event), "the id of a live allocation"),
            other => {
                return Err(ReadError::line(
                    number,
                    format!("'alloc' or 'free', and found '{other}'"),
                ))
            }
        };
        if !known {
            return Err(ReadError::line(number, format!("{rule}, and found {id}")));
        }
    }
    Ok(builder.trace)
}

/// Writes a trace in this form.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    for e in &trace.events {
        let action = match e.action {
            Action::Alloc => "alloc",
            Action::Free => "free",
        };
        let Event {
            id,
            size_bytes,
            device,
            stream,
            thread,
            time_ns,
            site,
            kind,
            ..
        } = e;
        let kind = kind.name();
        writeln!(
            out,
            "{action},{id},{size_bytes},{device},{stream},{thread},{time_ns},{site},{kind}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let text = format!(
            "{HEADER}\nalloc,0,512,1,7,11,100,3,pinned_host\nfree,0,0,1,0,11,200,0,pooled\n"
        );
        let trace = parse(&text).unwrap();
        let mut out = Vec::new();
        write(&trace, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn names_the_line() {
        let error = parse(&format!("{HEADER}\nalloc,0,x,0,0,0,0,0,pooled\n"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "line 2: expected size_bytes, a whole number, and found 'x'"
        );
        for line in ["alloc,0", "alloc", " "] {
            let error = parse(&format!("{HEADER}\n\n{line}\n")).unwrap_err();
            assert!(error.to_string().starts_with("line 3: expected 9 fields"));
        }
        assert!(parse(&format!("{HEADER}\nalloc,0,1,0,0,0,0,0,soap\n"))
            .unwrap_err()
            .to_string()
            .contains("a kind of memory, and found 'soap'"));
    }
}
