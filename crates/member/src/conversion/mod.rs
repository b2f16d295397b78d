//! `witness enable-raft` and `witness disable-raft` without a command line: they convert plain replication to a ring and back. Both check
//! all servers, make a plan, and order the members to execute it step by step. The checks detect completed steps, so a run that was killed
//! is simply repeated. The journal in the data directory records each step with its time.
//!
//! ```text
//!   decisions, pure     plan   enable_plan   disable_plan
//!   effects             scene (looks) ► course (journal, locks) ► execution (of each step)
//! ```
//!
//! The caller provides [`ConversionMembers`] to reach the members. The command line uses their admin calls; a simulation has its own.

mod course;
mod disable_plan;
mod enable_plan;
mod execution;
mod plan;
mod scene;

use std::path::PathBuf;

use mysql_link::{ConnectOptions, Secret};
use mysqld_server::SourceTls;
use raft_types::MemberId;
use tokio::time::Instant;

pub use crate::conversion::course::{Course, JournalEntries, JournalEntry};
pub use crate::conversion::plan::{Obstacle, Planned, Step};
pub use crate::conversion::scene::{ConversionMembers, MemberPlace, RingSeen};
use crate::protocol::Refusal;
use crate::settings::BinlogServerSettings;

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

    /// Returns the inverse command.
    pub fn back(self) -> Self {
        match self {
            Self::EnableRaft => Self::DisableRaft,
            Self::DisableRaft => Self::EnableRaft,
        }
    }
}

/// The input of a run.
pub struct Conversion<'a> {
    /// Which command is executed.
    pub direction: Direction,
    /// How members are reached.
    pub members: &'a dyn ConversionMembers,
    /// The member on this host, next to the primary.
    pub own: MemberId,
    /// The member's name.
    pub name: String,
    /// Directory of the journal and the lock file.
    pub data_dir: PathBuf,
    /// The member's account in its mysqld.
    pub connect: ConnectOptions,
    /// Replicas without a member, which get another source.
    pub stock: Vec<StockReplica>,
    /// For `enable-raft`: host and port of the binlog server that the replicas without a member are to follow, and its other settings.
    pub binlog_server: Option<((String, u16), BinlogServerSettings)>,
    /// For `disable-raft`: how replicas reach the primary.
    pub account: ReplicationAccount,
    /// How a replica verifies the primary.
    pub source_tls: SourceTls,
    /// Deadline of the run.
    pub until: Instant,
}

impl Conversion<'_> {
    fn stock_replica(&self, address: &str) -> Option<&StockReplica> {
        self.stock.iter().find(|stock| stock.address == address)
    }
}

/// A replica without a member, which follows a binlog server or the primary.
#[derive(Debug, Clone)]
pub struct StockReplica {
    /// Its address as the operator specified it.
    pub address: String,
    /// How to connect to it.
    pub connect: ConnectOptions,
    /// PEM file on the replica's host with the CA of its source's certificate.
    pub ca_file: Option<PathBuf>,
}

/// Address and login of the primary for the replicas.
#[derive(Debug, Clone, Default)]
pub struct ReplicationAccount {
    /// Host and port of the primary. By default, the host in its member's address, and mysqld's port.
    pub source: Option<(String, u16)>,
    /// User and password at the primary; required if there is a replica.
    pub login: Option<(String, Secret)>,
}

impl ReplicationAccount {
    /// Returns why replicas must not log in with this account. The member's own account is not allowed: it has all privileges, and every
    /// replica would store its password in clear text.
    fn mistake(&self, of_the_member: &str) -> Option<String> {
        match &self.login {
            None => Some("its replicas need an account there".to_owned()),
            Some((user, _)) if user == of_the_member => Some(format!(
                "`{user}` is the account of its member, which has all rights"
            )),
            Some(_) => None,
        }
    }
}

/// Returns the refusal for a failure that needs no advice.
fn failed(what: impl ToString) -> Refusal {
    Refusal::failed(what.to_string(), "")
}
