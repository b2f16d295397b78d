//! Why commits cannot proceed without a leader that has a quorum, as far as the answers of all members show.

use std::collections::BTreeSet;

use consensus::quorum::majority_of;
use member::status::{QuorumView, start_advice};
use raft_types::MemberId;

use crate::operator::{Asked, latest};
use crate::text::quoted;

/// Since when, why, and the fix.
pub(crate) fn lost(asked: &[Asked]) -> QuorumView {
    let views = || asked.iter().filter_map(|asked| asked.answer.as_ref().ok());
    let since = views()
        .filter_map(|view| view.quorum.lost_for_seconds)
        .max_by(f64::total_cmp);
    let (cause, fix) = if let Some(unmet) = voter_sets(asked)
        .into_iter()
        .find_map(|set| too_few(asked, &set))
    {
        unmet
    } else if !views().any(|view| view.ring.id.is_some()) {
        (
            "the ring is not bootstrapped".to_owned(),
            "run `witness bootstrap` on the host of one member".to_owned(),
        )
    } else {
        let told = views().filter(|view| view.leader == Some(view.member.id));
        let told = told.max_by_key(|view| view.term);
        let cause = told.and_then(|view| view.not_serving.clone().or(view.quorum.cause.clone()));
        let fix = told.and_then(|view| view.quorum.fix.clone());
        (
            cause.unwrap_or_else(|| "no member leads; an election is under way".into()),
            fix.unwrap_or_else(|| {
                "try again in a moment; if nothing changes, look for refused calls in the members' logs"
                    .into()
            }),
        )
    };
    QuorumView {
        ok: false,
        lost_for_seconds: since,
        cause: Some(cause),
        fix: Some(fix),
    }
}

/// `Some` if the answers do not suffice: no member answers, or members with unresolved names may form a quorum with those that answer.
pub(crate) fn not_known(asked: &[Asked]) -> Option<QuorumView> {
    let set_is_open = |set: &BTreeSet<MemberId>| {
        let voters = || asked.iter().filter(|one| set.contains(&one.entry.id));
        let answering = voters().filter(|one| one.answer.is_ok()).count();
        let uncalled = voters().filter(|one| one.unresolved()).count();
        let needed = majority_of(set.len());
        answering < needed && answering + uncalled >= needed
    };
    let cause = if asked.iter().all(|one| one.answer.is_err()) {
        "no member answers"
    } else if voter_sets(asked).iter().any(set_is_open) {
        "too few members could be asked"
    } else {
        return None;
    };
    let uncalled = asked.iter().filter(|one| one.unresolved());
    let names = quoted(uncalled.map(|one| &one.entry.name));
    Some(match names.as_str() {
        "" => unknown(cause.to_owned(), false),
        _ => unknown(
            format!("{cause}, and this host cannot look up the address of {names}"),
            true,
        ),
    })
}

/// For a ring with too few reachable members; `unresolved` if names could not be resolved.
pub(crate) fn unknown(cause: String, unresolved: bool) -> QuorumView {
    let fix = match unresolved {
        true => {
            "check the names, and the name servers in this host's /etc/resolv.conf, or ask on another host"
        }
        false => "start the members, or check their addresses and the TLS settings",
    };
    QuorumView {
        cause: Some(cause),
        fix: Some(fix.to_owned()),
        ..QuorumView::default()
    }
}

/// The voter sets in the ring's log; without any answer, all members that may vote.
fn voter_sets(asked: &[Asked]) -> Vec<BTreeSet<MemberId>> {
    let sets = latest(asked).map(|view| view.voter_sets.clone());
    sets.filter(|sets| !sets.is_empty()).unwrap_or_else(|| {
        let voters = asked.iter().filter(|asked| asked.entry.votes);
        vec![voters.map(|asked| asked.entry.id).collect()]
    })
}

/// What a voter set lacks, and which members to restart.
fn too_few(asked: &[Asked], set: &BTreeSet<MemberId>) -> Option<(String, String)> {
    let of = |id: &MemberId| asked.iter().find(|asked| asked.entry.id == *id);
    let answers = |id: &&MemberId| of(id).is_some_and(|asked| asked.answer.is_ok());
    let (voters, needed) = (set.len(), majority_of(set.len()));
    let answering = set.iter().filter(answers).count();
    if answering >= needed {
        return None;
    }
    let silent = set.iter().filter(|id| !answers(id));
    let named = silent.map(|id| match of(id) {
        Some(asked) => format!("`{}` ({})", asked.entry.name, asked.entry.address),
        None => format!("member {id}"),
    });
    let named = named.collect::<Vec<_>>().join(" or ");
    let mut regions = set.iter().filter_map(of).map(|asked| &asked.entry.region);
    let region = regions.next();
    let all: BTreeSet<_> = asked.iter().map(|asked| &asked.entry.region).collect();
    let place = match region {
        Some(region) if all.len() > 1 && regions.all(|other| other == region) => {
            format!(" of region `{region}`")
        }
        _ => String::new(),
    };
    let cause = format!("{answering} of {voters} voters{place} answer and {needed} are needed");
    let start = start_advice(&named);
    let fix = format!("{start}; if they are permanently lost, see `witness quorum fix`");
    Some((cause, fix))
}

#[cfg(test)]
mod tests {
    use raft_types::MemberKind;
    use raft_types::Region;

    use super::*;
    use member::settings::MemberEntry;
    use member::status::sample::witness_follower;

    fn asked(id: u64, region: &str, answers: bool) -> Asked {
        let mut view = witness_follower();
        view.voter_sets = vec![[4, 5, 6].map(MemberId).into()];
        Asked {
            entry: MemberEntry {
                id: MemberId(id),
                name: format!("m{id}"),
                region: Region(region.into()),
                kind: MemberKind::Witness,
                votes: true,
                priority: 100,
                address: format!("h:{id}"),
            },
            configured: true,
            answer: answers.then_some(view).ok_or_else(|| "refused".into()),
        }
    }

    #[test]
    fn only_the_voters_in_force_are_missed() {
        let ring = [
            asked(1, "north", true),
            asked(2, "north", true),
            asked(3, "north", true),
            asked(4, "south", true),
            asked(5, "south", false),
            asked(6, "south", false),
        ];
        let lost = lost(&ring);
        assert_eq!(
            lost.cause.as_deref(),
            Some("1 of 3 voters of region `south` answer and 2 are needed")
        );
        assert_eq!(
            lost.fix.as_deref(),
            Some(
                "start witness on `m5` (h:5) or `m6` (h:6) (`systemctl start witness`, or `witness run`); if they are permanently lost, see \
                 `witness quorum fix`"
            )
        );
    }
}
