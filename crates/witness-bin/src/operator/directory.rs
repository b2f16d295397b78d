//! The members of a ring by number and by name, from the ring's log and from the configuration.
//! Pure: other modules query the members.

use std::collections::BTreeMap;

use member::protocol::{Refusal, RefusalKind};
use member::settings::MemberEntry;
use member::status::MemberView;
use raft_types::MemberId;

use crate::config::did_you_mean;
use crate::operator::RingReport;
use crate::terminal::{Attempt, Exit, Failure};

/// The members that an operator can name, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory(BTreeMap<MemberId, MemberEntry>);

impl Directory {
    /// Creates a directory of the members in a report.
    pub fn of(report: &RingReport) -> Self {
        let members = report.members.iter();
        Self(members.map(|one| (one.id, one.entry.clone())).collect())
    }

    /// Creates a directory of the members in a member's log.
    pub fn of_log(view: &MemberView) -> Self {
        let members = view.members.iter();
        Self(members.map(|one| (one.id, one.into())).collect())
    }

    /// Returns all members, ordered by number.
    pub fn places(&self) -> impl Iterator<Item = &MemberEntry> {
        self.0.values()
    }

    /// Returns a member by its number.
    pub fn get(&self, id: MemberId) -> Option<&MemberEntry> {
        self.0.get(&id)
    }

    /// Finds a member by its name or its number; a name has precedence.
    ///
    /// # Errors
    /// Exit 4 if there is no such member, with the nearest name.
    pub fn find(&self, named: &str) -> Attempt<&MemberEntry> {
        let by_name = self.0.values().find(|place| place.name == named);
        let by_number = || self.0.get(&MemberId(named.parse().ok()?));
        by_name.or_else(by_number).ok_or_else(|| {
            let names = self.0.values().map(|place| place.name.as_str());
            let advice = did_you_mean(named, names, || {
                let known = self.0.values();
                let known = known.map(|place| format!("`{}` ({})", place.name, place.id));
                format!("the members are {}", known.collect::<Vec<_>>().join(", "))
            });
            let what = format!("the ring has no member `{named}`");
            Exit::Refused.because(what, advice)
        })
    }

    /// Returns the text for a member in messages: its name, or its number if no name is known.
    pub fn name(&self, id: MemberId) -> String {
        match self.get(id) {
            Some(place) => format!("`{}`", place.name),
            None => format!("member {id}"),
        }
    }

    /// Converts a member's refusal to a failure of the command, and adds the members' names to the message.
    pub fn failure(&self, refusal: &Refusal) -> Failure {
        let (what, advice) = (&refusal.what, &refusal.advice);
        exit_of(refusal.kind).because(self.with_names(what), self.with_names(advice))
    }

    /// Adds names to a message from another member, which contains only numbers: "member 2" becomes "member 2 `db-2`", and "members 1, 2"
    /// becomes "members 1 `db-1`, 2 `db-2`".
    pub fn with_names(&self, sentence: &str) -> String {
        let mut out = String::with_capacity(sentence.len());
        let mut rest = sentence;
        while let Some(at) = rest.find("member") {
            let (before, from) = rest.split_at(at + "member".len());
            out.push_str(before);
            rest = from;
            let mut lead = if rest.starts_with("s ") { "s " } else { " " };
            while let Some((number, after)) = rest.strip_prefix(lead).and_then(leading_number) {
                out.push_str(lead);
                out.push_str(number);
                let place = number.parse().ok().and_then(|id| self.get(MemberId(id)));
                if let Some(place) = place.filter(|_| !after.starts_with(" `")) {
                    out.push_str(&format!(" `{}`", place.name));
                }
                (rest, lead) = (after, ", ");
            }
        }
        out.push_str(rest);
        out
    }
}

/// The exit codes for kinds of refusals. The code for all other kinds is [`Exit::Error`].
const EXITS: [(RefusalKind, Exit); 6] = [
    (RefusalKind::Failed, Exit::Error),
    (RefusalKind::NoQuorum, Exit::NoQuorum),
    (RefusalKind::Refused, Exit::Refused),
    (RefusalKind::Busy, Exit::Refused),
    (RefusalKind::Unknown, Exit::Unknown),
    (RefusalKind::NotAllowed, Exit::NotAllowed),
];

fn exit_of(kind: RefusalKind) -> Exit {
    let found = EXITS.iter().find(|(known, _)| *known == kind);
    found.map_or(Exit::Error, |(_, exit)| *exit)
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        exit_of(refusal.kind).because(refusal.what, refusal.advice)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let found = EXITS.iter().find(|(_, exit)| *exit == failure.exit);
        let kind = found.map_or(RefusalKind::Failed, |(kind, _)| *kind);
        Self::new(kind, failure.what, failure.advice)
    }
}

/// Splits a text into the number at its beginning and the rest.
fn leading_number(text: &str) -> Option<(&str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit());
    match digits.unwrap_or(text.len()) {
        0 => None,
        digits => Some(text.split_at(digits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::MemberReport;

    fn directory() -> Directory {
        let place = |id, name: &str| MemberReport::sample(id, name, Err("gone".into())).entry;
        let places = [place(1, "db-1"), place(2, "db-2"), place(13, "1")];
        Directory(places.map(|place| (place.id, place)).into())
    }

    #[test]
    fn members_are_found_by_name_or_number() {
        let directory = directory();
        let find = |named: &str| directory.find(named).map(|place| place.id.0);
        assert_eq!(find("db-2"), Ok(2));
        assert_eq!(find("2"), Ok(2));
        assert_eq!(find("1"), Ok(13), "a name wins");
        let failure = find("bd-2").unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(failure.what, "the ring has no member `bd-2`");
        assert_eq!(failure.advice, "did you mean `db-2`?");
        let failure = find("7").unwrap_err();
        assert_eq!(
            failure.advice,
            "the members are `db-1` (1), `db-2` (2), `1` (13)"
        );
    }

    #[test]
    fn sentences_get_the_names() {
        let named = |sentence: &str| directory().with_names(sentence);
        assert_eq!(
            named("member 2 lags behind member 1; ask member 9"),
            "member 2 `db-2` lags behind member 1 `db-1`; ask member 9"
        );
        assert_eq!(named("member 2 `db-2` leads"), "member 2 `db-2` leads");
        assert_eq!(named("no member leads"), "no member leads");
        assert_eq!(named("member "), "member ");
        assert_eq!(
            named("(members 1, 2, 9) wait for member 2, 3 of them"),
            "(members 1 `db-1`, 2 `db-2`, 9) wait for member 2 `db-2`, 3 of them"
        );
    }
}
