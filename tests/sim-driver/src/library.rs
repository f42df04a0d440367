//! Libraries: images without a context, and their kernels.
use crate::abi::*;
use crate::kernel::KERNELS;
use crate::module::{function_attribute, parameter, set_function_attribute, text};
use crate::state::{lock, State};
use std::collections::HashMap;
use std::ffi::{c_char, c_void};

#[derive(Default)]
pub struct Library {
    /// The module it became in each context that used it.
    modules: HashMap<Handle, Handle>,
}

impl State {
    pub fn library_module(&mut self, library: Handle, context: Handle) -> R<Handle> {
        let known = self
            .libraries
            .get(&library)
            .ok_or(INVALID_HANDLE)?
            .modules
            .get(&context);
        if let Some(&m) = known.filter(|m| self.modules.contains_key(m)) {
            return Ok(m);
        }
        let m = self.load_module(context)?;
        if let Some(l) = self.libraries.get_mut(&library) {
            l.modules.insert(context, m);
        }
        Ok(m)
    }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn load(out: *mut Handle, code: *const c_void) -> R {
    if code.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut st = lock();
    let h = st.handle();
    // SAFETY: passed on.
    unsafe { put(out, h)? };
    st.libraries.insert(h, Library::default());
    Ok(())
}

api! {
    fn cuLibraryLoadData(out: *mut Handle, code: *const c_void, jit: *const i32, jit_values: *const *const c_void, jit_count: u32, options: *const i32, values: *const *const c_void, count: u32) {
        load(out, code)
    }
    fn cuLibraryLoadFromFile(out: *mut Handle, file: *const c_char, jit: *const i32, jit_values: *const *const c_void, jit_count: u32, options: *const i32, values: *const *const c_void, count: u32) {
        if !std::path::Path::new(&text(file)?).exists() {
            return Err(301);
        }
        load(out, file.cast())
    }
    fn cuLibraryUnload(library: Handle) {
        let mut st = lock();
        let l = st.libraries.remove(&library).ok_or(INVALID_HANDLE)?;
        let points = st.points(|_| true);
        let mut st = crate::stream::wait_points(st, &points);
        for m in l.modules.into_values() {
            let _ = st.unload_module(m);
        }
        st.functions.retain(|_, f| f.library != library);
        Ok(())
    }
    fn cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char) {
        let name = text(name)?;
        let mut st = lock();
        if !st.libraries.contains_key(&library) {
            return Err(INVALID_HANDLE);
        }
        let h = st.function(0, 0, library, &name)?;
        put(out, h)
    }
    fn cuLibraryGetKernelCount(count: *mut u32, library: Handle) {
        put(count, KERNELS.len() as u32)
    }
    fn cuLibraryEnumerateKernels(out: *mut Handle, count: u32, library: Handle) {
        let mut st = lock();
        for (i, (name, _)) in KERNELS.iter().take(count as usize).enumerate() {
            let h = st.function(0, 0, library, name)?;
            put(out.add(i), h)?;
        }
        Ok(())
    }
    fn cuLibraryGetModule(out: *mut Handle, library: Handle) {
        let mut st = lock();
        let context = st.current()?;
        let m = st.library_module(library, context)?;
        put(out, m)
    }
    fn cuLibraryGetGlobal(p: *mut Ptr, size: *mut usize, library: Handle, name: *const c_char) {
        let name = text(name)?;
        let mut st = lock();
        let context = st.current()?;
        let m = st.library_module(library, context)?;
        let (at, n) = st.global(m, &name)?;
        put_opt(p, at);
        put_opt(size, n as usize);
        Ok(())
    }
    fn cuLibraryGetManaged(p: *mut Ptr, size: *mut usize, library: Handle, name: *const c_char) {
        Err(NOT_FOUND)
    }
    fn cuLibraryGetUnifiedFunction(p: *mut *mut c_void, library: Handle, name: *const c_char) {
        Err(NOT_FOUND)
    }
    fn cuKernelGetFunction(out: *mut Handle, kernel: Handle) {
        let mut st = lock();
        let context = st.current()?;
        let f = st.functions.get(&kernel).filter(|f| f.library != 0).ok_or(INVALID_HANDLE)?;
        let (library, name) = (f.library, f.name.to_string_lossy().into_owned());
        let module = st.library_module(library, context)?;
        let h = st.function(context, module, 0, &name)?;
        put(out, h)
    }
    fn cuKernelGetLibrary(out: *mut Handle, kernel: Handle) {
        let st = lock();
        put(out, st.functions.get(&kernel).ok_or(INVALID_HANDLE)?.library)
    }
    fn cuKernelGetName(out: *mut *const c_char, kernel: Handle) {
        let st = lock();
        put(out, st.functions.get(&kernel).ok_or(INVALID_HANDLE)?.name.as_ptr())
    }
    fn cuKernelGetAttribute(out: *mut i32, which: i32, kernel: Handle, device: i32) {
        put(out, function_attribute(kernel, which)?)
    }
    fn cuKernelSetAttribute(which: i32, value: i32, kernel: Handle, device: i32) {
        set_function_attribute(kernel, which, value)
    }
    fn cuKernelSetCacheConfig(kernel: Handle, config: i32, device: i32) {
        Ok(())
    }
    fn cuKernelGetParamInfo(kernel: Handle, index: usize, offset: *mut usize, size: *mut usize) {
        parameter(kernel, index, offset, size)
    }
}
