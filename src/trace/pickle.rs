//! A reader for pickles of plain data: numbers, strings, lists, tuples, dicts. It builds no objects and calls nothing,
//! and refuses a pickle that asks for either.

use std::collections::HashMap;
use std::ops::Range;

use super::ReadError;

/// Index of a value. Shared parts of a pickle (PyTorch shares its stack frames) stay shared.
pub(super) type Id = usize;

/// One value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// Bytes of the input: strings and byte strings alike.
    Text(Range<usize>),
    /// Lists, tuples and sets.
    Sequence(Vec<Id>),
    Dict(Vec<(Id, Id)>),
}

/// A whole pickle.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    input: &'a [u8],
    values: Vec<Value>,
    root: Id,
}

impl<'a> Pickle<'a> {
    /// Reads protocols 2 to 5.
    pub fn parse(input: &'a [u8]) -> Result<Pickle<'a>, ReadError> {
        let mut machine = Machine {
            input,
            at: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        let root = loop {
            if let Some(root) = machine.step()? {
                break root;
            }
        };
        Ok(Pickle {
            input,
            values: machine.values,
            root,
        })
    }

    /// The value that was pickled.
    pub fn root(&self) -> Id {
        self.root
    }

    /// Elements of a list or tuple.
    pub fn sequence(&self, id: Id) -> Option<&[Id]> {
        match &self.values[id] {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// The value of `key` in a dict.
    pub fn get(&self, id: Id, key: &str) -> Option<Id> {
        let Value::Dict(pairs) = &self.values[id] else {
            return None;
        };
        pairs
            .iter()
            .find(|(k, _)| self.text(*k) == Some(key.as_bytes()))
            .map(|(_, v)| *v)
    }

    /// Pairs in a dict; 0 for anything else.
    pub fn field_count(&self, id: Id) -> usize {
        match &self.values[id] {
            Value::Dict(pairs) => pairs.len(),
            _ => 0,
        }
    }

    /// A string's bytes.
    pub fn text(&self, id: Id) -> Option<&'a [u8]> {
        match &self.values[id] {
            Value::Text(range) => self.input.get(range.clone()),
            _ => None,
        }
    }

    /// A whole number.
    pub fn integer(&self, id: Id) -> Option<i128> {
        match &self.values[id] {
            Value::Int(n) => Some(*n),
            Value::Bool(b) => Some(i128::from(*b)),
            Value::Float(f) if f.fract() == 0.0 => Some(*f as i128),
            _ => None,
        }
    }
}

struct Machine<'a> {
    input: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

impl Machine<'_> {
    /// Runs one opcode. Some(value): the pickle ends.
    fn step(&mut self) -> Result<Option<Id>, ReadError> {
        let start = self.at;
        match self.bytes(1)?[0] {
            0x80 => self.skip(1)?,
            0x95 => self.skip(8)?,
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'K' => self.unsigned_value(1)?,
            b'M' => self.unsigned_value(2)?,
            b'J' => self.signed_value(4)?,
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            b'G' => {
                let bits = self
                    .bytes(8)?
                    .iter()
                    .fold(0u64, |n, b| n << 8 | u64::from(*b));
                self.push(Value::Float(f64::from_bits(bits)));
            }
            0x8c | b'C' | b'U' => self.string(1)?,
            b'X' | b'B' | b'T' => self.string(4)?,
            0x8d | 0x8e => self.string(8)?,
            b']' | b')' | 0x8f => self.push(Value::Sequence(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            b'(' => self.marks.push(self.stack.len()),
            b't' | 0x91 => {
                let items = self.pop_to_mark()?;
                self.push(Value::Sequence(items));
            }
            n @ 0x85..=0x87 => {
                let items = self.pop(usize::from(n - 0x84))?;
                self.push(Value::Sequence(items));
            }
            b'a' => {
                let items = self.pop(1)?;
                self.extend(items)?;
            }
            b'e' | 0x90 => {
                let items = self.pop_to_mark()?;
                self.extend(items)?;
            }
            b's' => {
                let items = self.pop(2)?;
                self.set_items(items)?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set_items(items)?;
            }
            b'0' => {
                self.pop(1)?;
            }
            b'1' => {
                self.pop_to_mark()?;
            }
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            0x94 => {
                let (key, top) = (self.memo.len() as u64, self.top()?);
                self.memo.insert(key, top);
            }
            b'q' => self.put(1)?,
            b'r' => self.put(4)?,
            b'h' => self.fetch(1)?,
            b'j' => self.fetch(4)?,
            b'.' => return self.top().map(Some),
            b'c' | b'R' | b'b' | b'o' | b'i' | 0x81 | 0x92 | 0x93 => {
                return Err(ReadError::byte(
                    start,
                    "a pickle of plain data, and found one that builds objects",
                ));
            }
            other => {
                return Err(ReadError::byte(
                    start,
                    format!("a pickle opcode, and found {other:#04x}"),
                ))
            }
        }
        Ok(None)
    }

    fn bytes(&mut self, count: usize) -> Result<&[u8], ReadError> {
        let found = self
            .at
            .checked_add(count)
            .and_then(|end| self.input.get(self.at..end));
        let found = found.ok_or_else(|| {
            ReadError::byte(self.at, format!("{count} more bytes, and the file ends"))
        })?;
        self.at += count;
        Ok(found)
    }

    fn skip(&mut self, count: usize) -> Result<(), ReadError> {
        self.bytes(count).map(drop)
    }

    fn unsigned(&mut self, width: usize) -> Result<u64, ReadError> {
        Ok(self
            .bytes(width)?
            .iter()
            .rev()
            .fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn unsigned_value(&mut self, width: usize) -> Result<(), ReadError> {
        let number = self.unsigned(width)?;
        self.push(Value::Int(i128::from(number)));
        Ok(())
    }

    fn signed_value(&mut self, width: usize) -> Result<(), ReadError> {
        let number = signed(self.bytes(width)?);
        self.push(Value::Int(number));
        Ok(())
    }

    fn long(&mut self, width: usize) -> Result<(), ReadError> {
        let start = self.at;
        let length = self.unsigned(width)?;
        if length > 16 {
            return Err(ReadError::byte(
                start,
                format!("a number of at most 16 bytes, and found {length}"),
            ));
        }
        self.signed_value(length as usize)
    }

    fn string(&mut self, width: usize) -> Result<(), ReadError> {
        let length = self.unsigned(width)?;
        let start = self.at;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.skip(length)?;
        self.push(Value::Text(start..self.at));
        Ok(())
    }

    fn push(&mut self, value: Value) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    /// Values above the last mark belong to it, so nothing may be popped from below it.
    fn available(&self) -> usize {
        self.stack.len()
            - self
                .marks
                .last()
                .copied()
                .unwrap_or(0)
                .min(self.stack.len())
    }

    fn pop(&mut self, count: usize) -> Result<Vec<Id>, ReadError> {
        if self.available() < count {
            return Err(ReadError::byte(
                self.at,
                format!("{count} values on the pickle stack"),
            ));
        }
        Ok(self.stack.split_off(self.stack.len() - count))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, ReadError> {
        let mark = self
            .marks
            .pop()
            .ok_or_else(|| ReadError::byte(self.at, "a mark on the pickle stack"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn top(&self) -> Result<Id, ReadError> {
        let top = if self.available() > 0 {
            self.stack.last()
        } else {
            None
        };
        top.copied()
            .ok_or_else(|| ReadError::byte(self.at, "a value on the pickle stack"))
    }

    fn extend(&mut self, items: Vec<Id>) -> Result<(), ReadError> {
        let top = self.top()?;
        match &mut self.values[top] {
            Value::Sequence(list) => list.extend(items),
            _ => return Err(ReadError::byte(self.at, "a list to append to")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: Vec<Id>) -> Result<(), ReadError> {
        let top = self.top()?;
        match &mut self.values[top] {
            Value::Dict(pairs) if items.len().is_multiple_of(2) => {
                pairs.extend(items.chunks(2).map(|p| (p[0], p[1])))
            }
            _ => return Err(ReadError::byte(self.at, "a dict and pairs to put into it")),
        }
        Ok(())
    }

    fn put(&mut self, width: usize) -> Result<(), ReadError> {
        let key = self.unsigned(width)?;
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn fetch(&mut self, width: usize) -> Result<(), ReadError> {
        let key = self.unsigned(width)?;
        let id = self.memo.get(&key).copied();
        self.stack
            .push(id.ok_or_else(|| ReadError::byte(self.at, format!("a memo entry {key}")))?);
        Ok(())
    }
}

/// Little-endian two's complement of at most 16 bytes.
fn signed(bytes: &[u8]) -> i128 {
    let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) {
        0xff
    } else {
        0
    };
    let mut wide = [fill; 16];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    i128::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_dicts_and_numbers() {
        // {'a': [1, -2, 2**40], 'b': (None, True, 1.0)} with protocol 4.
        let bytes = b"\x80\x04\x95\x2e\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01e\x8c\x01b\x94N\x88G?\xf0\x00\x00\x00\x00\x00\x00\x87\x94u.";
        let pickle = Pickle::parse(bytes).unwrap();
        let list = pickle.get(pickle.root(), "a").unwrap();
        let numbers: Vec<_> = pickle
            .sequence(list)
            .unwrap()
            .iter()
            .map(|i| pickle.integer(*i).unwrap())
            .collect();
        assert_eq!(numbers, [1, -2, 1 << 40]);
        let tuple = pickle.get(pickle.root(), "b").unwrap();
        assert_eq!(pickle.integer(pickle.sequence(tuple).unwrap()[2]), Some(1));
    }

    #[test]
    fn refuses_objects_and_cut_files() {
        let object = b"\x80\x04\x8c\x02os\x8c\x06system\x93.";
        assert!(Pickle::parse(object)
            .unwrap_err()
            .to_string()
            .contains("builds objects"));
        assert!(Pickle::parse(b"\x80\x04K")
            .unwrap_err()
            .to_string()
            .starts_with("byte 3"));
        assert!(Pickle::parse(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.").is_err());
    }
}
