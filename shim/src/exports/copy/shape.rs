//! Rectangles and boxes of memory, and whether they are the program's to touch.

use super::{is_inside, Array, Device, Host};

/// A rectangle of rows. The last row need not be a whole pitch.
#[derive(Clone, Copy)]
struct Rows {
    /// Where the description starts. The driver wants this in the block, too (`g15_bounds_drv.drv-rectangles`).
    base: Device,
    /// Of the first row.
    offset_bytes: usize,
    pitch_bytes: usize,
    width_bytes: usize,
    count: usize,
}

impl Rows {
    fn is_inside(self) -> bool {
        if self.width_bytes == 0 || self.count == 0 {
            return true;
        }
        let pitch = self.pitch_bytes.max(self.width_bytes);
        let size = (self.count - 1)
            .checked_mul(pitch)
            .and_then(|rows| rows.checked_add(self.width_bytes))
            .and_then(|rows| rows.checked_add(self.offset_bytes));
        // A size past all memory is the driver's to refuse, as long as it starts in a block.
        is_inside(self.base, size.unwrap_or(usize::MAX))
    }
}

/// Whether `count` rows from `base` on are the program's to touch.
pub fn rows_are_inside(base: Device, pitch_bytes: usize, width_bytes: usize, count: usize) -> bool {
    Rows {
        base,
        offset_bytes: 0,
        pitch_bytes,
        width_bytes,
        count,
    }
    .is_inside()
}

const MEMORY_DEVICE: u32 = 2;
const MEMORY_UNIFIED: u32 = 4;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub struct Copy2d {
    from: Side2d,
    to: Side2d,
    width_bytes: usize,
    height: usize,
}

#[repr(C)]
struct Side2d {
    x_bytes: usize,
    y: usize,
    kind: u32,
    host: Host,
    device: Device,
    array: Array,
    pitch_bytes: usize,
}

impl Copy2d {
    pub fn is_inside(&self) -> bool {
        [&self.from, &self.to].iter().all(|side| {
            side.kind != MEMORY_DEVICE && side.kind != MEMORY_UNIFIED || {
                let pitch_bytes = side.pitch_bytes.max(self.width_bytes);
                let offset = side
                    .y
                    .saturating_mul(pitch_bytes)
                    .saturating_add(side.x_bytes);
                Rows {
                    base: side.device,
                    offset_bytes: offset,
                    pitch_bytes,
                    width_bytes: self.width_bytes,
                    count: self.height,
                }
                .is_inside()
            }
        })
    }
}

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`, which has a context in the reserved place.
#[repr(C)]
pub struct Copy3d {
    from: Side3d,
    to: Side3d,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

#[repr(C)]
struct Side3d {
    x_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    kind: u32,
    host: Host,
    device: Device,
    array: Array,
    reserved_or_context: Host,
    pitch_bytes: usize,
    height: usize,
}

impl Copy3d {
    pub fn is_inside(&self) -> bool {
        [&self.from, &self.to].iter().all(|side| {
            side.kind != MEMORY_DEVICE && side.kind != MEMORY_UNIFIED || {
                if self.width_bytes == 0 || self.height == 0 || self.depth == 0 {
                    return true;
                }
                let pitch_bytes = side.pitch_bytes.max(self.width_bytes);
                let slice_rows = side.height.max(self.height);
                let rows_before = side.z.saturating_mul(slice_rows).saturating_add(side.y);
                let offset = rows_before
                    .saturating_mul(pitch_bytes)
                    .saturating_add(side.x_bytes);
                // The rows from the first of the first slice to the last of the last.
                let count = (self.depth - 1)
                    .saturating_mul(slice_rows)
                    .saturating_add(self.height);
                Rows {
                    base: side.device,
                    offset_bytes: offset,
                    pitch_bytes,
                    width_bytes: self.width_bytes,
                    count,
                }
                .is_inside()
            }
        })
    }
}
