//! The objects that are loaded in this namespace, one after the other in the order of their loading.

use super::object::Object;
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

/// Calls `visitor` with each loaded object until it breaks. The dynamic linker holds its list still meanwhile, so
/// `visitor` may read the objects, and must neither load nor unload nor panic.
pub fn visit<F: FnMut(&Object) -> ControlFlow<()>>(mut visitor: F) {
    // SAFETY: `step::<F>` gets the pointer to `visitor` back as it is passed here, and `visitor` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(step::<F>), (&raw mut visitor).cast()) };
}

/// The loaded object that holds `address`, unless it is of no object or of another namespace.
pub fn holding(address: usize) -> Option<Object> {
    let mut found = None;
    visit(|object| {
        if object.holds(address) {
            found = Some(*object);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found
}

/// How many objects were ever unloaded.
pub fn unloaded_count() -> u64 {
    let mut count = 0u64;
    // SAFETY: `read_count` gets the pointer to `count` back, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(read_count), (&raw mut count).cast()) };
    count
}

unsafe extern "C" fn step<F: FnMut(&Object) -> ControlFlow<()>>(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    visitor: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker passes a valid description, and `visit` passes its own visitor.
    let (object, visitor) = unsafe { (Object::new(&*info), &mut *visitor.cast::<F>()) };
    c_int::from(object.is_some_and(|object| visitor(&object).is_break()))
}

unsafe extern "C" fn read_count(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    out: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker passes a valid description, and `unloaded_count` passes its own variable.
    unsafe { *out.cast::<u64>() = (*info).dlpi_subs };
    1
}
