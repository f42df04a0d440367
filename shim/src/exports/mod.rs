//! One file per family of hooked functions: check the arguments, make one call down, translate the answer. No policy here.

pub mod memory;
