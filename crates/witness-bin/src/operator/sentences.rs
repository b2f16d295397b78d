//! Sentences about the ring and its members, shared by `witness status` and the page at `/`. Pure.

use std::time::Duration;

use member::status::{DISK_HANGS, MemberView, MysqlView};
use serde::Serialize;

use crate::operator::{Directory, MemberReport, RingReport, tolerance};
use crate::terminal::sentence;

/// The severity of a sentence or an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// A part works again, or better.
    Good,
    /// A part does not work.
    Bad,
    /// Anything else.
    Note,
}

/// Whether commits are possible.
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
        let leader = report
            .members
            .iter()
            .find(|member| Some(member.id) == report.leader);
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
                    "see below why the mysqld of `{}` does not run",
                    down.join("`, `")
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
        let nobody = match report.quorum_unknown {
            true => "No leader answers",
            false => "Nobody leads",
        };
        let rule = format!(
            "{nobody}, so nobody knows how far the others are. A member is elected when a majority of every voter set answers it \
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
            .map(|line| sentence(&directory.with_names(line)))
            .collect(),
        elections: elections.collect(),
    }
}

fn log_end(name: &str, view: &MemberView, directory: &Directory) -> String {
    let end = view
        .log_end
        .map_or("empty".to_owned(), |end| end.to_string());
    let leader = match view.leader {
        Some(leader) => format!("hears of {} as the leader", directory.name(leader)),
        None => "hears of no leader".to_owned(),
    };
    format!(
        "`{name}`: its log ends at {end} in term {}; it {leader}",
        view.term
    )
}

/// The member's role in the ring.
pub(crate) fn role(view: &MemberView, report: &RingReport) -> String {
    if view.fault.is_some() {
        return "stopped".into();
    }
    let leads_in_vain = view.leader == Some(view.member.id) && report.leader != view.leader;
    if leads_in_vain {
        "leader (not serving)".into()
    } else {
        view.role.to_string()
    }
}

/// Notes for the operator about one member, in addition to its role.
pub(crate) fn notes(member: &MemberReport) -> Vec<String> {
    let Some(view) = &member.view else {
        return member
            .error
            .iter()
            .map(|error| see(&format!("no answer: {error}"), "lost-member"))
            .collect();
    };
    let mut notes = Vec::new();
    if let Some(fault) = &view.fault {
        notes.push(see(&format!("stopped working: {fault}"), "lost-member"));
    }
    if let (true, Some(why)) = (view.leader == Some(view.member.id), &view.not_serving) {
        let (how, runbook) = if view.serving {
            ("leads until a database member can take over", "mysqld-down")
        } else {
            ("leads, but does not serve", "lost-quorum")
        };
        notes.push(see(&format!("{how}: {why}"), runbook));
    }
    if let Some(why) = &view.stays_out_of_elections {
        notes.push(format!("takes part in no election: {why}"));
    }
    let own = view.put_back.get(&view.member.id);
    notes.extend(own.map(|put_back| see(&put_back.to_string(), "data-directory-put-back")));
    let refused = view.formats.as_ref();
    if let Some(why) = refused.and_then(|formats| formats.refused.as_ref()) {
        notes.push(format!("takes no more entries: {why}"));
    }
    let unreadable = view.log.unreadable.iter();
    notes.extend(unreadable.map(|file| see(file, "restore")));
    if view.log.disk_full && view.log.disk_has_no_inodes {
        notes.push(see(
            "the file system of its log has no free inodes: nothing is written or acknowledged, although it may have space. Remove \
             files there, or purge old log files; it continues by itself",
            "full-disk",
        ));
    } else if view.log.disk_full {
        notes.push(see(
            "the disk of its log is full: nothing is written or acknowledged. Free space, or purge old log files; it \
             continues by itself",
            "full-disk",
        ));
    } else if Duration::from_millis(view.log.disk_busy_ms) >= DISK_HANGS {
        let hangs = format!(
            "the disk of its log has not finished a write or an fsync for {} s: this member acknowledges nothing until it has",
            view.log.disk_busy_ms / 1000
        );
        notes.push(see(&hangs, "slow-disk"));
    } else if view.log.disk_alarm && view.log.disk_left_bytes < NO_ROOM {
        notes.push(see(
            "its disk budget is used up: transactions wait or are refused. Purge old log files, raise log.disk_limit_bytes, \
             or add space",
            "full-disk",
        ));
    } else if view.log.disk_alarm {
        let nearly = format!(
            "its disk budget is nearly used up, {} bytes are free",
            view.log.disk_free_bytes
        );
        notes.push(see(&nearly, "full-disk"));
    }
    let hooks = view.hooks.iter().flat_map(|hooks| &hooks.failing);
    notes.extend(hooks.map(|failing| {
        let fails = format!(
            "its hook {} failed {} times and is retried: {}",
            failing.hook, failing.failures, failing.why
        );
        see(&fails, "hooks")
    }));
    if let Some(mysql) = &view.mysql {
        let trouble = mysql.trouble.iter();
        notes.extend(trouble.map(|why| match &mysql.errant {
            Some(errant) if errant.transactions > 0 => see(why, "errant-transactions"),
            _ => see(why, "mysqld-down"),
        }));
        notes.extend(wait(mysql));
        let offline = mysql.offline.as_ref();
        notes.extend(offline.map(|why| {
            let closed = format!("ordinary accounts cannot use its mysqld: {why}");
            see(&closed, "mysqld-down")
        }));
        let demotion = mysql.demotion.iter();
        notes.extend(demotion.map(|why| see(why, "stalled-primary")));
        let closed = closed(mysql).filter(|_| view.serving);
        notes.extend(closed.map(|why| see(&why, "stalled-primary")));
        notes.extend(mysql.warnings.iter().cloned());
        if view.serving && !mysql.protected && !mysql.catches_up() {
            notes.extend(
                mysql
                    .unprotected_because
                    .iter()
                    .map(|why| see(&format!("not protected: {why}"), "unprotected-primary")),
            );
        }
    }
    notes
}

/// A note with the name of its runbook, which the page turns into a link.
fn see(note: &str, runbook: &str) -> String {
    let note = note.trim_end_matches('.');
    format!("{note}. See the runbook {runbook}")
}

/// With less space than this, hardly any transaction fits.
const NO_ROOM: u64 = 64 << 10;

// The state of a member's mysqld, in brief.

/// The lag from which it is reported.
const LAG_MS: u64 = 1_000;
/// The number of missing transactions from which it is reported.
const LACKS: u64 = 100;

/// Its role for the ring.
pub(crate) fn mysqld(mysql: &MysqlView) -> String {
    let of_a_role = || {
        match mysql.role.split(':').next().unwrap_or_default() {
            _ if !mysql.applies => "closed",
            "primary" => "to be opened",
            "catching up" => &mysql.role,
            other => other,
        }
        .to_owned()
    };
    let lag = mysql.lag_ms.filter(|lag| *lag >= LAG_MS);
    match (mysql.state.as_str(), mysql.writable, mysql.following, lag) {
        ("running", true, ..) if mysql.protected => "primary".to_owned(),
        ("running", true, ..) => "primary, not protected".to_owned(),
        ("running", false, true, None) => match lacks(mysql) {
            Some(lacks) => format!("following, {lacks} transactions behind"),
            None => "following".to_owned(),
        },
        ("running", false, true, Some(lag)) => {
            format!("following, {} behind", span(lag as f64 / 1e3))
        }
        ("running", false, false, _) => of_a_role(),
        (state, ..) => state.to_owned(),
    }
}

/// Committed transactions that it has not executed, where they would delay clients after a promotion.
fn lacks(mysql: &MysqlView) -> Option<u64> {
    let behind = mysql.promotion.as_ref()?.lag?;
    Some(behind).filter(|behind| *behind >= LACKS)
}

/// Why clients cannot write there, where no other note says so.
fn closed(mysql: &MysqlView) -> Option<String> {
    let closed = mysql.state == "running" && mysql.write_fence.starts_with("closed: ");
    (closed && mysql.trouble.is_none()).then(|| format!("its mysqld is {}", mysql.write_fence))
}

/// The reason for which it waits, if it does.
fn wait(mysql: &MysqlView) -> Option<String> {
    let what = mysql.role.strip_prefix("waiting: ")?;
    Some(format!("its mysqld waits: {what}"))
}

// Durations for display.

/// A duration in its two largest units.
pub(crate) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", whole % 60),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod mysqld_tests {
    use super::*;
    use member::status::sample::database_leader;

    #[test]
    fn a_primary_that_somebody_has_closed_says_so() {
        let mut primary = database_leader().mysql.unwrap();
        assert_eq!(closed(&primary), None);
        primary.write_fence = "closed: read_only was set by another session".to_owned();
        let said = "its mysqld is closed: read_only was set by another session";
        assert_eq!(closed(&primary).as_deref(), Some(said));
        primary.trouble = Some("it does not answer".to_owned());
        assert_eq!(closed(&primary), None, "that is the reason");
    }

    #[test]
    fn a_mysqld_in_few_words() {
        let primary = database_leader().mysql.unwrap();
        let with_role = |role: &str| MysqlView {
            writable: false,
            protected: false,
            role: role.to_owned(),
            ..primary.clone()
        };
        let following = |lag_ms| MysqlView {
            following: true,
            lag_ms,
            ..with_role("following")
        };
        let lacking = |behind| MysqlView {
            promotion: Some(consensus::DatabaseState {
                lag: Some(behind),
                ..consensus::DatabaseState::default()
            }),
            ..following(None)
        };
        let starting = MysqlView {
            state: "starting".to_owned(),
            ..with_role("unknown")
        };
        let alone = MysqlView {
            applies: false,
            ..with_role("nothing is applied to it")
        };
        let open = MysqlView {
            protected: false,
            ..primary.clone()
        };
        for (mysql, expected) in [
            (primary.clone(), "primary"),
            (open, "primary, not protected"),
            (with_role("primary"), "to be opened"),
            (following(None), "following"),
            (following(Some(999)), "following"),
            (lacking(99), "following"),
            (lacking(1_663), "following, 1663 transactions behind"),
            (following(Some(75_000)), "following, 1m15s behind"),
            (starting, "starting"),
            (
                with_role("catching up: 3 transactions behind, then the primary"),
                "catching up: 3 transactions behind, then the primary",
            ),
            (with_role("waiting: nobody leads"), "waiting"),
            (with_role("stopped: it has errant transactions"), "stopped"),
            (alone, "closed"),
        ] {
            assert_eq!(mysqld(&mysql), expected, "{mysql:?}");
        }
        let waiting = with_role("waiting: nobody leads");
        assert_eq!(wait(&waiting).unwrap(), "its mysqld waits: nobody leads");
        assert_eq!(wait(&primary), None);
    }
}

#[cfg(test)]
mod span_tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        let cases = [
            (0.9, "0s"),
            (59.0, "59s"),
            (61.0, "1m01s"),
            (3_720.0, "1h02m"),
            (90_000.0, "1d01h"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(span(seconds), expected);
        }
    }
}
