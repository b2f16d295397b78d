//! Operators' commands to a member. They are sent as JSON; in later versions, fields are only added.

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
        /// True to promote it even if its mysqld could not be the primary soon.
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
        /// The member's record, which includes the incarnation of its data directory.
        record: MemberRecord,
    },
    /// Changes a member's record in the log. To the leader.
    UpdateMember {
        /// The member to change.
        member: MemberId,
        /// The fields to change; other fields stay unchanged.
        #[serde(rename = "wish")] // name in version 0.1
        change: RecordChange,
        /// Only report the changes.
        dry_run: bool,
    },
    /// Changes the quorum rules. To the leader.
    SetRules {
        /// The rules to change; other rules stay unchanged.
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
    /// Schedules a switchover. It replaces one that was scheduled before. To the leader.
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
    /// Clears the warning that mysqld was started open for writes. To the member with that mysqld.
    AcknowledgeExposure,
    /// Returns the member's records of its log and the quorum. To every member.
    Evidence,
    /// Repairs a permanently lost quorum. To the remaining member.
    RepairQuorum {
        /// The repair to execute.
        plan: RepairPlan,
        /// The last entry that is kept, if later entries are given up.
        accepted_loss: Option<OpId>,
    },
    /// Ends the current log file on every member. To the leader.
    FlushLog,
    /// Removes old files of a member's log. To the member with that log.
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
        /// Transactions before the ring's log, as a GTID set in MySQL's text form.
        origin: String,
    },
    /// Makes a member act on its mysqld, for `enable-raft` and `disable-raft`. To the member with that mysqld.
    Mysqld {
        /// The step, or only a check of the server.
        order: MysqldOrder,
    },
    /// Replaces the data of a member's mysqld by a copy of another member's data. To the member that receives the copy.
    Provision {
        /// The member from which the data is copied.
        donor: MemberId,
        /// Only report what would be lost.
        dry_run: bool,
        /// True to continue even if binlog files with errant transactions cannot be kept.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Reports why a command would be refused, and changes nothing. To the recipient of the command. (This is not a field of each command,
    /// because an older member would ignore the field and execute the command.)
    DryRun {
        /// The command to check: a promotion, the addition or removal of a member, or a reload. Other commands have their own dry run, or
        /// none.
        of: Box<OperatorCommand>,
    },
    /// Reloads the configuration, as far as possible without a restart. To the member with that configuration.
    Reload,
    /// Gracefully restarts a member's mysqld. To the member with that mysqld.
    RestartMysqld {
        /// True to restart it even if it is the primary.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Executes a statement in place of a transaction, under the transaction's GTID. The follower's applier must be stopped at that
    /// transaction. To the member with that follower.
    ReplaceStatement {
        /// The transaction that cannot be executed.
        gtid: String,
        /// The replacement.
        statement: String,
    },
    /// Creates an account for a copy of the data of this member's mysqld. Sent by another member.
    OfferClone {
        /// The copying member.
        recipient: MemberId,
    },
    /// Removes the account of a copy. Sent by another member.
    WithdrawClone {
        /// The account from the offer.
        account: CloneAccount,
    },
}

/// A command with its sender, as it is sent to a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The command itself.
    #[serde(flatten)]
    pub command: OperatorCommand,
    /// The name that the caller claims. The audit log and the ring's history use the name in the caller's certificate; without TLS, they
    /// use this name. Version 0.1 neither sends nor reads this field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// Which of the oldest log files to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeRequest {
    /// All files before this one, as in `PURGE BINARY LOGS TO`.
    BeforeFile(String),
    /// The oldest files, until all files together have at most this many bytes.
    KeepBytes(u64),
    /// Files closed before this time, in seconds since 1970.
    ClosedBefore(u32),
}

impl OperatorCommand {
    /// Returns true if the command changes state. Such a command is recorded, and requires the right to operate. Every command that is not
    /// listed here changes state.
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

    /// Returns the right that the command requires.
    pub fn right(&self) -> Right {
        match self {
            // Only members send these commands, to each other.
            Self::OfferClone { .. } | Self::WithdrawClone { .. } => Right::SpeakAsMember,
            command if command.changes_something() => Right::Operate,
            _ => Right::Read,
        }
    }
}

/// Writes the command as a noun phrase for messages, such as "the promotion of member 2".
impl fmt::Display for OperatorCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&|id| format!("member {id}")))
    }
}

impl OperatorCommand {
    /// Returns the command as a noun phrase; `member` returns the text for each member.
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

// Orders of `witness enable-raft` and `witness disable-raft` about a member's mysqld, and the member's answer. An order names no files on
// the member's host. Otherwise mysqld would send the first line of any file that it can read to a server of the caller's choice.

/// An idempotent order to one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MysqldOrder {
    /// Check mysqld. Changes nothing.
    Look,
    /// Do not manage mysqld. Only to a member that does not manage it yet.
    #[serde(rename = "hands_off")] // name in version 0.1
    StayUnmanaged,
    /// Change the settings of the primary, but do not make commits wait for ACKs.
    Prepare,
    /// Stop commits from waiting for ACKs. Only while mysqld is unmanaged.
    StopWaiting,
    /// Stop sending ACKs for the transactions that mysqld receives as a replica.
    StopAcknowledging,
    /// Stop replicating. Only while mysqld is unmanaged.
    LeaveSource,
    /// Begin to manage mysqld.
    #[serde(rename = "steer")] // name in version 0.1
    Manage,
    /// Begin to manage the primary, while this member leads. If the takeover fails, the primary is returned.
    TakeOver,
    /// Release mysqld as a follower.
    #[serde(rename = "let_follower_go")] // name in version 0.1
    ReleaseFollower,
    /// Release mysqld as the primary: it is drained, then opened without the ring.
    #[serde(rename = "let_primary_go")] // name in version 0.1
    ReleasePrimary,
    /// Replicate from the primary. Only while mysqld is unmanaged.
    Replicate(ReplicateFrom),
}

/// The source of a replica.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicateFrom {
    /// Host of the primary's mysqld.
    pub host: String,
    /// TCP port of the primary's mysqld.
    pub port: u16,
    /// Whether the primary's mysqld offers TLS.
    pub tls: bool,
    /// The account at the primary. An order without account and password, as from an earlier version, is refused.
    pub user: Option<String>,
    /// The account's password.
    pub password: Option<String>,
}

/// Returns how a replica verifies its source: as in `verify`, if the source offers TLS.
///
/// # Errors
/// If the replica must verify a source that offers no TLS.
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
    /// The member's ring, after it was bootstrapped.
    pub ring: Option<RingId>,
    /// Transactions before the ring's log, as a GTID set in MySQL's text form.
    pub origin: String,
    /// True if the member was ordered not to manage its mysqld.
    #[serde(rename = "hands_off")] // name in version 0.1
    pub unmanaged: bool,
    /// True if the member manages its mysqld.
    #[serde(rename = "steered")] // name in version 0.1
    pub managed: bool,
    /// True if mysqld was the primary when the member was ordered not to manage it.
    #[serde(default)]
    pub was_primary: bool,
    /// The member's clock, in milliseconds since 1970.
    pub now_ms: u64,
    /// Result of the member's check of its mysqld; `None` if the check failed.
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
