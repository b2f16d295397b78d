//! Lets administrators write at a closed server, for the few statements that `super_read_only` forbids and that are in no binlog. Only the
//! write fence decides about writes at a primary, and its concurrent changes stay in force.

use std::time::Duration;

use mysql_link::{Connection, LinkError};

/// How long closing waits for statements of administrators or replica threads; later ones queue behind it.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Temporary write access for administrators.
#[derive(Debug)]
#[must_use = "a server that was closed is to be closed again"]
pub(crate) struct AdministratorsWrite {
    was_closed: bool,
}

impl AdministratorsWrite {
    /// Lets administrators write at a closed server; `read_only` stays on, so that clients cannot.
    ///
    /// # Errors
    /// [`LinkError`]; nothing was changed, or the outcome is unknown.
    pub(crate) async fn begin(connection: &mut Connection) -> Result<Self, LinkError> {
        // While the write fence closes a primary, one of the two already reads ON; only on a closed one do both.
        let answer = connection
            .query("SELECT @@GLOBAL.read_only, @@GLOBAL.super_read_only")
            .await?;
        let row = answer.first();
        let is_on = |at| row.and_then(|row| row.text_at(at)) == Some("1");
        let was_closed = is_on(0) && is_on(1);
        if was_closed {
            connection
                .execute("SET GLOBAL super_read_only = OFF")
                .await?;
        }
        Ok(Self { was_closed })
    }

    /// Closes the server again, unless it was opened in between.
    ///
    /// # Errors
    /// [`LinkError`]; administrators may write as before.
    pub(crate) async fn end(self, connection: &mut Connection) -> Result<(), LinkError> {
        if self.was_closed {
            let seconds = LOCK_WAIT.as_secs();
            // Opening clears `read_only`. One statement reads and sets it, so this cannot close a server that was opened in between.
            let close = format!(
                "SET SESSION lock_wait_timeout = {seconds}, GLOBAL super_read_only = @@GLOBAL.read_only"
            );
            connection.query_within(close, LOCK_WAIT * 2).await?;
        }
        Ok(())
    }
}
