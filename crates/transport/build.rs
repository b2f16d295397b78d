//! Compiles the ring's protobuf schema without an installed `protoc`.

use std::error::Error;

const SCHEMA: &str = "proto/ring.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={SCHEMA}");
    let descriptors = protox::compile([SCHEMA], ["proto"])?;
    tonic_prost_build::configure()
        // The decoded bodies of entries share the receive buffer.
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
