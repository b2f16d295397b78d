//! Every format that is read or written, against what real servers wrote, what is generated, and what is broken. What
//! measures memory is a program of its own.

mod canonical_form;
mod framing;
mod golden;
#[path = "../golden_events/mod.rs"]
mod golden_events;
mod malformed_bytes;
mod properties;
mod row_images_of_mysqld;
mod synthesis;
