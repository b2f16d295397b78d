//! Errors of connections to a mysqld, with advice for an operator.

use std::time::Duration;
use std::{fmt, io};

use derive_more::Display;
use spilling_bytes::SpillLost;
use thiserror::Error;

use crate::client::Endpoint;
use crate::tls::{TlsConfigError, TlsMode};

/// The step in which a connection waited when an error happened.
#[derive(Debug, Display, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Opening the TCP connection or the unix socket.
    #[display("connecting")]
    Connect,
    /// Waiting for the server's greeting.
    #[display("waiting for the server's greeting")]
    Greeting,
    /// The TLS handshake, after the server's greeting.
    #[display("the TLS handshake")]
    TlsHandshake,
    /// Logging in with user and password.
    #[display("authentication")]
    Authentication,
    /// A statement and its answer.
    #[display("a statement")]
    Statement,
    /// Registering as a replica and requesting the binlog.
    #[display("asking for the binlog")]
    DumpRequest,
    /// Waiting for the next event of the binlog.
    #[display("reading the replication stream")]
    ReplicationStream,
    /// Sending a semi-sync acknowledgement.
    #[display("sending an ACK")]
    Ack,
}

/// An error packet of the server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message} (MySQL error {code}, SQLSTATE {sqlstate}){}", remedy(*code))]
pub struct ServerError {
    /// MySQL's error number; see [`server_code`].
    pub code: u16,
    /// SQLSTATE, five characters; `HY000` if the server sent none.
    pub sqlstate: String,
    /// The text of the server's error.
    pub message: String,
}

/// Returns the remedy for an error if MySQL's message does not name one.
fn remedy(code: u16) -> &'static str {
    match code {
        server_code::MUST_CHANGE_PASSWORD | server_code::MUST_CHANGE_PASSWORD_LOGIN => {
            ". The account's password has expired. As an administrator on this server, and on each other one on which the account has \
             expired: SET sql_log_bin = 0; ALTER USER … IDENTIFIED BY '…' PASSWORD EXPIRE NEVER (where super_read_only is on, it has \
             to be off for that)"
        }
        _ => "",
    }
}

/// MySQL's error numbers that this crate or its callers act on.
pub mod server_code {
    /// The server has no free connection (`max_connections`).
    pub const TOO_MANY_CONNECTIONS: u16 = 1040;
    /// The account has reached the server's `max_user_connections`.
    pub const TOO_MANY_USER_CONNECTIONS: u16 = 1203;
    /// The account has reached one of its own limits, such as its `MAX_USER_CONNECTIONS`.
    pub const USER_LIMIT_REACHED: u16 = 1226;
    /// User name or password is wrong.
    pub const ACCESS_DENIED: u16 = 1045;
    /// The client's host may not connect.
    pub const HOST_NOT_PRIVILEGED: u16 = 1130;
    /// The thread to kill does not exist; it has ended already.
    pub const NO_SUCH_THREAD: u16 = 1094;
    /// The server is shutting down.
    pub const SERVER_SHUTDOWN: u16 = 1053;
    /// A privilege for a table is missing.
    pub const TABLE_ACCESS_DENIED: u16 = 1142;
    /// The variable does not exist (in this version, or without its plugin).
    pub const UNKNOWN_SYSTEM_VARIABLE: u16 = 1193;
    /// A packet larger than `max_allowed_packet`.
    pub const PACKET_TOO_LARGE: u16 = 1153;
    /// `lock_wait_timeout` has passed.
    pub const LOCK_WAIT_TIMEOUT: u16 = 1205;
    /// The account lacks a privilege that the statement needs.
    pub const SPECIFIC_ACCESS_DENIED: u16 = 1227;
    /// The dump failed: purged binlogs, a replica that is ahead, a damaged file.
    pub const SOURCE_FATAL_ERROR_READING_BINLOG: u16 = 1236;
    /// `read_only`, `super_read_only` or a similar option prevents the statement.
    pub const OPTION_PREVENTS_STATEMENT: u16 = 1290;
    /// The statement was killed (`KILL QUERY`).
    pub const QUERY_INTERRUPTED: u16 = 1317;
    /// mysqld ended a SELECT at its `max_execution_time`.
    pub const QUERY_TIMEOUT: u16 = 3024;
    /// `RESTART` failed because mysqld has no supervisor; mysqld ends instead.
    pub const RESTART_FAILED: u16 = 3707;
    /// The password has expired, and the session may only change it.
    pub const MUST_CHANGE_PASSWORD: u16 = 1820;
    /// The password has expired, and the client does not support changing it.
    pub const MUST_CHANGE_PASSWORD_LOGIN: u16 = 1862;
    /// A plugin of that name is installed already.
    pub const PLUGIN_EXISTS: u16 = 1125;
    /// User or password is wrong, as reported by a plugin that received no password.
    pub const ACCESS_DENIED_NO_PASSWORD: u16 = 1698;
}

/// Received bytes that violate the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A packet with the wrong sequence number.
    #[error("packet {found} where packet {expected} was due: the stream is out of step")]
    Sequence {
        /// The expected number.
        expected: u8,
        /// The number in the packet.
        found: u8,
    },
    /// A packet that is larger than allowed in this step.
    #[error("a packet of at least {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The bytes received so far, or announced by the header.
        size: u64,
        /// The largest allowed packet in this step, in bytes.
        limit: u64,
    },
    /// The temporary file with a large packet's first chunks failed.
    #[error(transparent)]
    Lost(#[from] SpillLost),
    /// A packet that cannot be parsed.
    #[error("{what}: {reason}")]
    Malformed {
        /// The packet or field that was being read.
        what: &'static str,
        /// What is wrong with its bytes.
        reason: String,
    },
}

impl ProtocolError {
    pub(crate) fn malformed(what: &'static str, reason: impl fmt::Display) -> Self {
        Self::Malformed {
            what,
            reason: reason.to_string(),
        }
    }
}

/// Why a connection or a statement failed.
#[derive(Debug, Error)]
pub enum LinkError {
    /// No process listens at the address, or the network cannot reach it.
    #[error(
        "cannot reach mysqld at {endpoint}: {source}. Is it running, and does it listen there?"
    )]
    Unreachable {
        /// The address to connect to.
        endpoint: Endpoint,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A step took longer than allowed.
    #[error("mysqld at {endpoint} did not finish {step} within {limit:?}")]
    Timeout {
        /// The address of the server.
        endpoint: Endpoint,
        /// The step that took too long.
        step: Step,
        /// The time limit.
        limit: Duration,
    },
    /// The connection ended while an answer was awaited.
    #[error("the connection to mysqld at {endpoint} ended during {step}: {source}")]
    Closed {
        /// The address of the server.
        endpoint: Endpoint,
        /// The step in which it ended.
        step: Step,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The options require TLS, and the server does not offer it.
    #[error(
        "mysqld at {0} offers no TLS, and the TLS mode is `{1}`: give mysqld a certificate \
         (its ssl_cert and ssl_key), connect by its unix socket, or set the mode to `preferred`"
    )]
    TlsNotOffered(Endpoint, TlsMode),
    /// The TLS handshake failed, or the certificate was refused.
    #[error("TLS with mysqld at {endpoint} failed in mode `{mode}`: {source}. {advice}")]
    Tls {
        /// The address of the server.
        endpoint: Endpoint,
        /// The TLS mode of the options.
        mode: TlsMode,
        /// The error of rustls.
        source: io::Error,
        /// What to check, as far as the error shows it.
        advice: &'static str,
    },
    /// The client's own certificates or keys cannot be used.
    #[error(transparent)]
    TlsConfig(#[from] TlsConfigError),
    /// User name or password is wrong.
    #[error(
        "mysqld at {endpoint} refuses user `{user}`: {error}. Check the configured user and password, and on the \
         server that the account exists for the host from which we come: SELECT user, host, plugin, \
         account_locked FROM mysql.user WHERE user = '{user}'"
    )]
    AccessDenied {
        /// The address of the server.
        endpoint: Endpoint,
        /// The user name of the options.
        user: String,
        /// The server's message; it names user@host as seen by the server.
        error: ServerError,
    },
    /// The server refused the connection for another reason.
    #[error("mysqld at {endpoint} refuses the connection: {error}")]
    Refused {
        /// The address of the server.
        endpoint: Endpoint,
        /// The error that the server sent.
        error: ServerError,
    },
    /// The account's authentication plugin is not supported.
    #[error(
        "mysqld at {0} asks for the authentication plugin `{1}`, which is not supported: use \
         ALTER USER … IDENTIFIED WITH caching_sha2_password BY …"
    )]
    UnsupportedPlugin(Endpoint, String),
    /// The RSA exchange is not possible.
    #[error("the RSA exchange with mysqld at {0} is not possible: {1}")]
    PublicKey(Endpoint, String),
    /// The server is another product that uses MySQL's protocol.
    #[error("{} is no MySQL: {}", .0, crate::foreign(.1))]
    OtherProduct(Endpoint, &'static str),
    /// The server answered a statement with an error. The connection stays usable.
    #[error("{0}")]
    Server(#[from] ServerError),
    /// The peer violated the protocol.
    #[error("mysqld at {0} broke the protocol: {1}")]
    Protocol(Endpoint, ProtocolError),
    /// The connection was abandoned earlier, in the middle of an exchange.
    #[error(
        "the connection to mysqld at {0} was given up after an earlier failure: make a new one"
    )]
    GivenUp(Endpoint),
}

impl LinkError {
    /// The server's error number, where the server answered with one.
    pub fn server_code(&self) -> Option<u16> {
        match self {
            Self::Server(error)
            | Self::AccessDenied { error, .. }
            | Self::Refused { error, .. } => Some(error.code),
            _ => None,
        }
    }
}

// Statements that a source can execute and a replica cannot, whatever applies the log: one sentence for each error.

/// Returns the most likely cause and the remedy when a statement of the log fails with this error, although it succeeded at the source.
/// `None`: the server's own message must suffice.
#[must_use]
pub fn not_followed(code: u16) -> Option<&'static str> {
    Some(match code {
        1812 => {
            "ALTER TABLE … IMPORT TABLESPACE takes files that no log brings: copy the table's .ibd (and .cfg) file from the \
             source's data directory into the same folder of this server's"
        }
        3121 => {
            "A DATA DIRECTORY has to be allowed on each server: add it to innodb_directories here, which takes a restart of \
             mysqld"
        }
        1031 => {
            "A session with innodb_strict_mode = OFF may have made the table, which the log does not say: SET GLOBAL \
             innodb_strict_mode = OFF here until this is applied"
        }
        1048 => {
            "A session with explicit_defaults_for_timestamp = OFF may have meant the time by NULL, which a statement in the \
             log does not say: let the source log rows (binlog_format = ROW), and copy its data here again"
        }
        182 => {
            "InnoDB takes values of FTS_DOC_ID in growing order only, and the source's transactions took theirs in another order \
             than they committed in: drop the table's FULLTEXT indexes here, with sql_log_bin = 0, and add them again when this \
             is applied; to be rid of it, drop the column at the source, for which InnoDB then has a hidden one"
        }
        1418 | 1419 => {
            "The source has log_bin_trust_function_creators = ON, which no log says: SET GLOBAL log_bin_trust_function_creators = ON \
             here until this is applied. The applier does so by itself where its account has SYSTEM_VARIABLES_ADMIN"
        }
        1141 => {
            "The source may have partial_revokes = ON, which no log says, and REVOKE means another thing there: SET PERSIST \
             partial_revokes = ON here, too"
        }
        1126 | 1128 | 1149 | 1524 => {
            "What a plugin, a component or a loadable function brings is in no log (ways to log in, privileges of its own, FULLTEXT \
             parsers), and each server needs it. A follower is closed for it, and closed again a moment after it was opened, so give it \
             both statements at once: mysql -e \"SET GLOBAL super_read_only = OFF; INSTALL PLUGIN … SONAME '…'\""
        }
        1146 => {
            "If it is a temporary table of a session with binlog_format = STATEMENT, it was here until the applier or mysqld was started \
             anew, and nothing brings it back: let the source log rows (binlog_format = ROW), and copy its data here again"
        }
        1452 => {
            "The parent's row is not there yet, or not at all. Where the source's statement changed a child's row both by itself \
             and by a cascade, MySQL 9.6 and later log the child before its parent: mysql.apply = \"rows\" applies that, and \
             innodb_native_foreign_keys = ON at the source avoids it"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_replicas_cannot_run_have_a_remedy() {
        for (code, helps) in [
            (1812, ".ibd"),
            (3121, "innodb_directories"),
            (1031, "innodb_strict_mode = OFF"),
            (1128, "INSTALL PLUGIN … SONAME"),
            (1149, "privileges of its own"),
            (1048, "binlog_format = ROW"),
            (182, "FULLTEXT"),
            (1418, "log_bin_trust_function_creators = ON"),
            (1419, "log_bin_trust_function_creators = ON"),
            (1141, "partial_revokes = ON"),
            (1524, "super_read_only = OFF; INSTALL PLUGIN"),
            (1146, "binlog_format = ROW"),
            (1452, "mysql.apply = \"rows\""),
        ] {
            let sentence = not_followed(code).unwrap();
            assert!(sentence.contains(helps), "{code}: {sentence}");
        }
        assert_eq!(not_followed(1062), None);
    }
}
