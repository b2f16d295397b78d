//! (header to be written by the crate's author)
