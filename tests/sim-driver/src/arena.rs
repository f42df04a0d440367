//! One device's memory: a sparse memfd, seen by the program as addresses it cannot touch.
//!
//! The window that device pointers lie in is mapped without access, so that host code which follows
//! a device pointer faults as it would natively; the driver reads and writes through a second
//! mapping of the same file. The file is larger than the device, since a real device places pages
//! anywhere; what is in use is counted apart. Pages are given back by punching holes, so that
//! whatever is handed out is zero.
use crate::abi::*;
use crate::extents::Extents;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::*};

pub const CHUNK: u64 = 2 << 20;
/// Up to here blocks share chunks.
const SMALL: u64 = 1 << 20;
const GRAIN: u64 = 512;
/// At the end of the file: which exported allocations still live, by id.
const EXPORTS: u64 = 64 << 10;

/// Where an allocation's bytes are.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes set aside, a multiple of the grain or of the chunk.
    pub length: u64,
    /// The mapping that holds it: offset and length.
    pub chunk: (u64, u64),
}

pub struct Arena {
    pub fd: i32,
    pub window: u64,
    pub size: u64,
    shadow: u64,
    exports: u64,
    capacity: u64,
    pub used: u64,
    chunks: Extents,
    small: BTreeMap<u64, Extents>,
}

/// An anonymous file of this size, sparse.
pub fn memory_file(name: &str, size: u64) -> R<i32> {
    let name = format!("{name}\0");
    // SAFETY: a C string, and a descriptor that was just made.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr().cast(), libc::MFD_CLOEXEC);
        if fd < 0 || libc::ftruncate(fd, size as i64) != 0 {
            return Err(OUT_OF_MEMORY);
        }
        Ok(fd)
    }
}

/// A number that tells this process from others that had its pid.
pub fn nonce() -> u64 {
    static NONCE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *NONCE.get_or_init(|| {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        now.as_nanos() as u64 ^ ((std::process::id() as u64) << 40)
    })
}

/// Addresses without access, aligned to a chunk.
pub fn reserve(size: u64, align: u64) -> R<u64> {
    let align = align.max(CHUNK);
    // SAFETY: new anonymous mappings, placed by the kernel; the slack of the alignment is cut off.
    unsafe {
        let all = libc::mmap(
            std::ptr::null_mut(),
            (size + align) as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if all == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        let start = (all as u64).next_multiple_of(align);
        let head = start - all as u64;
        if head > 0 {
            libc::munmap(all, head as usize);
        }
        if align > head {
            libc::munmap((start + size) as *mut _, (align - head) as usize);
        }
        Ok(start)
    }
}

/// Maps a part of a file for the driver's own use.
pub fn map_file(fd: i32, offset: u64, size: u64) -> R<u64> {
    // SAFETY: a new shared mapping, placed by the kernel.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            fd,
            offset as i64,
        )
    };
    if p == libc::MAP_FAILED {
        Err(OUT_OF_MEMORY)
    } else {
        Ok(p as u64)
    }
}

pub fn unmap(at: u64, size: u64) {
    // SAFETY: the caller owns the mapping and forgets it.
    unsafe { libc::munmap(at as *mut _, size as usize) };
}

fn slot(exports: u64, id: u64) -> &'static AtomicU64 {
    // SAFETY: within a mapping of EXPORTS bytes that lives as long as the caller's use of it.
    unsafe { &*((exports + id % (EXPORTS / 8) * 8) as *const AtomicU64) }
}

/// Whether another process's allocation of this id is exported and lives.
pub fn is_exported(fd: i32, id: u64) -> bool {
    // SAFETY: all-zero is a valid stat.
    let size = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(fd, &mut stat) != 0 {
            return false;
        }
        stat.st_size as u64
    };
    let Some(Ok(exports)) = size
        .checked_sub(EXPORTS)
        .map(|at| map_file(fd, at, EXPORTS))
    else {
        return false;
    };
    let lives = slot(exports, id).load(Acquire) == id;
    unmap(exports, EXPORTS);
    lives
}

impl Arena {
    pub fn new(capacity: u64) -> R<Arena> {
        let capacity = capacity / CHUNK * CHUNK;
        let size = capacity * 4;
        let fd = memory_file(&format!("simcuda:{:016x}", nonce()), size + EXPORTS)?;
        Ok(Arena {
            fd,
            window: reserve(size, CHUNK)?,
            size,
            shadow: map_file(fd, 0, size)?,
            exports: map_file(fd, size, EXPORTS)?,
            capacity,
            used: 0,
            chunks: Extents::new(0, size),
            small: BTreeMap::new(),
        })
    }

    pub fn free_bytes(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    pub fn address(&self, b: &Block) -> Ptr {
        self.window + b.offset
    }

    pub fn host(&self, b: &Block) -> u64 {
        self.shadow + b.offset
    }

    /// Notes for other processes whether an allocation can be opened.
    pub fn set_exported(&mut self, id: u64, can: bool) {
        let slot = slot(self.exports, id);
        if can {
            slot.store(id, Release);
        } else {
            let _ = slot.compare_exchange(id, 0, AcqRel, Acquire);
        }
    }

    /// Counts memory that needs no place of its own here.
    pub fn charge(&mut self, bytes: u64) -> R {
        if bytes > self.free_bytes() {
            return Err(OUT_OF_MEMORY);
        }
        self.used += bytes;
        Ok(())
    }

    pub fn alloc(&mut self, bytes: u64) -> R<Block> {
        if bytes == 0 || bytes > self.capacity {
            return Err(OUT_OF_MEMORY);
        }
        if bytes > SMALL {
            return self.whole_chunks(bytes);
        }
        let length = bytes.next_multiple_of(GRAIN);
        for (&chunk, free) in &mut self.small {
            if let Some(offset) = free.take(length, GRAIN) {
                return Ok(Block {
                    offset,
                    length,
                    chunk: (chunk, CHUNK),
                });
            }
        }
        let chunk = self.whole_chunks(CHUNK)?.offset;
        let mut free = Extents::new(chunk, CHUNK);
        let offset = free.take(length, GRAIN).ok_or(UNKNOWN)?;
        self.small.insert(chunk, free);
        Ok(Block {
            offset,
            length,
            chunk: (chunk, CHUNK),
        })
    }

    pub fn whole_chunks(&mut self, bytes: u64) -> R<Block> {
        let length = bytes.next_multiple_of(CHUNK);
        if length > self.free_bytes() {
            return Err(OUT_OF_MEMORY);
        }
        let offset = self.chunks.take(length, CHUNK).ok_or(OUT_OF_MEMORY)?;
        self.used += length;
        Ok(Block {
            offset,
            length,
            chunk: (offset, length),
        })
    }

    pub fn free(&mut self, b: Block) {
        if let Some(free) = self.small.get_mut(&b.chunk.0) {
            // SAFETY: the block lies in the shadow mapping and no longer belongs to anyone.
            unsafe {
                std::ptr::write_bytes((self.shadow + b.offset) as *mut u8, 0, b.length as usize)
            };
            free.give(b.offset, b.length);
            if !free.is_all(b.chunk.0, CHUNK) {
                return;
            }
            self.small.remove(&b.chunk.0);
        }
        // SAFETY: the pages belong to this file and to no allocation.
        unsafe {
            libc::fallocate(
                self.fd,
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                b.chunk.0 as i64,
                b.chunk.1 as i64,
            )
        };
        self.chunks.give(b.chunk.0, b.chunk.1);
        self.used -= b.chunk.1;
    }
}
