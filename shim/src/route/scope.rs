//! What `dlsym` would have answered if this library exported nothing.
//!
//! Only names of the table come here. With a handle the linker is simply asked, from here. RTLD_DEFAULT and RTLD_NEXT
//! depend on who asks, so their search is done again by hand: the global scope (ours to ask for, beyond this library,
//! by an RTLD_NEXT of our own), then the objects that were loaded together with the caller.

use crate::real::linker::{self, DlsymFn, DlvsymFn, Libc};
use crate::real::object::Object;
use crate::real::{driver, loaded, patch};
use std::ffi::{c_char, c_void, CStr};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One call of dlsym or dlvsym.
#[derive(Debug)]
pub struct Question<'a> {
    /// Where to look.
    pub handle: *mut c_void,
    /// For what.
    pub name: &'a CStr,
    /// In which version (dlvsym).
    pub version: Option<&'a CStr>,
    /// Who asks: the return address.
    pub caller: usize,
    /// The dlsym or dlvsym after ours.
    pub next: usize,
}

impl std::panic::RefUnwindSafe for Question<'_> {}

/// The address that the caller would have got without us. None: the real function, called by the caller, gives it.
pub fn native(question: &Question) -> Option<usize> {
    match question.handle {
        libc::RTLD_DEFAULT => default_scope(question),
        libc::RTLD_NEXT => next_scope(question),
        handle => match ask(question.next, handle, question) {
            // The program's own handle: all of the global scope, and us in it.
            Some(found) if is_ours(found) => Some(beyond_us(question).unwrap_or(0)),
            found => Some(found.unwrap_or(0)),
        },
    }
}

/// RTLD_DEFAULT: the global scope, then what was loaded with the caller.
fn default_scope(question: &Question) -> Option<usize> {
    let function = linker::own(question.which());
    let global = match ask(function, libc::RTLD_DEFAULT, question) {
        Some(found) if is_ours(found) => beyond_us(question),
        found => found,
    };
    if global.is_some() {
        return global;
    }
    // Code of no object asks as the program does.
    let Some(caller) = loaded::holding(question.caller) else {
        return Some(0);
    };
    in_scopes_of(&caller, question).or_else(|| missing(&caller, question))
}

/// RTLD_NEXT: the objects after the caller in the scope that it was loaded into.
fn next_scope(question: &Question) -> Option<usize> {
    let (caller, ours) = places(question.caller);
    let (place, caller) = caller?;
    if question.version.is_some() {
        // Our exports have no version: dlvsym never answers with them, so only a driver's address is of interest.
        return beyond_us(question).filter(|&found| driver::owns(found));
    }
    if place > ours {
        return behind_us(place, &caller, question);
    }
    between(place, ours, question.name)
        .or_else(|| beyond_us(question))
        .or_else(|| missing(&caller, question))
}

/// RTLD_NEXT of a caller that was loaded after us. Nothing that it can find is ours, so the real answer is right; only
/// a driver's has to be known here.
fn behind_us(place: usize, caller: &Object, question: &Question) -> Option<usize> {
    let mut candidates = [0; 8];
    let mut count = 0;
    let mut index = 0;
    loaded::visit(|object| {
        if index > place && count < candidates.len() {
            if let Some(address) = object.defines(question.name) {
                candidates[count] = patch::behind(address).unwrap_or(address);
                count += 1;
            }
        }
        index += 1;
        ControlFlow::Continue(())
    });
    let global = beyond_us(question);
    let local = in_scopes_of(caller, question);
    let in_scope = |&&address: &&usize| {
        Some(address) == global
            || Some(address) == local
            || (driver::owns(address) && is_global(address))
    };
    candidates[..count]
        .iter()
        .find(in_scope)
        .copied()
        .filter(|&address| driver::owns(address))
}

/// Whether the driver at `address` is in the global scope: looked for by a name that no interposer stands in for.
fn is_global(address: usize) -> bool {
    let question = Question::from_here(c"cuDriverGetVersion", None);
    let (Some(found), Some(driver)) = (beyond_us(&question), loaded::holding(address)) else {
        return false;
    };
    driver.holds(found)
}

/// dlvsym(RTLD_NEXT, "dlsym", version) of another library that stands in for it and was loaded before us: it means the
/// one after it, which is ours; the linker passes over ours, because it has no version.
pub fn next_of_interposer(question: &Question) -> Option<usize> {
    if question.version.is_none() || question.handle != libc::RTLD_NEXT {
        return None;
    }
    let (caller, ours) = places(question.caller);
    let (place, _) = caller?;
    beyond_us(question)?;
    let function = match question.name {
        name if name == c"dlsym" => super::dlsym::dlsym as *const () as usize,
        _ => super::dlsym::dlvsym as *const () as usize,
    };
    (place < ours).then_some(function)
}

/// The first definition in objects after `place` and before us.
fn between(place: usize, ours: usize, name: &CStr) -> Option<usize> {
    let mut index = 0;
    let mut found = None;
    loaded::visit(|object| {
        if index > place && index < ours {
            found = object.defines(name);
        }
        index += 1;
        if found.is_some() || index >= ours {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    found
}

/// The answer of the global scope after us.
pub fn beyond_us(question: &Question) -> Option<usize> {
    ask(linker::own(question.which()), libc::RTLD_NEXT, question)
}

/// The answer of the scopes in which the object itself, and those that brought it, were loaded.
pub fn in_scopes_of(object: &Object, question: &Question) -> Option<usize> {
    let mut paths = [object.path; 16];
    let count = object.brought_by(&mut paths);
    paths[..count]
        .iter()
        .find_map(|&path| in_scope_at(path, question))
}

/// The answer of the object itself and what it needs.
pub fn in_own_scope(object: &Object, question: &Question) -> Option<usize> {
    in_scope_at(object.path, question)
}

/// The answer of the loaded object of that path, and what it needs.
fn in_scope_at(path: *const c_char, question: &Question) -> Option<usize> {
    // SAFETY: the path is that of a loaded object; nothing is loaded or run by this.
    let handle = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    let found = ask(linker::own(question.which()), handle, question);
    // SAFETY: gives back the reference just taken.
    unsafe { libc::dlclose(handle) };
    found.filter(|&found| !is_ours(found))
}

/// NULL, with the dlerror that the caller's own question would have left. (For the program itself the text names this
/// library instead, because the program's scope cannot be asked without us in it.)
fn missing(caller: &Object, question: &Question) -> Option<usize> {
    let function = linker::own(question.which());
    // SAFETY: the caller is executing, so its path is good and the handle stays valid after the reference is given back.
    let handle = unsafe {
        let handle = libc::dlopen(caller.path, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if !handle.is_null() {
            libc::dlclose(handle);
        }
        handle
    };
    let is_program = caller.path.is_null() || caller.is_program();
    if handle.is_null() || is_program || ask(function, handle, question).is_some() {
        ask(function, libc::RTLD_NEXT, question);
    }
    Some(0)
}

/// Where `caller` and this library are in the order of loading.
fn places(caller: usize) -> (Option<(usize, Object)>, usize) {
    let (mut found, mut ours, mut index) = (None, usize::MAX, 0);
    loaded::visit(|object| {
        if object.holds(caller) {
            found = Some((index, *object));
        }
        if object.is_ours() {
            ours = index;
        }
        index += 1;
        ControlFlow::Continue(())
    });
    (found, ours)
}

/// Asks the dlsym or dlvsym at `function`, from here. Where the answer is ours because a driver's table names it, it is
/// the driver's own.
fn ask(function: usize, handle: *mut c_void, question: &Question) -> Option<usize> {
    if function == 0 {
        return None;
    }
    let name = question.name.as_ptr();
    let found = match question.version {
        None => {
            // SAFETY: `linker` found it as `dlsym`; the arguments are those of a caller of dlsym.
            unsafe { std::mem::transmute::<usize, DlsymFn>(function)(handle, name) }
        }
        Some(version) => {
            // SAFETY: `linker` found it as `dlvsym`; the arguments are those of a caller of dlvsym.
            unsafe {
                std::mem::transmute::<usize, DlvsymFn>(function)(handle, name, version.as_ptr())
            }
        }
    };
    let found = Some(found as usize).filter(|&found| found != 0)?;
    match patch::behind(found) {
        Some(own) if !reaches_us(handle) => Some(own),
        _ => Some(found),
    }
}

/// Whether a search from here with that handle comes past this library: the program's own handle leads to all of the
/// global scope.
fn reaches_us(handle: *mut c_void) -> bool {
    static PROGRAM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
        return handle == libc::RTLD_DEFAULT;
    }
    if PROGRAM.load(Ordering::Relaxed).is_null() {
        // SAFETY: the program is always loaded, so the handle stays good after the reference is given back.
        unsafe {
            let program = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            PROGRAM.store(program, Ordering::Relaxed);
            libc::dlclose(program);
        }
    }
    handle == PROGRAM.load(Ordering::Relaxed)
}

fn is_ours(address: usize) -> bool {
    loaded::holding(address).is_some_and(|object| object.is_ours())
}

impl<'a> Question<'a> {
    /// A question of our own.
    pub fn from_here(name: &'a CStr, version: Option<&'a CStr>) -> Self {
        Question {
            handle: libc::RTLD_NEXT,
            name,
            version,
            caller: 0,
            next: 0,
        }
    }

    fn which(&self) -> Libc {
        match self.version {
            None => Libc::Dlsym,
            Some(_) => Libc::Dlvsym,
        }
    }
}
