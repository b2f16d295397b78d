//! Files of a real server, and its listings of them. `testdata/README.md` describes how to regenerate them.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

mod dump_streams;
mod files;
mod framing;
mod gtid_sets;
mod typed_views;
