//! What an operator can ask of a member. A JSON document on the wire; fields are only ever added.

use std::fmt;

use consensus::{PauseRequest, RecordChange, RepairPlan, RulesChange};
use mysqld_controller::conversion::ServerLook;
use mysqld_controller::provision::CloneAccount;
use raft_types::{MemberId, MemberRecord, OpId, RingId, UnixSeconds};
use serde::{Deserialize, Serialize};
use transport::Right;

/// A command to one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum OperatorCommand {
    /// Gives the leadership to a member. To the leader.
    Promote {
        /// The database member that is to lead.
        to: MemberId,
        /// Also where its mysqld is not fit to be the primary soon.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Asks whether a member would be elected. To the leader.
    MockElection {
        /// The member that would be the candidate.
        to: MemberId,
    },
    /// Takes a new member in. To the leader.
    AddMember {
        /// A number that no member of the ring ever had.
        member: MemberId,
        /// Everything else, its data directory included.
        record: MemberRecord,
    },
    /// Changes what the log says of a member. To the leader.
    UpdateMember {
        /// The number of the member that changes.
        member: MemberId,
        /// The fields to change; the others stay.
        #[serde(rename = "wish")] // as members of version 0.1 know it
        change: RecordChange,
        /// Only say what would change.
        dry_run: bool,
    },
    /// Changes the rules of the quorum. To the leader.
    SetRules {
        /// The rules to change; the others stay.
        #[serde(rename = "wish")] // as members of version 0.1 know it
        change: RulesChange,
        /// Only say what would change.
        dry_run: bool,
    },
    /// Lets a member go. To the leader.
    RemoveMember {
        /// The number of the member that leaves the ring.
        member: MemberId,
    },
    /// Puts a switchover off to a time, in place of one that was put off before. To the leader.
    ScheduleSwitchover {
        /// The database member that is to lead.
        to: MemberId,
        /// From when on.
        at: UnixSeconds,
    },
    /// Takes the scheduled switchover back. To the leader.
    CancelSwitchover,
    /// Pauses failover. To the leader.
    Pause {
        /// For how long, by whom and why.
        #[serde(rename = "wish")] // as members of version 0.1 know it
        request: PauseRequest,
    },
    /// Ends the pause. To the leader.
    Resume,
    /// Says what happened to the ring, as its log tells it. To any member.
    History,
    /// Ends the warning about starts of mysqld that were open for writes. To that member.
    AcknowledgeExposure,
    /// Says what the member knows of its log and the quorum. To every member.
    Evidence,
    /// Repairs a quorum that is lost for good. To the member that goes on.
    RepairQuorum {
        /// What is to be done.
        plan: RepairPlan,
        /// The last entry after which a loss is accepted.
        accepted_loss: Option<OpId>,
    },
    /// Ends the current file of the log on every member. To the leader.
    FlushLog,
    /// Removes old files of a member's log. To that member.
    PurgeLog {
        /// Which files are to go: up to a name, beyond a size, or older than a time.
        #[serde(rename = "wish")] // as members of version 0.1 know it
        request: PurgeRequest,
        /// Only say which would go.
        dry_run: bool,
    },
    /// Makes the ring of the configured members. To a member beside the server that is to be the primary.
    #[serde(rename = "found")] // as members of version 0.1 know it
    Bootstrap {
        /// What its log begins behind, a GTID set in MySQL's words.
        origin: String,
    },
    /// Has a member do something to its mysqld, for `enable-raft` and `disable-raft`. To that member.
    Mysqld {
        /// The step to take, or only a look at the server.
        order: MysqldOrder,
    },
    /// Replaces the data of a member's mysqld by a copy of another member's. To that member.
    Provision {
        /// The member whose mysqld the data are copied from.
        donor: MemberId,
        /// Only say what would be lost.
        dry_run: bool,
        /// Also where the binlog files with errant transactions cannot be kept.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Says what would refuse a command, and changes nothing. To whom the command goes. (Not a field of each command: a member that
    /// does not know it would carry the command out.)
    DryRun {
        /// A promotion, a member's addition or removal, or a reload; others have a dry run of their own, or none.
        of: Box<OperatorCommand>,
    },
    /// Reads the configuration again, and takes what can be taken without a restart. To that member.
    Reload,
    /// Restarts a member's mysqld in good order. To that member.
    RestartMysqld {
        /// Also where it is the primary.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Executes a statement in the place of the transaction at which the follower's applier is stopped, under its GTID. To that
    /// member.
    ReplaceStatement {
        /// The transaction that cannot be executed.
        gtid: String,
        /// What is executed instead.
        statement: String,
    },
    /// Makes an account for a copy of the data of this member's mysqld. From another member.
    OfferClone {
        /// The member whose mysqld copies the data.
        recipient: MemberId,
    },
    /// Takes that account away. From another member.
    WithdrawClone {
        /// The account as the offer named it.
        account: CloneAccount,
    },
}

/// A command on its way to a member, with who gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What is to be done.
    #[serde(flatten)]
    pub command: OperatorCommand,
    /// The name that the caller claims. The audit log and the ring's history name the caller by its certificate; without TLS, by this.
    /// Members of version 0.1 neither send nor read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// Which of the oldest files of a log are to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeRequest {
    /// All before this one, as `PURGE BINARY LOGS TO` means it.
    BeforeFile(String),
    /// As many as it takes until all together take at most this many bytes.
    KeepBytes(u64),
    /// Those that were closed before this time, in seconds since the epoch.
    ClosedBefore(u32),
}

impl OperatorCommand {
    /// Whether it changes anything, and is therefore recorded.
    pub fn changes_something(&self) -> bool {
        match self {
            Self::MockElection { .. } | Self::Evidence | Self::History => false,
            Self::PurgeLog { dry_run, .. }
            | Self::Provision { dry_run, .. }
            | Self::UpdateMember { dry_run, .. }
            | Self::SetRules { dry_run, .. } => !dry_run,
            Self::Mysqld { order } => order.changes_something(),
            Self::OfferClone { .. }
            | Self::Bootstrap { .. }
            | Self::WithdrawClone { .. }
            | Self::RestartMysqld { .. }
            | Self::ReplaceStatement { .. }
            | Self::Reload => true,
            Self::DryRun { .. } => false,
            Self::Promote { .. }
            | Self::ScheduleSwitchover { .. }
            | Self::CancelSwitchover
            | Self::Pause { .. }
            | Self::Resume
            | Self::FlushLog
            | Self::AcknowledgeExposure
            | Self::AddMember { .. }
            | Self::RemoveMember { .. }
            | Self::RepairQuorum { .. } => true,
        }
    }
}

impl OperatorCommand {
    /// The same, where it names the operator itself, with the name that is recorded.
    pub(crate) fn attributed_to(self, by: &str) -> Self {
        match self {
            Self::Pause { request } => Self::Pause {
                request: PauseRequest {
                    by: by.to_owned(),
                    ..request
                },
            },
            other => other,
        }
    }

    /// What giving it takes.
    pub fn right(&self) -> Right {
        match self {
            // Members have each other do these; nobody else needs them.
            Self::OfferClone { .. } | Self::WithdrawClone { .. } => Right::SpeakAsMember,
            command if command.changes_something() => Right::Operate,
            _ => Right::Read,
        }
    }
}

/// As it is named in sentences: "the promotion of member 2".
impl fmt::Display for OperatorCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promote { to, .. } => write!(f, "the promotion of member {to}"),
            Self::MockElection { to } => write!(f, "the mock election of member {to}"),
            Self::AddMember { member, .. } => write!(f, "adding member {member}"),
            Self::UpdateMember { member, .. } => write!(f, "the change of member {member}"),
            Self::SetRules { .. } => write!(f, "the change of the quorum's rules"),
            Self::RemoveMember { member } => write!(f, "the removal of member {member}"),
            Self::ScheduleSwitchover { to, .. } => {
                write!(f, "scheduling the promotion of member {to}")
            }
            Self::CancelSwitchover => write!(f, "the end of the scheduled switchover"),
            Self::Pause { .. } => write!(f, "the pause of failover"),
            Self::FlushLog => write!(f, "the rotation of the log"),
            Self::Resume => write!(f, "the end of the pause of failover"),
            Self::History => write!(f, "asking for the history"),
            Self::AcknowledgeExposure => {
                write!(f, "the acknowledgement of starts that were open for writes")
            }
            Self::Evidence => write!(f, "asking for evidence"),
            Self::PurgeLog { .. } => write!(f, "the purge of a log"),
            Self::Bootstrap { .. } => write!(f, "making the ring"),
            Self::Mysqld { order } => write!(f, "the order {order}"),
            Self::Provision { donor, .. } => {
                write!(f, "the provisioning of a mysqld from member {donor}")
            }
            Self::DryRun { of } => write!(f, "the dry run of {of}"),
            Self::Reload => write!(f, "the reload of the configuration"),
            Self::RestartMysqld { .. } => write!(f, "the restart of its mysqld"),
            Self::ReplaceStatement { gtid, .. } => {
                write!(f, "another statement in the place of {gtid}")
            }
            Self::OfferClone { recipient } => {
                write!(f, "making an account for the copy of member {recipient}")
            }
            Self::WithdrawClone { account } => write!(f, "removing the account {account}"),
            Self::RepairQuorum { plan, .. } => {
                write!(f, "the repair of the quorum with member {}", plan.survivor)
            }
        }
    }
}

// What `witness enable-raft` and `witness disable-raft` have a member do to its mysqld, and what it answers. Orders name no
// files of the member's host: its mysqld would send the first line of any file that the member can read to a server of the caller's choice.

/// An order to one member. Each may be given again: what is done already is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MysqldOrder {
    /// Look at it. Changes nothing.
    Look,
    /// Leave it alone. Only to a member that does not act on it yet.
    #[serde(rename = "hands_off")] // as members of version 0.1 know it
    StayUnmanaged,
    /// Set the primary up, but for the waiting.
    Prepare,
    /// Let its commits wait for nobody. Only while the member leaves it alone.
    StopWaiting,
    /// Let it stop to acknowledge what it receives.
    StopAcknowledging,
    /// End its own replication. Only while the member leaves it alone.
    LeaveSource,
    /// Act on it from now on.
    #[serde(rename = "steer")] // as members of version 0.1 know it
    Manage,
    /// Act on the primary from now on, as long as this member leads; given back if it cannot be taken over.
    TakeOver,
    /// Stop to act on it, a follower.
    #[serde(rename = "let_follower_go")] // as members of version 0.1 know it
    ReleaseFollower,
    /// Stop to act on it, the primary: drained, then open without the ring.
    #[serde(rename = "let_primary_go")] // as members of version 0.1 know it
    ReleasePrimary,
    /// Replicate from the primary. Only while the member leaves it alone.
    Replicate(ReplicateFrom),
}

/// From whom a server is to replicate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicateFrom {
    /// Host at which the primary's mysqld is reached.
    pub host: String,
    /// TCP port of the primary's mysqld.
    pub port: u16,
    /// Whether the primary's mysqld offers TLS.
    pub tls: bool,
    /// The account at the primary. Without it and its password, as from commands of an earlier version, the order is refused.
    pub user: Option<String>,
    /// Its password.
    #[serde(default)]
    pub password: Option<String>,
}

impl fmt::Debug for ReplicateFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicateFrom")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("tls", &self.tls)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl MysqldOrder {
    /// Whether the order does more than look, so that it is written to the audit log.
    pub fn changes_something(&self) -> bool {
        *self != Self::Look
    }
}

impl fmt::Display for MysqldOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Look => "a look at its mysqld",
            Self::StayUnmanaged => "to stop managing its mysqld",
            Self::Prepare => "to set its mysqld up",
            Self::StopWaiting => "to switch semi-sync off at its mysqld",
            Self::StopAcknowledging => "to let its mysqld acknowledge nothing",
            Self::LeaveSource => "to end its mysqld's own replication",
            Self::Manage => "to manage its mysqld",
            Self::TakeOver => "to take the primary over",
            Self::ReleaseFollower => "to release its mysqld",
            Self::ReleasePrimary => "to release the primary",
            Self::Replicate(_) => "to let its mysqld replicate from the primary",
        })
    }
}

/// What a member says of itself and of its mysqld.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqldAnswer {
    /// Its ring, once that is made.
    pub ring: Option<RingId>,
    /// What its ring's log begins behind, a GTID set in MySQL's words.
    pub origin: String,
    /// Whether it was told not to manage its mysqld.
    #[serde(rename = "hands_off")] // as members of version 0.1 know it
    pub unmanaged: bool,
    /// Whether it acts on its mysqld.
    #[serde(rename = "steered")] // as members of version 0.1 know it
    pub managed: bool,
    /// Whether its mysqld was the primary when it was told not to manage it.
    #[serde(default)]
    pub was_primary: bool,
    /// Its clock, in milliseconds since the epoch.
    pub now_ms: u64,
    /// What the member saw of its mysqld; none when it could not look.
    pub look: Option<ServerLook>,
    /// Why it could not look, in words.
    pub unseen: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_takes_an_operator_and_copies_are_between_members() {
        let promote = OperatorCommand::Promote {
            to: MemberId(2),
            force: false,
        };
        let dry_run = OperatorCommand::DryRun {
            of: Box::new(promote.clone()),
        };
        let purge = |dry_run| OperatorCommand::PurgeLog {
            request: PurgeRequest::KeepBytes(1),
            dry_run,
        };
        let mysqld = |order| OperatorCommand::Mysqld { order };
        let offer = OperatorCommand::OfferClone {
            recipient: MemberId(3),
        };
        let replace = OperatorCommand::ReplaceStatement {
            gtid: String::new(),
            statement: String::new(),
        };
        for (command, right) in [
            (promote, Right::Operate),
            (OperatorCommand::Reload, Right::Operate),
            (replace, Right::Operate),
            (purge(false), Right::Operate),
            (mysqld(MysqldOrder::Manage), Right::Operate),
            (dry_run, Right::Read),
            (purge(true), Right::Read),
            (mysqld(MysqldOrder::Look), Right::Read),
            (OperatorCommand::History, Right::Read),
            (OperatorCommand::Evidence, Right::Read),
            (offer, Right::SpeakAsMember),
        ] {
            assert_eq!(command.right(), right, "{command}");
        }
    }

    #[test]
    fn the_form_on_the_wire_stays() {
        let record = MemberRecord {
            name: "db-9".into(),
            ..MemberRecord::default()
        };
        let member = MemberId(9);
        for (command, expected) in [
            (
                OperatorCommand::Promote {
                    to: MemberId(2),
                    force: false,
                },
                r#"{"command":"promote","to":2}"#,
            ),
            (
                OperatorCommand::MockElection { to: MemberId(2) },
                r#"{"command":"mock_election","to":2}"#,
            ),
            (
                OperatorCommand::RemoveMember { member },
                r#"{"command":"remove_member","member":9}"#,
            ),
            (OperatorCommand::FlushLog, r#"{"command":"flush_log"}"#),
            (OperatorCommand::Resume, r#"{"command":"resume"}"#),
            (OperatorCommand::Reload, r#"{"command":"reload"}"#),
            (
                OperatorCommand::RestartMysqld { force: true },
                r#"{"command":"restart_mysqld","force":true}"#,
            ),
            (
                OperatorCommand::DryRun {
                    of: Box::new(OperatorCommand::RemoveMember { member }),
                },
                r#"{"command":"dry_run","of":{"command":"remove_member","member":9}}"#,
            ),
            (OperatorCommand::Evidence, r#"{"command":"evidence"}"#),
            (
                OperatorCommand::PurgeLog {
                    request: PurgeRequest::KeepBytes(7),
                    dry_run: true,
                },
                r#"{"command":"purge_log","wish":{"keep_bytes":7},"dry_run":true}"#,
            ),
            (
                OperatorCommand::Mysqld {
                    order: MysqldOrder::ReleasePrimary,
                },
                r#"{"command":"mysqld","order":"let_primary_go"}"#,
            ),
            (
                OperatorCommand::Provision {
                    donor: MemberId(2),
                    dry_run: false,
                    force: false,
                },
                r#"{"command":"provision","donor":2,"dry_run":false}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&command).unwrap(), expected);
        }
        let order = Order {
            command: OperatorCommand::RemoveMember { member },
            by: "anna@desk".to_owned(),
        };
        let json = serde_json::to_string(&order).unwrap();
        assert_eq!(
            json,
            r#"{"command":"remove_member","member":9,"by":"anna@desk"}"#
        );
        assert_eq!(serde_json::from_str::<Order>(&json).unwrap(), order);
        let command = OperatorCommand::AddMember { member, record };
        let json = serde_json::to_string(&command).unwrap();
        assert_eq!(
            serde_json::from_str::<OperatorCommand>(&json).unwrap(),
            command
        );
    }
}
