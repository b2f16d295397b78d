//! The `witness` command.
fn main() {}
