//! What hooks are told of: the changes between two looks at a member, and the environment that describes one. Pure.

use raft_types::{MemberId, MemberKind};

use crate::status::{MemberView, Question, Role, answer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The mysqld beside this member takes writes as the primary.
    Primary,
    /// It was the primary, and is not any more.
    Demoted,
    /// The ring's primary is beside another member than before. Told by every member.
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
}

/// One change, with everything that a command is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// Names and values, in the order of the documentation.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// A value of the environment is bounded by the system; a set of transactions beyond this is left out.
const LONGEST_VALUE: usize = 64 << 10;

/// Where the mysqld beside the member is reached, as its configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnMysqld {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Remembers what the last look has shown.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    was_primary: bool,
    primary: Option<MemberId>,
}

impl Changes {
    /// What has changed since the look before.
    pub(crate) fn see(&mut self, view: &MemberView, mysqld: Option<&OwnMysqld>) -> Vec<Event> {
        let previous = self.primary;
        let is_primary = answer(Question::Primary, view);
        let mut kinds = Vec::new();
        match (&is_primary, self.was_primary) {
            (Ok(()), false) => kinds.push((EventKind::Primary, String::new())),
            (Err(why), true) => kinds.push((EventKind::Demoted, why.clone())),
            _ => {}
        }
        self.was_primary = is_primary.is_ok();
        // One that is gone for a moment and comes back is no change.
        if let Some(primary) = primary_of(view, is_primary.is_ok())
            && self.primary.replace(primary) != Some(primary)
        {
            kinds.push((EventKind::PrimaryChanged, String::new()));
        }
        let event = |(kind, reason): (EventKind, String)| Event {
            kind,
            environment: environment(kind, &reason, view, previous, self.primary, mysqld),
        };
        kinds.into_iter().map(event).collect()
    }
}

/// The member whose mysqld is the primary, as far as this one can tell: itself when it is; another database member when that
/// leads and is not only taking care.
fn primary_of(view: &MemberView, own: bool) -> Option<MemberId> {
    if own {
        return Some(view.member.id);
    }
    if view.role == Role::Leader {
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

    fn names(events: &[Event]) -> Vec<&'static str> {
        events.iter().map(|event| event.kind.name()).collect()
    }

    fn value<'a>(event: &'a Event, name: &str) -> &'a str {
        let found = event.environment.iter().find(|(known, _)| *known == name);
        &found.unwrap().1
    }

    #[test]
    fn the_primarys_member_tells_that_it_is_and_is_not() {
        let mut changes = Changes::default();
        let mysqld = OwnMysqld {
            host: "10.0.0.1".into(),
            port: 3306,
        };
        let mut closed = database_leader();
        closed.mysql.as_mut().unwrap().writable = false;
        assert!(changes.see(&closed, Some(&mysqld)).is_empty());
        let events = changes.see(&database_leader(), Some(&mysqld));
        assert_eq!(names(&events), ["primary", "primary_changed"]);
        assert_eq!(value(&events[0], "WITNESS_PRIMARY"), "db-1");
        assert_eq!(value(&events[0], "WITNESS_MYSQL_PORT"), "3306");
        assert_eq!(value(&events[0], "WITNESS_TERM"), "3");
        assert_eq!(value(&events[0], "WITNESS_COMMITTED"), "3.42");
        assert!(changes.see(&database_leader(), Some(&mysqld)).is_empty());
        let events = changes.see(&closed, Some(&mysqld));
        assert_eq!(names(&events), ["demoted"]);
        assert_eq!(
            value(&events[0], "WITNESS_REASON"),
            "its mysqld does not take writes"
        );
        // The same one again is told by the member itself only.
        let events = changes.see(&database_leader(), Some(&mysqld));
        assert_eq!(names(&events), ["primary"]);
    }

    #[test]
    fn others_tell_that_the_primary_is_another_one() {
        let mut changes = Changes::default();
        let mut view = witness_follower();
        let events = changes.see(&view, None);
        assert_eq!(names(&events), ["primary_changed"]);
        assert_eq!(value(&events[0], "WITNESS_PREVIOUS_PRIMARY"), "");
        assert_eq!(value(&events[0], "WITNESS_PRIMARY_HOST"), "10.0.0.1");
        // Nobody leads, then a witness does, then the same one as before.
        for leader in [None, Some(3), Some(1)] {
            view.leader = leader.map(MemberId);
            assert!(changes.see(&view, None).is_empty(), "{leader:?}");
        }
        view.members[2].record.kind = MemberKind::Database;
        view.leader = Some(MemberId(3));
        let events = changes.see(&view, None);
        assert_eq!(names(&events), ["primary_changed"]);
        assert_eq!(value(&events[0], "WITNESS_PREVIOUS_PRIMARY"), "db-1");
        assert_eq!(value(&events[0], "WITNESS_PRIMARY"), "witness-2");
    }

    #[test]
    fn what_the_system_would_refuse_is_left_out() {
        let mut view = database_leader();
        // Every second one, and so an interval of its own.
        let many = (0..LONGEST_VALUE / 2).map(|at| format!(":{}", 2 * at + 1));
        let many = many.collect::<String>();
        let set = format!("3e11fa47-71ca-11e1-9e33-c80aa9429562{many}");
        view.log.gtid_set = GtidText(set.parse().unwrap());
        let events = Changes::default().see(&view, None);
        assert_eq!(value(&events[0], "WITNESS_GTID_SET"), "");
    }
}
