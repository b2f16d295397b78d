//! A database member's mysqld in its view.

use std::collections::BTreeMap;
use std::fmt;

use consensus::DatabaseState;
use mysqld_controller::status::{RoleState, WriteFenceState};
use serde::{Deserialize, Serialize, Serializer};

/// A database member's mysqld.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MysqlView {
    /// What starts mysqld: `child`, `external` or `attach`.
    pub mode: String,
    /// The state of mysqld's process.
    pub state: MysqldState,
    /// The version of mysqld; `None` before the first check.
    pub version: Option<String>,
    /// mysqld's `server_uuid`, while it answers; unique in a ring.
    pub server_uuid: Option<String>,
    /// The last seen values of the settings that must be equal on all servers of the ring. If they differ, the same DDL or account
    /// statement has different effects. Empty before the first check.
    pub ddl_settings: BTreeMap<String, String>,
    /// True if the member receives mysqld's transactions.
    pub ingesting: bool,
    /// True if every commit on mysqld waits for the ring.
    pub protected: bool,
    /// Milliseconds since mysqld was last checked; `None` from an older version.
    pub examined_ms: Option<u64>,
    /// Why mysqld is not protected.
    pub unprotected_because: Vec<String>,
    /// True if clients may write to mysqld.
    pub writable: bool,
    /// True if mysqld was released as the ring's primary, so that clients write without the ring.
    pub released: bool,
    /// Why clients may or may not write to mysqld.
    #[serde(rename = "write_fence_state")]
    pub write_fence: WriteFenceState,
    /// Why ordinary accounts are excluded (`offline_mode`), if they are.
    pub offline: Option<String>,
    /// mysqld's role in the ring.
    #[serde(rename = "role_state")]
    pub role: RoleState,
    /// True if the ring's log is applied to it while another member leads.
    pub applies: bool,
    /// True if the applier applies the ring's log. The applier also retries while mysqld is down; [`Self::follows`] requires mysqld as
    /// well.
    pub following: bool,
    /// Milliseconds by which mysqld lags the ring's commits, while it follows and the lag is known. Entries that the member has not
    /// received yet count, as far as the leader reports them.
    pub lag_ms: Option<u64>,
    /// Transactions of the ring's log applied to it since the process started.
    pub applied_total: u64,
    /// Transactions that mysqld has executed and the ring has not committed, for example after an SQL `SHUTDOWN` without a quorum. Clients
    /// may have received success for them. `None` if the last comparison found none.
    pub errant: Option<ErrantTransactions>,
    /// The number of the last start of mysqld that was open for writes while this process ran.
    pub started_open: Option<u64>,
    /// Transactions that were committed without the ring, in starts open for writes that no operator has acknowledged.
    pub exposed: Option<u64>,
    /// Transactions that mysqld had committed and the ring lacked when the member attached, in total since the process started.
    pub not_in_ring_total: u64,
    /// Age in seconds of the oldest transaction in mysqld's binlog that is not acknowledged.
    pub oldest_unacked_seconds: Option<f64>,
    /// mysqld's transactions that the ring committed since the process started.
    pub acknowledged_total: u64,
    /// ACKs that were sent to mysqld; one ACK may be for many transactions.
    pub acks_total: u64,
    /// Transactions that were trimmed from mysqld's binlog before a start, because the ring had not committed them.
    pub trimmed_total: u64,
    /// The cost of a promotion: why mysqld could not become the primary soon, or how many committed transactions it has not executed. The
    /// value is a few seconds old at most; `None` before the first check.
    pub promotion: Option<DatabaseState>,
    /// The member's action, if its mysqld should be the primary and cannot be; `None` if it can be.
    pub demotion: Option<String>,
    /// What prevents mysqld from working, if anything.
    pub trouble: Option<String>,
    /// Conditions that need an operator, although mysqld works correctly at present.
    pub warnings: Vec<String>,
}

impl MysqlView {
    /// Returns true if the member does not manage mysqld. It is then a server of plain replication, whatever the member's role is.
    pub fn is_unmanaged(&self) -> bool {
        self.state == MysqldState::Unmanaged
    }

    /// Returns true if mysqld's member leads and mysqld lacks part of the log. No client can write before mysqld has caught up and is the
    /// primary.
    pub fn catches_up(&self) -> bool {
        !self.writable && matches!(self.role, RoleState::CatchingUp { .. })
    }

    /// Returns true if mysqld answers and follows the ring.
    pub fn follows(&self) -> bool {
        self.following && self.state == MysqldState::Running
    }
}

/// State of mysqld's process, from its supervisor and the last check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MysqldState {
    /// The process is starting, or does not answer yet.
    Starting,
    /// The data directory is being created.
    Initialising,
    /// mysqld answered the last check.
    Running,
    /// mysqld does not start, or has ended. It is started again.
    Failed,
    /// mysqld is not started before an operator acts.
    Held,
    /// The sessions end before mysqld stops.
    Draining,
    /// mysqld is about to stop.
    Stopping,
    /// mysqld was stopped.
    Stopped,
    /// Another program starts mysqld, and it does not answer.
    Unreachable,
    /// The member does not manage mysqld.
    Unmanaged,
    /// mysqld was not checked yet, or a later version reported the state.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Writes the state's name in JSON.
impl fmt::Display for MysqldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Adds role and write fence as texts for people to the JSON, under the keys `role` and `write_fence`.
pub(super) fn with_texts<S: Serializer>(
    mysql: &Option<MysqlView>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct WithTexts<'a> {
        #[serde(flatten)]
        view: &'a MysqlView,
        role: String,
        write_fence: String,
    }
    let with_texts = mysql.as_ref().map(|view| WithTexts {
        view,
        role: view.role.to_string(),
        write_fence: view.write_fence.to_string(),
    });
    with_texts.serialize(serializer)
}

/// Transactions that mysqld has executed and the ring has not committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrantTransactions {
    /// The number of these transactions.
    pub transactions: u64,
    /// All of them, in MySQL's text form.
    pub gtids: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::status::sample::database_leader;
    use crate::status::{MemberView, WaitingFor};

    #[test]
    fn role_and_write_fence_are_texts_and_values_in_json() {
        let view = MysqlView {
            state: MysqldState::Unreachable,
            role: RoleState::CatchingUp { lacks: 3 },
            write_fence: WriteFenceState::Closed {
                why: "no quorum".to_owned(),
            },
            ..MysqlView::default()
        };
        let member = MemberView {
            mysql: Some(view),
            ..database_leader()
        };
        let mut json = serde_json::to_value(&member).unwrap();
        let mysql = &mut json["mysql"];
        assert_eq!(mysql["state"], "unreachable");
        assert_eq!(
            mysql["role"],
            "catching up: 3 transactions behind, then the primary"
        );
        assert_eq!(
            mysql["role_state"],
            json!({"state": "catching_up", "behind": 3})
        );
        assert_eq!(mysql["write_fence"], "closed: no quorum");
        assert_eq!(mysql["write_fence_state"]["state"], "closed");
        mysql["role_state"] = json!({"state": "asleep", "since": 1});
        let read: MemberView = serde_json::from_value(json).unwrap();
        let read = read.mysql.unwrap();
        assert_eq!(read.role, RoleState::Unknown);
        assert_eq!(read.write_fence, member.mysql.unwrap().write_fence);
    }

    #[test]
    fn what_the_controller_alone_distinguishes_is_not_in_json() {
        let what = WaitingFor::Answer;
        let waiting = serde_json::to_value(RoleState::Waiting { what }).unwrap();
        assert_eq!(
            waiting,
            json!({"state": "waiting", "what": "mysqld has to answer"})
        );
        let read: RoleState = serde_json::from_value(waiting).unwrap();
        assert_eq!(read.to_string(), "waiting: mysqld has to answer");
        let open = WriteFenceState::NotClosed {
            why: "no quorum".to_owned(),
            cause: "commits wait".to_owned(),
            stuck_in: Some(3),
        };
        assert_eq!(
            serde_json::to_value(open).unwrap(),
            json!({"state": "not_closed", "why": "no quorum", "cause": "commits wait"})
        );
    }
}
