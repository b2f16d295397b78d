//! Every format read or written, against real servers' output, generated input and corrupt input. Memory is measured by a separate test
//! program.

mod canonical_form;
mod framing;
mod golden;
#[path = "../golden_events/mod.rs"]
mod golden_events;
mod malformed_bytes;
mod properties;
mod row_images_of_mysqld;
mod synthesis;
