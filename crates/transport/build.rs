//! Compiles the ring's protobuf schema without a `protoc` on the machine.

use std::error::Error;

const SCHEMA: &str = "proto/ring.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={SCHEMA}");
    let descriptors = protox::compile([SCHEMA], ["proto"])?;
    tonic_prost_build::configure()
        // Bodies of entries share the buffer in which they arrived.
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
