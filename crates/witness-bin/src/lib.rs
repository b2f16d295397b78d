//! The `witness` binary as a library, for its tests.
