//! Names for frames: from the symbol tables and debug information of the modules that a report names.
//!
//! The report may come from another machine or another day, so a module counts only if it is still there with the same
//! build id. What cannot be named stays module and offset.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::{demangle_auto, Loader};
use object::{Object, ReadCache};
use std::borrow::Cow;

use super::clean;
use crate::report::{Frame, Module, Report};

/// Where separate debug information is kept, by build id.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug/.build-id";

/// One function at a frame; inlined ones come before the function that they are inlined in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Demangled; or module and offset.
    pub function: String,
    /// Source file, if the debug information has it.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
    /// Whether the function was inlined into the next one.
    pub inlined: bool,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        if let Some(file) = &self.file {
            write!(f, " at {file}")?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
        }
        f.write_str(if self.inlined { " (inlined)" } else { "" })
    }
}

/// The modules of one report, opened when first needed.
pub struct Symbols<'a> {
    modules: &'a [Module],
    opened: HashMap<u32, Option<Files>>,
    /// Modules that are gone or changed, and why, in the order in which they were met.
    problems: Vec<String>,
}

/// A module and, where there is one, the file with its debug information.
struct Files {
    module: Loader,
    debug: Option<Loader>,
}

impl<'a> Symbols<'a> {
    /// The modules of `report`.
    pub fn of(report: &'a Report) -> Self {
        Symbols {
            modules: &report.modules,
            opened: HashMap::new(),
            problems: Vec::new(),
        }
    }

    /// Why some frames could not be named: one line a module.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The functions at a frame, innermost first; at least one.
    pub fn names(&mut self, frame: &Frame) -> Vec<Name> {
        // The frame holds a return address; the call is just before it.
        let address = frame.offset.0.saturating_sub(1);
        let files = frame.module.and_then(|module| self.files(module));
        let named = files.map(|files| files.names(address)).unwrap_or_default();
        if named.is_empty() {
            vec![self.unnamed(frame)]
        } else {
            named
        }
    }

    fn unnamed(&self, frame: &Frame) -> Name {
        let module = frame.module.and_then(|at| self.modules.get(at as usize));
        let file = module.and_then(|module| Path::new(&module.path).file_name());
        let function = match file {
            Some(file) => format!("{}+{}", clean(&file.to_string_lossy()), frame.offset),
            None => format!("{} (generated code)", frame.offset),
        };
        Name {
            function,
            file: None,
            line: None,
            inlined: false,
        }
    }

    fn files(&mut self, at: u32) -> Option<&Files> {
        let module = self.modules.get(at as usize)?;
        let problems = &mut self.problems;
        let open = || {
            Files::open(module)
                .map_err(|why| problems.push(format!("{}: {why}", clean(&module.path))))
                .ok()
        };
        self.opened.entry(at).or_insert_with(open).as_ref()
    }
}

impl Files {
    fn open(module: &Module) -> Result<Files, String> {
        let path = Path::new(&module.path);
        // Paths in a report are not trusted: a device or a pipe is not opened.
        let metadata = path.metadata().map_err(|error| error.to_string())?;
        if !metadata.is_file() {
            return Err("not a file".into());
        }
        let build_id = build_id(path).map_err(|error| error.to_string())?;
        if build_id != module.build_id {
            return Err("not the file that was loaded: its build id is another".into());
        }
        let loader = Loader::new(path).map_err(|error| error.to_string())?;
        let debug = debug_file(&build_id).and_then(|path| Loader::new(path).ok());
        Ok(Files {
            module: loader,
            debug,
        })
    }

    fn names(&self, address: u64) -> Vec<Name> {
        let with_debug = self.debug.iter().chain([&self.module]);
        let symbol = with_debug
            .clone()
            .find_map(|loader| loader.find_symbol(address));
        let from_debug = with_debug
            .map(|loader| debug_names(loader, address))
            .find(|names| !names.is_empty());
        let mut names = from_debug.unwrap_or_default();
        match (names.last_mut(), symbol) {
            // Debug information without a name for the outermost function: the symbol table knows it.
            (Some(last), Some(symbol)) if last.function.is_empty() => {
                last.function = demangled(symbol)
            }
            (None, Some(symbol)) => {
                names.push(Name {
                    function: demangled(symbol),
                    file: None,
                    line: None,
                    inlined: false,
                });
            }
            _ => {}
        }
        names.retain(|name| !name.function.is_empty());
        names
    }
}

/// What the debug information of one file says. Functions without a name there have an empty one.
fn debug_names(loader: &Loader, address: u64) -> Vec<Name> {
    let mut names = Vec::new();
    let Ok(mut frames) = loader.find_frames(address) else {
        return names;
    };
    while let Ok(Some(frame)) = frames.next() {
        let function = frame
            .function
            .as_ref()
            .and_then(|function| function.demangle().ok().map(|name| clean(&name)));
        let location = frame.location;
        names.push(Name {
            function: function.unwrap_or_default(),
            file: location
                .as_ref()
                .and_then(|location| location.file)
                .map(clean),
            line: location.and_then(|location| location.line),
            inlined: true,
        });
    }
    if let Some(outermost) = names.last_mut() {
        outermost.inlined = false;
    }
    names
}

fn demangled(symbol: &str) -> String {
    clean(&demangle_auto(Cow::from(symbol), None))
}

/// In hexadecimal; empty when the file has none.
fn build_id(path: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let cache = ReadCache::new(File::open(path)?);
    let file = object::File::parse(&cache)?;
    let bytes = file.build_id()?.unwrap_or_default();
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn debug_file(build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2)?;
    let path = Path::new(DEBUG_DIRECTORY)
        .join(first)
        .join(format!("{rest}.debug"));
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Hex;

    fn report_about(path: &str, build_id: &str) -> Report {
        let module = Module {
            path: path.to_owned(),
            build_id: build_id.to_owned(),
            base: Hex(0),
        };
        Report {
            modules: vec![module],
            ..Report::default()
        }
    }

    fn at(offset: u64) -> Frame {
        Frame {
            module: Some(0),
            offset: Hex(offset),
        }
    }

    #[test]
    fn what_is_gone_or_changed_stays_module_and_offset() {
        let own = std::env::current_exe().unwrap();
        for (path, build_id, why) in [
            ("/no/such/lib\x1bx.so", "", "No such file"),
            ("/dev/null", "", "not a file"),
            (own.to_str().unwrap(), "c0ffee", "build id is another"),
        ] {
            let report = report_about(path, build_id);
            let mut symbols = Symbols::of(&report);
            let names = symbols.names(&at(0x123));
            assert!(names[0].to_string().ends_with("+0x123"), "{names:?}");
            assert!(!names[0].to_string().contains('\x1b'));
            symbols.names(&at(0x456));
            assert_eq!(symbols.problems().len(), 1, "one line a module");
            assert!(
                symbols.problems()[0].contains(why),
                "{:?}",
                symbols.problems()
            );
        }
    }

    #[test]
    fn generated_code_and_false_indices_have_names_too() {
        let report = Report::default();
        let mut symbols = Symbols::of(&report);
        let generated = Frame {
            module: None,
            offset: Hex(0x77),
        };
        assert_eq!(
            symbols.names(&generated)[0].to_string(),
            "0x77 (generated code)"
        );
        assert_eq!(symbols.names(&at(0)).len(), 1);
    }
}
