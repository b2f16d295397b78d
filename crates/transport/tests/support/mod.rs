//! Common code of the tests of a ring over gRPC.

pub(crate) mod certificates;
pub(crate) mod grpc_ring;
#[path = "../../../ring-admin/tests/support/memory_log.rs"]
pub(crate) mod memory_log;
pub(crate) mod wire;
