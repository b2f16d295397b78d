//! Properties that hold for all inputs.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

mod any_bytes;
mod generated_events;
mod gtid_model;
mod row_images;
