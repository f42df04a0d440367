//! The command `cushion`.

fn main() -> std::process::ExitCode {
    cushion::cli::main()
}
