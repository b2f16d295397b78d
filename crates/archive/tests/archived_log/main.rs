//! A member's log gets into an archive and comes back, whatever happens to the archive meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod archiver;
mod directory;
mod encrypted;
mod faulty_storage;
mod pieces;
mod pruning;
mod reading;
mod ring;
mod s3;
