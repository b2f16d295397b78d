//! The ring as somebody outside sees it who has asked every member: who answers, who leads, and
//! whether commits can go on. Pure: the answers are gathered elsewhere.

use raft_types::{MemberId, MemberKind, Region};
use serde::{Deserialize, Serialize};

use super::view::{MemberView, QuorumView};
use crate::config::MemberEntry;

/// The whole ring at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RingReport {
    /// The ring's name in the configuration.
    pub ring: String,
    /// Who leads with a quorum behind it.
    pub leader: Option<MemberId>,
    /// Whether commits can go on; when not: since when, why, and what to do.
    pub quorum: QuorumView,
    /// Every configured member.
    pub members: Vec<MemberReport>,
}

/// One configured member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Its number.
    pub id: MemberId,
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub region: Region,
    /// With a mysqld or without.
    pub kind: MemberKind,
    /// Whether it may count in a quorum.
    pub votes: bool,
    /// Where it is reached.
    pub address: String,
    /// How many entries it is behind the leader.
    pub lag_entries: Option<u64>,
    /// Why it did not answer; none when it did.
    pub error: Option<String>,
    /// What it said.
    pub view: Option<MemberView>,
}

impl RingReport {
    /// Puts the answers of all members together; they stand in the order of the configuration.
    pub fn new(ring: &str, answers: Vec<(MemberEntry, Result<MemberView, String>)>) -> Self {
        let views = || {
            answers
                .iter()
                .filter_map(|(_, answer)| answer.as_ref().ok())
        };
        // Of two that think so, the one of the later term is right.
        let serving = views()
            .filter(|view| view.serving)
            .max_by_key(|view| view.term);
        let leader = serving.map(|view| view.member.id);
        let end = serving.and_then(|view| view.log_end).map(|end| end.index);
        let lag = |view: &MemberView| {
            let own = view.log_end.map_or(0, |end| end.index + 1);
            end.map(|end| (end + 1).saturating_sub(own))
        };
        let quorum = match serving {
            Some(_) => QuorumView {
                ok: true,
                lost_for_seconds: None,
                cause: None,
                fix: None,
            },
            None => lost(&answers),
        };
        let members = answers.into_iter().map(|(entry, answer)| MemberReport {
            id: entry.id,
            name: entry.name,
            region: entry.region,
            kind: entry.kind,
            votes: entry.votes,
            address: entry.address,
            lag_entries: answer.as_ref().ok().and_then(lag),
            error: answer.as_ref().err().cloned(),
            view: answer.ok(),
        });
        Self {
            ring: ring.to_owned(),
            leader,
            quorum,
            members: members.collect(),
        }
    }
}

fn lost(answers: &[(MemberEntry, Result<MemberView, String>)]) -> QuorumView {
    let views = || {
        answers
            .iter()
            .filter_map(|(_, answer)| answer.as_ref().ok())
    };
    let voters = answers.iter().filter(|(entry, _)| entry.votes).count();
    let answering = answers
        .iter()
        .filter(|(entry, answer)| entry.votes && answer.is_ok())
        .count();
    let silent: Vec<_> = answers
        .iter()
        .filter(|(entry, answer)| entry.votes && answer.is_err())
        .map(|(entry, _)| format!("`{}` ({})", entry.name, entry.address))
        .collect();
    let since = views()
        .filter_map(|view| view.quorum.lost_for_seconds)
        .max_by(f64::total_cmp);
    let needed = voters / 2 + 1;
    let (cause, fix) = if answering < needed {
        (
            format!("{answering} of {voters} voters answer and {needed} are needed"),
            format!("run `witness run` on {}", silent.join(" or ")),
        )
    } else if !views().any(|view| view.ring.id.is_some()) {
        (
            "the ring is not bootstrapped".to_owned(),
            "start one member with `witness run --bootstrap`".to_owned(),
        )
    } else {
        let told = views().filter(|view| view.leader == Some(view.member.id));
        let told = told.max_by_key(|view| view.term);
        let cause = told.and_then(|view| view.not_serving.clone().or(view.quorum.cause.clone()));
        let fix = told.and_then(|view| view.quorum.fix.clone());
        (
            cause.unwrap_or_else(|| "no member leads; an election is under way".into()),
            fix.unwrap_or_else(|| {
                "ask again in a moment; if it stays so, look at the members' logs for refused calls"
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

#[cfg(test)]
mod tests {
    use super::super::sample::{database_leader, witness_follower};
    use super::*;

    fn entry(id: u64, name: &str) -> MemberEntry {
        MemberEntry {
            id: MemberId(id),
            name: name.into(),
            region: Region("north".into()),
            kind: MemberKind::Witness,
            votes: true,
            priority: 100,
            address: format!("10.0.0.{id}:7400"),
        }
    }

    fn answers(
        given: [Result<MemberView, String>; 3],
    ) -> Vec<(MemberEntry, Result<MemberView, String>)> {
        let entries = [
            entry(1, "db-1"),
            entry(2, "witness-1"),
            entry(3, "witness-2"),
        ];
        entries.into_iter().zip(given).collect()
    }

    fn silent() -> Result<MemberView, String> {
        Err("connection refused".into())
    }

    #[test]
    fn a_serving_leader_is_a_quorum() {
        let mut behind = witness_follower();
        behind.log_end = Some(raft_types::OpId::new(3, 40));
        let report = RingReport::new("r", answers([Ok(database_leader()), Ok(behind), silent()]));
        assert!(report.quorum.ok);
        assert_eq!(report.leader, Some(MemberId(1)));
        let lags: Vec<_> = report
            .members
            .iter()
            .map(|member| member.lag_entries)
            .collect();
        assert_eq!(lags, [Some(0), Some(2), None]);
        assert_eq!(
            report.members[2].error.as_deref(),
            Some("connection refused")
        );
    }

    #[test]
    fn a_deposed_leader_that_does_not_know_it_is_not_the_leader() {
        let mut deposed = database_leader();
        deposed.term = 2;
        let mut leader = witness_follower();
        leader.serving = true;
        let report = RingReport::new("r", answers([Ok(deposed), Ok(leader), silent()]));
        assert_eq!(report.leader, Some(MemberId(2)));
    }

    #[test]
    fn the_loss_of_a_quorum_has_an_age_a_cause_and_a_fix() {
        let mut alone = database_leader();
        alone.serving = false;
        alone.quorum.ok = false;
        alone.quorum.lost_for_seconds = Some(7.0);
        let report = RingReport::new("r", answers([Ok(alone), silent(), silent()]));
        assert_eq!(
            report.quorum,
            QuorumView {
                ok: false,
                lost_for_seconds: Some(7.0),
                cause: Some("1 of 3 voters answer and 2 are needed".into()),
                fix: Some(
                    "run `witness run` on `witness-1` (10.0.0.2:7400) or `witness-2` (10.0.0.3:7400)"
                        .into()
                ),
            }
        );
    }

    #[test]
    fn a_ring_that_was_never_made_says_so() {
        let fresh = || {
            let mut view = witness_follower();
            view.ring.id = None;
            view.leader = None;
            Ok(view)
        };
        let report = RingReport::new("r", answers([fresh(), fresh(), fresh()]));
        assert_eq!(
            report.quorum.cause.as_deref(),
            Some("the ring is not bootstrapped")
        );
        assert!(report.quorum.fix.unwrap().contains("--bootstrap"));
    }
}
