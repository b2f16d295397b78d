//! The transaction that a file is in the middle of: where it began, and whether it has ended.

use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{Query, StatementKind};
use binlog_format::gtid::Gtid;

use super::plan::FileOffset;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenTransaction {
    pub(super) gtid: Gtid,
    pub(super) begins: FileOffset,
    /// Behind BEGIN or XA START.
    inside: bool,
    pub(super) ended: bool,
}

impl OpenTransaction {
    pub(super) fn new(gtid: Gtid, begins: FileOffset) -> Self {
        Self {
            gtid,
            begins,
            inside: false,
            ended: false,
        }
    }

    /// Takes the next event, without its checksum.
    pub(super) fn take(&mut self, event: EventRef<'_>) {
        match event.event_type() {
            EventType::Xid | EventType::XaPrepare | EventType::TransactionPayload => {
                self.ended = true;
            }
            EventType::Query => {
                let Ok(query) = Query::decode(event) else {
                    return;
                };
                match StatementKind::of(&query.statement) {
                    StatementKind::Begin | StatementKind::XaStart => self.inside = true,
                    StatementKind::Other => self.ended = !self.inside,
                    StatementKind::Commit | StatementKind::Rollback | StatementKind::XaRollback => {
                        self.ended = true;
                    }
                }
            }
            _ => {}
        }
    }
}
