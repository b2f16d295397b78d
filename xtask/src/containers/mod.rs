//! Containers for tests: an engine that runs them, and images made of Debian's archive. Needs root and Debian where the machine has
//! no Docker engine of its own.

mod base_image;
mod engine;
mod machine;

pub(crate) use base_image::debian_with_systemd;
pub(crate) use engine::Engine;
pub(crate) use machine::Machine;
