//! Modules: any image loads, any function name is found.
use crate::abi::*;
use crate::kernel::{KERNELS, VRES, VSLOTS};
use crate::ranges::Kind;
use crate::state::{lock, State};
use std::ffi::{c_char, c_void, CStr, CString};

/// Variables that every module has.
const GLOBALS: &[(&str, u64)] = &[("g_vres", VRES * VSLOTS), ("g_scratch", 4096)];

pub struct Module {
    pub context: Handle,
    globals: Vec<(&'static str, Ptr, u64)>,
}

pub struct Function {
    pub name: CString,
    pub context: Handle,
    pub module: Handle,
    /// The library of a context-free kernel, else 0.
    pub library: Handle,
    pub attributes: [i32; 16],
}

/// # Safety
/// `p` is null or a C string.
pub unsafe fn text(p: *const c_char) -> R<String> {
    if p.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, a C string by contract.
    let s = unsafe { CStr::from_ptr(p) }
        .to_str()
        .map_err(|_| NOT_FOUND)?;
    if s.is_empty() {
        Err(NOT_FOUND)
    } else {
        Ok(s.to_string())
    }
}

impl State {
    pub fn load_module(&mut self, context: Handle) -> R<Handle> {
        let device = self.contexts.get(&context).ok_or(INVALID_CONTEXT)?.device;
        let mut globals = Vec::new();
        for &(name, size) in GLOBALS {
            globals.push((
                name,
                self.alloc_for(context, device, size, Kind::Module)?,
                size,
            ));
        }
        let h = self.handle();
        self.modules.insert(h, Module { context, globals });
        Ok(h)
    }

    pub fn unload_module(&mut self, h: Handle) -> R {
        let m = self.modules.remove(&h).ok_or(INVALID_HANDLE)?;
        for (_, p, _) in m.globals {
            self.release(p);
        }
        self.functions.retain(|_, f| f.module != h);
        Ok(())
    }

    pub fn global(&self, module: Handle, name: &str) -> R<(Ptr, u64)> {
        let m = self.modules.get(&module).ok_or(INVALID_HANDLE)?;
        m.globals
            .iter()
            .find(|g| g.0 == name)
            .map(|g| (g.1, g.2))
            .ok_or(NOT_FOUND)
    }

    /// The function of this name, the same handle each time.
    pub fn function(
        &mut self,
        context: Handle,
        module: Handle,
        library: Handle,
        name: &str,
    ) -> R<Handle> {
        let wanted = CString::new(name).map_err(|_| NOT_FOUND)?;
        let known = self
            .functions
            .iter()
            .find(|(_, f)| f.module == module && f.library == library && f.name == wanted);
        if let Some((&h, _)) = known {
            return Ok(h);
        }
        let h = self.handle();
        let attributes = [1024, 0, 0, 0, 32, 90, 90, 0, 0, -1, 0, 0, 0, 0, 0, 0];
        self.functions.insert(
            h,
            Function {
                name: wanted,
                context,
                module,
                library,
                attributes,
            },
        );
        Ok(h)
    }

    /// A kernel's name and the `g_vres` it uses in this context.
    pub fn kernel(&mut self, f: Handle, context: Handle) -> R<(String, Ptr)> {
        let (name, mut module, library) = {
            let f = self.functions.get(&f).ok_or(INVALID_HANDLE)?;
            (f.name.to_string_lossy().into_owned(), f.module, f.library)
        };
        if library != 0 {
            module = self.library_module(library, context)?;
        }
        let results = self.global(module, "g_vres")?.0;
        Ok((name, results))
    }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn load(out: *mut Handle, image: *const c_void) -> R {
    let mut st = lock();
    let context = st.current()?;
    if image.is_null() || out.is_null() {
        return Err(INVALID_VALUE);
    }
    let h = st.load_module(context)?;
    // SAFETY: passed on.
    unsafe { put(out, h) }
}

pub fn function_attribute(f: Handle, which: i32) -> R<i32> {
    let st = lock();
    let f = st.functions.get(&f).ok_or(INVALID_HANDLE)?;
    usize::try_from(which)
        .ok()
        .and_then(|i| f.attributes.get(i))
        .copied()
        .ok_or(INVALID_VALUE)
}

pub fn set_function_attribute(f: Handle, which: i32, value: i32) -> R {
    let mut st = lock();
    let f = st.functions.get_mut(&f).ok_or(INVALID_HANDLE)?;
    let slot = usize::try_from(which)
        .ok()
        .and_then(|i| f.attributes.get_mut(i));
    *slot.ok_or(INVALID_VALUE)? = value;
    Ok(())
}

/// # Safety
/// The out-pointers are null or valid for writes.
pub unsafe fn parameter(f: Handle, index: usize, offset: *mut usize, size: *mut usize) -> R {
    let st = lock();
    let f = st.functions.get(&f).ok_or(INVALID_HANDLE)?;
    let name = f.name.to_string_lossy();
    let sizes = KERNELS
        .iter()
        .find(|(n, _)| *n == name)
        .map_or(&[][..], |k| k.1);
    let mut at = 0usize;
    for (i, &n) in sizes.iter().enumerate() {
        at = at.next_multiple_of(n);
        if i == index {
            // SAFETY: passed on.
            unsafe {
                put_opt(size, n);
                return put(offset, at);
            }
        }
        at += n;
    }
    Err(INVALID_VALUE)
}

api! {
    fn cuModuleLoad(out: *mut Handle, file: *const c_char) {
        let name = text(file)?;
        if !std::path::Path::new(&name).exists() {
            return Err(301);
        }
        load(out, file.cast())
    }
    fn cuModuleLoadData(out: *mut Handle, image: *const c_void) {
        load(out, image)
    }
    fn cuModuleLoadDataEx(out: *mut Handle, image: *const c_void, count: u32, options: *const i32, values: *const *const c_void) {
        load(out, image)
    }
    fn cuModuleLoadFatBinary(out: *mut Handle, image: *const c_void) {
        load(out, image)
    }
    fn cuModuleUnload(module: Handle) {
        let st = lock();
        // Natively the module's work has ended before its memory goes.
        let context = st.modules.get(&module).ok_or(INVALID_HANDLE)?.context;
        let points = st.points(|s| s.context == context);
        let mut st = crate::stream::wait_points(st, &points);
        st.unload_module(module)
    }
    fn cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char) {
        let name = text(name)?;
        let mut st = lock();
        let context = st.modules.get(&module).ok_or(INVALID_HANDLE)?.context;
        let h = st.function(context, module, 0, &name)?;
        put(out, h)
    }
    fn cuModuleGetFunctionCount(count: *mut u32, module: Handle) {
        put(count, KERNELS.len() as u32)
    }
    fn cuModuleEnumerateFunctions(out: *mut Handle, count: u32, module: Handle) {
        let mut st = lock();
        let context = st.modules.get(&module).ok_or(INVALID_HANDLE)?.context;
        for (i, (name, _)) in KERNELS.iter().take(count as usize).enumerate() {
            let h = st.function(context, module, 0, name)?;
            put(out.add(i), h)?;
        }
        Ok(())
    }
    fn cuModuleGetGlobal_v2(p: *mut Ptr, size: *mut usize, module: Handle, name: *const c_char) {
        let name = text(name)?;
        let (at, n) = lock().global(module, &name)?;
        put_opt(p, at);
        put_opt(size, n as usize);
        Ok(())
    }
    fn cuModuleGetLoadingMode(mode: *mut i32) {
        put(mode, 2)
    }
    fn cuFuncGetAttribute(out: *mut i32, which: i32, f: Handle) {
        put(out, function_attribute(f, which)?)
    }
    fn cuFuncSetAttribute(f: Handle, which: i32, value: i32) {
        set_function_attribute(f, which, value)
    }
    fn cuFuncSetCacheConfig(f: Handle, config: i32) {
        Ok(())
    }
    fn cuFuncSetSharedMemConfig(f: Handle, config: i32) {
        Ok(())
    }
    fn cuFuncGetModule(out: *mut Handle, f: Handle) {
        let st = lock();
        put(out, st.functions.get(&f).ok_or(INVALID_HANDLE)?.module)
    }
    fn cuFuncGetName(out: *mut *const c_char, f: Handle) {
        let st = lock();
        put(out, st.functions.get(&f).ok_or(INVALID_HANDLE)?.name.as_ptr())
    }
    fn cuFuncGetParamInfo(f: Handle, index: usize, offset: *mut usize, size: *mut usize) {
        parameter(f, index, offset, size)
    }
    fn cuFuncIsLoaded(state: *mut i32, f: Handle) {
        put(state, 1)
    }
    fn cuFuncLoad(f: Handle) {
        Ok(())
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(out: *mut i32, f: Handle, block: i32, shared: usize) {
        put(out, (2048 / block.max(1)).clamp(1, 32))
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: *mut i32, f: Handle, block: i32, shared: usize, flags: u32) {
        put(out, (2048 / block.max(1)).clamp(1, 32))
    }
    fn cuOccupancyMaxPotentialBlockSize(grid: *mut i32, block: *mut i32, f: Handle, size_of: usize, shared: usize, limit: i32) {
        put(grid, 264)?;
        put(block, if limit > 0 { limit.min(1024) } else { 1024 })
    }
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(grid: *mut i32, block: *mut i32, f: Handle, size_of: usize, shared: usize, limit: i32, flags: u32) {
        put(grid, 264)?;
        put(block, if limit > 0 { limit.min(1024) } else { 1024 })
    }
    fn cuOccupancyAvailableDynamicSMemPerBlock(out: *mut usize, f: Handle, blocks: i32, block: i32) {
        put(out, 49_152)
    }
}
