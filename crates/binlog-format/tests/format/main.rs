//! Every format that is read or written, against what real servers wrote, what is generated, and what is broken. What
//! measures memory is a program of its own.

mod canonical_form;
#[path = "../every_decoder/mod.rs"]
mod every_decoder;
mod framing;
mod golden;
mod malformed_bytes;
mod properties;
mod row_images;
mod synthesis;
