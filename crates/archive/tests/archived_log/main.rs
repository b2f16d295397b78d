//! A member's log and data are archived and restored, with all kinds of failures of the archive.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod archiver;
mod base_backups;
mod directory;
mod encrypted;
mod faulty_storage;
mod pieces;
mod pruning;
mod reading;
mod ring;
mod s3;
mod serving;
