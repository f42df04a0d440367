//! Injected failures: the SIMCUDA_FAIL rules.
use crate::config;
use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

enum When {
    Nth(u64),
    From(u64),
    Always,
    Random(f64),
}

/// `function:when:code`, with `:caller=shim` to fail only the shim's own calls.
pub struct Rule {
    function: String,
    when: When,
    code: i32,
    shim_only: bool,
    hits: AtomicU64,
}

impl Rule {
    pub fn parse(text: &str) -> Option<Rule> {
        let mut parts: Vec<&str> = text.trim().split(':').collect();
        let shim_only = parts.last() == Some(&"caller=shim");
        if shim_only {
            parts.pop();
        }
        let (function, when, code) = match parts.as_slice() {
            [f, "random", p, c] => (
                f,
                When::Random(p.parse().ok().filter(|p| (0.0..=1.0).contains(p))?),
                c,
            ),
            [f, "all", c] => (f, When::Always, c),
            [f, n, c] => match n.strip_suffix('+') {
                Some(n) => (f, When::From(n.parse().ok()?), c),
                None => (f, When::Nth(n.parse().ok()?), c),
            },
            _ => return None,
        };
        Some(Rule {
            function: function.to_string(),
            when,
            code: code.parse().ok()?,
            shim_only,
            hits: AtomicU64::new(0),
        })
    }

    fn names(&self, function: &str) -> bool {
        match self.function.strip_suffix('*') {
            Some(head) => function.starts_with(head),
            None => self.function == function,
        }
    }
}

/// The next number of the seeded generator (splitmix64).
pub fn random() -> u64 {
    static STATE: OnceLock<AtomicU64> = OnceLock::new();
    let state = STATE.get_or_init(|| AtomicU64::new(config::get().seed.unwrap_or(1)));
    let mut z = state
        .fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed)
        .wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The code that this call must fail with, if a rule says so.
pub fn injected(function: &str) -> Option<i32> {
    let rules = &config::get().faults;
    let mut shim: Option<bool> = None;
    for rule in rules.iter().filter(|r| r.names(function)) {
        if rule.shim_only && !*shim.get_or_insert_with(called_by_shim) {
            continue;
        }
        let n = rule.hits.fetch_add(1, Relaxed) + 1;
        let fails = match rule.when {
            When::Nth(k) => n == k,
            When::From(k) => n >= k,
            When::Always => true,
            When::Random(p) => (random() >> 11) as f64 / ((1u64 << 53) as f64) < p,
        };
        if fails {
            return Some(rule.code);
        }
    }
    None
}

/// The library that holds an address: its base address and file name.
fn object_of(address: *mut c_void) -> Option<(usize, String)> {
    // SAFETY: all-zero is a valid Dl_info; dladdr reads the address's number only.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(info.dli_fname).to_string_lossy();
        let name = name.rsplit('/').next().unwrap_or("").to_string();
        Some((info.dli_fbase as usize, name))
    }
}

/// Whether the first caller outside this library lies in libcushion.so.
fn called_by_shim() -> bool {
    let own = object_of(called_by_shim as fn() -> bool as *mut c_void).map(|o| o.0);
    let mut frames = [std::ptr::null_mut::<c_void>(); 48];
    // SAFETY: the array has room for as many frames as are asked for.
    let n = unsafe { libc::backtrace(frames.as_mut_ptr(), frames.len() as c_int) };
    let caller = frames[..n.max(0) as usize]
        .iter()
        .filter_map(|&f| object_of(f))
        .find(|o| Some(o.0) != own);
    caller.is_some_and(|(_, name)| name.starts_with("libcushion"))
}
