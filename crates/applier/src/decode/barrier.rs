//! Transactions that are not just changes of rows.

use binlog_format::event::{EventType, RawEvent};
use binlog_format::events::{Query, Rows, StatementKind, XaPrepare};
use bytes::Bytes;

use super::failure::{DecodeCause, misplaced};
use super::schema_change::schema_change;
use crate::transaction::{Barrier, BarrierEnd, SchemaChange, Statement, Step};

/// The parts of a barrier, as far as they are read.
#[derive(Debug, Default)]
pub(super) struct BarrierParts {
    /// Whether BEGIN or XA START came.
    has_begun: bool,
    steps: Vec<Step>,
    /// Table maps and rows events of a statement whose end has not come.
    rows: Vec<Bytes>,
    /// For the next statement.
    variables: Vec<Bytes>,
    changes: SchemaChange,
    end: Option<BarrierEnd>,
}

impl BarrierParts {
    /// Takes the next event.
    pub(super) fn take(mut self, event: RawEvent) -> Result<Self, DecodeCause> {
        if self.end.is_some() {
            return Err(misplaced(&event));
        }
        match event.event_type() {
            EventType::Query => self.statement(event)?,
            EventType::IntVar | EventType::Rand | EventType::UserVar => {
                self.variables.push(event.into_bytes());
            }
            EventType::TableMap if self.has_begun => self.rows.push(event.into_bytes()),
            EventType::Xid if self.has_begun => self.end = Some(BarrierEnd::Commit),
            EventType::XaPrepare if self.has_begun => {
                self.end = Some(BarrierEnd::Xa(second_phase(&XaPrepare::decode(
                    event.canonical(),
                )?)));
            }
            _ if self.has_begun => {
                let rows = Rows::decode(event.canonical()).map_err(|_| misplaced(&event))?;
                let ends = rows.flags & Rows::END_OF_STATEMENT != 0;
                self.rows.push(event.into_bytes());
                if ends {
                    self.end_rows();
                }
            }
            _ => return Err(misplaced(&event)),
        }
        Ok(self)
    }

    fn statement(&mut self, event: RawEvent) -> Result<(), DecodeCause> {
        let Query {
            statement, schema, ..
        } = Query::decode(event.canonical())?;
        match StatementKind::of(&statement) {
            StatementKind::Begin if !self.has_begun => self.has_begun = true,
            StatementKind::XaStart if !self.has_begun => {
                self.has_begun = true;
                self.push_statement(event);
            }
            StatementKind::Begin | StatementKind::XaStart => return Err(misplaced(&event)),
            StatementKind::Commit if self.has_begun => self.end = Some(BarrierEnd::Commit),
            StatementKind::Rollback if self.has_begun => self.end = Some(BarrierEnd::Rollback),
            StatementKind::XaRollback if self.has_begun => {
                let text = String::from_utf8_lossy(&statement).into_owned();
                self.end = Some(BarrierEnd::Xa(text));
            }
            _ => {
                let change = schema_change(&statement, &schema);
                self.changes = std::mem::take(&mut self.changes).and(change);
                if !self.has_begun {
                    self.end = Some(BarrierEnd::ByItself);
                }
                self.push_statement(event);
            }
        }
        Ok(())
    }

    fn push_statement(&mut self, event: RawEvent) {
        self.end_rows();
        self.steps.push(Step::Statement(Statement {
            query: event.into_bytes(),
            variables: std::mem::take(&mut self.variables),
        }));
    }

    fn end_rows(&mut self) {
        if !self.rows.is_empty() {
            self.steps.push(Step::Rows(std::mem::take(&mut self.rows)));
        }
    }

    /// The barrier, when its end has come.
    pub(super) fn finish(mut self) -> Result<Barrier, DecodeCause> {
        self.end_rows();
        let end = self.end.ok_or(DecodeCause::Misplaced {
            event_type: EventType::Gtid,
        })?;
        Ok(Barrier {
            steps: self.steps,
            end,
            changes: self.changes,
        })
    }
}

/// The statement that the server makes of an XA_PREPARE event.
fn second_phase(prepare: &XaPrepare<'_>) -> String {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let (global, branch) = (hex(&prepare.global_id), hex(&prepare.branch));
    let id = format!("X'{global}',X'{branch}',{}", prepare.format_id);
    match prepare.one_phase {
        true => format!("XA COMMIT {id} ONE PHASE"),
        false => format!("XA PREPARE {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_phase_names_the_transaction_as_the_first_did() {
        let prepare = XaPrepare {
            one_phase: false,
            format_id: 1,
            global_id: b"1a"[..].into(),
            branch: Default::default(),
        };
        assert_eq!(second_phase(&prepare), "XA PREPARE X'3161',X'',1");
        let one_phase = XaPrepare {
            one_phase: true,
            ..prepare
        };
        assert_eq!(
            second_phase(&one_phase),
            "XA COMMIT X'3161',X'',1 ONE PHASE"
        );
    }
}
