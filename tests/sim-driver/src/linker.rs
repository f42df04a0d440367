//! The JIT linker: whatever goes in, an image comes out, and any image loads.
use crate::abi::*;
use crate::state::lock;
use std::ffi::{c_char, c_void};

static IMAGE: [u8; 16] = *b"simulated image\0";

api! {
    fn cuLinkCreate_v2 | cuLinkCreate (count: u32, options: *const i32, values: *const *const c_void, out: *mut Handle) {
        let mut st = lock();
        st.current()?;
        let h = st.handle();
        put(out, h)
    }
    fn cuLinkAddData_v2 | cuLinkAddData (state: Handle, kind: i32, data: *const c_void, size: usize, name: *const c_char, count: u32, options: *const i32, values: *const *const c_void) {
        if state == 0 || data.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
    }
    fn cuLinkAddFile_v2 | cuLinkAddFile (state: Handle, kind: i32, path: *const c_char, count: u32, options: *const i32, values: *const *const c_void) {
        if state == 0 || path.is_null() { Err(INVALID_VALUE) } else { Ok(()) }
    }
    fn cuLinkComplete(state: Handle, image: *mut *const u8, size: *mut usize) {
        put(image, IMAGE.as_ptr())?;
        put_opt(size, IMAGE.len());
        Ok(())
    }
    fn cuLinkDestroy(state: Handle) {
        Ok(())
    }
}
