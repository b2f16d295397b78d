//! Lets administrators write at a server where nobody may, for the few statements that `super_read_only` forbids and that are in no
//! binlog: the write fence alone decides who may write at a primary, and what it does meanwhile stands.

use std::time::Duration;

use mysql_link::{Connection, LinkError};

/// How long closing waits behind statements of administrators, or of replica threads, which wait behind it meanwhile.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Who may write at a server in which a session has something to do.
#[derive(Debug)]
#[must_use = "a server that was closed is to be closed again"]
pub(crate) struct AdministratorsWrite {
    was_closed: bool,
}

impl AdministratorsWrite {
    /// Where nobody may write, administrators may from here on; `read_only` stays on, under which no client does.
    ///
    /// # Errors
    /// [`LinkError`]; nothing was changed, or nobody knows.
    pub(crate) async fn begin(connection: &mut Connection) -> Result<Self, LinkError> {
        // While the write fence closes a primary, one of the two reads ON already: both do where it is closed.
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

    /// Lets nobody write again, unless the server was opened in between.
    ///
    /// # Errors
    /// [`LinkError`]; administrators may write as before.
    pub(crate) async fn end(self, connection: &mut Connection) -> Result<(), LinkError> {
        if self.was_closed {
            let seconds = LOCK_WAIT.as_secs();
            // Whoever opens it clears `read_only`: asked and set in one statement, it is not closed behind its opening.
            let close = format!(
                "SET SESSION lock_wait_timeout = {seconds}, GLOBAL super_read_only = @@GLOBAL.read_only"
            );
            connection.query_within(close, LOCK_WAIT * 2).await?;
        }
        Ok(())
    }
}
