//! Tests every format that is read or written, with real servers' output, generated input and corrupt input. A separate test program
//! measures memory.

mod canonical_form;
mod framing;
mod golden;
#[path = "../golden_events/mod.rs"]
mod golden_events;
mod malformed_bytes;
mod properties;
mod row_images_of_mysqld;
mod synthesis;
