//! Makes transactions as a MySQL server writes them, for an embedded writer that has no server: GTID,
//! BEGIN, a table map and rows for each change, XID; or GTID and one statement. A mysqld applies them
//! and mysqlbinlog decodes them. Columns are INT, BIGINT and VARCHAR.

mod error;
mod row_image;
mod table;
mod transaction;

pub use error::SynthesisError;
pub use table::{Column, ColumnType, Table, Value};
pub use transaction::{RowTransaction, TransactionHead, statement_transaction};
