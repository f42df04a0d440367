//! Memory that another API made and hands over as a file descriptor.
use crate::abi::*;
use crate::arena;
use crate::ipc::Opened;
use crate::ranges::{Kind, Range};
use crate::state::lock;

/// CUDA_EXTERNAL_MEMORY_BUFFER_DESC.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    offset: u64,
    size: u64,
}

/// Imported memory: the descriptor, which is the driver's now, and its size.
pub struct External {
    fd: i32,
    size: u64,
}

const OPAQUE_FD: u32 = 1;
const DMA_BUF: u32 = 9;

api! {
    fn cuImportExternalMemory(out: *mut Handle, description: *const [u64; 5]) {
        if description.is_null() {
            return Err(INVALID_VALUE);
        }
        // CUDA_EXTERNAL_MEMORY_HANDLE_DESC: type, a union with the descriptor, size.
        let raw = description.read_unaligned();
        let (kind, fd, size) = (raw[0] as u32, raw[1] as u32 as i32, raw[3]);
        if kind != OPAQUE_FD && kind != DMA_BUF {
            return Err(NOT_SUPPORTED);
        }
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(fd, &mut stat) != 0 || (stat.st_size as u64) < size || size == 0 {
            return Err(INVALID_VALUE);
        }
        let mut st = lock();
        st.current()?;
        let h = st.handle();
        st.external.insert(h, External { fd, size });
        put(out, h)
    }
    fn cuExternalMemoryGetMappedBuffer(out: *mut Ptr, memory: Handle, part: *const Part) {
        if part.is_null() {
            return Err(INVALID_VALUE);
        }
        let part = part.read_unaligned();
        let mut st = lock();
        let (context, device) = st.current_device()?;
        let m = st.external.get(&memory).ok_or(INVALID_HANDLE)?;
        if part.size == 0 || part.offset.checked_add(part.size).is_none_or(|end| end > m.size) {
            return Err(INVALID_VALUE);
        }
        let first = part.offset / 4096 * 4096;
        let length = (part.offset + part.size - first).next_multiple_of(4096);
        let mapping = arena::map_file(m.fd, first, length)?;
        let window = arena::reserve(length, arena::CHUNK)?;
        let base = window + (part.offset - first);
        st.opened.insert(base, Opened { handle: None, count: 1, mapping, window, length });
        st.ranges.add(Range {
            base,
            size: part.size,
            host: mapping + (part.offset - first),
            kind: Kind::External,
            device,
            context,
            id: 0,
            block: None,
            sync_memops: false,
            leaving: false,
            access: true,
            reached_by: Vec::new(),
        });
        put(out, base)
    }
    fn cuDestroyExternalMemory(memory: Handle) {
        let m = lock().external.remove(&memory).ok_or(INVALID_HANDLE)?;
        libc::close(m.fd);
        Ok(())
    }
}
