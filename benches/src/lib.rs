//! Criterion benches of the workspace.
