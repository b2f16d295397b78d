//! Containers for tests: an engine that runs them, images to begin with, and a container that is a whole host. Needs root and Debian
//! where the machine has no Docker engine of its own.

mod base_image;
mod engine;
mod machine;

pub(crate) use base_image::{debian_with_systemd, provide_base_images};
pub(crate) use engine::Engine;
pub(crate) use machine::Machine;
