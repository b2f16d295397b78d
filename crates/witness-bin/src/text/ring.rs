//! Sentences about the ring as a whole: whether and why commits wait, how many more failures the ring tolerates, which members can be
//! elected, and the pause of failover.

use std::collections::{BTreeMap, BTreeSet};

use consensus::quorum::{
    QuorumHealth, RingRules, VoterSets, even_voters, failures, failures_tolerated, majority_of,
};
use member::settings::MemberEntry;
use member::status::{MemberView, PauseView, QuorumView, start_advice};
use raft_types::{MemberId, MemberKind, MemberRecord, Region};

use crate::operator::{Directory, MemberReport, RingReport, latest};
use crate::text::times::{second_of_day, span};
use crate::text::{Level, capitalized, quoted};

/// The sentence about the quorum.
pub(crate) struct QuorumSentence {
    /// [`Level::Good`] only if the quorum tolerates at least one more failure.
    pub(crate) level: Level,
    /// The key phrase at the beginning of the sentence.
    pub(crate) begins: &'static str,
    /// The rest of the sentence: the leader; without a leader, since when and why there is none.
    pub(crate) rest: String,
    /// What to do, when commits wait.
    pub(crate) fix: Option<String>,
}

/// Returns the sentence about the quorum in this report.
pub(crate) fn quorum(report: &RingReport) -> QuorumSentence {
    let quorum = &report.quorum;
    if quorum.ok {
        let leader = report.leader.and_then(|leader| report.member(leader));
        let name = leader.map_or("?", |leader| leader.name.as_str());
        let (tolerates, is_good) = match clause(report) {
            Some((clause, is_good)) => (format!("; {clause}"), is_good),
            None => (String::new(), true),
        };
        let rest = format!(", `{name}` leads ring `{}`{tolerates}", report.ring);
        let down = report.databases_down();
        return match down.is_empty() {
            true => QuorumSentence {
                level: if is_good { Level::Good } else { Level::Note },
                begins: "The quorum answers",
                rest,
                fix: None,
            },
            false => QuorumSentence {
                level: Level::Bad,
                begins: "No mysqld runs",
                rest: format!(": clients can neither read nor write. The quorum answers{rest}"),
                fix: Some(format!(
                    "see below why the mysqld of {} does not run",
                    quoted(down)
                )),
            },
        };
    }
    let since = quorum
        .lost_for_seconds
        .map(|lost| format!(" for {}", span(lost)))
        .unwrap_or_default();
    let cause = quorum.cause.as_deref().unwrap_or("the cause is not known");
    let (begins, rest) = match report.quorum_unknown {
        true => ("Not known whether there is a quorum", format!(": {cause}.")),
        false => ("No quorum", format!("{since}: {cause}. Commits wait.")),
    };
    QuorumSentence {
        level: Level::Bad,
        begins,
        rest,
        fix: quorum.fix.clone(),
    }
}

/// Explanations of the ring's state.
pub(crate) struct Explained {
    /// Which acknowledgements a commit waits for, and how the leader would change the quorum; empty without a leader.
    pub(crate) commit: Vec<String>,
    /// For each member, why it can or cannot be elected now; without a leader, the criteria.
    pub(crate) elections: Vec<String>,
}

/// Explains the ring's state from the leader's view; without a leader, from the answers of all members.
pub(crate) fn explained(report: &RingReport) -> Explained {
    let directory = Directory::of(report);
    let explanation = report
        .leader_view()
        .and_then(|view| view.explanation.as_ref());
    let Some(explanation) = explanation else {
        let why = match report.quorum_unknown {
            true => "No leader answers",
            false => "No member leads",
        };
        let rule = format!(
            "{why}, so the progress of the others is unknown. A member is elected when a majority of every voter set answers it \
             and none of them has a longer log:"
        );
        let views = report.members.iter();
        let views = views.filter_map(|member| Some((&member.name, member.view.as_ref()?)));
        let ends = views.map(|(name, view)| log_end(name, view, &directory));
        return Explained {
            commit: Vec::new(),
            elections: std::iter::once(rule).chain(ends).collect(),
        };
    };
    let commit = std::iter::once(&explanation.commit).chain(&explanation.quorum);
    let elections = explanation.members.iter().map(|prospects| {
        let can = if prospects.could_win { "can" } else { "cannot" };
        format!(
            "{} {can} be elected: {}",
            directory.name(prospects.member),
            directory.with_names(&prospects.because)
        )
    });
    Explained {
        commit: commit
            .map(|line| capitalized(&directory.with_names(line)))
            .collect(),
        elections: elections.collect(),
    }
}

fn log_end(name: &str, view: &MemberView, directory: &Directory) -> String {
    let end = view
        .log_end
        .map_or("empty".to_owned(), |end| end.to_string());
    let leader = match view.leader {
        Some(leader) => format!("reports {} as the leader", directory.name(leader)),
        None => "reports no leader".to_owned(),
    };
    format!(
        "`{name}`: its log ends at {end} in term {}; it {leader}",
        view.term
    )
}

/// The pause of failover, if one is in force.
pub(crate) fn pause(report: &RingReport) -> Option<String> {
    let pause = report.pause.as_ref()?;
    let primary = report.member(pause.primary);
    let name = primary.map_or_else(|| pause.primary.to_string(), |member| member.name.clone());
    Some(format!("{}.", paused(pause, &name)))
}

/// Returns the sentence about a pause, without its full stop; `primary` is the name of the primary's member.
pub(crate) fn paused(pause: &PauseView, primary: &str) -> String {
    let time = |at| second_of_day(at).replace('T', " ").replace('Z', " UTC");
    let until = match pause.until {
        Some(until) => format!("until {}", time(until)),
        None => "until `witness resume`".to_owned(),
    };
    let reason = match pause.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    format!(
        "Maintenance mode since {} {until}, set by {}{reason}. No automatic failover: the primary stays on `{primary}`",
        time(pause.since),
        pause.by
    )
}

/// An open-ended pause older than this was probably forgotten.
const FORGOTTEN_AFTER_SECONDS: u64 = 3_600;

/// The warning about a pause that was probably forgotten.
pub(crate) fn forgotten_pause(pause: &PauseView) -> Option<String> {
    let forgotten = pause.until.is_none() && pause.age_seconds >= FORGOTTEN_AFTER_SECONDS;
    forgotten.then(|| {
        format!(
            "failover has been paused for {} hours, and the pause has no end: if the primary fails, no member takes over; run \
             `witness resume` when the work is done",
            pause.age_seconds / FORGOTTEN_AFTER_SECONDS
        )
    })
}

/// The scheduled switchover in a member's log.
pub(crate) fn scheduled(view: &MemberView) -> Option<String> {
    let scheduled = view.scheduled_switchover.as_ref()?;
    let mut members = view.members.iter();
    let target = members.find(|member| member.id == scheduled.to)?;
    Some(format!(
        "a switchover to `{}` is scheduled for {}, ordered by {}; `witness switchover --cancel` takes it back",
        target.record.name,
        second_of_day(scheduled.at),
        scheduled.by
    ))
}

// The reason why commits wait, for a ring without a leader that has a quorum. It is derived from the answers of all members.

/// Returns since when and why the quorum is lost, and how to restore it.
pub(crate) fn lost(asked: &[MemberReport]) -> QuorumView {
    let views = || asked.iter().filter_map(|asked| asked.view.as_ref());
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

/// Returns `Some` if the answers do not show whether there is a quorum: no member answers, or the answering members could form a quorum
/// together with members whose host names this host cannot resolve.
pub(crate) fn not_known(asked: &[MemberReport]) -> Option<QuorumView> {
    let set_is_open = |set: &BTreeSet<MemberId>| {
        let voters = || asked.iter().filter(|one| set.contains(&one.entry.id));
        let answering = voters().filter(|one| one.view.is_some()).count();
        let uncalled = voters().filter(|one| one.unresolved).count();
        let needed = majority_of(set.len());
        answering < needed && answering + uncalled >= needed
    };
    let cause = if asked.iter().all(|one| one.view.is_none()) {
        "no member answers"
    } else if voter_sets(asked).iter().any(set_is_open) {
        "too few members could be asked"
    } else {
        return None;
    };
    let uncalled = asked.iter().filter(|one| one.unresolved);
    let names = quoted(uncalled.map(|one| &one.entry.name));
    Some(match names.as_str() {
        "" => unknown(cause.to_owned(), false),
        _ => unknown(
            format!("{cause}, and this host cannot look up the address of {names}"),
            true,
        ),
    })
}

/// Returns the state of a quorum that this host cannot determine; `unresolved` if it could not resolve host names of members.
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
fn voter_sets(asked: &[MemberReport]) -> Vec<BTreeSet<MemberId>> {
    let sets = latest(asked).map(|view| view.voter_sets.clone());
    sets.filter(|sets| !sets.is_empty()).unwrap_or_else(|| {
        let voters = asked.iter().filter(|asked| asked.entry.votes);
        vec![voters.map(|asked| asked.entry.id).collect()]
    })
}

/// Returns how many answers a voter set lacks, and which members to start; `None` if a majority of the set answers.
fn too_few(asked: &[MemberReport], set: &BTreeSet<MemberId>) -> Option<(String, String)> {
    let of = |id: &MemberId| asked.iter().find(|asked| asked.entry.id == *id);
    let answers = |id: &&MemberId| of(id).is_some_and(|asked| asked.view.is_some());
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

// The number of further failures before commits wait: in the ring now, with a member to be added, and in a configuration.

/// Advice for an even number of voters.
const EVEN_ADVICE: &str =
    "add a witness, or take a vote with `witness members update NAME --votes false`";

/// Returns how many more voters may fail, in the worst case, before commits wait. The figure is from the view of `leader`; if that view
/// has none, from the members that answer.
pub(crate) fn of_answers(leader: MemberId, asked: &[MemberReport]) -> Option<usize> {
    let answer_of = |id| {
        let one = asked.iter().find(|one| one.entry.id == id)?;
        one.view.as_ref()
    };
    let view = answer_of(leader)?;
    let tolerated = failures_tolerated(&view.voter_set_health).or_else(|| {
        let health = QuorumHealth::judge(&view.voter_sets, |id| answer_of(id).is_some());
        failures_tolerated(&health.sets)
    });
    // The leader has a quorum, even if its current figures make the result negative.
    tolerated.map(|spare| usize::try_from(spare).unwrap_or(0))
}

/// A warning for each voter set with an even number of voters.
pub(crate) fn even_among(sets: &[BTreeSet<MemberId>]) -> Vec<String> {
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

/// Returns a clause for a ring with one database member: the quorum may survive its failure, but clients then have no mysqld.
fn only_database(report: &RingReport) -> String {
    let answers = |one: &&MemberReport| one.kind == MemberKind::Database && one.view.is_some();
    let mut databases = report.members.iter().filter(answers);
    match (databases.next(), databases.next()) {
        (Some(only), None) => format!(", but not of `{}`, the only database member", only.name),
        _ => String::new(),
    }
}

/// Returns how many more voters may fail after a member has joined, and warnings, under the ring's rules. The new member counts as
/// answering. `None` without a leader, or if the rules cannot be satisfied.
pub(crate) fn with_member(
    report: &RingReport,
    id: MemberId,
    record: &MemberRecord,
) -> Option<(usize, Vec<String>)> {
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
    Some((usize::try_from(spare).unwrap_or(0), even_among(&sets)))
}

/// Returns the failure tolerance of a configured ring while all members run, as a clause that follows the ring's name. The clause has one
/// figure, or one for each region that can lead. `None` if the rules cannot be satisfied; another check reports that.
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
    use consensus::RingPause;
    use consensus::quorum::{QuorumPolicy, VoterSetHealth};
    use member::settings::MemberEntry;
    use member::status::sample::{database_leader, witness_follower};
    use member::status::{LoggedMember, MemberView};
    use raft_types::{MemberId, MemberKind, Pause, Region, UnixSeconds};

    use super::*;

    #[test]
    fn an_old_pause_without_an_end_is_warned_of() {
        let warned = |until: Option<u64>, age: u64| {
            let pause = Pause {
                since: UnixSeconds(1_000_000_000),
                until: until.map(UnixSeconds),
                by: "anna".to_owned(),
                reason: String::new(),
            };
            let primary = MemberId(1);
            let now = UnixSeconds(1_000_000_000 + age);
            let view = PauseView::new(RingPause { primary, pause }, now);
            assert_eq!(view.age_seconds, age);
            forgotten_pause(&view).is_some()
        };
        assert!(!warned(None, 3_599));
        assert!(warned(None, 3_600));
        assert!(!warned(Some(2_000_000_000), 7_200));
    }

    fn asked(id: u64, region: &str, answers: bool) -> MemberReport {
        let mut view = witness_follower();
        view.voter_sets = vec![[4, 5, 6].map(MemberId).into()];
        let entry = MemberEntry {
            id: MemberId(id),
            name: format!("m{id}"),
            region: Region(region.into()),
            kind: MemberKind::Witness,
            votes: true,
            priority: 100,
            address: format!("h:{id}"),
        };
        let answer = answers.then_some(view).ok_or_else(|| "refused".into());
        MemberReport::new(entry, true, answer)
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

    fn report(health: Vec<VoterSetHealth>, last: Result<MemberView, String>) -> RingReport {
        let mut leader = database_leader();
        leader.voter_set_health = health;
        RingReport::new(
            "orders",
            vec![
                MemberReport::sample(1, "db-1", Ok(leader)),
                MemberReport::sample(2, "witness-1", Ok(witness_follower())),
                MemberReport::sample(3, "witness-2", last),
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
        // Two voters answer: first as the leader's view reports it; then from the members' own answers, for a leader that reports nothing.
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
        let (tolerates, warnings) = with_member(&all, MemberId(4), &record(true)).unwrap();
        assert_eq!(tolerates, 1);
        let warning =
            "4 voters need 3 answers and tolerate 1 failure, no more than 3 do: add a witness";
        assert!(warnings[0].starts_with(warning), "{warnings:?}");
        let without_vote = with_member(&all, MemberId(4), &record(false)).unwrap();
        assert_eq!(without_vote, (1, Vec::new()));
        let one_silent = ring(Err("connection refused".to_owned()));
        let with = with_member(&one_silent, MemberId(4), &record(true)).unwrap();
        assert_eq!(with.0, 0);
    }

    #[test]
    fn an_even_voter_set_in_force_is_warned_of() {
        let mut leader = database_leader();
        leader.members.push(LoggedMember {
            id: MemberId(4),
            ..leader.members[0].clone()
        });
        leader.voter_sets = vec![[1, 2, 3, 4].map(MemberId).into()];
        let report = RingReport::new("orders", vec![MemberReport::sample(1, "db-1", Ok(leader))]);
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
