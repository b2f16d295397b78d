//! A ring in memory.

pub(crate) mod direct;
pub(crate) mod lines;
pub(crate) mod log;
pub(crate) mod ring;
pub(crate) mod sending;
