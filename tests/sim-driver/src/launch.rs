//! Launching kernels.
use crate::abi::*;
use crate::action::Action;
use crate::kernel::{Launch, KERNELS};
use crate::state::{lock, State};
use std::ffi::c_void;

/// The arguments of a launch, from an array of pointers or a packed buffer.
///
/// # Safety
/// The pointers are what `cuLaunchKernel` asks for.
pub unsafe fn arguments(
    name: &str,
    pointers: *const *const c_void,
    extra: *const *const c_void,
) -> Vec<u64> {
    let Some((_, sizes)) = KERNELS.iter().find(|(n, _)| *n == name) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let mut packed: *const u8 = std::ptr::null();
    if pointers.is_null() && !extra.is_null() {
        // Pairs of (tag, value); 1 is the buffer, 0 the end.
        for i in 0..4 {
            // SAFETY: the list ends with a 0 tag, by contract.
            let tag = unsafe { *extra.add(2 * i) } as usize;
            if tag == 0 {
                break;
            }
            if tag == 1 {
                // SAFETY: every tag has a value.
                packed = unsafe { *extra.add(2 * i + 1) }.cast();
            }
        }
    }
    let mut offset = 0usize;
    for (i, &size) in sizes.iter().enumerate() {
        // SAFETY: as many parameters as the kernel has, by contract.
        let at: *const u8 = unsafe {
            if !pointers.is_null() {
                (*pointers.add(i)).cast()
            } else if !packed.is_null() {
                offset = offset.next_multiple_of(size);
                let at = packed.add(offset);
                offset += size;
                at
            } else {
                return out;
            }
        };
        // SAFETY: each points to a value of the parameter's size.
        out.push(unsafe {
            if size == 4 {
                u64::from(at.cast::<u32>().read_unaligned())
            } else {
                at.cast::<u64>().read_unaligned()
            }
        });
    }
    out
}

impl State {
    /// # Safety
    /// As for [`arguments`].
    pub unsafe fn launch(
        &mut self,
        f: Handle,
        context: Handle,
        pointers: *const *const c_void,
        extra: *const *const c_void,
    ) -> R<Launch> {
        let (name, results) = self.kernel(f, context)?;
        // SAFETY: passed on.
        let arguments = unsafe { arguments(&name, pointers, extra) };
        Ok(Launch {
            name,
            arguments,
            results,
            context,
        })
    }
}

/// # Safety
/// As for [`arguments`].
unsafe fn launch(
    f: Handle,
    shape: [u32; 6],
    stream: Handle,
    pointers: *const *const c_void,
    extra: *const *const c_void,
) -> R {
    let mut st = lock();
    let key = st.stream(stream)?;
    let threads = shape[3..].iter().try_fold(1u32, |a, b| a.checked_mul(*b));
    if shape.contains(&0) || threads.is_none_or(|n| n > 1024) {
        return Err(INVALID_VALUE);
    }
    let context = st.streams[&key].context;
    // SAFETY: passed on.
    let launch = unsafe { st.launch(f, context, pointers, extra)? };
    st.submit(key, Action::Kernel(launch)).map(|_| ())
}

#[repr(C)]
#[derive(Debug)]
pub struct LaunchConfig {
    shape: [u32; 6],
    shared: u32,
    stream: Handle,
    attributes: *const c_void,
    count: u32,
}

api! {
    fn cuLaunchKernel | cuLaunchKernel_ptsz (f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, pointers: *const *const c_void, extra: *const *const c_void) {
        launch(f, [gx, gy, gz, bx, by, bz], stream, pointers, extra)
    }
    fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz (config: *const LaunchConfig, f: Handle, pointers: *const *const c_void, extra: *const *const c_void) {
        if config.is_null() {
            return Err(INVALID_VALUE);
        }
        launch(f, (*config).shape, (*config).stream, pointers, extra)
    }
    fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz (f: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle, pointers: *const *const c_void) {
        launch(f, [gx, gy, gz, bx, by, bz], stream, pointers, std::ptr::null())
    }
}
