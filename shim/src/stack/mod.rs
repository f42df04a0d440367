//! Who called: the return addresses of this thread's stack, and the modules they lie in.

mod recent;

use crate::real::loaded;
use cushion::ledger::{LoadedModule, SiteId, Sites};
use recent::Places;
use std::ffi::{c_int, c_void, CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Frames kept of a stack: enough to tell call sites of real programs apart.
const DEPTH: usize = 24;

/// The site of the code that called the shim.
#[inline(never)]
pub fn site(sites: &Sites) -> SiteId {
    let marker = 0u8;
    let here = (&raw const marker) as usize;
    let unloaded = loaded::unloaded_count();
    if let Some(site) = recent::find(here, unloaded) {
        return site;
    }
    let mut stack = Stack {
        frames: [0; DEPTH],
        count: 0,
        own: own_range(),
        places: Places::new(),
    };
    // SAFETY: `step` gets the pointer given here, which lives through the call, and never unwinds.
    unsafe { _Unwind_Backtrace(step, (&raw mut stack).cast()) };
    // The same addresses mean other code once something was unloaded.
    static UNLOADED: AtomicU64 = AtomicU64::new(0);
    if UNLOADED.swap(unloaded, Ordering::AcqRel) != unloaded {
        sites.set_modules(modules());
    }
    let site = sites.intern(&stack.frames[..stack.count], modules);
    recent::remember(here, unloaded, &stack.places, site);
    site
}

struct Stack {
    frames: [u64; DEPTH],
    count: usize,
    own: (u64, u64),
    places: Places,
}

extern "C" {
    fn _Unwind_Backtrace(
        step: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetCFA(frame: *mut c_void) -> usize;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

const GO_ON: c_int = 0;
const END: c_int = 5;

unsafe extern "C" fn step(frame: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the `Stack` of `site`, which nobody else uses meanwhile.
    let stack = unsafe { &mut *argument.cast::<Stack>() };
    // SAFETY: `frame` is the unwinder's own.
    let address = unsafe { _Unwind_GetIP(frame) } as u64;
    if address == 0 {
        return END;
    }
    if stack.count == 0 && (stack.own.0..stack.own.1).contains(&address) {
        return GO_ON;
    }
    // What the unwinder gives as the frame's is where the stack pointer was before the call: just above the return address.
    // SAFETY: `frame` is the unwinder's own.
    let place = unsafe { _Unwind_GetCFA(frame) }.wrapping_sub(size_of::<u64>());
    stack.places.add(place, address);
    stack.frames[stack.count] = address;
    stack.count += 1;
    if stack.count == DEPTH {
        END
    } else {
        GO_ON
    }
}

/// Where the shim's own code lies.
fn own_range() -> (u64, u64) {
    use std::sync::OnceLock;
    static RANGE: OnceLock<(u64, u64)> = OnceLock::new();
    *RANGE.get_or_init(|| {
        let here = own_range as fn() -> (u64, u64) as usize as u64;
        let own = modules()
            .into_iter()
            .find(|module| (module.start..module.end).contains(&here));
        own.map_or((0, 0), |module| (module.start, module.end))
    })
}

/// The executable ranges of everything loaded.
fn modules() -> Vec<LoadedModule> {
    let mut found: Vec<LoadedModule> = Vec::new();
    // SAFETY: `visit` gets the pointer given here, which lives through the call, and never unwinds.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid `info`, and `found` is the vector of `modules`.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<LoadedModule>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader says how many headers there are.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    let build_id = headers
        .iter()
        .filter(|h| h.p_type == libc::PT_NOTE)
        .find_map(|h| {
            // SAFETY: a note segment of a loaded object is mapped and readable.
            let notes = unsafe {
                std::slice::from_raw_parts(
                    (info.dlpi_addr + h.p_vaddr) as *const u8,
                    h.p_memsz as usize,
                )
            };
            build_id(notes)
        });
    let path = path(info);
    for header in headers
        .iter()
        .filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0)
    {
        let start = info.dlpi_addr + header.p_vaddr;
        found.push(LoadedModule {
            start,
            end: start + header.p_memsz,
            base: info.dlpi_addr,
            path: path.clone(),
            build_id: build_id.clone().unwrap_or_default(),
        });
    }
    0
}

fn path(info: &libc::dl_phdr_info) -> String {
    if info.dlpi_name.is_null() {
        return String::new();
    }
    // SAFETY: the loader keeps a C string here.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) };
    if name.is_empty() {
        // The main program.
        return std::fs::read_link("/proc/self/exe")
            .map(|p| p.to_string_lossy().into_owned())
            .unwrap_or_default();
    }
    OsStr::from_bytes(name.to_bytes())
        .to_string_lossy()
        .into_owned()
}

/// The GNU build id among the notes of an object, in hexadecimal.
fn build_id(mut notes: &[u8]) -> Option<String> {
    const GNU_BUILD_ID: u32 = 3;
    let word =
        |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    loop {
        let (name_size, size, kind) = (
            word(notes, 0)? as usize,
            word(notes, 4)? as usize,
            word(notes, 8)?,
        );
        let name = notes.get(12..12 + name_size)?;
        let start = 12 + name_size.next_multiple_of(4);
        let description = notes.get(start..start.checked_add(size)?)?;
        if kind == GNU_BUILD_ID && name == b"GNU\0" {
            return Some(
                description
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            );
        }
        notes = notes.get(start + size.next_multiple_of(4)..)?;
    }
}
