//! The `witness` binary as a library: configuration and command line.
//! `main.rs` only calls [`cli::main`]; tests run the binary or use the parts.

pub mod cli;
pub mod config;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/witness_bin.rs"]
pub mod fuzzing;
pub mod http;
mod openmetrics;
pub mod operator;
mod reload;
pub mod terminal;
mod text;
