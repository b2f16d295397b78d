//! Containers for tests: an engine, base images, and a container that acts as a whole host. If the machine has no Docker engine, this needs
//! root and Debian.

mod base_image;
mod engine;
mod machine;

pub(crate) use base_image::provide_images;
pub(crate) use engine::Engine;
pub(crate) use machine::Machine;
