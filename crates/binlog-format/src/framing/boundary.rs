//! Transaction boundaries: a pure table over (place in the transaction, event). These are the rules by which a MySQL replica finds
//! boundaries in its relay log.

use crate::decode_error::DecodeError;
use crate::event::{EventFlags, EventRef};
use crate::event_type::EventType;
use crate::events::{Query, StatementKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// After a GTID: the kind of transaction is not known yet.
    Begun,
    /// After a variable for the next statement, without a preceding BEGIN.
    BeforeStatement,
    /// Between BEGIN and the end.
    Inside,
}

/// The event that ended a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransactionEnd {
    /// An XID event: the commit of a transactional engine.
    Xid,
    /// The statement COMMIT: engines without transactions, and empty transactions.
    Commit,
    /// The statement ROLLBACK after changes that cannot be undone.
    Rollback,
    /// A statement without BEGIN: DDL, account management, XA COMMIT.
    Statement,
    /// The first phase of an XA transaction (or its only one).
    XaPrepare,
    /// XA ROLLBACK of a prepared transaction.
    XaRollback,
    /// One event that holds the whole transaction, usually compressed.
    Payload,
}

/// What an event means for the boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Begin,
    End(TransactionEnd),
    /// XA ROLLBACK: a transaction of its own, or the end of one that XA START began.
    XaRollback,
    /// A statement: a transaction of its own, or after BEGIN a part of one.
    Statement,
    /// A variable for the next statement.
    Variable,
    /// A whole transaction in one event.
    Payload,
    /// Rows, table maps and other events between BEGIN and the end.
    Part,
    /// Allowed anywhere in a transaction.
    Neutral,
}

/// The effect of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It belongs to the transaction, which continues at this place.
    GoOn(Place),
    /// It is the last one.
    Finish(TransactionEnd),
    Refuse,
}

/// The role of an event that may belong to a transaction.
pub(super) fn role(event: EventRef<'_>) -> Result<Role, DecodeError> {
    Ok(match event.event_type() {
        EventType::Query => statement_role(&Query::decode(event)?.statement),
        EventType::Xid => Role::End(TransactionEnd::Xid),
        EventType::XaPrepare => Role::End(TransactionEnd::XaPrepare),
        EventType::TransactionPayload => Role::Payload,
        EventType::IntVar | EventType::Rand | EventType::UserVar => Role::Variable,
        EventType::Ignorable | EventType::TransactionContext | EventType::DeleteFile => {
            Role::Neutral
        }
        EventType::Other(_) if event.header().flags.contains(EventFlags::IGNORABLE) => {
            Role::Neutral
        }
        _ => Role::Part,
    })
}

fn statement_role(statement: &[u8]) -> Role {
    match StatementKind::of(statement) {
        StatementKind::Begin | StatementKind::XaStart => Role::Begin,
        StatementKind::Commit => Role::End(TransactionEnd::Commit),
        StatementKind::Rollback => Role::End(TransactionEnd::Rollback),
        StatementKind::XaRollback => Role::XaRollback,
        StatementKind::Savepoint | StatementKind::Other => Role::Statement,
    }
}

/// The effect of an event at a place of a transaction: the complete table.
pub(super) fn step(place: Place, role: Role) -> Step {
    use Place::{BeforeStatement, Begun, Inside};
    match (place, role) {
        (place, Role::Neutral) => Step::GoOn(place),

        (Begun, Role::Begin) => Step::GoOn(Inside),
        (Begun | BeforeStatement, Role::Variable) => Step::GoOn(BeforeStatement),
        (Begun | BeforeStatement, Role::Statement) => Step::Finish(TransactionEnd::Statement),
        (Begun | Inside, Role::XaRollback) => Step::Finish(TransactionEnd::XaRollback),
        (Begun, Role::Payload) => Step::Finish(TransactionEnd::Payload),

        (Inside, Role::End(end)) => Step::Finish(end),
        (Inside, Role::Statement | Role::Variable | Role::Part) => Step::GoOn(Inside),

        (Begun, Role::End(_) | Role::Part)
        | (
            BeforeStatement,
            Role::Begin | Role::End(_) | Role::XaRollback | Role::Payload | Role::Part,
        )
        | (Inside, Role::Begin | Role::Payload) => Step::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_the_roles_that_the_server_gives_them() {
        let table: [(&[u8], Role); 16] = [
            (b"BEGIN", Role::Begin),
            (b"begin", Role::Statement),
            (b"BEGIN WORK", Role::Statement),
            (b"XA START X'31',X'',1", Role::Begin),
            (b"XA END X'31',X'',1", Role::Statement),
            (b"XA COMMIT X'31',X'',1", Role::Statement),
            (b"XA ROLLBACK X'31',X'',1", Role::XaRollback),
            (b"COMMIT", Role::End(TransactionEnd::Commit)),
            (b"COMMIT AND CHAIN", Role::Statement),
            (b"ROLLBACK", Role::End(TransactionEnd::Rollback)),
            (b"rollback /* tail */", Role::End(TransactionEnd::Rollback)),
            (b"ROLLBACK TO `s`", Role::Statement),
            (b"rollback to s", Role::Statement),
            (b"SAVEPOINT `s`", Role::Statement),
            (b"create table t (a int)", Role::Statement),
            (b"", Role::Statement),
        ];
        for (statement, expected) in table {
            assert_eq!(
                statement_role(statement),
                expected,
                "{}",
                statement.escape_ascii()
            );
        }
    }
}
