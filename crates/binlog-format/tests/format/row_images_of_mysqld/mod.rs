//! Decodes the rows events of a real mysqld to values.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

mod columns;
mod every_column_type;
mod logged_events;
mod replayed_table;
mod session_context;
mod table_metadata;
mod what_images_hold;
