//! Translates server errors into their meaning for the transaction being applied. Pure.

use mysql_link::{LinkError, ServerError, not_followed};

use crate::backend::{BackendError, Refusal, WriteError};
use crate::schema::TableName;

/// Error numbers that are handled individually.
pub(super) mod code {
    pub(crate) const FTS_DOC_ID: u16 = 182;
    pub(crate) const SCHEMA_ACCESS_DENIED: u16 = 1044;
    pub(crate) const UNKNOWN_SCHEMA: u16 = 1049;
    pub(crate) const UNKNOWN_TABLE: u16 = 1146;
    pub(crate) const READ_ONLY: u16 = 1290;
    pub(crate) const UNKNOWN_TIME_ZONE: u16 = 1298;
    pub(crate) const UNKNOWN_ERROR: u16 = 1105;
    pub(crate) const XA_UNKNOWN: u16 = 1397;
    pub(crate) const XA_WRONG_STATE: u16 = 1399;
    pub(crate) const FUNCTION_NOT_SAFE: u16 = 1418;
    pub(crate) const CREATOR_NOT_TRUSTED: u16 = 1419;
    pub(crate) const ALREADY_EXECUTED: u16 = 3546;
}

/// How to handle a failed transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failing {
    /// The transaction may be retried unchanged.
    Again,
    /// The session is lost; another one is needed.
    Lost,
    Refused,
}

pub(super) fn failing(error: &ServerError) -> Failing {
    match error.code {
        // Lock wait timeout, deadlock; both for XA; a killed statement; a "temporary" error; too many transactions.
        1205 | 1213 | 1613 | 1614 | 1317 | 1297 | 1637 => Failing::Again,
        // Shutdown; the connection is killed, idle for too long, or broken.
        1053 | 1158..=1161 | 1184 | 1927 | 3169 | 4031 => Failing::Lost,
        _ => Failing::Refused,
    }
}

/// Returns the failure of a transaction when the refused row is unknown.
pub(super) fn write_error(error: &ServerError) -> WriteError {
    match failing(error) {
        Failing::Again => WriteError::Again(error.to_string()),
        Failing::Lost => WriteError::Lost(error.to_string()),
        Failing::Refused => refused(error, None, None),
    }
}

/// Returns a refusal with the server's message, and with a remedy if the message does not name one.
pub(super) fn refused(
    error: &ServerError,
    table: Option<TableName>,
    row: Option<usize>,
) -> WriteError {
    let advice = advice(error.code).map(|advice| format!(". {advice}"));
    let message = error.to_string() + &advice.unwrap_or_default();
    WriteError::Refused(Box::new(Refusal {
        table,
        row: row.map(|row| row + 1),
        code: error.code,
        message,
    }))
}

/// Returns a refusal by the applier itself, without an error of the server.
pub(super) fn refused_by_us(message: impl Into<String>) -> WriteError {
    WriteError::Refused(Box::new(Refusal {
        table: None,
        row: None,
        code: 0,
        message: message.into(),
    }))
}

fn advice(code: u16) -> Option<&'static str> {
    Some(match code {
        1032 => {
            "The row that the log changes is not there: the target's data is not what the log was written on"
        }
        1290 | 1836 => {
            "With super_read_only = ON nobody can write; with read_only = ON an account with CONNECTION_ADMIN can: \
             SET GLOBAL super_read_only = OFF leaves read_only as it is"
        }
        code::UNKNOWN_TIME_ZONE => {
            "The source's session had this time zone, and rows are evaluated in it. Load the time zone tables of the target, as \
             the source has them: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql"
        }
        code::FTS_DOC_ID => return not_followed(code),
        1044 | 1142 | 1143 | 1227 | 1370 | 1410 => "Grant the account what is missing",
        _ => return None,
    })
}

/// Translates a connection error into the failure of a transaction.
pub(super) fn link_error(error: LinkError) -> WriteError {
    match error {
        LinkError::Server(error) => write_error(&error),
        other => lost(other),
    }
}

/// Translates a connection error after which the session is unusable.
pub(super) fn lost(error: LinkError) -> WriteError {
    WriteError::Lost(error.to_string())
}

/// Translates a connection error into the failure of a query.
pub(super) fn backend_error(error: LinkError) -> BackendError {
    match &error {
        LinkError::Server(server) | LinkError::Refused { error: server, .. } => {
            // Too many connections, in total or of this user.
            let busy = matches!(server.code, 1040 | 1203 | 1226);
            match failing(server) {
                Failing::Refused if !busy => BackendError::Refused(error.to_string()),
                _ => BackendError::Unreachable(error.to_string()),
            }
        }
        LinkError::Unreachable { .. }
        | LinkError::Timeout { .. }
        | LinkError::Closed { .. }
        | LinkError::GivenUp { .. } => BackendError::Unreachable(error.to_string()),
        _ => BackendError::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16) -> ServerError {
        ServerError {
            code,
            sqlstate: "HY000".to_owned(),
            message: "message".to_owned(),
        }
    }

    #[test]
    fn only_transient_errors_are_retried() {
        for (code, expected) in [
            (1213, Failing::Again),
            (1205, Failing::Again),
            (1317, Failing::Again),
            (1053, Failing::Lost),
            (3169, Failing::Lost),
            (1062, Failing::Refused),
            (1032, Failing::Refused),
            (1452, Failing::Refused),
            (1290, Failing::Refused),
        ] {
            assert_eq!(failing(&server(code)), expected, "{code}");
        }
    }

    #[test]
    fn a_refusal_has_its_place_and_a_remedy() {
        let table = TableName {
            schema: "d".into(),
            table: "t".into(),
        };
        let refused = refused(&server(1032), Some(table), Some(4)).to_string();
        assert!(refused.starts_with("d.t, row 5 of the transaction: message (MySQL error 1032"));
        assert!(refused.contains("is not there"));
    }

    #[test]
    fn a_busy_server_is_unreachable_and_a_denial_is_refused() {
        let busy = backend_error(LinkError::Refused {
            endpoint: mysql_link::Endpoint::tcp("h", 1),
            error: server(1040),
        });
        assert!(matches!(busy, BackendError::Unreachable(_)));
        let denied = backend_error(LinkError::Server(server(1142)));
        assert!(matches!(denied, BackendError::Refused(_)));
    }
}
