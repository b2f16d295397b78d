//! Benches of the workspace; each is a program of its own below `benches/`.
