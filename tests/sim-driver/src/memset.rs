//! The memset functions.
use crate::abi::*;
use crate::action::Action;
use crate::state::{lock, State};
use crate::stream::wait_points;

/// A memset: elements of 1, 2 or 4 bytes, in rows.
#[derive(Clone, Debug)]
pub struct Fill {
    pub to: Ptr,
    pub pitch: u64,
    pub element: u64,
    pub value: u32,
    pub width: u64,
    pub height: u64,
}

impl Fill {
    pub fn bytes(&self) -> u64 {
        self.element * self.width * self.height
    }

    pub fn run(&self, st: &State) -> R {
        let value = self.value.to_le_bytes();
        for y in 0..self.height {
            let row = self.to + y * self.pitch;
            let mut phase = 0;
            for (at, n) in st.ranges.pieces(row, self.width * self.element)? {
                // SAFETY: a piece of live memory of that length.
                let bytes = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, n as usize) };
                if self.element == 1 {
                    bytes.fill(value[0]);
                    continue;
                }
                for b in bytes {
                    *b = value[phase];
                    phase = (phase + 1) % self.element as usize;
                }
            }
        }
        Ok(())
    }
}

impl Fill {
    /// Whether it may be done, or will be when a graph runs.
    pub fn check(&self, st: &State, in_graph: bool) -> R {
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        if !self.to.is_multiple_of(self.element)
            || (self.height > 1 && self.pitch < self.width * self.element)
        {
            return Err(INVALID_VALUE);
        }
        let span = (self.height - 1)
            .checked_mul(self.pitch)
            .and_then(|n| n.checked_add(self.width.checked_mul(self.element)?))
            .ok_or(INVALID_VALUE)?;
        if !(st.ranges.covers(self.to, span) || in_graph && st.ranges.promised(self.to, span)) {
            return Err(INVALID_VALUE);
        }
        Ok(())
    }
}

fn fill(f: Fill, stream: Option<Handle>) -> R {
    let mut st = lock();
    let key = st.stream(stream.unwrap_or(0))?;
    if f.width == 0 || f.height == 0 {
        return Ok(());
    }
    let capturing = st.streams[&key].capture.is_some();
    f.check(&st, capturing)?;
    let host = st.ranges.find(f.to).is_some_and(|r| r.on_host());
    let point = st.submit(key, Action::Fill(f))?;
    if host && stream.is_none() {
        let context = st.streams[&key].context;
        return wait_points(st, &[point]).check_context(context);
    }
    Ok(())
}

fn line(to: Ptr, element: u64, value: u32, n: usize, stream: Option<Handle>) -> R {
    fill(
        Fill {
            to,
            pitch: 0,
            element,
            value,
            width: n as u64,
            height: 1,
        },
        stream,
    )
}

fn plane(
    to: Ptr,
    pitch: usize,
    element: u64,
    value: u32,
    size: (usize, usize),
    stream: Option<Handle>,
) -> R {
    let (width, height) = (size.0 as u64, size.1 as u64);
    fill(
        Fill {
            to,
            pitch: pitch as u64,
            element,
            value,
            width,
            height,
        },
        stream,
    )
}

api! {
    fn cuMemsetD8_v2 | cuMemsetD8_v2_ptds (p: Ptr, value: u8, n: usize) {
        line(p, 1, u32::from(value), n, None)
    }
    fn cuMemsetD16_v2 | cuMemsetD16_v2_ptds (p: Ptr, value: u16, n: usize) {
        line(p, 2, u32::from(value), n, None)
    }
    fn cuMemsetD32_v2 | cuMemsetD32_v2_ptds (p: Ptr, value: u32, n: usize) {
        line(p, 4, value, n, None)
    }
    fn cuMemsetD8Async | cuMemsetD8Async_ptsz (p: Ptr, value: u8, n: usize, stream: Handle) {
        line(p, 1, u32::from(value), n, Some(stream))
    }
    fn cuMemsetD16Async | cuMemsetD16Async_ptsz (p: Ptr, value: u16, n: usize, stream: Handle) {
        line(p, 2, u32::from(value), n, Some(stream))
    }
    fn cuMemsetD32Async | cuMemsetD32Async_ptsz (p: Ptr, value: u32, n: usize, stream: Handle) {
        line(p, 4, value, n, Some(stream))
    }
    fn cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds (p: Ptr, pitch: usize, value: u8, width: usize, height: usize) {
        plane(p, pitch, 1, u32::from(value), (width, height), None)
    }
    fn cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds (p: Ptr, pitch: usize, value: u16, width: usize, height: usize) {
        plane(p, pitch, 2, u32::from(value), (width, height), None)
    }
    fn cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds (p: Ptr, pitch: usize, value: u32, width: usize, height: usize) {
        plane(p, pitch, 4, value, (width, height), None)
    }
    fn cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz (p: Ptr, pitch: usize, value: u8, width: usize, height: usize, stream: Handle) {
        plane(p, pitch, 1, u32::from(value), (width, height), Some(stream))
    }
    fn cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz (p: Ptr, pitch: usize, value: u16, width: usize, height: usize, stream: Handle) {
        plane(p, pitch, 2, u32::from(value), (width, height), Some(stream))
    }
    fn cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz (p: Ptr, pitch: usize, value: u32, width: usize, height: usize, stream: Handle) {
        plane(p, pitch, 4, value, (width, height), Some(stream))
    }
}
