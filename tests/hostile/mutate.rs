//! Changes to valid inputs.

use flate2::read::{DeflateDecoder, MultiGzDecoder};
use flate2::write::DeflateEncoder;
use flate2::Compression;
use std::io::{Read, Write};

/// A sequence of numbers that a seed determines (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `count`; 0 if that is 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % (count as u64).max(1)) as usize
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Bytes that are often a bound.
const ODD_BYTES: [u8; 10] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'%', b',', b'-'];
/// Numbers in text that are often too much.
const ODD_NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "4294967296",
    "1e308",
    "1e999",
    "0.0",
    "NaN",
    "99999999999999999999999999999999999999999",
    "",
    "0x",
];

/// One to eight changes.
pub fn mutated(random: &mut Random, bytes: &[u8], others: &[&[u8]]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(8) {
        match random.below(11) {
            0..=2 => {
                let at = random.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            3 => {
                let at = random.below(bytes.len());
                let odd = *random.pick(&ODD_BYTES);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = odd;
                }
            }
            4 => bytes.truncate(random.below(bytes.len() + 1)),
            5 => {
                let (from, to) = range(random, bytes.len());
                bytes.drain(from..to);
            }
            6 => {
                let (from, to) = range(random, bytes.len());
                let piece = bytes[from..to].to_vec();
                let at = random.below(bytes.len() + 1);
                let times = 1 + random.below(6);
                bytes.splice(at..at, piece.repeat(times));
            }
            7 => {
                let other = *random.pick(others);
                let (from, to) = range(random, other.len());
                let (at, end) = range(random, bytes.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            8 => replace_number(random, &mut bytes),
            9 => {
                let width = *random.pick(&[1usize, 2, 4, 8]);
                let at = random.below(bytes.len());
                let fill = *random.pick(&[0xffu8, 0, 0x7f, 0x80]);
                bytes
                    .iter_mut()
                    .skip(at)
                    .take(width)
                    .for_each(|byte| *byte = fill);
            }
            _ => {
                let at = random.below(bytes.len() + 1);
                let odd = vec![random.next() as u8; 1 + random.below(9)];
                bytes.splice(at..at, odd);
            }
        }
        if bytes.len() > 1 << 20 {
            bytes.truncate(1 << 20);
        }
    }
    bytes
}

fn range(random: &mut Random, length: usize) -> (usize, usize) {
    let from = random.below(length + 1);
    let to = from + random.below((length - from).min(64) + 1);
    (from, to)
}

/// A number in text becomes another.
fn replace_number(random: &mut Random, bytes: &mut Vec<u8>) {
    let start = random.below(bytes.len());
    let Some(from) = bytes.iter().skip(start).position(u8::is_ascii_digit) else {
        return;
    };
    let from = start + from;
    let length = bytes[from..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    let odd = random.pick(&ODD_NUMBERS);
    bytes.splice(from..from + length, odd.bytes());
}

/// Changes what is inside a compressed container, and packs it again, so that the change gets past the checksums.
pub fn mutated_inside(random: &mut Random, bytes: &[u8], others: &[&[u8]]) -> Option<Vec<u8>> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        MultiGzDecoder::new(bytes).read_to_end(&mut plain).ok()?;
        return Some(super::corpus::gzip(&mutated(random, &plain, others)));
    }
    if !bytes.starts_with(b"CUSHTR01") {
        return None;
    }
    let header_bytes = u32_at(bytes, 8)?;
    let start = 12 + header_bytes;
    let compressed_bytes = u32_at(bytes, start + 4)?;
    let end = start + 8 + compressed_bytes;
    let mut raw = Vec::new();
    DeflateDecoder::new(bytes.get(start + 8..end)?)
        .read_to_end(&mut raw)
        .ok()?;
    let raw = mutated(random, &raw, others);
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::fast());
    deflate.write_all(&raw).ok()?;
    let compressed = deflate.finish().ok()?;
    let lengths = [raw.len() as u32, compressed.len() as u32].map(u32::to_le_bytes);
    Some(
        [
            &bytes[..start],
            &lengths.concat(),
            &compressed,
            bytes.get(end..)?,
        ]
        .concat(),
    )
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?) as usize)
}
