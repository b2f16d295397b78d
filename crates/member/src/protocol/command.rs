//! Operator commands to a member. JSON on the wire; fields are only ever added.

use std::fmt;

use mysqld_server::SourceTls;
use mysqld_server::conversion::ServerLook;
use mysqld_server::provision::CloneAccount;
use raft_types::{MemberId, MemberRecord, OpId, RingId, UnixSeconds};
use ring_admin::{PauseRequest, RecordChange, RepairPlan, RulesChange};
use serde::{Deserialize, Serialize};
use transport::Right;

use crate::protocol::Refusal;

/// A command to one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum OperatorCommand {
    /// Transfers the leadership to a member. To the leader.
    Promote {
        /// The database member that is to lead.
        to: MemberId,
        /// Also if its mysqld could not soon be the primary.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Tests whether a member would be elected. To the leader.
    MockElection {
        /// The candidate.
        to: MemberId,
    },
    /// Adds a new member. To the leader.
    AddMember {
        /// A number never used in the ring.
        member: MemberId,
        /// All other attributes, including its data directory.
        record: MemberRecord,
    },
    /// Changes a member's record in the log. To the leader.
    UpdateMember {
        /// The member to change.
        member: MemberId,
        /// The fields to change; the others stay.
        #[serde(rename = "wish")] // name in version 0.1
        change: RecordChange,
        /// Only report the changes.
        dry_run: bool,
    },
    /// Changes the quorum rules. To the leader.
    SetRules {
        /// The rules to change; the others stay.
        #[serde(rename = "wish")] // name in version 0.1
        change: RulesChange,
        /// Only report the changes.
        dry_run: bool,
    },
    /// Removes a member. To the leader.
    RemoveMember {
        /// The member to remove.
        member: MemberId,
    },
    /// Schedules a switchover, replacing one scheduled before. To the leader.
    ScheduleSwitchover {
        /// The database member that is to lead.
        to: MemberId,
        /// Earliest time.
        at: UnixSeconds,
    },
    /// Cancels the scheduled switchover. To the leader.
    CancelSwitchover,
    /// Pauses failover. To the leader.
    Pause {
        /// Duration, operator and reason.
        #[serde(rename = "wish")] // name in version 0.1
        request: PauseRequest,
    },
    /// Ends the pause. To the leader.
    Resume,
    /// Returns the ring's history from its log. To any member.
    History,
    /// Clears the warning about starts of mysqld that were open for writes. To that member.
    AcknowledgeExposure,
    /// Returns what the member has recorded of its log and the quorum. To every member.
    Evidence,
    /// Repairs a permanently lost quorum. To the remaining member.
    RepairQuorum {
        /// The repair to execute.
        plan: RepairPlan,
        /// The last entry before an accepted loss.
        accepted_loss: Option<OpId>,
    },
    /// Ends the current log file on every member. To the leader.
    FlushLog,
    /// Removes old files of a member's log. To that member.
    PurgeLog {
        /// Which files to remove: up to a name, beyond a size, or older than a time.
        #[serde(rename = "wish")] // name in version 0.1
        request: PurgeRequest,
        /// Only report the files.
        dry_run: bool,
    },
    /// Bootstraps the ring of the configured members. To the member of the future primary.
    #[serde(rename = "found")] // name in version 0.1
    Bootstrap {
        /// Transactions before its log, a GTID set in MySQL's text form.
        origin: String,
    },
    /// Makes a member act on its mysqld, for `enable-raft` and `disable-raft`. To that member.
    Mysqld {
        /// The step, or only a check of the server.
        order: MysqldOrder,
    },
    /// Replaces the data of a member's mysqld by a copy of another member's. To that member.
    Provision {
        /// Source of the copy.
        donor: MemberId,
        /// Only report what would be lost.
        dry_run: bool,
        /// Also if binlog files with errant transactions cannot be kept.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Reports what would refuse a command, without changes. To the command's recipient. (Not a field of each command: an older member
    /// would ignore it and execute the command.)
    DryRun {
        /// A promotion, an addition or removal of a member, or a reload; others have their own dry run, or none.
        of: Box<OperatorCommand>,
    },
    /// Reloads the configuration, as far as possible without a restart. To that member.
    Reload,
    /// Gracefully restarts a member's mysqld. To that member.
    RestartMysqld {
        /// Also if it is the primary.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Executes a statement instead of the transaction at which the follower's applier is stopped, under its GTID. To that member.
    ReplaceStatement {
        /// The transaction that cannot be executed.
        gtid: String,
        /// The replacement.
        statement: String,
    },
    /// Creates an account for a copy of the data of this member's mysqld. From another member.
    OfferClone {
        /// The copying member.
        recipient: MemberId,
    },
    /// Removes that account. From another member.
    WithdrawClone {
        /// The account from the offer.
        account: CloneAccount,
    },
}

/// A command with its sender, for transfer to a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The command itself.
    #[serde(flatten)]
    pub command: OperatorCommand,
    /// The name that the caller claims. The audit log and the ring's history name the caller by its certificate, or without TLS by this.
    /// Version 0.1 neither sends nor reads it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// Which of the oldest log files to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeRequest {
    /// All before this one, as in `PURGE BINARY LOGS TO`.
    BeforeFile(String),
    /// Until all files together take at most this many bytes.
    KeepBytes(u64),
    /// Files closed before this time, in seconds since 1970.
    ClosedBefore(u32),
}

impl OperatorCommand {
    /// Whether it changes state, and is therefore recorded and needs the right to operate: every command that is not listed here.
    pub fn changes_something(&self) -> bool {
        match self {
            Self::MockElection { .. } | Self::Evidence | Self::History | Self::DryRun { .. } => {
                false
            }
            Self::PurgeLog { dry_run, .. }
            | Self::Provision { dry_run, .. }
            | Self::UpdateMember { dry_run, .. }
            | Self::SetRules { dry_run, .. } => !dry_run,
            Self::Mysqld { order } => *order != MysqldOrder::Look,
            _ => true,
        }
    }

    /// The right that it requires.
    pub fn right(&self) -> Right {
        match self {
            // Only members send these to each other.
            Self::OfferClone { .. } | Self::WithdrawClone { .. } => Right::SpeakAsMember,
            command if command.changes_something() => Right::Operate,
            _ => Right::Read,
        }
    }
}

/// Noun form for messages: "the promotion of member 2".
impl fmt::Display for OperatorCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&|id| format!("member {id}")))
    }
}

impl OperatorCommand {
    /// The noun form with another text for each member.
    pub fn text(&self, member: &dyn Fn(MemberId) -> String) -> String {
        match self {
            Self::Promote { to, .. } => format!("the promotion of {}", member(*to)),
            Self::MockElection { to } => format!("the mock election of {}", member(*to)),
            Self::AddMember { member: id, .. } => format!("adding {}", member(*id)),
            Self::UpdateMember { member: id, .. } => format!("the change of {}", member(*id)),
            Self::RemoveMember { member: id } => format!("the removal of {}", member(*id)),
            Self::ScheduleSwitchover { to, .. } => {
                format!("scheduling the promotion of {}", member(*to))
            }
            Self::Mysqld { order } => format!("the order {order}"),
            Self::Provision { donor, .. } => {
                format!("the provisioning of a mysqld from {}", member(*donor))
            }
            Self::DryRun { of } => format!("the dry run of {}", of.text(member)),
            Self::ReplaceStatement { gtid, .. } => {
                format!("another statement in the place of {gtid}")
            }
            Self::OfferClone { recipient } => {
                format!("making an account for the copy of {}", member(*recipient))
            }
            Self::WithdrawClone { account } => format!("removing the account {account}"),
            Self::RepairQuorum { plan, .. } => {
                format!("the repair of the quorum with {}", member(plan.survivor))
            }
            Self::SetRules { .. } => "the change of the quorum's rules".into(),
            Self::CancelSwitchover => "the end of the scheduled switchover".into(),
            Self::Pause { .. } => "the pause of failover".into(),
            Self::FlushLog => "the rotation of the log".into(),
            Self::Resume => "the end of the pause of failover".into(),
            Self::History => "asking for the history".into(),
            Self::AcknowledgeExposure => {
                "the acknowledgement of starts that were open for writes".into()
            }
            Self::Evidence => "asking for evidence".into(),
            Self::PurgeLog { .. } => "the purge of a log".into(),
            Self::Bootstrap { .. } => "making the ring".into(),
            Self::Reload => "the reload of the configuration".into(),
            Self::RestartMysqld { .. } => "the restart of its mysqld".into(),
        }
    }
}

// Orders of `witness enable-raft` and `witness disable-raft` about a member's mysqld, and its answer. Orders name no files of the member's
// host. Otherwise its mysqld would send the first line of any readable file to a server of the caller's choice.

/// An idempotent order to one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MysqldOrder {
    /// Check it. Changes nothing.
    Look,
    /// Leave it alone. Only to a member that does not manage it yet.
    #[serde(rename = "hands_off")] // name in version 0.1
    StayUnmanaged,
    /// Prepare the primary, without waiting for ACKs.
    Prepare,
    /// Stop its commits from waiting. Only while it is unmanaged.
    StopWaiting,
    /// Stop acknowledging the transactions that it receives.
    StopAcknowledging,
    /// End its own replication. Only while it is unmanaged.
    LeaveSource,
    /// Begin to manage it.
    #[serde(rename = "steer")] // name in version 0.1
    Manage,
    /// Begin to manage the primary, while this member leads; given back if the takeover fails.
    TakeOver,
    /// Release it as a follower.
    #[serde(rename = "let_follower_go")] // name in version 0.1
    ReleaseFollower,
    /// Release it as the primary: drained, then open without the ring.
    #[serde(rename = "let_primary_go")] // name in version 0.1
    ReleasePrimary,
    /// Replicate from the primary. Only while it is unmanaged.
    Replicate(ReplicateFrom),
}

/// Source of a replica.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicateFrom {
    /// Host of the primary's mysqld.
    pub host: String,
    /// TCP port of the primary's mysqld.
    pub port: u16,
    /// Whether the primary's mysqld offers TLS.
    pub tls: bool,
    /// The account at the primary. Without it and its password, as from an earlier version, the order is refused.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
}

/// How a replica verifies its source: as in `verify`, where that offers TLS.
///
/// # Errors
/// When it cannot.
pub(crate) fn source_tls(verify: Option<SourceTls>, offered: bool) -> Result<SourceTls, Refusal> {
    match (verify, offered) {
        (Some(_), false) => Err(Refusal::refused(
            "the source offers no TLS, so its replica cannot verify it",
            "give its mysqld a certificate (ssl_cert and ssl_key) of the ring's CA",
        )),
        (Some(verify), true) => Ok(verify),
        (None, true) => Ok(SourceTls::Unverified),
        (None, false) => Ok(SourceTls::Off),
    }
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

impl fmt::Display for MysqldOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Look => "a check of its mysqld",
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

/// State of a member and its mysqld.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqldAnswer {
    /// Its ring, once bootstrapped.
    pub ring: Option<RingId>,
    /// Transactions before its ring's log, a GTID set in MySQL's text form.
    pub origin: String,
    /// True if it was ordered not to manage its mysqld.
    #[serde(rename = "hands_off")] // name in version 0.1
    pub unmanaged: bool,
    /// Whether it manages its mysqld.
    #[serde(rename = "steered")] // name in version 0.1
    pub managed: bool,
    /// True if its mysqld was the primary when it was ordered not to manage it.
    #[serde(default)]
    pub was_primary: bool,
    /// Its clock, in milliseconds since 1970.
    pub now_ms: u64,
    /// Result of the member's check of its mysqld; none if it failed.
    pub look: Option<ServerLook>,
    /// Why the check failed, as text.
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
