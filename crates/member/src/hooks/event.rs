//! What hooks report: which event describes the state of the primary that a member sees, and the environment of that event. Pure.

use raft_types::{MemberId, MemberKind};

use crate::status::{MemberView, MysqlView, Question, Role, answer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// This member's mysqld takes writes as the primary.
    Primary,
    /// It was the primary, and is no longer.
    Demoted,
    /// Another member's mysqld than before is the ring's primary. Every member reports it.
    PrimaryChanged,
}

impl EventKind {
    /// Its name in the environment and in log lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Demoted => "demoted",
            Self::PrimaryChanged => "primary_changed",
        }
    }

    /// The key of `[hooks]` that holds its command.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Primary => "on_primary",
            Self::Demoted => "on_demoted",
            Self::PrimaryChanged => "on_primary_changed",
        }
    }
}

/// One state to report, with all input of its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// Names and values, in the documented order.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// The system bounds a value of the environment; a longer set of transactions is omitted.
const LONGEST_VALUE: usize = 64 << 10;

/// Client address of the member's mysqld, from its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnMysqld {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The state of the primary, as one member sees it at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PrimaryState {
    /// The term in which this member's mysqld is the primary; none while it is not.
    pub(crate) own_term: Option<u64>,
    /// The member last seen with the ring's primary.
    pub(crate) primary: Option<MemberId>,
    /// The previous primary.
    pub(crate) previous: Option<MemberId>,
}

impl PrimaryState {
    /// The state after `view`. A ring without a primary keeps the last one: the same primary again is no change.
    pub(crate) fn observe(self, view: &MemberView) -> Self {
        let own = answer(Question::Primary, view).is_ok();
        let own_term = own.then_some(view.term);
        match primary_of(view, own) {
            Some(primary) if self.primary != Some(primary) => Self {
                own_term,
                primary: Some(primary),
                previous: self.primary,
            },
            _ => Self { own_term, ..self },
        }
    }

    /// The event of `kind` for this state.
    pub(crate) fn event(
        self,
        kind: EventKind,
        view: &MemberView,
        mysqld: Option<&OwnMysqld>,
    ) -> Event {
        let (reason, previous) = match kind {
            EventKind::Demoted => (
                answer(Question::Primary, view)
                    .err()
                    .map_or_else(String::new, |why| why.to_string()),
                Some(view.member.id),
            ),
            EventKind::Primary | EventKind::PrimaryChanged => (String::new(), self.previous),
        };
        Event {
            kind,
            environment: environment(kind, &reason, view, previous, self.primary, mysqld),
        }
    }
}

/// The member with the primary, as far as this one knows: itself with a primary mysqld, or another leading database member that is not a
/// caretaker.
fn primary_of(view: &MemberView, own: bool) -> Option<MemberId> {
    if own {
        return Some(view.member.id);
    }
    // The ring does not know the primary of plain replication.
    let unmanaged = view.mysql.as_ref().is_some_and(MysqlView::is_unmanaged);
    if view.role == Role::Leader || unmanaged {
        return None;
    }
    let leader = view.leader?;
    let member = view.members.iter().find(|member| member.id == leader)?;
    let takes_care = view
        .pause
        .as_ref()
        .is_some_and(|pause| pause.primary != leader);
    (member.record.kind == MemberKind::Database && !takes_care).then_some(leader)
}

fn environment(
    kind: EventKind,
    reason: &str,
    view: &MemberView,
    previous: Option<MemberId>,
    primary: Option<MemberId>,
    mysqld: Option<&OwnMysqld>,
) -> Vec<(&'static str, String)> {
    let member = |id: Option<MemberId>| {
        let id = id?;
        view.members.iter().find(|member| member.id == id)
    };
    let name = |id| member(id).map_or_else(String::new, |member| member.record.name.clone());
    let host = |id| {
        let address = member(id).map(|member| member.record.address.as_str());
        let host = address.and_then(|address| address.rsplit_once(':'));
        host.map_or_else(String::new, |(host, _)| host.to_owned())
    };
    let op_id =
        |op_id: Option<raft_types::OpId>| op_id.map_or_else(String::new, |at| at.to_string());
    let mut gtids = view.log.gtid_set.to_string();
    if gtids.len() > LONGEST_VALUE {
        gtids.clear();
    }
    vec![
        ("WITNESS_EVENT", kind.name().to_owned()),
        ("WITNESS_RING", view.ring.name.clone()),
        ("WITNESS_MEMBER", view.member.name.clone()),
        ("WITNESS_MEMBER_ID", view.member.id.to_string()),
        ("WITNESS_REGION", view.member.region.to_string()),
        ("WITNESS_ROLE", view.role.to_string()),
        ("WITNESS_TERM", view.term.to_string()),
        ("WITNESS_COMMITTED", op_id(view.committed)),
        ("WITNESS_GTID_SET", gtids),
        ("WITNESS_PRIMARY", name(primary)),
        ("WITNESS_PRIMARY_HOST", host(primary)),
        ("WITNESS_PREVIOUS_PRIMARY", name(previous)),
        ("WITNESS_PREVIOUS_PRIMARY_HOST", host(previous)),
        (
            "WITNESS_MYSQL_HOST",
            mysqld.map_or_else(String::new, |mysqld| mysqld.host.clone()),
        ),
        (
            "WITNESS_MYSQL_PORT",
            mysqld.map_or_else(String::new, |mysqld| mysqld.port.to_string()),
        ),
        ("WITNESS_PAUSED", u8::from(view.pause.is_some()).to_string()),
        ("WITNESS_REASON", reason.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::GtidText;
    use crate::status::sample::database_leader;
    use crate::status::sample::witness_follower;

    fn value<'a>(event: &'a Event, name: &str) -> &'a str {
        let found = event.environment.iter().find(|(known, _)| *known == name);
        &found.unwrap().1
    }

    #[test]
    fn the_environment_describes_the_state_at_the_event() {
        let mysqld = OwnMysqld {
            host: "10.0.0.1".into(),
            port: 3306,
        };
        let open = database_leader();
        let state = PrimaryState::default().observe(&open);
        assert_eq!(state.own_term, Some(3));
        let event = state.event(EventKind::Primary, &open, Some(&mysqld));
        assert_eq!(value(&event, "WITNESS_PRIMARY"), "db-1");
        assert_eq!(value(&event, "WITNESS_PREVIOUS_PRIMARY"), "");
        assert_eq!(value(&event, "WITNESS_MYSQL_PORT"), "3306");
        assert_eq!(value(&event, "WITNESS_TERM"), "3");
        assert_eq!(value(&event, "WITNESS_COMMITTED"), "3.42");
        let mut closed = database_leader();
        closed.mysql.as_mut().unwrap().writable = false;
        let state = state.observe(&closed);
        assert_eq!(state.own_term, None);
        let event = state.event(EventKind::Demoted, &closed, Some(&mysqld));
        let reason = value(&event, "WITNESS_REASON");
        assert_eq!(reason, "its mysqld does not take writes");
        assert_eq!(value(&event, "WITNESS_PREVIOUS_PRIMARY"), "db-1");
    }

    #[test]
    fn only_a_database_leader_replaces_the_primary() {
        let mut view = witness_follower();
        let first = PrimaryState::default().observe(&view);
        let event = first.event(EventKind::PrimaryChanged, &view, None);
        assert_eq!(value(&event, "WITNESS_PREVIOUS_PRIMARY"), "");
        assert_eq!(value(&event, "WITNESS_PRIMARY_HOST"), "10.0.0.1");
        // No leader, then a witness, then the same primary as before.
        for leader in [None, Some(3), Some(1)] {
            view.leader = leader.map(MemberId);
            assert_eq!(first.observe(&view), first, "{leader:?}");
        }
        view.members[2].record.kind = MemberKind::Database;
        view.leader = Some(MemberId(3));
        let event = first
            .observe(&view)
            .event(EventKind::PrimaryChanged, &view, None);
        assert_eq!(value(&event, "WITNESS_PREVIOUS_PRIMARY"), "db-1");
        assert_eq!(value(&event, "WITNESS_PRIMARY"), "witness-2");
    }

    #[test]
    fn what_the_system_would_refuse_is_left_out() {
        let mut view = database_leader();
        // Every second number, so that each is a separate interval.
        let many = (0..LONGEST_VALUE / 2).map(|at| format!(":{}", 2 * at + 1));
        let many = many.collect::<String>();
        let set = format!("3e11fa47-71ca-11e1-9e33-c80aa9429562{many}");
        view.log.gtid_set = GtidText(set.parse().unwrap());
        let event = PrimaryState::default().event(EventKind::Primary, &view, None);
        assert_eq!(value(&event, "WITNESS_GTID_SET"), "");
    }
}
