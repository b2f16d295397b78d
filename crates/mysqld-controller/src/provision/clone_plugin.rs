//! What both ends of a copy ask their mysqld, and the plugin that both need.

use mysql_link::{Connection, LinkError, server_code};

use super::error::ProvisionError;

pub(super) async fn has_plugin(connection: &mut Connection) -> Result<bool, LinkError> {
    let answer = connection
        .query("SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'clone' AND plugin_status = 'ACTIVE'")
        .await?;
    Ok(answer.first().and_then(|row| row.text_at(0)) == Some("1"))
}

pub(super) async fn install_plugin(connection: &mut Connection) -> Result<(), LinkError> {
    let installed = connection
        .execute("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
        .await;
    match installed {
        // Somebody else was faster.
        Err(LinkError::Server(error)) if error.code == server_code::PLUGIN_EXISTS => Ok(()),
        other => other.map(drop),
    }
}

pub(super) async fn value(
    connection: &mut Connection,
    query: &str,
    what: &'static str,
) -> Result<String, ProvisionError> {
    let answer = connection
        .query(query)
        .await
        .map_err(ProvisionError::at(what))?;
    let text = answer.first().and_then(|row| row.text_at(0));
    text.map(str::to_owned)
        .ok_or(ProvisionError::Answer { what })
}

pub(super) async fn number(
    connection: &mut Connection,
    query: &str,
    what: &'static str,
) -> Result<u64, ProvisionError> {
    let text = value(connection, query, what).await?;
    text.parse().map_err(|_| ProvisionError::Answer { what })
}
