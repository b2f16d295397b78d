//! Reads rows events down to their values. A table map says of what types the columns are ([`Columns`]), and with it the
//! images of a rows event come apart ([`RowReader`]). Values stay the bytes that the server wrote, without their lengths.
//! What `binlog_row_metadata` adds to a table map is [`TableMetadata`].

mod column_type;
mod columns;
mod row_reader;
mod table_metadata;
mod value;

pub use column_type::ColumnType;
pub use columns::Columns;
pub use row_reader::{Row, RowReader};
pub use table_metadata::{CollationId, MetadataKeyPart, TableMetadata};
pub use value::{Image, Value};
