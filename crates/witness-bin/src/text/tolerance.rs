//! The number of further failures before commits wait: in the ring now, with a member to be added, and in a configuration.

use std::collections::{BTreeMap, BTreeSet};

use consensus::quorum::{
    QuorumHealth, RingRules, VoterSets, even_voters, failures, failures_tolerated,
};
use member::settings::MemberEntry;
use raft_types::{MemberId, MemberKind, MemberRecord, Region};

use crate::operator::{Asked, MemberReport, RingReport, latest};

/// Advice for an even number of voters.
const EVEN_ADVICE: &str =
    "add a witness, or take a vote with `witness members update NAME --votes false`";

/// How many more voters may fail, in the worst case, under `leader`: from its view, or else from the members that answer.
pub(crate) fn of_answers(leader: MemberId, asked: &[Asked]) -> Option<usize> {
    let answer_of = |id| {
        let one = asked.iter().find(|one| one.entry.id == id)?;
        one.answer.as_ref().ok()
    };
    let view = answer_of(leader)?;
    let tolerated = failures_tolerated(&view.voter_set_health).or_else(|| {
        let health = QuorumHealth::judge(&view.voter_sets, |id| answer_of(id).is_some());
        failures_tolerated(&health.sets)
    });
    // It leads with a quorum, even if its current figures are negative.
    tolerated.map(|spare| usize::try_from(spare).unwrap_or(0))
}

/// A warning for each current voter set with an even number of voters.
pub(crate) fn even_sets(asked: &[Asked]) -> Vec<String> {
    let sets = latest(asked).map_or(&[][..], |view| &view.voter_sets);
    even_among(sets)
}

fn even_among(sets: &[BTreeSet<MemberId>]) -> Vec<String> {
    let even = sets.iter().filter_map(|set| even_voters(set.len()));
    let warnings = even.map(|costs| format!("{costs}: {EVEN_ADVICE}"));
    warnings.collect()
}

/// The clause on failures in the quorum sentence, and whether it is good news.
pub(crate) fn clause(report: &RingReport) -> Option<(String, bool)> {
    Some(match report.tolerates? {
        0 => (
            "it tolerates 0 more failures: commits wait when one more voter fails".to_owned(),
            false,
        ),
        tolerates => {
            let more = more_failures(tolerates);
            let clause = format!("it tolerates {more}{}", only_database(report));
            (clause, true)
        }
    })
}

/// "2 more failures".
pub(crate) fn more_failures(tolerates: usize) -> String {
    failures(tolerates).replacen(' ', " more ", 1)
}

/// The quorum may survive the only database member; clients do not.
fn only_database(report: &RingReport) -> String {
    let answers = |one: &&MemberReport| one.kind == MemberKind::Database && one.view.is_some();
    let mut databases = report.members.iter().filter(answers);
    match (databases.next(), databases.next()) {
        (Some(only), None) => format!(", but not of `{}`, the only database member", only.name),
        _ => String::new(),
    }
}

/// The ring's failure tolerance after a member has joined, with warnings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WithMember {
    /// How many more voters may fail, including the new one.
    pub(crate) tolerates: usize,
    pub(crate) warnings: Vec<String>,
}

/// The result under the ring's rules; `None` without a leader, or where the rules cannot be satisfied.
pub(crate) fn with_member(
    report: &RingReport,
    id: MemberId,
    record: &MemberRecord,
) -> Option<WithMember> {
    let leader = report.leader_view()?;
    let members = leader.members.iter();
    let mut members: BTreeMap<_, _> = members.map(|one| (one.id, one.record.clone())).collect();
    members.insert(id, record.clone());
    let sets = leader.rules.voter_sets(&members, &leader.member.region);
    let sets = sets.ok()?;
    let answers = |voter| {
        let member = report.member(voter);
        voter == id || member.is_some_and(|member| member.view.is_some())
    };
    let spare = failures_tolerated(&QuorumHealth::judge(&sets, answers).sets)?;
    Some(WithMember {
        tolerates: usize::try_from(spare).unwrap_or(0),
        warnings: even_among(&sets),
    })
}

/// The failure tolerance of a configured ring while all members run, as a clause that follows its name: one figure, or one for each
/// region that can lead. `None` where the rules cannot be satisfied, which is reported separately.
pub(crate) fn of_configuration(rules: &RingRules, entries: &[MemberEntry]) -> Option<String> {
    let record = |entry: &MemberEntry| MemberRecord {
        region: entry.region.clone(),
        votes: entry.votes,
        ..MemberRecord::default()
    };
    let members = entries.iter().map(|entry| (entry.id, record(entry)));
    let members: BTreeMap<_, _> = members.collect();
    let may_lead = |entry: &&MemberEntry| {
        entry.kind == MemberKind::Database && entry.votes && entry.priority > 0
    };
    let homes = entries.iter().filter(may_lead).map(|entry| &entry.region);
    let figures = homes.filter_map(|home| {
        let sets = rules.voter_sets(&members, home).ok()?;
        Some((home, figure(&sets)?))
    });
    let figures: BTreeMap<&Region, String> = figures.collect();
    let distinct: BTreeSet<&String> = figures.values().collect();
    Some(match distinct.len() {
        0 => return None,
        1 => format!("it tolerates {}", figures.into_values().next()?),
        _ => {
            let each = figures.iter();
            let each = each.map(|(home, figure)| format!("{figure} while region `{home}` leads"));
            format!("it tolerates {}", each.collect::<Vec<_>>().join(", and "))
        }
    })
}

fn figure(sets: &VoterSets) -> Option<String> {
    let spare = failures_tolerated(&QuorumHealth::judge(sets, |_| true).sets)?;
    Some(failures(usize::try_from(spare).unwrap_or(0)).replacen("no failure", "0 failures", 1))
}

#[cfg(test)]
mod tests {
    use consensus::quorum::{QuorumPolicy, VoterSetHealth};
    use member::status::sample::{database_leader, witness_follower};
    use member::status::{LoggedMember, MemberView};

    use super::*;

    fn report(health: Vec<VoterSetHealth>, last: Result<MemberView, String>) -> RingReport {
        let mut leader = database_leader();
        leader.voter_set_health = health;
        RingReport::new(
            "orders",
            vec![
                Asked::sample(1, "db-1", Ok(leader)),
                Asked::sample(2, "witness-1", Ok(witness_follower())),
                Asked::sample(3, "witness-2", last),
            ],
        )
    }

    #[test]
    fn zero_is_not_good_and_the_only_database_is_named() {
        let silent = || Err("connection refused".to_owned());
        let all = report(database_leader().voter_set_health, Ok(witness_follower()));
        assert_eq!(all.tolerates, Some(1));
        let only = "it tolerates 1 more failure, but not of `db-1`, the only database member";
        assert_eq!(clause(&all), Some((only.to_owned(), true)));
        // The leader has two answers; or its version does not report them, and two members answer.
        let two = VoterSetHealth {
            required: 2,
            answering: [1, 2].map(MemberId).into(),
            silent: [MemberId(3)].into(),
        };
        for health in [vec![two], vec![]] {
            let one_silent = report(health, silent());
            assert_eq!(one_silent.tolerates, Some(0));
            assert!(!clause(&one_silent).unwrap().1);
        }
    }

    #[test]
    fn a_second_database_member_tolerates_no_more_and_says_so() {
        let record = |votes| MemberRecord {
            name: "db-2".into(),
            region: Region("north".into()),
            kind: MemberKind::Database,
            votes,
            ..MemberRecord::default()
        };
        let ring = |last| {
            let mut report = report(Vec::new(), last);
            let leader = report.members[0].view.as_mut().unwrap();
            leader.rules.policy = QuorumPolicy::Majority;
            report
        };
        let all = ring(Ok(witness_follower()));
        let with = with_member(&all, MemberId(4), &record(true)).unwrap();
        assert_eq!(with.tolerates, 1);
        let warning =
            "4 voters need 3 answers and tolerate 1 failure, no more than 3 do: add a witness";
        assert!(with.warnings[0].starts_with(warning), "{:?}", with.warnings);
        let without_vote = with_member(&all, MemberId(4), &record(false)).unwrap();
        let fine = WithMember {
            tolerates: 1,
            warnings: Vec::new(),
        };
        assert_eq!(without_vote, fine);
        let one_silent = ring(Err("connection refused".to_owned()));
        let with = with_member(&one_silent, MemberId(4), &record(true)).unwrap();
        assert_eq!(with.tolerates, 0);
    }

    #[test]
    fn an_even_voter_set_in_force_is_warned_of() {
        let mut leader = database_leader();
        leader.members.push(LoggedMember {
            id: MemberId(4),
            ..leader.members[0].clone()
        });
        leader.voter_sets = vec![[1, 2, 3, 4].map(MemberId).into()];
        let report = RingReport::new("orders", vec![Asked::sample(1, "db-1", Ok(leader))]);
        let warned = |warning: &String| warning.starts_with("4 voters need 3 answers");
        assert!(report.warnings.iter().any(warned), "{:?}", report.warnings);
    }

    #[test]
    fn a_configuration_says_what_each_region_tolerates() {
        let entry = |id, region: &str, kind| MemberEntry {
            id: MemberId(id),
            name: format!("m{id}"),
            region: Region(region.into()),
            kind,
            votes: true,
            priority: 100,
            address: String::new(),
        };
        use MemberKind::{Database, Witness};
        let mut entries = vec![
            entry(1, "a", Database),
            entry(2, "a", Witness),
            entry(3, "a", Witness),
        ];
        let dynamic = RingRules::default();
        let said = |rules, entries: &[MemberEntry]| of_configuration(rules, entries).unwrap();
        assert_eq!(said(&dynamic, &entries), "it tolerates 1 failure");
        entries.push(entry(4, "b", Database));
        assert_eq!(
            said(&dynamic, &entries),
            "it tolerates 1 failure while region `a` leads, and 0 failures while region `b` leads"
        );
        let majority = RingRules::from(QuorumPolicy::Majority);
        assert_eq!(said(&majority, &entries), "it tolerates 1 failure");
    }
}
