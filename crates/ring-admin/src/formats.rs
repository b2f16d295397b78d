//! The ring's format: the newest format that its members may use. The membership stores it in every member's record, so it is the same on
//! all members, and joining members receive it with the log. A membership without this key has the first format. The leader raises the
//! format when every member has reported support for the next format. It is never lowered. Code that needs a newer format than the first
//! checks only [`of`]. A data directory records a format before any data of that format is written, and a member refuses entries of
//! unsupported formats (`administration::LocalState`).

use std::collections::BTreeMap;

use consensus::{Program, RingView};
use raft_types::{FormatVersion, MemberId, MemberRecord, StoredMembership};
use serde_json::Value;

/// The members' latest reports about their programs. Members that did not answer are not included.
pub(crate) type Programs = BTreeMap<MemberId, Program>;

/// A member's format state, for its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatStatus {
    /// The ring's format according to this member's log.
    pub ring: FormatVersion,
    /// The latest reports of other members about their programs. A leader queries them only while it supports a newer format than the
    /// ring's.
    pub others: BTreeMap<MemberId, Program>,
    /// Why this member accepts no entries, as text, if the ring's format is the reason.
    pub refused: Option<String>,
}

/// Key of the format in the records.
const NAME: &str = "format";

/// Returns the ring's format according to the members' records. An unreadable format is from a later version: no range includes it.
pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> FormatVersion {
    let reports = records
        .into_iter()
        .filter_map(|record| record.extras.get(NAME));
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    reports
        .map(|value| FormatVersion(number(value).unwrap_or(u32::MAX)))
        .max()
        .unwrap_or(FormatVersion::FIRST)
}

/// Returns the format in a logged membership.
pub(crate) fn of_membership(membership: &StoredMembership) -> FormatVersion {
    of(membership.nodes().map(|(_, record)| record))
}

/// Keeps the format in the next membership, whichever members are added or removed.
pub(crate) fn carry_on(members: &mut BTreeMap<MemberId, MemberRecord>) {
    let format = of(members.values());
    write(members, format);
}

/// Writes the format into all records. The first format is omitted, because older programs do not write this key.
pub(crate) fn write(members: &mut BTreeMap<MemberId, MemberRecord>, format: FormatVersion) {
    if format == FormatVersion::FIRST {
        return;
    }
    for record in members.values_mut() {
        record.extras.set(NAME, Value::from(format.0));
    }
}

/// Returns the format to which this leader should raise the ring's format, if all members have reported support for it.
pub(crate) fn to_raise(view: &RingView, reports: &Programs) -> Option<FormatVersion> {
    let next = of(view.members.iter().map(|member| &member.record)).next();
    let speaks = |id| {
        let program = reports.get(&id);
        program.is_some_and(|program| program.formats.has(next))
    };
    let all = view.members.iter().all(|member| speaks(member.id));
    (view.leads && all).then_some(next)
}

#[cfg(test)]
mod tests {
    use raft_types::FormatRange;

    use super::*;
    use crate::test_ring::Ring;

    fn program(formats: &str) -> Program {
        Program {
            version: "0.2.0".to_owned(),
            formats: formats.parse().unwrap(),
        }
    }

    fn reports(formats: &[&str]) -> Programs {
        let numbered = (1..).map(MemberId).zip(formats);
        numbered.map(|(id, text)| (id, program(text))).collect()
    }

    fn in_format(ring: &Ring, format: u32) -> Ring {
        ring.with(2, |peer| peer.record.extras.set(NAME, format.into()))
    }

    #[test]
    fn the_format_rises_when_all_members_support_the_next_one() {
        let ring = Ring::new("a: 1d 2w 3n").with_sets(&[&[1, 2]]);
        let table: [(&[&str], Option<u32>); 6] = [
            (&["1-2", "1-2", "1-2"], Some(2)),
            (&["1-2", "1-3", "2-3"], Some(2)),
            // All members must report support, including members without a vote. A member without a report prevents the change.
            (&["1-2", "1-2", "1"], None),
            (&["1-2", "1-2"], None),
            (&["1", "1", "1"], None),
            (&[], None),
        ];
        for (formats, expected) in table {
            let next = to_raise(&ring.view(), &reports(formats));
            assert_eq!(next.map(|format| format.0), expected, "{formats:?}");
        }
        let all = reports(&["1-3", "1-3", "1-3"]);
        let risen = in_format(&ring, 2).view();
        assert_eq!(to_raise(&risen, &all), Some(FormatVersion(3)));
        let follower = RingView {
            leads: false,
            ..ring.view()
        };
        assert_eq!(to_raise(&follower, &all), None);
    }

    #[test]
    fn the_format_survives_membership_changes_and_the_first_is_not_written() {
        let mut ring: BTreeMap<_, _> = [1, 2]
            .map(|id| (MemberId(id), MemberRecord::default()))
            .into();
        let bare = serde_json::to_string(&ring).unwrap();
        carry_on(&mut ring);
        assert_eq!(serde_json::to_string(&ring).unwrap(), bare);
        assert_eq!(of(ring.values()), FormatVersion::FIRST);
        write(&mut ring, FormatVersion(2));
        ring.remove(&MemberId(1));
        ring.insert(MemberId(3), MemberRecord::default());
        carry_on(&mut ring);
        ring.remove(&MemberId(2));
        let json = serde_json::to_string(&ring).unwrap();
        let ring: BTreeMap<MemberId, MemberRecord> = serde_json::from_str(&json).unwrap();
        assert_eq!(of(ring.values()), FormatVersion(2));
    }

    #[test]
    fn an_unreadable_format_is_outside_every_range() {
        let mut record = MemberRecord::default();
        record.extras.set(NAME, "two".into());
        let found = of([&record]);
        assert!(
            !FormatRange::between(FormatVersion::FIRST, FormatVersion(99))
                .unwrap()
                .has(found)
        );
    }
}
