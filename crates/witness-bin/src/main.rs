//! The `witness` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    witness_bin::cli::main()
}
