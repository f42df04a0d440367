//! Physical memory of the virtual memory functions: what is still taken from the device, and since when.
//!
//! A handle is not the memory. Some release it as soon as it is mapped, and the memory lives on until it
//! is unmapped; and a handle's number can then name other memory. So the ledger's key is a number of our own, and the
//! memory counts until its last handle is released and its last mapping is gone.

use crate::abi::*;
use crate::ledger::{self, Space};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One piece of physical memory.
#[derive(Clone, Copy)]
struct Piece {
    handle_count: u32,
    mapping_count: u32,
}

#[derive(Default)]
struct Table {
    /// By the ledger's key.
    pieces: HashMap<u64, Piece>,
    /// Key by the driver's handle.
    handles: HashMap<u64, u64>,
    /// Key and size by address.
    mappings: BTreeMap<u64, (u64, u64)>,
    last_key: u64,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

fn with<R>(change: impl FnOnce(&mut Table) -> R) -> R {
    let mut table: MutexGuard<'_, Option<Table>> =
        TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    change(table.get_or_insert_with(Table::default))
}

impl Table {
    /// Adds to the counts of a piece.
    fn add(&mut self, key: u64, handles: u32, mappings: u32) {
        if let Some(piece) = self.pieces.get_mut(&key) {
            piece.handle_count += handles;
            piece.mapping_count += mappings;
        }
    }

    /// Takes from the counts of a piece. Returns its key if nothing holds it any more.
    fn take(&mut self, key: u64, handles: u32, mappings: u32) -> Option<u64> {
        let piece = self.pieces.get_mut(&key)?;
        piece.handle_count = piece.handle_count.saturating_sub(handles);
        piece.mapping_count = piece.mapping_count.saturating_sub(mappings);
        if piece.handle_count + piece.mapping_count > 0 {
            return None;
        }
        self.pieces.remove(&key);
        Some(key)
    }
}

/// `handle` was created. Returns the key under which the ledger enters its memory.
pub fn created(handle: u64) -> u64 {
    with(|table| {
        table.last_key += 1;
        let key = table.last_key;
        table.pieces.insert(
            key,
            Piece {
                handle_count: 1,
                mapping_count: 0,
            },
        );
        table.handles.insert(handle, key);
        key
    })
}

/// `handle` was given out once more for memory that lies at `address`.
pub fn retained(handle: u64, address: CUdeviceptr) {
    with(|table| {
        let at = table
            .mappings
            .range(..=address)
            .next_back()
            .map(|(&start, &mapping)| (start, mapping));
        if let Some((start, (key, size_bytes))) = at {
            if address - start < size_bytes {
                table.handles.insert(handle, key);
                table.add(key, 1, 0);
            }
        }
    });
}

/// `handle` was mapped at `address`.
pub fn mapped(handle: u64, address: CUdeviceptr, size_bytes: u64) {
    with(|table| {
        if let Some(&key) = table.handles.get(&handle) {
            table.mappings.insert(address, (key, size_bytes));
            table.add(key, 0, 1);
        }
    });
}

/// Makes `call`, which releases `handle`.
pub fn released(handle: u64, call: impl FnOnce() -> Status) -> Status {
    // Out before the driver may hand the number to another thread; back if it refuses.
    let key = with(|table| {
        let key = table.handles.get(&handle).copied()?;
        if table
            .pieces
            .get(&key)
            .is_some_and(|piece| piece.handle_count <= 1)
        {
            table.handles.remove(&handle);
        }
        Some(key)
    });
    let code = call();
    if let Some(key) = key {
        if code == SUCCESS {
            forget(with(|table| table.take(key, 1, 0)));
        } else {
            with(|table| table.handles.insert(handle, key));
        }
    }
    code
}

/// Makes `call`, which unmaps everything in a range.
pub fn unmapped(address: CUdeviceptr, size_bytes: u64, call: impl FnOnce() -> Status) -> Status {
    let gone: Vec<(u64, (u64, u64))> = with(|table| {
        let range = address..address.saturating_add(size_bytes);
        let gone: Vec<_> = table
            .mappings
            .range(range)
            .map(|(&start, &mapping)| (start, mapping))
            .collect();
        for (start, _) in &gone {
            table.mappings.remove(start);
        }
        gone
    });
    let code = call();
    if code == SUCCESS {
        for (_, (key, _)) in gone {
            forget(with(|table| table.take(key, 0, 1)));
        }
    } else {
        with(|table| table.mappings.extend(gone));
    }
    code
}

fn forget(key: Option<u64>) {
    if let Some(key) = key {
        ledger::released(Space::Vmm, key, || SUCCESS);
    }
}
