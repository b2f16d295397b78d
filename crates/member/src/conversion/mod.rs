//! `witness enable-raft` and `witness disable-raft` without a command line: from plain replication into a ring and back. Both check all
//! servers, make a plan, and have the members execute it step by step. Checks detect completed steps, so that a killed run is simply
//! repeated. The journal in the data directory records each step with its time.
//!
//! ```text
//!   decisions, pure     plan   enable_plan   disable_plan
//!   effects             scene (looks) ► course (journal, locks) ► execution (of each step)
//! ```
//!
//! The caller provides [`ConversionMembers`] to reach members: the command line uses their admin calls, a simulation its own links.

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
    /// Host and port of the binlog server that those are to follow, where `enable-raft` is given one, and its other settings.
    pub binlog_server: Option<((String, u16), BinlogServerSettings)>,
    /// How replicas reach the primary, for `disable-raft`.
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
    /// PEM file on its host with the CA of its source's certificate.
    pub ca_file: Option<PathBuf>,
}

/// Address and login of the primary for the replicas.
#[derive(Debug, Clone, Default)]
pub struct ReplicationAccount {
    /// Host and port of the primary; by default the host of its member's address, and mysqld's port.
    pub source: Option<(String, u16)>,
    /// User and password at the primary; required as soon as there is a replica.
    pub login: Option<(String, Secret)>,
}

impl ReplicationAccount {
    /// Why no replica can log in with it. The member's own account is unsuitable: it has all rights, and every replica would store its
    /// password in clear text.
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

/// A failure that needs no advice.
fn failed(what: impl ToString) -> Refusal {
    Refusal::failed(what.to_string(), "")
}
