//! The program versions that the members run and the formats that they support, for an upgrade in progress. Pure.

use std::collections::BTreeMap;

use member::status::MemberView;
use raft_types::{FormatRange, FormatVersion};

/// A warning while members run different versions, with the state of the ring's format.
pub(super) fn warning<'a>(views: impl Iterator<Item = &'a MemberView>) -> Option<String> {
    let views: Vec<_> = views.collect();
    let groups = groups(&views);
    (groups.len() > 1).then(|| {
        format!(
            "members run different versions ({}): finish the upgrade. {}",
            told(&groups),
            ring_format(&views)
        )
    })
}

/// The versions of the members that answer, in one sentence; `None` when no member answers.
pub(crate) fn sentence<'a>(views: impl Iterator<Item = &'a MemberView>) -> Option<String> {
    let views: Vec<_> = views.collect();
    let groups = groups(&views);
    (!groups.is_empty()).then(|| format!("Versions: {}. {}", told(&groups), ring_format(&views)))
}

/// The members' names, grouped by version and formats.
type Groups<'a> = BTreeMap<(&'a str, String), Vec<&'a str>>;

fn groups<'a>(views: &[&'a MemberView]) -> Groups<'a> {
    let mut groups = Groups::new();
    for view in views {
        let program = (view.version.as_str(), speaks(view).to_string());
        groups.entry(program).or_default().push(&view.member.name);
    }
    groups
}

fn told(groups: &Groups) -> String {
    let group = |((version, formats), names): (&(&str, String), &Vec<&str>)| {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        format!("{version}, formats {formats}: {}", names.join(", "))
    };
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

/// A version that does not report its formats supports only the first.
fn speaks(view: &MemberView) -> FormatRange {
    let formats = view.formats.as_ref();
    formats.map_or(FormatRange::only(FormatVersion::FIRST), |formats| {
        formats.speaks
    })
}

fn ring_format(views: &[&MemberView]) -> String {
    let said = views
        .iter()
        .filter_map(|view| view.formats.as_ref()?.ring)
        .max();
    let ring = said.unwrap_or(FormatVersion::FIRST);
    let newest = views.iter().map(|view| speaks(view).newest()).max();
    match newest.is_some_and(|newest| newest > ring) {
        true => format!(
            "The ring's format is {ring}, and rises when all members speak {}",
            ring.next()
        ),
        false => format!("The ring's format is {ring}"),
    }
}

#[cfg(test)]
mod tests {
    use member::status::FormatsView;
    use member::status::sample::{database_leader, witness_follower};

    use super::*;

    fn of(mut view: MemberView, version: &str, speaks: &str, ring: u32) -> MemberView {
        version.clone_into(&mut view.version);
        view.formats = Some(FormatsView {
            speaks: speaks.parse().unwrap(),
            ring: Some(FormatVersion(ring)),
            refused: None,
            others: Vec::new(),
        });
        view
    }

    #[test]
    fn an_upgrade_that_is_under_way_is_told_until_its_end() {
        let mut old = database_leader();
        old.formats = None;
        let new = |version, ring| of(witness_follower(), version, "1-2", ring);
        let under_way = [old, new("0.2.0", 1)];
        assert_eq!(
            warning(under_way.iter()).unwrap(),
            "members run different versions (0.1.0, formats 1: `db-1`; 0.2.0, formats 1-2: `witness-1`): finish the upgrade. \
             The ring's format is 1, and rises when all members speak 2"
        );
        let done = [of(database_leader(), "0.2.0", "1-2", 2), new("0.2.0", 2)];
        assert_eq!(warning(done.iter()), None);
        assert_eq!(
            sentence(done.iter()).unwrap(),
            "Versions: 0.2.0, formats 1-2: `db-1`, `witness-1`. The ring's format is 2"
        );
        assert_eq!(sentence([].iter()), None);
    }
}
