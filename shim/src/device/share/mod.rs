//! Mapped memory shared with other processes: cuIpcGetMemHandle and its kin, where the driver has no legacy IPC.
//!
//! # Decision: descriptors from shim to shim
//! The driver's handle for cuMemAlloc memory holds all that another process needs; for mapped memory there is none, only a
//! descriptor for each physical handle. So the exporter's shim listens, from its first export on, on an abstract socket whose
//! name is random, and the handle that the program gets is that name and the block (`cushion::ipc_handle`). The importer's
//! shim asks there, gets the descriptors that the block lies in one by one, and maps them side by side. A process without the shim
//! is refused by the driver, as for any block that is a piece of a segment. So is one that cannot reach the socket: of another
//! user, or in another network namespace. Never is memory opened that is not the block's: the exporter looks
//! before and after whether the block still is the one that was exported.
//!
//! # Decision: natively, who opens late gets an error
//! Nothing is kept for importers: descriptors are made when somebody asks, while the block lives. A block that was exported is never handed
//! out again, and its memory goes back when its physical handles are free as a whole; what others have open stays theirs.

mod client;
mod server;
mod wire;

pub use client::{close, close_all_of, open};
pub use server::close_in_child;

use super::contexts::{self, Context};
use super::pages;
use crate::abi::*;
use cushion::ipc_handle::{self, Shared};
use cushion::pool::Block;
use std::sync::Arc;

/// The handle of a live block of mapped memory.
///
/// # Errors
/// The driver's own code where there is no current context, or the context is dead; "invalid value" where nothing can be shared.
pub fn export(context: &Arc<Context>, block: &Block) -> Result<IpcHandle, Status> {
    if let Some(code) = context.dead() {
        return Err(code);
    }
    if contexts::current_handle().is_null() {
        return Err(INVALID_CONTEXT);
    }
    let can_export = context.backing.mapped().is_some_and(|p| p.can_export());
    let exporter = can_export.then(server::token).flatten().ok_or_else(|| {
        pages::end("memory was exported to another process, and what is mapped cannot be shared");
        INVALID_VALUE
    })?;
    let shared = Shared {
        exporter,
        base: block.base,
        sequence: block.sequence,
    };
    server::note(shared);
    Ok(IpcHandle {
        bytes: ipc_handle::encode_shared(&shared),
    })
}

/// The abstract name on which an exporter listens.
fn name(exporter: &[u8; 16]) -> String {
    let hex: String = exporter.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("cushion-ipc-{hex}")
}

/// What an importer asks for.
const REQUEST_BYTES: usize = 32;

/// What it is told first: all of these are numbers of 8 bytes, little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    /// Length of all pieces together.
    mapped_bytes: u64,
    /// Where the block begins in them.
    offset_bytes: u64,
    /// As requested.
    size_bytes: u64,
    piece_count: u64,
}

const HEAD_BYTES: usize = 32;
/// Mapped memory comes in pieces of so many bytes.
const PAGE_BYTES: u64 = 2 << 20;
/// More than any device has.
const MOST_BYTES: u64 = 1 << 42;

impl Head {
    fn encode(self) -> [u8; HEAD_BYTES] {
        let words = [
            self.mapped_bytes,
            self.offset_bytes,
            self.size_bytes,
            self.piece_count,
        ];
        let mut bytes = [0; HEAD_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None`: nothing that an exporter says.
    fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let head = Head {
            mapped_bytes: word(0),
            offset_bytes: word(8),
            size_bytes: word(16),
            piece_count: word(24),
        };
        let end_bytes = head.offset_bytes.checked_add(head.size_bytes)?;
        let is_sound = (1..=MOST_BYTES).contains(&head.mapped_bytes)
            && head.mapped_bytes.is_multiple_of(PAGE_BYTES)
            && head.size_bytes > 0
            && end_bytes <= head.mapped_bytes
            && (1..=head.mapped_bytes / PAGE_BYTES).contains(&head.piece_count);
        is_sound.then_some(head)
    }
}
