//! The yes-or-no queries of load balancers and schedulers, with Patroni's meanings. Pure: an answer depends on the member's view alone.

use raft_types::MemberKind;

use crate::status::view::{LoggedMember, MemberView, MysqlView, Role};

/// A query with the HTTP answers 200 and 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Does the process work? Restart it if not.
    Liveness,
    /// Does it take part in the ring? If not, do not stop another member.
    Readiness,
    /// Is everything in its responsibility in order?
    Health,
    /// Does it lead with a quorum, with or without a mysqld?
    Leader,
    /// May clients write to its mysqld?
    Primary,
    /// May clients read from its mysqld? The bound is its largest lag in milliseconds.
    Replica(Option<u64>),
    /// The same, or is it the primary, which never lags?
    ReadOnly(Option<u64>),
    /// Is it a working witness?
    Witness,
}

/// Yes, or no and why.
pub type Answer = Result<(), String>;

/// Answers a query from a member's view.
pub fn answer(question: Question, view: &MemberView) -> Answer {
    liveness(view)?;
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
        Question::Witness => witness(view),
    }
}

fn liveness(view: &MemberView) -> Answer {
    match &view.fault {
        Some(fault) => Err(fault.clone()),
        None => Ok(()),
    }
}

fn readiness(view: &MemberView) -> Answer {
    match (view.role, view.leader) {
        (Role::Joining, _) => Err("the member waits for its ring to be bootstrapped".into()),
        (Role::Leader, _) if view.serving => Ok(()),
        (Role::Leader, _) => Err(not_serving(view)),
        (_, Some(_)) => Ok(()),
        (_, None) => Err("no leader is known".into()),
    }
}

fn health(view: &MemberView) -> Answer {
    readiness(view)?;
    if !view.quorum.ok {
        return Err(view
            .quorum
            .cause
            .clone()
            .unwrap_or_else(|| "the quorum is lost".into()));
    }
    let Some(mysql) = &view.mysql else {
        return Ok(());
    };
    if mysql.is_unmanaged() {
        return Ok(());
    }
    has_everything(mysql)?;
    if view.serving && !mysql.protected {
        return Err(unprotected(&mysql.unprotected_because));
    }
    Ok(())
}

fn leader(view: &MemberView) -> Answer {
    match (view.role, view.leader) {
        (Role::Leader, _) if view.serving => Ok(()),
        (Role::Leader, _) => Err(not_serving(view)),
        (_, Some(leader)) => Err(format!("it does not lead; member {leader} does")),
        (_, None) => Err("it does not lead, and no leader is known".into()),
    }
}

fn primary(view: &MemberView) -> Answer {
    if view.member.kind != MemberKind::Database {
        return Err("it is a witness".into());
    }
    if let Some(plain) = unmanaged(view) {
        return plain_primary(plain);
    }
    leader(view)?;
    if let Some(pause) = &view.pause
        && pause.primary != view.member.id
    {
        let primary = pause.primary;
        return Err(format!(
            "failover is paused, and member {primary} is the primary"
        ));
    }
    let Some(mysql) = &view.mysql else {
        return Err("it has no mysqld".into());
    };
    has_everything(mysql)?;
    if !mysql.protected {
        return Err(unprotected(&mysql.unprotected_because));
    }
    if !mysql.ingesting {
        return Err("its mysqld's transactions are not received yet".into());
    }
    if !mysql.writable {
        return Err("its mysqld does not take writes".into());
    }
    lets_clients_in(mysql)
}

/// It needs no help, and has all entries committed before its member led.
fn has_everything(mysql: &MysqlView) -> Answer {
    match &mysql.trouble {
        Some(trouble) => Err(trouble.clone()),
        None if mysql.catches_up() => Err(format!("its mysqld is {}", mysql.role)),
        None => Ok(()),
    }
}

/// Load balancers' clients use ordinary accounts, whatever the member's own account may do.
fn lets_clients_in(mysql: &MysqlView) -> Answer {
    match &mysql.offline {
        None => Ok(()),
        Some(why) => Err(format!("ordinary accounts cannot use its mysqld: {why}")),
    }
}

fn replica(view: &MemberView, most_behind_ms: Option<u64>) -> Answer {
    if view.member.kind != MemberKind::Database {
        return Err("it is a witness".into());
    }
    if let Some(plain) = unmanaged(view) {
        plain_replica(plain)?;
        return within(plain, most_behind_ms);
    }
    let takes_care = view
        .pause
        .as_ref()
        .is_some_and(|pause| pause.primary != view.member.id);
    if view.role == Role::Leader && !takes_care {
        return Err("it leads".into());
    }
    readiness(view)?;
    let Some(mysql) = &view.mysql else {
        return Err("it has no mysqld".into());
    };
    mysql
        .follows()
        .map_err(|why| format!("its mysqld does not follow the ring: {why}"))?;
    lets_clients_in(mysql)?;
    within(mysql, most_behind_ms)
}

/// The unmanaged mysqld of plain replication: before a takeover by the ring, and after its release. None at a member removed from the ring.
fn unmanaged(view: &MemberView) -> Option<&MysqlView> {
    let own = |member: &LoggedMember| member.id == view.member.id;
    let is_removed = !view.members.is_empty() && !view.members.iter().any(own);
    let mysql = view.mysql.as_ref();
    mysql.filter(|mysql| mysql.is_unmanaged() && !is_removed)
}

fn plain_primary(mysql: &MysqlView) -> Answer {
    if !mysql.writable {
        let why = mysql
            .trouble
            .as_deref()
            .unwrap_or("it does not take writes");
        return Err(format!("its mysqld is unmanaged, and no primary: {why}"));
    }
    lets_clients_in(mysql)
}

fn plain_replica(mysql: &MysqlView) -> Answer {
    if !mysql.following {
        let why = mysql
            .trouble
            .as_deref()
            .unwrap_or("it replicates from no server");
        return Err(format!("its mysqld is unmanaged, and no replica: {why}"));
    }
    lets_clients_in(mysql)
}

fn within(mysql: &MysqlView, most_behind_ms: Option<u64>) -> Answer {
    let Some(most) = most_behind_ms else {
        return Ok(());
    };
    match mysql.lag_ms {
        Some(lag) if lag <= most => Ok(()),
        Some(lag) => Err(format!(
            "its mysqld is {lag} ms behind, and {most} are allowed"
        )),
        None => Err("how far its mysqld is behind is not known yet".into()),
    }
}

fn witness(view: &MemberView) -> Answer {
    if view.member.kind == MemberKind::Witness {
        readiness(view)
    } else {
        Err("it is a database member".into())
    }
}

fn not_serving(view: &MemberView) -> String {
    let why = view
        .not_serving
        .as_deref()
        .unwrap_or("it was elected just now");
    format!("it leads, but does not serve: {why}")
}

fn unprotected(reasons: &[String]) -> String {
    if reasons.is_empty() {
        "its mysqld is not known to wait for the ring".into()
    } else {
        format!(
            "a commit in its mysqld may not wait for the ring: {}",
            reasons.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use raft_types::MemberId;
    use raft_types::UnixSeconds;

    use super::*;
    use crate::status::pause::PauseView;
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

    /// The queries answered with yes, by their first letters.
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
                "nobody leads",
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
                    m.role = "catching up: 7 transactions behind, then the primary".into();
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
            // The member closed it before it was the primary.
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
            // Its applier retries in the meantime.
            (
                "dead",
                |m| {
                    m.state = "failed".into();
                    m.trouble = Some("killed".into())
                },
                "live ready",
            ),
            (
                "hangs",
                |m| {
                    m.state = "starting".into();
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
        assert!(why.contains("its timeout is 10 s"), "{why}");
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
        assert!(!ask(Some(500), &follower(true, None)), "nobody knows");
        let mut dead = follower(true, Some(0));
        let mysql = dead.mysql.as_mut().unwrap();
        mysql.state = "unreachable".into();
        mysql.trouble = Some("connection refused".into());
        assert!(!ask(None, &dead) && !ask(Some(500), &dead));
        let why = answer(Question::Replica(None), &dead).unwrap_err();
        assert!(why.contains("connection refused"), "{why}");
        let mut lonely = follower(true, Some(0));
        lonely.leader = None;
        assert!(!ask(None, &lonely), "nobody says what is committed");
    }

    #[test]
    fn an_unmanaged_mysqld_is_judged_as_plain_replication_whatever_the_member_is() {
        let plain = |writable: bool, following: bool, lag_ms| {
            let mut view = database_leader();
            let mysql = view.mysql.as_mut().unwrap();
            mysql.state = MysqlView::UNMANAGED.to_owned();
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
