//! The `witness` binary as a library: configuration and command line.
//! `main.rs` only calls [`cli::main`]; tests run the binary or use the parts.

pub mod admin;
pub mod cli;
pub mod config;
pub mod demo;
pub mod hooks;
pub mod http;
pub mod node;
mod openmetrics;
pub mod status;
pub mod terminal;
