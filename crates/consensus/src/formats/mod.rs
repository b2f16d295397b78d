//! The ring's format: the newest one that its members may use. It is stored in the membership, in every member's record, so it is the same
//! on every member and reaches joining members with the log. A membership without it has the first format. The leader raises it when every
//! member has reported support for the next one; it is never lowered. Code that needs a newer format than the first checks only [`of`].

pub(crate) mod keeping;
pub(crate) mod raising;

use std::collections::BTreeMap;

use raft_types::{
    EntryPayload, FormatMismatch, FormatRange, FormatVersion, MemberId, MemberRecord,
    StoredMembership,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ring_view::RingView;

/// A member's program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Version of `witness`.
    pub version: String,
    /// The formats that it supports.
    pub formats: FormatRange,
}

impl Program {
    /// The running program.
    pub fn this() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            formats: FormatRange::OF_THIS_PROGRAM,
        }
    }
}

/// The members' latest program reports; members that did not answer are not included.
pub(crate) type Programs = BTreeMap<MemberId, Program>;

/// A member's format state, for its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatStatus {
    /// The program that runs here.
    pub program: Program,
    /// The ring's format according to this member's log.
    pub ring: FormatVersion,
    /// The others' latest program reports to this member, if it leads. It queries only while it supports a newer format than the ring's.
    pub others: BTreeMap<MemberId, Program>,
    /// Why this member accepts no entries, as text, if the ring's format is the reason.
    pub refused: Option<String>,
}

/// Key of the format in the records.
const NAME: &str = "format";

/// The ring's format according to its members' records. An unreadable format is from a later version, and outside every range.
pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> FormatVersion {
    let said = records
        .into_iter()
        .filter_map(|record| record.extras.get(NAME));
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    said.map(|value| FormatVersion(number(value).unwrap_or(u32::MAX)))
        .max()
        .unwrap_or(FormatVersion::FIRST)
}

/// The format of a logged membership.
pub(crate) fn of_membership(membership: &StoredMembership) -> FormatVersion {
    of(membership.nodes().map(|(_, record)| record))
}

/// The format of an entry, if it is a membership.
fn of_entry(payload: &EntryPayload) -> Option<FormatVersion> {
    match payload {
        EntryPayload::Membership(membership) => {
            let nodes = membership.membership().nodes();
            Some(of(nodes.map(|(_, record)| record)))
        }
        _ => None,
    }
}

/// Keeps the format in the next membership, whichever members are added or removed.
pub(crate) fn carry_on(members: &mut BTreeMap<MemberId, MemberRecord>) {
    let format = of(members.values());
    write(members, format);
}

/// Writes the format into all records. The first format is omitted, as by programs without this key.
pub(crate) fn write(members: &mut BTreeMap<MemberId, MemberRecord>, format: FormatVersion) {
    if format == FormatVersion::FIRST {
        return;
    }
    for record in members.values_mut() {
        record.extras.set(NAME, Value::from(format.0));
    }
}

/// The format to which this leader should raise the ring's, by the members' program reports.
pub(crate) fn to_raise(view: &RingView, said: &Programs) -> Option<FormatVersion> {
    let next = view.format().next();
    let speaks = |id| {
        let program = said.get(&id);
        program.is_some_and(|program| program.formats.has(next))
    };
    let all = view.members.iter().all(|member| speaks(member.id));
    (view.leads && all).then_some(next)
}

impl RingView {
    /// The ring's format.
    pub fn format(&self) -> FormatVersion {
        of(self.members.iter().map(|member| &member.record))
    }
}

/// Why a member that supports `speaks` cannot join a ring of format `ring`.
pub(crate) fn check_newcomer(ring: FormatVersion, speaks: FormatRange) -> Result<(), String> {
    let newcomer = speaks.check(ring);
    newcomer.map_err(|FormatMismatch { found, speaks }| {
        let way = match found > speaks.newest() {
            true => "install a later version of witness there",
            false => {
                "install an earlier version of witness there, and the later one when the ring's format has risen"
            }
        };
        format!("the ring's format is {found}, and the new member speaks {speaks}: {way}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_view::tests::Ring;

    fn program(formats: &str) -> Program {
        Program {
            version: "0.2.0".to_owned(),
            formats: formats.parse().unwrap(),
        }
    }

    fn said(formats: &[&str]) -> Programs {
        let numbered = (1..).map(MemberId).zip(formats);
        numbered.map(|(id, text)| (id, program(text))).collect()
    }

    fn in_format(ring: &Ring, format: u32) -> Ring {
        ring.with(2, |peer| peer.record.extras.set(NAME, format.into()))
    }

    #[test]
    fn it_rises_when_every_member_speaks_the_next_one() {
        let ring = Ring::new("a: 1d 2w 3n").with_sets(&[&[1, 2]]);
        let table: [(&[&str], Option<u32>); 6] = [
            (&["1-2", "1-2", "1-2"], Some(2)),
            (&["1-2", "1-3", "2-3"], Some(2)),
            // Members without a vote or an answer must support it, too.
            (&["1-2", "1-2", "1"], None),
            (&["1-2", "1-2"], None),
            (&["1", "1", "1"], None),
            (&[], None),
        ];
        for (formats, expected) in table {
            let next = to_raise(&ring.view(), &said(formats));
            assert_eq!(next.map(|format| format.0), expected, "{formats:?}");
        }
        let all = said(&["1-3", "1-3", "1-3"]);
        let risen = in_format(&ring, 2).view();
        assert_eq!(to_raise(&risen, &all), Some(FormatVersion(3)));
        let follower = RingView {
            leads: false,
            ..ring.view()
        };
        assert_eq!(to_raise(&follower, &all), None);
    }

    #[test]
    fn it_stays_whoever_goes_and_comes_and_the_first_one_is_not_written() {
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
    fn what_cannot_be_read_is_beyond_every_range() {
        let mut record = MemberRecord::default();
        record.extras.set(NAME, "two".into());
        let found = of([&record]);
        assert!(
            !FormatRange::between(FormatVersion::FIRST, FormatVersion(99))
                .unwrap()
                .has(found)
        );
    }

    #[test]
    fn a_newcomer_that_does_not_speak_it_is_told_which_version_to_install() {
        let check =
            |ring, speaks: &str| check_newcomer(FormatVersion(ring), speaks.parse().unwrap());
        assert_eq!(check(2, "1-2").and(check(2, "2-3")), Ok(()));
        let old = check(2, "1").unwrap_err();
        assert!(old.contains("speaks 1: install a later version"), "{old}");
        let new = check(1, "2-3").unwrap_err();
        assert!(
            new.contains("speaks 2-3: install an earlier version"),
            "{new}"
        );
    }
}
