//! What the mysqld beside the member has executed.

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection};

/// Asks mysqld, on a connection of its own.
///
/// # Errors
/// In words: mysqld cannot be reached, or its answer cannot be read.
pub(crate) async fn executed_gtids(options: &ConnectOptions) -> Result<GtidSet, String> {
    let connection = Connection::open(options).await;
    let mut connection = connection.map_err(|error| error.to_string())?;
    let answer = connection.query("SELECT @@GLOBAL.gtid_executed").await;
    let answer = answer.map_err(|error| error.to_string())?;
    let text = answer.first().and_then(|row| row.text_at(0));
    let text = text.ok_or("gtid_executed is no text")?;
    text.parse()
        .map_err(|error| format!("gtid_executed cannot be read: {error}"))
}
