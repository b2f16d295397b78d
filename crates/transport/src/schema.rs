//! The code that `build.rs` makes of `proto/ring.proto`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated; the schema holds the documentation"
)]

tonic::include_proto!("witness.ring.v1");
