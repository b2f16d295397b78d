//! The yes-or-no queries of load balancers and schedulers, with the same meanings as in Patroni. Pure functions: an answer depends only on
//! the member's view.

use raft_types::{MemberId, MemberKind};
use thiserror::Error;

use crate::status::mysql_view::MysqlView;
use crate::status::{LoggedMember, MemberView, Role, RoleState};

/// A query. The answer is HTTP 200 for yes, and 503 for no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Does the process work? If not, restart it.
    Liveness,
    /// Does the member take part in the ring? If not, do not stop another member.
    Readiness,
    /// Is everything in order that this member is responsible for?
    Health,
    /// Does the member lead with a quorum, with or without a mysqld?
    Leader,
    /// May clients write to the member's mysqld?
    Primary,
    /// May clients read from the member's mysqld? The value is the maximum lag in milliseconds.
    Replica(Option<u64>),
    /// May clients read from the member's mysqld, as a replica or as the primary, which never lags?
    ReadOnly(Option<u64>),
    /// Is the member a working witness?
    Witness,
}

/// `Ok` for yes; otherwise, the reason for a no.
pub type Answer = Result<(), NotReady>;

/// Why a query is answered with no.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotReady {
    /// The member has stopped working.
    #[error("{0}")]
    Fault(String),
    /// The member has no ring yet.
    #[error("the member waits for its ring to be bootstrapped")]
    Joining,
    /// The member leads without serving.
    #[error("it leads, but does not serve: {}", .0.as_deref().unwrap_or("it was elected just now"))]
    NotServing(Option<String>),
    /// The member knows no leader.
    #[error("no leader is known")]
    NoLeader,
    /// Too few voters answer.
    #[error("{}", .0.as_deref().unwrap_or("the quorum is lost"))]
    QuorumLost(Option<String>),
    /// The member does not lead.
    #[error("it does not lead{}", leader_clause(*.0))]
    DoesNotLead(Option<MemberId>),
    /// The member leads, so its mysqld is not a replica.
    #[error("it leads")]
    Leads,
    /// Failover is paused for another member's primary.
    #[error("failover is paused, and member {0} is the primary")]
    Paused(MemberId),
    /// The member is a witness, but the query is for a database member.
    #[error("it is a witness")]
    IsWitness,
    /// The member is a database member, but the query is for a witness.
    #[error("it is a database member")]
    IsDatabase,
    /// The member's mysqld is not available, because the member does not take part in its ring yet.
    #[error("it has no mysqld")]
    NoMysqld,
    /// The member's mysqld cannot work.
    #[error("{0}")]
    Trouble(String),
    /// The member's mysqld lacks part of the log.
    #[error("its mysqld is {0}")]
    CatchesUp(RoleState),
    /// Commits on the member's mysqld may not wait for the ring.
    #[error("{}", unprotected(.0))]
    Unprotected(Vec<String>),
    /// The member does not receive the transactions of its mysqld.
    #[error("its mysqld's transactions are not received yet")]
    NotIngesting,
    /// The member's mysqld is closed for writes.
    #[error("its mysqld does not take writes")]
    NotWritable,
    /// `offline_mode` excludes ordinary accounts.
    #[error("ordinary accounts cannot use its mysqld: {0}")]
    Offline(String),
    /// The ring's log is not applied to the member's mysqld.
    #[error("its mysqld does not follow the ring: {0}")]
    NotFollowing(String),
    /// The member's mysqld is unmanaged, and does not accept writes.
    #[error("its mysqld is unmanaged, and no primary: {}", .0.as_deref().unwrap_or("it does not take writes"))]
    PlainNotWritable(Option<String>),
    /// The member's mysqld is unmanaged, and does not replicate.
    #[error("its mysqld is unmanaged, and no replica: {}", .0.as_deref().unwrap_or("it replicates from no server"))]
    PlainNotReplicating(Option<String>),
    /// The member's mysqld lags too much.
    #[error("its mysqld is {lag_ms} ms behind, and {most_ms} are allowed")]
    Lags {
        /// The lag, in milliseconds.
        lag_ms: u64,
        /// The maximum lag of the query.
        most_ms: u64,
    },
    /// The lag of the member's mysqld is unknown.
    #[error("how far its mysqld is behind is not known yet")]
    LagUnknown,
}

fn leader_clause(leader: Option<MemberId>) -> String {
    match leader {
        Some(leader) => format!("; member {leader} does"),
        None => ", and no leader is known".to_owned(),
    }
}

fn unprotected(reasons: &[String]) -> String {
    if reasons.is_empty() {
        "its mysqld is not known to wait for the ring".into()
    } else {
        let reasons = reasons.join("; ");
        format!("a commit in its mysqld may not wait for the ring: {reasons}")
    }
}

/// Answers a query from a member's view.
///
/// # Errors
/// The reason for a no.
pub fn answer(question: Question, view: &MemberView) -> Answer {
    if let Some(fault) = &view.fault {
        return Err(NotReady::Fault(fault.clone()));
    }
    match question {
        Question::Liveness => Ok(()),
        Question::Readiness => readiness(view),
        Question::Health => health(view),
        Question::Leader => leader(view),
        Question::Primary => primary(view),
        Question::Replica(most_behind_ms) => replica(view, most_behind_ms),
        Question::ReadOnly(most_behind_ms) => {
            primary(view).or_else(|_| replica(view, most_behind_ms))
        }
        Question::Witness if view.member.kind == MemberKind::Witness => readiness(view),
        Question::Witness => Err(NotReady::IsDatabase),
    }
}

fn readiness(view: &MemberView) -> Answer {
    match (view.role, view.leader) {
        (Role::Joining, _) => Err(NotReady::Joining),
        (Role::Leader, _) => serves(view),
        (_, Some(_)) => Ok(()),
        (_, None) => Err(NotReady::NoLeader),
    }
}

fn serves(view: &MemberView) -> Answer {
    match view.serving {
        true => Ok(()),
        false => Err(NotReady::NotServing(view.not_serving.clone())),
    }
}

fn health(view: &MemberView) -> Answer {
    readiness(view)?;
    if !view.quorum.ok {
        return Err(NotReady::QuorumLost(view.quorum.cause.clone()));
    }
    match &view.mysql {
        Some(mysql) if !mysql.is_unmanaged() => {
            has_everything(mysql)?;
            if view.serving {
                protected(mysql)
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

fn leader(view: &MemberView) -> Answer {
    match view.role {
        Role::Leader => serves(view),
        _ => Err(NotReady::DoesNotLead(view.leader)),
    }
}

fn primary(view: &MemberView) -> Answer {
    if view.member.kind != MemberKind::Database {
        return Err(NotReady::IsWitness);
    }
    if let Some(plain) = unmanaged(view) {
        if !plain.writable {
            return Err(NotReady::PlainNotWritable(plain.trouble.clone()));
        }
        return lets_clients_in(plain);
    }
    leader(view)?;
    if let Some(pause) = &view.pause
        && pause.primary != view.member.id
    {
        return Err(NotReady::Paused(pause.primary));
    }
    let mysql = view.mysql.as_ref().ok_or(NotReady::NoMysqld)?;
    has_everything(mysql)?;
    protected(mysql)?;
    if !mysql.ingesting {
        return Err(NotReady::NotIngesting);
    }
    if !mysql.writable {
        return Err(NotReady::NotWritable);
    }
    lets_clients_in(mysql)
}

/// Checks that mysqld needs no help, and has all entries that were committed before its member led.
fn has_everything(mysql: &MysqlView) -> Answer {
    match &mysql.trouble {
        Some(trouble) => Err(NotReady::Trouble(trouble.clone())),
        None if mysql.catches_up() => Err(NotReady::CatchesUp(mysql.role.clone())),
        None => Ok(()),
    }
}

fn protected(mysql: &MysqlView) -> Answer {
    match mysql.protected {
        true => Ok(()),
        false => Err(NotReady::Unprotected(mysql.unprotected_because.clone())),
    }
}

/// Checks that ordinary accounts can connect. The clients of load balancers use such accounts, whatever the member's own account may do.
fn lets_clients_in(mysql: &MysqlView) -> Answer {
    let offline = mysql.offline.clone();
    offline.map_or(Ok(()), |why| Err(NotReady::Offline(why)))
}

fn replica(view: &MemberView, most_behind_ms: Option<u64>) -> Answer {
    if view.member.kind != MemberKind::Database {
        return Err(NotReady::IsWitness);
    }
    if let Some(plain) = unmanaged(view) {
        if !plain.following {
            return Err(NotReady::PlainNotReplicating(plain.trouble.clone()));
        }
        lets_clients_in(plain)?;
        return within(plain, most_behind_ms);
    }
    let pause = view.pause.as_ref();
    let takes_care = pause.is_some_and(|pause| pause.primary != view.member.id);
    if view.role == Role::Leader && !takes_care {
        return Err(NotReady::Leads);
    }
    readiness(view)?;
    let mysql = view.mysql.as_ref().ok_or(NotReady::NoMysqld)?;
    if !mysql.follows() {
        let state = || mysql.state.to_string();
        return Err(NotReady::NotFollowing(match mysql.following {
            true => mysql.trouble.clone().unwrap_or_else(state),
            false => mysql.role.to_string(),
        }));
    }
    lets_clients_in(mysql)?;
    within(mysql, most_behind_ms)
}

/// Returns the unmanaged mysqld of plain replication: before the ring takes it over, and after its release. Returns `None` if the member
/// was removed from the ring.
fn unmanaged(view: &MemberView) -> Option<&MysqlView> {
    let own = |member: &LoggedMember| member.id == view.member.id;
    let is_removed = !view.members.is_empty() && !view.members.iter().any(own);
    let mysql = view.mysql.as_ref();
    mysql.filter(|mysql| mysql.is_unmanaged() && !is_removed)
}

fn within(mysql: &MysqlView, most_behind_ms: Option<u64>) -> Answer {
    match (most_behind_ms, mysql.lag_ms) {
        (None, _) => Ok(()),
        (Some(most_ms), Some(lag_ms)) if lag_ms > most_ms => {
            Err(NotReady::Lags { lag_ms, most_ms })
        }
        (Some(_), Some(_)) => Ok(()),
        (Some(_), None) => Err(NotReady::LagUnknown),
    }
}

#[cfg(test)]
mod tests {
    use raft_types::UnixSeconds;

    use super::*;
    use crate::status::PauseView;
    use crate::status::mysql_view::MysqldState;
    use crate::status::sample::database_leader;
    use crate::status::sample::witness_follower;

    const ALL: [Question; 8] = [
        Question::Liveness,
        Question::Readiness,
        Question::Health,
        Question::Leader,
        Question::Primary,
        Question::Replica(None),
        Question::ReadOnly(None),
        Question::Witness,
    ];

    /// Returns the queries that are answered with yes, by their first letters.
    fn yes(view: &MemberView) -> String {
        let names = [
            "live", "ready", "healthy", "leader", "primary", "replica", "readonly", "witness",
        ];
        let answered = ALL
            .iter()
            .zip(names)
            .filter(|(question, _)| answer(**question, view).is_ok());
        answered.map(|(_, name)| name).collect::<Vec<_>>().join(" ")
    }

    fn paused(primary: u64) -> PauseView {
        PauseView {
            primary: MemberId(primary),
            since: UnixSeconds(1_000),
            until: None,
            by: "anna".into(),
            reason: String::new(),
            age_seconds: 60,
        }
    }

    #[test]
    fn every_situation_has_its_answers() {
        type Change = fn(&mut MemberView);
        let leader: &[(&str, Change, &str)] = &[
            (
                "a serving primary",
                |_| {},
                "live ready healthy leader primary readonly",
            ),
            (
                "failover paused for this one",
                |v| v.pause = Some(paused(1)),
                "live ready healthy leader primary readonly",
            ),
            (
                "failover paused for another one",
                |v| v.pause = Some(paused(3)),
                "live ready healthy leader",
            ),
            (
                "no quorum",
                |v| {
                    v.serving = false;
                    v.quorum.ok = false
                },
                "live",
            ),
            (
                "a follower",
                |v| {
                    v.role = Role::Follower;
                    v.serving = false
                },
                "live ready healthy",
            ),
            (
                "without a leader",
                |v| {
                    v.role = Role::Candidate;
                    v.serving = false;
                    v.leader = None
                },
                "live",
            ),
            ("stopped", |v| v.fault = Some("the disk is full".into()), ""),
        ];
        for (name, change, expected) in leader {
            let mut view = database_leader();
            change(&mut view);
            assert_eq!(yes(&view), *expected, "{name}");
        }
        type MysqlChange = fn(&mut MysqlView);
        let mysql: &[(&str, MysqlChange, &str)] = &[
            (
                "a finite timeout",
                |m| m.protected = false,
                "live ready leader",
            ),
            (
                "mysqld gone",
                |m| m.trouble = Some("gone".into()),
                "live ready leader",
            ),
            (
                "catching up",
                |m| {
                    m.role = RoleState::CatchingUp { lacks: 7 };
                    (m.protected, m.writable) = (false, false);
                },
                "live ready leader",
            ),
            (
                "not attached",
                |m| m.ingesting = false,
                "live ready healthy leader",
            ),
            (
                "read only",
                |m| m.writable = false,
                "live ready healthy leader",
            ),
            (
                "kept from clients by an operator",
                |m| m.offline = Some("offline_mode is on".into()),
                "live ready healthy leader",
            ),
            // The member closed mysqld before it was the primary.
            (
                "booted open",
                |m| m.warnings = vec!["mysqld started open for writes".into()],
                "live ready healthy leader primary readonly",
            ),
        ];
        for (name, change, expected) in mysql {
            let mut view = database_leader();
            change(view.mysql.as_mut().unwrap());
            assert_eq!(yes(&view), *expected, "{name}");
        }
        let follower: &[(&str, MysqlChange, &str)] = &[
            (
                "a follower's mysqld",
                |_| {},
                "live ready healthy replica readonly",
            ),
            // The applier retries while mysqld is dead.
            (
                "dead",
                |m| {
                    m.state = MysqldState::Failed;
                    m.trouble = Some("killed".into())
                },
                "live ready",
            ),
            (
                "hangs",
                |m| {
                    m.state = MysqldState::Starting;
                    m.trouble = Some("it could not be examined".into())
                },
                "live ready",
            ),
            (
                "drained by an operator",
                |m| m.offline = Some("offline_mode is on".into()),
                "live ready healthy",
            ),
            (
                "booted open",
                |m| m.warnings = vec!["mysqld started open for writes".into()],
                "live ready healthy replica readonly",
            ),
        ];
        for (name, change, expected) in follower {
            let mut view = database_leader();
            (view.role, view.serving) = (Role::Follower, false);
            let mysql = view.mysql.as_mut().unwrap();
            (mysql.following, mysql.writable) = (true, false);
            change(mysql);
            assert_eq!(yes(&view), *expected, "{name}");
        }
        let witness: &[(&str, Change, &str)] = &[
            ("a witness", |_| {}, "live ready healthy witness"),
            (
                "a witness that leads",
                |v| {
                    v.role = Role::Leader;
                    v.serving = true
                },
                "live ready healthy leader witness",
            ),
            (
                "before the bootstrap",
                |v| {
                    v.role = Role::Joining;
                    v.leader = None
                },
                "live",
            ),
        ];
        for (name, change, expected) in witness {
            let mut view = witness_follower();
            change(&mut view);
            assert_eq!(yes(&view), *expected, "{name}");
        }
    }

    #[test]
    fn a_no_says_why() {
        let mut view = database_leader();
        view.mysql.as_mut().unwrap().protected = false;
        view.mysql.as_mut().unwrap().unprotected_because = vec!["its timeout is 10 s".into()];
        let why = answer(Question::Primary, &view).unwrap_err();
        let reasons = vec!["its timeout is 10 s".to_owned()];
        assert_eq!(why, NotReady::Unprotected(reasons));
        assert_eq!(
            why.to_string(),
            "a commit in its mysqld may not wait for the ring: its timeout is 10 s"
        );
    }

    #[test]
    fn readers_may_be_at_the_primary_whatever_their_bound() {
        let primary = database_leader();
        assert!(answer(Question::ReadOnly(Some(0)), &primary).is_ok());
        assert!(answer(Question::Replica(Some(0)), &primary).is_err());
    }

    #[test]
    fn a_follower_is_a_replica_while_it_follows_and_is_fresh_enough() {
        let follower = |following, lag_ms| {
            let mut view = database_leader();
            view.role = Role::Follower;
            view.serving = false;
            if let Some(mysql) = &mut view.mysql {
                (mysql.following, mysql.lag_ms) = (following, lag_ms);
            }
            view
        };
        let ask = |bound, view: &MemberView| {
            let answers = [Question::Replica(bound), Question::ReadOnly(bound)];
            let [replica, readers] = answers.map(|question| answer(question, view).is_ok());
            assert_eq!(replica, readers);
            replica
        };
        assert!(ask(None, &follower(true, None)) && ask(None, &follower(true, Some(9_000))));
        assert!(!ask(None, &follower(false, None)));
        assert!(ask(Some(500), &follower(true, Some(500))));
        assert!(!ask(Some(500), &follower(true, Some(501))));
        assert!(!ask(Some(500), &follower(true, None)), "its lag is unknown");
        let mut dead = follower(true, Some(0));
        let mysql = dead.mysql.as_mut().unwrap();
        mysql.state = MysqldState::Unreachable;
        mysql.trouble = Some("connection refused".into());
        assert!(!ask(None, &dead) && !ask(Some(500), &dead));
        let refused = NotReady::NotFollowing("connection refused".to_owned());
        assert_eq!(answer(Question::Replica(None), &dead), Err(refused));
        let mut lonely = follower(true, Some(0));
        lonely.leader = None;
        assert!(!ask(None, &lonely), "no leader");
    }

    #[test]
    fn an_unmanaged_mysqld_is_judged_as_plain_replication_whatever_the_member_is() {
        let plain = |writable: bool, following: bool, lag_ms| {
            let mut view = database_leader();
            let mysql = view.mysql.as_mut().unwrap();
            mysql.state = MysqldState::Unmanaged;
            (mysql.writable, mysql.following, mysql.lag_ms) = (writable, following, lag_ms);
            (mysql.protected, mysql.ingesting) = (false, false);
            view
        };
        let no_leader = |mut view: MemberView| {
            (view.role, view.serving, view.leader) = (Role::Follower, false, None);
            view
        };
        let replica = Question::Replica(Some(2_000));
        for (view, primary, replicates) in [
            (plain(true, false, None), true, false),
            (no_leader(plain(true, false, None)), true, false),
            (plain(false, true, Some(0)), false, true),
            (plain(false, true, Some(3_000)), false, false),
            (plain(false, true, None), false, false),
            (plain(false, false, None), false, false),
        ] {
            assert_eq!(
                answer(Question::Primary, &view).is_ok(),
                primary,
                "{view:?}"
            );
            assert_eq!(answer(replica, &view).is_ok(), replicates, "{view:?}");
        }
        let primary = plain(true, false, None);
        assert_eq!(answer(Question::Health, &primary), Ok(()));
        let mut offline = primary.clone();
        offline.mysql.as_mut().unwrap().offline = Some("`offline_mode` is ON".to_owned());
        assert!(answer(Question::Primary, &offline).is_err());
        let mut removed = primary;
        removed.members.retain(|member| member.id != MemberId(1));
        removed.serving = false;
        assert!(answer(Question::Primary, &removed).is_err());
    }
}
