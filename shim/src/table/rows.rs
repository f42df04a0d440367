//! What the rows of the table become. The names in here are those of the table's file.

/// A name as a C string, at compile time.
macro_rules! c_name {
    ($symbol:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

macro_rules! hooks {
    ($( $kind:ident $symbol:ident ( $($argument:ident : $type:ty),* $(,)? ) = $handler:path $(, with $thread:ident)?; )* ---
     $( Order $ordered:ident $place:literal; )*) => {
        /// Index of each row of [`HOOKS`].
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Id { $( #[doc = stringify!($symbol)] $symbol,)* $( #[doc = stringify!($ordered)] $ordered),* }

        /// Rows whose calls are counted: all but the `Order` ones.
        const COUNTED: usize = [$(stringify!($symbol)),*].len();

        /// Name of each row, for the compiler's use.
        const SYMBOLS: [&str; [$(stringify!($symbol),)* $(stringify!($ordered)),*].len()] = [$(stringify!($symbol),)* $(stringify!($ordered)),*];

        /// Every hooked driver symbol.
        pub static HOOKS: [Hook; SYMBOLS.len()] = [
            $(
                // SAFETY: only the type is erased; whoever calls through it owes the row's signature.
                Hook::new(c_name!($symbol), Kind::$kind, unsafe { std::mem::transmute::<unsafe extern "C" fn($($type),*) -> Status, unsafe extern "C" fn()>($symbol) }),
            )*
            $( Hook::new(c_name!($ordered), Kind::Order, $ordered), )*
        ];

        $(
            /// Stands in for the driver function of this name.
            ///
            /// # Safety
            /// The caller owes what the driver's documentation asks of a caller of this function.
            #[no_mangle]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> Status {
                /// The driver's function, for the handler.
                unsafe extern "C" fn noted($($argument: $type),*) -> Status {
                    let real = HOOKS[Id::$symbol as usize].real();
                    // SAFETY: the exported function has found `real`: the driver's function of exactly this symbol,
                    // whose signature the row states.
                    let real = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(real) };
                    // SAFETY: the caller is the handler, which owes what the driver asks of a caller.
                    entry::answered(unsafe { real($($argument),*) })
                }
                const ROW: usize = Id::$symbol as usize;
                if const { is_twin(stringify!($symbol)) && !matches!(Kind::$kind, Kind::Route) } {
                    order::lose(order::OTHER_STREAM);
                }
                let Some(real) = entry::real(ROW) else { return NOT_FOUND };
                // SAFETY: `real` is the driver's function of exactly this symbol, whose signature the row states.
                let real = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(real) };
                let past_the_handler = || {
                    if const { !matches!(Kind::$kind, Kind::Count) && names_stream(&[$(stringify!($argument)),*]) } {
                        order::lose(order::INSIDE);
                    }
                    // SAFETY: arguments are passed on as the caller gave them, under the caller's promise.
                    unsafe { real($($argument),*) }
                };
                hooks!(@enter $kind ROW, $handler, (noted, $($argument),*), past_the_handler() $(, $thread)?)
            }
        )*

        $(
            /// Stands in for the driver function of this name: goes on to it by a jump, once it is certain that the order
            /// is lost or stays given.
            ///
            /// # Safety
            /// As the driver's function of this name, whose arguments it has.
            #[no_mangle]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $ordered() {
                naked_asm!(
                    "endbr64",
                    "cmp byte ptr [rip + {state}], {lost}",
                    "jne 3f",
                    "2:",
                    "mov rax, qword ptr [rip + {hooks} + {real}]",
                    "test rax, rax",
                    "jz 4f",
                    "jmp rax",
                    "3:",
                    // The legacy stream is 0 or 1.
                    concat!("cmp ", $place, ", 1"),
                    "jbe 2b",
                    "mov eax, {row} + {other}",
                    "jmp {ask}",
                    "4:",
                    "mov eax, {row}",
                    "jmp {ask}",
                    state = sym order::STATE,
                    lost = const order::LOST,
                    hooks = sym HOOKS,
                    real = const Id::$ordered as usize * size_of::<Hook>() + offset_of!(Hook, real),
                    row = const Id::$ordered as usize,
                    other = const IS_OTHER_STREAM,
                    ask = sym ask,
                )
            }
        )*
    };
    (@enter Route $row:ident, $handler:path, ($($given:expr),* $(,)?), $native:expr) => {
        // SAFETY: arguments are passed on as the caller gave them, under the caller's promise.
        entry::look_up($row, || unsafe { $handler($($given),*) }, || $native)
    };
    (@enter $kind:ident $row:ident, $handler:path, ($($given:expr),* $(,)?), $native:expr) => {
        // SAFETY: as above.
        entry::enter($row, |_| unsafe { $handler($($given),*) }, || $native)
    };
    (@enter $kind:ident $row:ident, $handler:path, ($($given:expr),* $(,)?), $native:expr, thread) => {
        // SAFETY: as above.
        entry::enter($row, |thread| unsafe { $handler(thread, $($given),*) }, || $native)
    };
}

macro_rules! runtime {
    ($( $symbol:ident )*) => {
        /// Index of each row of [`RUNTIME`].
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum RuntimeId { $( #[doc = stringify!($symbol)] $symbol),* }

        /// Functions of the shared CUDA runtime that are exported here too.
        pub static RUNTIME: [&CStr; [$(stringify!($symbol)),*].len()] = [$(c_name!($symbol)),*];

        $(
            /// Goes on to the caller's own runtime.
            ///
            /// # Safety
            /// As the runtime's function of this name, whose arguments it has.
            #[no_mangle]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $symbol() {
                std::arch::naked_asm!(
                    "endbr64",
                    "mov eax, {row}",
                    "jmp {go_on}",
                    row = const RuntimeId::$symbol as usize,
                    go_on = sym runtime::go_on,
                )
            }
        )*
    };
}
