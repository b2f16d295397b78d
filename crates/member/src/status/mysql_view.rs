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
    /// State of its process.
    pub state: MysqldState,
    /// Its version; none before the first check.
    pub version: Option<String>,
    /// Its `server_uuid`, while it answers; unique in a ring.
    pub server_uuid: Option<String>,
    /// Settings last seen that must be equal on all servers of the ring. Otherwise the same DDL or account statement has different effects.
    /// Empty before the first check.
    pub ddl_settings: BTreeMap<String, String>,
    /// Whether the member receives its transactions.
    pub ingesting: bool,
    /// Whether every commit there waits for the ring.
    pub protected: bool,
    /// Milliseconds since it was examined; none from an older version.
    pub examined_ms: Option<u64>,
    /// Why it is not protected.
    pub unprotected_because: Vec<String>,
    /// Whether clients may write there.
    pub writable: bool,
    /// True if it was released as the ring's primary: clients write without the ring.
    pub released: bool,
    /// Why clients may or may not write there.
    #[serde(rename = "write_fence_state")]
    pub write_fence: WriteFenceState,
    /// Why it excludes ordinary accounts (`offline_mode`), if it does.
    pub offline: Option<String>,
    /// Its role in the ring.
    #[serde(rename = "role_state")]
    pub role: RoleState,
    /// True if the ring's log is applied to it while another member leads.
    pub applies: bool,
    /// Whether its applier applies the ring's log. The applier retries while mysqld is down; [`Self::follows`] also requires mysqld.
    pub following: bool,
    /// Milliseconds that applied entries lag behind the ring's commits, while it follows and this is known. Entries not yet received count,
    /// as far as the leader reports them.
    pub lag_ms: Option<u64>,
    /// Transactions of the ring's log applied to it since the process started.
    pub applied_total: u64,
    /// Transactions that mysqld has executed and the ring has not committed, as after an SQL `SHUTDOWN` without a quorum. Clients may have
    /// received success. `None` if the last comparison found none.
    pub errant: Option<ErrantTransactions>,
    /// Number of the last start open for writes while this process ran.
    pub started_open: Option<u64>,
    /// Transactions committed without the ring in starts open for writes that no operator has acknowledged.
    pub exposed: Option<u64>,
    /// Transactions that mysqld had committed and the ring lacked when the member attached, since the process started.
    pub not_in_ring_total: u64,
    /// Age of the oldest unacknowledged transaction in its binlog.
    pub oldest_unacked_seconds: Option<f64>,
    /// Its transactions that the ring committed since the process started.
    pub acknowledged_total: u64,
    /// Acknowledgements sent to it; one may cover many transactions.
    pub acks_total: u64,
    /// Transactions trimmed from its binlog before a start, because the ring had not committed them.
    pub trimmed_total: u64,
    /// Cost of a promotion: why its mysqld could not soon be the primary, or how many committed transactions it has not executed. A few
    /// seconds old at most; none before the first check.
    pub promotion: Option<DatabaseState>,
    /// The member's action about a mysqld that should be the primary and cannot; none when it can.
    pub demotion: Option<String>,
    /// What prevents it from working, if anything.
    pub trouble: Option<String>,
    /// Conditions that need an operator, although mysqld currently works as it should.
    pub warnings: Vec<String>,
}

impl MysqlView {
    /// Returns whether the member does not manage it. It is then a server of plain replication, with any role of the member.
    pub fn is_unmanaged(&self) -> bool {
        self.state == MysqldState::Unmanaged
    }

    /// Whether its member leads and it lacks part of the log. No client writes before it has caught up and is a primary.
    pub fn catches_up(&self) -> bool {
        !self.writable && matches!(self.role, RoleState::CatchingUp { .. })
    }

    /// Whether it answers and follows the ring.
    pub fn follows(&self) -> bool {
        self.following && self.state == MysqldState::Running
    }
}

/// State of mysqld's process, from its supervisor and the last check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MysqldState {
    /// Its process starts, or does not answer yet.
    Starting,
    /// Its data directory is being created.
    Initialising,
    /// It answered the last check.
    Running,
    /// It does not start, or has ended; it is started again.
    Failed,
    /// It is not started before an operator acts.
    Held,
    /// Its sessions end before it stops.
    Draining,
    /// It is about to stop.
    Stopping,
    /// It was stopped.
    Stopped,
    /// Another program starts it, and it does not answer.
    Unreachable,
    /// The member does not manage it.
    Unmanaged,
    /// Not checked yet, or a state of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Its name in JSON.
impl fmt::Display for MysqldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// In JSON, role and write fence are also texts for people, under the keys `role` and `write_fence`.
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
