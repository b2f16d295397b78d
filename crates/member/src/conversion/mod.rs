//! `witness enable-raft` and `witness disable-raft` without a command line: from plain replication into a ring and back. Both check all
//! servers, make a plan (`mysqld_controller::conversion`, pure), and have the members execute it step by step. Checks detect completed
//! steps, so that a killed run is simply repeated. The journal in the data directory records each step with its time.
//!
//! ```text
//!   Conversion ──► Enabling, Detaching ──► Course ──► carry_out
//!   who, where      looks, plans            shown     one step after the other, under two locks
//! ```
//!
//! The caller provides [`ConversionMembers`] to reach members: the command line uses their admin calls, a simulation its own links.

mod course;
mod disable;
mod enable;
mod scene;

use std::fmt;
use std::path::PathBuf;

use mysql_link::{ConnectOptions, Secret};
use mysqld_server::{ReplicationSource, SourceTls};
use raft_types::MemberId;
use tokio::time::Instant;

pub use crate::conversion::course::{Course, Journal, JournalEntries, JournalEntry, Work};
pub use crate::conversion::disable::{Detaching, ReplicationAccount};
pub use crate::conversion::enable::Enabling;
pub use crate::conversion::scene::{ConversionMembers, MemberPlace, MemberSaid, RingSeen};
use crate::protocol::{Refusal, RefusalKind};

/// The conversion's direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Into a ring.
    EnableRaft,
    /// Back to plain replication.
    DisableRaft,
}

impl Direction {
    /// The command's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::EnableRaft => "enable-raft",
            Self::DisableRaft => "disable-raft",
        }
    }

    /// The inverse command.
    pub fn back(self) -> Self {
        match self {
            Self::EnableRaft => Self::DisableRaft,
            Self::DisableRaft => Self::EnableRaft,
        }
    }
}

/// Input of a run.
pub struct Conversion<'a> {
    /// Which command it is.
    pub direction: Direction,
    /// How members are reached.
    pub members: &'a dyn ConversionMembers,
    /// The member of this host, next to the primary.
    pub own: MemberId,
    /// Its name.
    pub name: String,
    /// Directory of its journal and locks.
    pub data_dir: PathBuf,
    /// The account at its mysqld.
    pub connect: ConnectOptions,
    /// Replicas without a member whose source also changes.
    pub stock: Vec<StockReplica>,
    /// The account with which those read the binlog server; the run adds host and port. None without an account in this configuration.
    pub binlog_account: Option<BinlogAccount>,
    /// How a replica verifies the primary.
    pub source_tls: SourceTls,
    /// Deadline of the run.
    pub until: Instant,
}

/// A replica without a member, which follows a binlog server or the primary.
#[derive(Debug, Clone)]
pub struct StockReplica {
    /// Its address as the operator specified it.
    pub address: String,
    /// How to connect to it.
    pub connect: ConnectOptions,
    /// PEM file on its host with the CA of its source's certificate.
    pub ca_file: Option<PathBuf>,
}

impl StockReplica {
    /// How it verifies a source with or without TLS.
    fn source_tls(&self, offered: bool) -> Result<SourceTls, ConversionFailure> {
        match (&self.ca_file, offered) {
            (Some(ca_file), true) => Ok(SourceTls::Verified {
                ca_file: ca_file.clone(),
                identity: true,
            }),
            (Some(_), false) => Err(ConversionFailure::new(
                FailureKind::Refused,
                "its source offers no TLS, so it cannot verify it",
                "give the source a certificate of the ring's CA",
            )),
            (None, true) => Ok(SourceTls::Unverified),
            (None, false) => Ok(SourceTls::Off),
        }
    }
}

/// The account of a binlog server.
#[derive(Debug, Clone)]
pub struct BinlogAccount {
    /// Its user name.
    pub user: String,
    /// Its password, or why it cannot be read.
    pub password: Result<Secret, String>,
    /// True if it is reached over TLS.
    pub tls: bool,
}

impl BinlogAccount {
    /// The server at this address, as the source of a replica.
    ///
    /// # Errors
    /// When the password cannot be read.
    fn source(
        &self,
        (host, port): &(String, u16),
        replica: &StockReplica,
    ) -> Result<ReplicationSource, ConversionFailure> {
        let password = self.password.clone().map_err(|error| {
            ConversionFailure::error(format!(
                "the password of [binlog_server] cannot be read: {error}"
            ))
        })?;
        Ok(ReplicationSource {
            host: host.clone(),
            port: *port,
            user: self.user.clone(),
            password,
            tls: replica.source_tls(self.tls)?,
        })
    }
}

/// Kind of failure, from which exit codes are derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Any other failure.
    Error,
    /// The input is invalid.
    Usage,
    /// A member does not answer, or there is no leader.
    NoQuorum,
    /// A precondition does not hold.
    Refused,
    /// Time ran out, or an order's result is unknown.
    Unknown,
    /// The certificate does not permit it.
    NotAllowed,
}

/// Why a run stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionFailure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// What happened, in one sentence.
    pub what: String,
    /// What to do; empty when the sentence says it.
    pub advice: String,
}

impl ConversionFailure {
    /// A failure with advice.
    pub fn new(kind: FailureKind, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            advice: advice.into(),
        }
    }

    /// A failure that needs no advice.
    pub fn error(what: impl Into<String>) -> Self {
        Self::new(FailureKind::Error, what, "")
    }
}

impl From<Refusal> for ConversionFailure {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal.kind {
            RefusalKind::NoQuorum => FailureKind::NoQuorum,
            RefusalKind::Refused | RefusalKind::Busy => FailureKind::Refused,
            RefusalKind::Unknown => FailureKind::Unknown,
            RefusalKind::Failed => FailureKind::Error,
        };
        Self::new(kind, refusal.what, refusal.advice)
    }
}

impl fmt::Display for ConversionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.advice.is_empty() {
            true => Ok(()),
            false => write!(f, "\n  {}", self.advice),
        }
    }
}

impl std::error::Error for ConversionFailure {}
