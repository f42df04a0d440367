//! The command `cushion`.
fn main() {}
