//! The driver functions that the shim itself calls, found once per process. They are the driver's own, never the hooks.

use crate::abi::*;
use crate::real::driver as real;
use once_cell::sync::OnceCell;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};

macro_rules! functions {
    ($( $(#[$note:meta])* $need:ident $field:ident = $symbol:literal ( $($type:ty),* ); )*) => {
        /// One pointer for each driver function that the shim calls by itself.
        pub struct Driver { $( $(#[$note])* #[doc = concat!("`", stringify!($symbol), "`.")] pub $field: functions!(@type $need $($type),*), )*
            /// Events of whole contexts, if the driver has them.
            pub context_events: Option<ContextEvents>,
        }

        impl Driver {
            /// Finds all of them; `None` if one of the required is missing.
            fn load() -> Option<Driver> {
                let mut driver = Driver { $( $field: functions!(@load $need $symbol, $($type),*), )* context_events: None };
                driver.context_events = driver
                    .ctx_record_event
                    .zip(driver.ctx_wait_event)
                    .filter(|_| driver.has(CONTEXT_EVENTS_SINCE))
                    .map(|(record, wait)| ContextEvents { record, wait });
                Some(driver)
            }
        }
    };
    (@type required $($type:ty),*) => { unsafe extern "C" fn($($type),*) -> Status };
    (@type optional $($type:ty),*) => { Option<unsafe extern "C" fn($($type),*) -> Status> };
    (@load required $symbol:literal, $($type:ty),*) => { functions!(@load optional $symbol, $($type),*)? };
    (@load optional $symbol:literal, $($type:ty),*) => {{
        let address = real::symbol($symbol);
        // SAFETY: the driver exports `$symbol` with this signature (cuda.h); a null address becomes `None`.
        unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($type),*) -> Status>>(address) }
    }};
}

/// Events that cover all streams of a context.
pub struct ContextEvents {
    /// `cuCtxRecordEvent`.
    pub record: unsafe extern "C" fn(CUcontext, CUevent) -> Status,
    /// `cuCtxWaitEvent`.
    pub wait: unsafe extern "C" fn(CUcontext, CUevent) -> Status,
}

functions! {
    required ctx_get_current = c"cuCtxGetCurrent"(*mut CUcontext);
    required ctx_push = c"cuCtxPushCurrent_v2"(CUcontext);
    required ctx_pop = c"cuCtxPopCurrent_v2"(*mut CUcontext);
    required ctx_get_device = c"cuCtxGetDevice"(*mut CUdevice);
    required ctx_synchronize = c"cuCtxSynchronize"();
    required device_get_name = c"cuDeviceGetName"(*mut c_char, c_int, CUdevice);
    required device_total_mem = c"cuDeviceTotalMem_v2"(*mut usize, CUdevice);
    required driver_get_version = c"cuDriverGetVersion"(*mut c_int);
    required event_create = c"cuEventCreate"(*mut CUevent, c_uint);
    required event_record = c"cuEventRecord"(CUevent, CUstream);
    required event_synchronize = c"cuEventSynchronize"(CUevent);
    required mem_alloc = c"cuMemAlloc_v2"(*mut CUdeviceptr, usize);
    required mem_free = c"cuMemFree_v2"(CUdeviceptr);
    required mem_get_info = c"cuMemGetInfo_v2"(*mut usize, *mut usize);
    required memset_d8_async = c"cuMemsetD8Async"(CUdeviceptr, u8, usize, CUstream);
    required primary_retain = c"cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    required primary_release = c"cuDevicePrimaryCtxRelease_v2"(CUdevice);
    required primary_get_state = c"cuDevicePrimaryCtxGetState"(CUdevice, *mut c_uint, *mut c_int);
    required stream_create = c"cuStreamCreate"(*mut CUstream, c_uint);
    required stream_wait_event = c"cuStreamWaitEvent"(CUstream, CUevent, c_uint);
    optional event_query = c"cuEventQuery"(CUevent);
    optional device_get_uuid = c"cuDeviceGetUuid"(*mut c_void, CUdevice);
    /// Since CUDA 10.1; without it no capture can be shielded, and none can be running either.
    optional exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode"(*mut c_int);
    /// Since CUDA 7.0, `cuCtxSetFlags` since 12.1.
    optional ctx_get_flags = c"cuCtxGetFlags"(*mut c_uint);
    optional ctx_set_flags = c"cuCtxSetFlags"(c_uint);
    /// Since CUDA 12.0.
    optional ctx_get_id = c"cuCtxGetId"(CUcontext, *mut u64);
    optional mem_get_address_range = c"cuMemGetAddressRange_v2"(*mut CUdeviceptr, *mut usize, CUdeviceptr);
    optional stream_is_capturing = c"cuStreamIsCapturing"(CUstream, *mut c_int);
    /// Since CUDA 9.2.
    optional stream_get_context = c"cuStreamGetCtx"(CUstream, *mut CUcontext);
    optional device_attribute = c"cuDeviceGetAttribute"(*mut c_int, c_int, CUdevice);
    /// Since CUDA 10.2, as are those that follow; see [`Driver::mapping`].
    optional mem_address_reserve = c"cuMemAddressReserve"(*mut CUdeviceptr, usize, usize, CUdeviceptr, u64);
    optional mem_address_free = c"cuMemAddressFree"(CUdeviceptr, usize);
    optional mem_create = c"cuMemCreate"(*mut u64, usize, *const FullProperties, u64);
    optional mem_map = c"cuMemMap"(CUdeviceptr, usize, usize, u64, u64);
    optional mem_unmap = c"cuMemUnmap"(CUdeviceptr, usize);
    optional mem_set_access = c"cuMemSetAccess"(CUdeviceptr, usize, *const AccessDescription, usize);
    optional mem_release = c"cuMemRelease"(u64);
    /// Since CUDA 10.2, as is the next; see [`Driver::sharing`].
    optional mem_export = c"cuMemExportToShareableHandle"(*mut c_void, u64, c_int, u64);
    optional mem_import = c"cuMemImportFromShareableHandle"(*mut u64, *mut c_void, c_int);
    /// Since CUDA 12.5; see [`Driver::context_events`].
    optional ctx_record_event = c"cuCtxRecordEvent"(CUcontext, CUevent);
    /// Since CUDA 12.5.
    optional ctx_wait_event = c"cuCtxWaitEvent"(CUcontext, CUevent);
}

/// The functions that give physical memory to other processes.
pub struct Sharing {
    /// `cuMemExportToShareableHandle`.
    pub export: unsafe extern "C" fn(*mut c_void, u64, c_int, u64) -> Status,
    /// `cuMemImportFromShareableHandle`.
    pub import: unsafe extern "C" fn(*mut u64, *mut c_void, c_int) -> Status,
}

/// The functions that map memory.
pub struct Mapping {
    /// `cuDeviceGetAttribute`.
    pub device_attribute: unsafe extern "C" fn(*mut c_int, c_int, CUdevice) -> Status,
    /// `cuMemAddressReserve`.
    pub address_reserve:
        unsafe extern "C" fn(*mut CUdeviceptr, usize, usize, CUdeviceptr, u64) -> Status,
    /// `cuMemAddressFree`.
    pub address_free: unsafe extern "C" fn(CUdeviceptr, usize) -> Status,
    /// `cuMemGetInfo_v2`.
    pub get_info: unsafe extern "C" fn(*mut usize, *mut usize) -> Status,
    /// `cuMemCreate`.
    pub create: unsafe extern "C" fn(*mut u64, usize, *const FullProperties, u64) -> Status,
    /// `cuMemMap`.
    pub map: unsafe extern "C" fn(CUdeviceptr, usize, usize, u64, u64) -> Status,
    /// `cuMemUnmap`.
    pub unmap: unsafe extern "C" fn(CUdeviceptr, usize) -> Status,
    /// `cuMemSetAccess`.
    pub set_access:
        unsafe extern "C" fn(CUdeviceptr, usize, *const AccessDescription, usize) -> Status,
    /// `cuMemRelease`.
    pub release: unsafe extern "C" fn(u64) -> Status,
}

/// The version of CUDA in which context-wide events came. A library may export their names and serve a driver that is
/// older (they answer NOT_SUPPORTED then), so the names alone say little.
const CONTEXT_EVENTS_SINCE: c_int = 12050;

impl Driver {
    /// The functions that map memory, if the driver has them all.
    pub fn mapping(&self) -> Option<Mapping> {
        Some(Mapping {
            device_attribute: self.device_attribute?,
            address_reserve: self.mem_address_reserve?,
            address_free: self.mem_address_free?,
            get_info: self.mem_get_info,
            create: self.mem_create?,
            map: self.mem_map?,
            unmap: self.mem_unmap?,
            set_access: self.mem_set_access?,
            release: self.mem_release?,
        })
    }

    /// The functions that share physical memory, if the driver has them.
    pub fn sharing(&self) -> Option<Sharing> {
        Some(Sharing {
            export: self.mem_export?,
            import: self.mem_import?,
        })
    }

    /// Whether a context has ended, which the driver has to say twice.
    pub fn has_ended(&self, context: CUcontext) -> bool {
        let gone = |code| matches!(code, INVALID_CONTEXT | CONTEXT_IS_DESTROYED);
        (0..2).all(|_| Current::enter(self, context).err().is_some_and(gone))
    }

    /// Whether the driver is of this version of CUDA or newer.
    fn has(&self, version: c_int) -> bool {
        let mut own = 0;
        // SAFETY: the out-parameter is ours; the call needs neither cuInit nor a context.
        unsafe { (self.driver_get_version)(&mut own) == SUCCESS && own >= version }
    }
}

static DRIVER: OnceCell<Option<Driver>> = OnceCell::new();

/// The driver of this process. `None` while none is loaded, and for good if it lacks a function that the shim needs.
pub fn get() -> Option<&'static Driver> {
    if let Some(driver) = DRIVER.get() {
        return driver.as_ref();
    }
    if !real::is_loaded() {
        return None;
    }
    DRIVER.get_or_init(Driver::load).as_ref()
}

/// Makes a context current for as long as it lives, if another is.
///
/// # Decision: what is undone is undone for certain
/// The program must find its current context and its thread's capture mode as it left them. A call that undoes one of
/// these is made again if the driver refuses it, and nothing is undone that was not done.
pub struct Current<'a> {
    driver: &'a Driver,
    /// What was pushed; null if nothing was.
    pushed: CUcontext,
}

/// Times that a call is made before its failure is taken for an answer.
const ATTEMPTS: u32 = 4;

/// Makes `call` until it succeeds, a few times at most.
pub fn insistently(mut call: impl FnMut() -> Status) -> Status {
    let mut code = call();
    for _ in 1..ATTEMPTS {
        if code == SUCCESS {
            break;
        }
        code = call();
    }
    code
}

impl<'a> Current<'a> {
    /// Enters `context`.
    pub fn enter(driver: &'a Driver, context: CUcontext) -> Result<Self, Status> {
        let mut now: CUcontext = std::ptr::null_mut();
        // SAFETY: the out-parameter is ours and lives through the call.
        let pushed = match unsafe { (driver.ctx_get_current)(&mut now) } {
            SUCCESS if now == context => std::ptr::null_mut(),
            _ => {
                // SAFETY: `context` is a live context of the registry; the driver checks it.
                match unsafe { (driver.ctx_push)(context) } {
                    SUCCESS => context,
                    code => return Err(code),
                }
            }
        };
        Ok(Current { driver, pushed })
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.pushed.is_null() {
            return;
        }
        insistently(|| {
            let (mut popped, mut now): (CUcontext, CUcontext) =
                (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: pops what `enter` pushed on this very thread. The driver documents that a pop may answer the error
            // of earlier work, so whether it is gone is asked for.
            unsafe {
                match (self.driver.ctx_pop)(&mut popped) {
                    SUCCESS => SUCCESS,
                    _ if (self.driver.ctx_get_current)(&mut now) == SUCCESS
                        && now != self.pushed =>
                    {
                        SUCCESS
                    }
                    code => code,
                }
            }
        });
    }
}

/// Keeps the driver calls of a scope from touching a capture of the program (facts: "shielded" calls).
pub struct Shield<'a> {
    driver: &'a Driver,
    before: c_int,
    raised: bool,
}

const CAPTURE_MODE_RELAXED: c_int = 2;

impl<'a> Shield<'a> {
    /// Raises the shield on this thread.
    pub fn raise(driver: &'a Driver) -> Self {
        let mut shield = Shield {
            driver,
            before: CAPTURE_MODE_RELAXED,
            raised: false,
        };
        shield.raised = shield.swap();
        shield
    }

    fn swap(&mut self) -> bool {
        match self.driver.exchange_capture_mode {
            // SAFETY: exchanges this thread's mode with the field, which lives through the call.
            Some(exchange) => insistently(|| unsafe { exchange(&mut self.before) }) == SUCCESS,
            None => false,
        }
    }
}

impl Drop for Shield<'_> {
    fn drop(&mut self) {
        if self.raised {
            self.swap();
        }
    }
}

/// A C string that the driver filled, as text.
pub fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes)
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default()
}
