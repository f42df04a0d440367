//! What may have reached the driver past us, for the coverage notes of the report.

use crate::device::order;
use once_cell::race::OnceBox;
use std::ffi::CStr;

static NOTES: OnceBox<Vec<String>> = OnceBox::new();

/// Remembers what was found when the driver was met: whether its table names us now, and the files of the objects that
/// had looked its functions up before.
pub fn remember(is_patched: bool, files: &[String]) {
    if !is_patched || !files.is_empty() {
        order::lose("the driver may be reached unseen");
    }
    let mut notes = Vec::new();
    if !is_patched {
        notes.push(
            "the driver's symbol table is as it was: libraries loaded with RTLD_DEEPBIND reach the driver unseen"
                .to_owned(),
        );
    }
    if !files.is_empty() {
        notes.push(format!(
            "loaded with RTLD_DEEPBIND, and may have used the driver unseen before cushion met it: {}",
            files.join(", ")
        ));
    }
    let _ = NOTES.set(Box::new(notes));
}

/// What there is to say.
pub fn notes() -> &'static [String] {
    NOTES.get().map_or(&[], Vec::as_slice)
}

/// The file's name, without its folder.
pub fn file_name(path: &CStr) -> String {
    let path = path.to_string_lossy();
    path.rsplit('/').next().unwrap_or(&path).to_owned()
}
