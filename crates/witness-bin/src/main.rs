//! The `witness` command.

mod allocator;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::keep_giving_back();
    witness_bin::cli::main()
}
