//! What holds for all inputs.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

#[path = "../every_decoder/mod.rs"]
mod every_decoder;

mod any_bytes;
mod generated_events;
mod gtid_model;
mod row_images;
