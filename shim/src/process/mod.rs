//! The life of the process: asleep, active, passing everything through, leaving.

use cushion::config::Config;
use std::sync::atomic::{AtomicU8, Ordering};

/// Whether `CUSHION_DISABLE` or a privileged program has turned the shim off: no look-up is answered with a hook, and
/// exported functions go straight on.
pub fn is_disabled() -> bool {
    /// 0: not asked yet; 1: no; 2: yes.
    static ANSWER: AtomicU8 = AtomicU8::new(0);
    match ANSWER.load(Ordering::Relaxed) {
        0 => {
            let disabled = is_privileged() || asked_to();
            ANSWER.store(1 + u8::from(disabled), Ordering::Relaxed);
            disabled
        }
        answer => answer == 2,
    }
}

fn asked_to() -> bool {
    const NAME: &str = "CUSHION_DISABLE";
    let value = std::env::var_os(NAME).map(|value| (NAME.to_owned(), value));
    value.is_some() && Config::from_vars(value).0.disable.value
}

/// A set-user-ID program or its like: nothing in its environment is to be followed.
fn is_privileged() -> bool {
    // SAFETY: getauxval reads the process's auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
