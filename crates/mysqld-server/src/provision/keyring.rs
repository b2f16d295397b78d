//! Encryption at rest: a copy of encrypted files needs a keyring, and MySQL detects a missing one only after removing all data of the
//! recipient.

use mysql_link::{Connection, LinkError};

/// Whether the server encrypts existing data or new writes: tablespaces, the redo log, or the undo log.
pub(super) async fn is_encrypted(connection: &mut Connection) -> Result<bool, LinkError> {
    asked(
        connection,
        "SELECT (SELECT COUNT(*) FROM information_schema.innodb_tablespaces WHERE encryption = 'Y') \
         OR @@GLOBAL.innodb_redo_log_encrypt OR @@GLOBAL.innodb_undo_log_encrypt",
    )
    .await
}

/// Whether the server has an active keyring, a component or, before 9.0, a plugin.
pub(super) async fn has_keyring(connection: &mut Connection) -> Result<bool, LinkError> {
    asked(
        connection,
        "SELECT (SELECT COUNT(*) FROM performance_schema.keyring_component_status \
         WHERE status_key = 'Component_status' AND status_value = 'Active') \
         OR (SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name LIKE 'keyring%' AND plugin_status = 'ACTIVE')",
    )
    .await
}

async fn asked(connection: &mut Connection, question: &str) -> Result<bool, LinkError> {
    let answer = connection.query(question).await?;
    Ok(answer.first().and_then(|row| row.text_at(0)) == Some("1"))
}
