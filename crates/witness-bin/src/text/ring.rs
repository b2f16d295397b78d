//! The ring as a whole: whether commits can proceed, their obstacles, which members can be elected, and the pause of failover.

use member::status::{MemberView, PauseView};

use crate::operator::{Directory, RingReport};
use crate::text::times::{second_of_day, span};
use crate::text::{Level, capitalized, quoted, tolerance};

/// The sentence about the quorum.
pub(crate) struct QuorumSentence {
    /// A quorum that tolerates no more failures is not good.
    pub(crate) level: Level,
    /// The key phrase, with which the sentence begins.
    pub(crate) begins: &'static str,
    /// The rest of the sentence: the leader, or since when and why there is none.
    pub(crate) rest: String,
    /// What to do, when commits wait.
    pub(crate) fix: Option<String>,
}

/// The sentence for this report.
pub(crate) fn quorum(report: &RingReport) -> QuorumSentence {
    let quorum = &report.quorum;
    if quorum.ok {
        let leader = report.leader.and_then(|leader| report.member(leader));
        let name = leader.map_or("?", |leader| leader.name.as_str());
        let (tolerates, is_good) = match tolerance::clause(report) {
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
    if report.quorum_unknown {
        return QuorumSentence {
            level: Level::Bad,
            begins: "Not known whether there is a quorum",
            rest: format!(": {cause}."),
            fix: quorum.fix.clone(),
        };
    }
    QuorumSentence {
        level: Level::Bad,
        begins: "No quorum",
        rest: format!("{since}: {cause}. Commits wait."),
        fix: quorum.fix.clone(),
    }
}

/// Explanations of the ring's state.
pub(crate) struct Explained {
    /// What a commit waits for, and what the leader would change about that; empty without a leader.
    pub(crate) commit: Vec<String>,
    /// For each member, why it can or cannot be elected now; without a leader, the criteria.
    pub(crate) elections: Vec<String>,
}

/// From the leader's view; without a leader, from the answers of all members.
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

/// A pause without the full stop, with the name of the primary's member.
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

#[cfg(test)]
mod tests {
    use consensus::RingPause;
    use raft_types::{MemberId, Pause, UnixSeconds};

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
}
