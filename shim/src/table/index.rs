//! From a name to its row.

use super::{HOOKS, SYMBOLS};
use std::ffi::CStr;

/// Slots of the index by name: a power of two, several times the number of rows.
const SLOTS: usize = 1024;

/// Row plus one of each hooked driver symbol, at the place of its hash or after; built by the compiler.
static INDEX: [u16; SLOTS] = {
    let mut index = [0; SLOTS];
    let mut row = 0;
    while row < SYMBOLS.len() {
        let mut slot = hash(SYMBOLS[row].as_bytes());
        while index[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        index[slot] = row as u16 + 1;
        row += 1;
    }
    index
};

/// FNV-1a, reduced to a slot.
const fn hash(name: &[u8]) -> usize {
    let mut hash = 0x811c_9dc5_u32;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ hash >> 15) as usize % SLOTS
}

/// The row of exactly this driver symbol.
pub fn row_of(name: &CStr) -> Option<usize> {
    let mut slot = hash(name.to_bytes());
    loop {
        let row = usize::from(INDEX[slot]).checked_sub(1)?;
        if HOOKS[row].symbol == name {
            return Some(row);
        }
        slot = (slot + 1) % SLOTS;
    }
}
