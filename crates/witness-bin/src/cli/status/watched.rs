//! `witness status --watch`: conditions that need attention first, then the members, the requirements of a commit, and events since the
//! watch began.

use std::fmt::Write;

use member::status::{MemberView, Role};

use crate::cli::status::table;
use crate::operator::RingReport;
use crate::operator::events::Events;
use crate::text::Level;
use crate::text::event::Event;
use crate::text::ring::explained as explanation;
use crate::text::times::time_of_day;

/// Newest events shown on a terminal.
const SHOWN: usize = 12;

/// A ring that is polled.
pub(super) struct Watched {
    began_ms: u64,
    now_ms: u64,
    events: Events,
    /// The last view of the ring.
    view: Option<MemberView>,
    /// The newest event that was printed.
    printed_ms: u64,
}

impl Watched {
    pub(super) fn new(began_ms: u64) -> Self {
        Self {
            began_ms,
            now_ms: began_ms,
            events: Events::default(),
            view: None,
            printed_ms: 0,
        }
    }

    /// Adds the members' answers.
    pub(super) fn see(&mut self, now_ms: u64, report: &RingReport) {
        self.now_ms = now_ms;
        let is_first = self.view.is_none();
        let furthest = || report.views().max_by_key(|view| (view.term, view.log_end));
        let seen = report.leader_view().or_else(furthest).cloned();
        // Without answers, no leader is known any longer.
        let view = seen.or_else(|| {
            self.view.clone().map(|last| MemberView {
                leader: None,
                role: Role::Follower,
                ..last
            })
        });
        let Some(view) = view else { return };
        self.events.see(self.now_ms, &view, Some(report));
        if is_first {
            self.events.forget();
        }
        self.view = Some(view);
    }

    /// The current page. On a terminal it replaces the previous one; elsewhere all pages are kept, and each event is in one of them.
    pub(super) fn page(
        &mut self,
        report: &RingReport,
        explain: bool,
        colours: bool,
        on_a_terminal: bool,
    ) -> String {
        let now = time_of_day(self.now_ms);
        let mut page = format!("{now}, again every second\n\n");
        page += &table::quorum_lines(report, colours);
        page += &table::warnings(report, colours);
        page.push('\n');
        page += &table::members(report);
        page.push('\n');
        page += &table::notes_lines(report);
        if explain {
            page += &table::explained(report);
        } else {
            for line in explanation(report).commit {
                let _ = writeln!(page, "{line}");
            }
        }
        let newest = self.events.kept().rev();
        let is_shown = |event: &&Event| on_a_terminal || event.at_ms > self.printed_ms;
        let most = if on_a_terminal { SHOWN } else { usize::MAX };
        let lines = newest.filter(is_shown).take(most);
        let lines: String = lines.map(|event| line(event, colours)).collect();
        self.printed_ms = self.now_ms;
        let began = time_of_day(self.began_ms);
        match lines.as_str() {
            "" if !on_a_terminal => {}
            "" => page += &format!("\nNothing has happened since {began}\n"),
            _ => page += &format!("\nSince {began}, the newest first\n{lines}"),
        }
        page
    }
}

fn line(event: &Event, colours: bool) -> String {
    let text = event.change.to_string();
    let text = match event.change.level() {
        Level::Good => table::paint(colours, "32", &text),
        Level::Bad => table::paint(colours, "31", &text),
        Level::Note => text,
    };
    format!("{}  {text}\n", time_of_day(event.at_ms))
}

#[cfg(test)]
mod tests {
    use member::status::sample::{database_leader, witness_follower};

    use super::*;
    use crate::operator::Asked;

    fn report(witness: Result<MemberView, String>) -> RingReport {
        let members = [
            Asked::sample(1, "db-1", Ok(database_leader())),
            Asked::sample(2, "witness-1", witness),
        ];
        RingReport::new("orders", members.into())
    }

    fn at(seconds: u64) -> u64 {
        (1_800_000_000 + seconds) * 1_000
    }

    #[test]
    fn events_during_the_watch_are_shown_with_their_time() {
        let mut watched = Watched::new(at(0));
        let mut page = |second, witness: Result<MemberView, String>| {
            let report = report(witness);
            watched.see(at(second), &report);
            watched.page(&report, false, false, true)
        };
        let first = page(0, Ok(witness_follower()));
        assert!(
            first.contains("Nothing has happened since 2027-01-15T08:00:00Z\n"),
            "{first}"
        );
        let lost = page(1, Err("connection refused".into()));
        let back = page(2, Ok(witness_follower()));
        assert!(
            lost.ends_with("\n2027-01-15T08:00:01Z  `witness-1` does not answer\n"),
            "{lost}"
        );
        let both = "\n2027-01-15T08:00:02Z  `witness-1` answers again\n\
                    2027-01-15T08:00:01Z  `witness-1` does not answer\n";
        assert!(back.ends_with(both), "{back}");
        let (quorum, members) = (back.find("quorum"), back.find("Log_end"));
        assert!(quorum < members, "problems come first: {back}");
    }

    #[test]
    fn kept_pages_have_each_event_once_and_no_colours() {
        let mut watched = Watched::new(at(0));
        let mut page = |second, witness: Result<MemberView, String>| {
            let report = report(witness);
            watched.see(at(second), &report);
            watched.page(&report, false, false, false)
        };
        page(0, Ok(witness_follower()));
        let told = page(1, Err("connection refused".into()));
        let later = page(2, Err("connection refused".into()));
        assert!(told.contains("`witness-1` does not answer"), "{told}");
        assert!(!later.contains("does not answer"), "{later}");
        assert!(!told.contains('\x1b'));
    }

    #[test]
    fn a_ring_that_does_not_answer_is_an_event() {
        let mut watched = Watched::new(at(0));
        let silent = || {
            let gone = || Err("connection refused".to_owned());
            let members = [
                Asked::sample(1, "db-1", gone()),
                Asked::sample(2, "witness-1", gone()),
            ];
            RingReport::new("orders", members.into())
        };
        watched.see(at(0), &silent());
        watched.see(at(1), &report(Ok(witness_follower())));
        watched.see(at(2), &silent());
        let page = watched.page(&silent(), false, true, true);
        assert!(page.contains("\x1b[31m`db-1` does not answer"), "{page}");
        assert!(page.contains("lost the leadership"), "{page}");
    }
}
