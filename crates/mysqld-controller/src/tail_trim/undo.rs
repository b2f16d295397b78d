//! Whether recovery undoes a transaction whose binlog events are gone, pure, event by event. The
//! engines' recovery rolls back what they have prepared and the binlog does not name: transactions
//! that end with an XID, XA transactions, and DDL that carries an XID. Everything else is done before
//! it is written to the binlog.

use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{Query, SessionContext, StatementKind, TransactionPayload};

/// Statements that leave nothing behind which a replica would have to have.
const WITHOUT_CONTENT: [&str; 4] = ["FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR"];

/// Looks at the events of one transaction, from behind its GTID on.
#[derive(Debug, Default)]
pub(super) struct UndoCheck {
    /// Behind BEGIN or XA START.
    inside: bool,
    /// Whether something was changed.
    changes: bool,
}

impl UndoCheck {
    /// Takes the next event, without its checksum; in words, what recovery does not undo. At most
    /// `limit` bytes are decompressed.
    pub(super) fn take(&mut self, event: EventRef<'_>, limit: u64) -> Result<(), String> {
        match event.event_type() {
            EventType::Query => self.statement(event),
            EventType::TransactionPayload => self.payload(event, limit),
            EventType::Xid | EventType::XaPrepare => Ok(()),
            _ => {
                self.changes = true;
                Ok(())
            }
        }
    }

    fn payload(&mut self, event: EventRef<'_>, limit: u64) -> Result<(), String> {
        let unreadable = |error| format!("its compressed events cannot be read ({error})");
        let payload = TransactionPayload::decode(event).map_err(unreadable)?;
        for event in payload.events(limit).map_err(unreadable)? {
            let event = event.map_err(unreadable)?;
            self.take(event.canonical(), 0)?;
        }
        Ok(())
    }

    fn statement(&mut self, event: EventRef<'_>) -> Result<(), String> {
        let query = Query::decode(event).map_err(|error| format!("it cannot be read ({error})"))?;
        match StatementKind::of(&query.statement) {
            StatementKind::Begin | StatementKind::XaStart => {
                self.inside = true;
                Ok(())
            }
            StatementKind::Commit | StatementKind::Rollback if self.changes => {
                Err("it changes tables of an engine without transactions".to_owned())
            }
            StatementKind::Commit | StatementKind::Rollback | StatementKind::XaRollback => Ok(()),
            StatementKind::Other if self.inside => {
                self.changes = true;
                Ok(())
            }
            StatementKind::Other => alone(&query),
        }
    }
}

/// A statement that is a transaction by itself.
fn alone(query: &Query<'_>) -> Result<(), String> {
    let text = String::from_utf8_lossy(&query.statement);
    let begins = |word: &str| {
        let start = text.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    if begins("XA COMMIT") || WITHOUT_CONTENT.iter().any(|word| begins(word)) {
        return Ok(());
    }
    let context = SessionContext::decode(&query.status_variables);
    let context = context.map_err(|error| format!("it cannot be read ({error})"))?;
    if context.ddl_xid.is_some() {
        return Ok(());
    }
    const SHOWN: usize = 60;
    let shown: String = text.chars().take(SHOWN).collect();
    Err(format!("the statement is not atomic: {shown}"))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use binlog_format::events::{EncodeEvent, EventOrigin};

    use super::*;

    const DDL_XID: u8 = 17;

    fn query(statement: &str, ddl_xid: Option<u64>) -> Vec<u8> {
        let mut status_variables = Vec::new();
        if let Some(xid) = ddl_xid {
            status_variables.push(DDL_XID);
            status_variables.extend(xid.to_le_bytes());
        }
        let query = Query {
            status_variables: Cow::Owned(status_variables),
            statement: Cow::Borrowed(statement.as_bytes()),
            ..Query::default()
        };
        query.encode(EventOrigin::default())
    }

    fn judge(events: &[Vec<u8>]) -> Result<(), String> {
        let mut check = UndoCheck::default();
        events
            .iter()
            .try_for_each(|event| check.take(EventRef::new(event).unwrap(), 1 << 20))
    }

    #[test]
    fn what_the_engines_prepare_is_undone() {
        let begin = || query("BEGIN", None);
        let undone = [
            vec![begin(), query("COMMIT", None)],
            vec![query("CREATE TABLE t (a INT)", Some(7))],
            vec![query("XA COMMIT X'31',X'',1", None)],
            vec![query("XA ROLLBACK X'31',X'',1", None)],
            vec![query("flush tables", None)],
            vec![begin(), query("INSERT INTO t VALUES (1)", None)],
        ];
        for events in undone {
            assert_eq!(judge(&events), Ok(()));
        }
        let stays = [
            vec![query("CREATE TABLE t (a INT) ENGINE=MyISAM", None)],
            vec![
                begin(),
                query("INSERT INTO t VALUES (1)", None),
                query("COMMIT", None),
            ],
            vec![
                begin(),
                query("UPDATE t SET a = 1", None),
                query("ROLLBACK", None),
            ],
        ];
        for events in stays {
            assert!(judge(&events).is_err());
        }
    }
}
