//! What a real server wrote, and what it says about it. `testdata/README.md` tells how it was made.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

mod dump_streams;
mod files;
mod framing;
mod gtid_sets;
mod typed_views;
