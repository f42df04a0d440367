//! The objects that are loaded in this namespace, one after the other in the order of their loading.

use super::object::Object;
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

/// How often objects have come and gone. Two equal values: nothing was loaded or unloaded in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Generation {
    /// Objects ever loaded.
    pub added: u64,
    /// Objects ever unloaded.
    pub removed: u64,
}

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

/// Counts of loading and unloading so far.
pub fn generation() -> Generation {
    let mut generation = Generation::default();
    // SAFETY: `read_generation` gets the pointer to `generation` back, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(read_generation), (&raw mut generation).cast()) };
    generation
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

unsafe extern "C" fn read_generation(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    out: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker passes a valid description, and `generation` passes its own variable.
    unsafe {
        *out.cast::<Generation>() = Generation {
            added: (*info).dlpi_adds,
            removed: (*info).dlpi_subs,
        };
    }
    1
}
