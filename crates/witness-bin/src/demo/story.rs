//! What happened in a demonstration: each event with what it showed and how long it took, and the
//! verdict at the end.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use crate::demo::scoreboard::Scoreboard;

/// The report of a demonstration; what `--output json` prints.
#[derive(Debug, Default, Serialize)]
pub struct Story {
    /// Everything that happened, in order.
    pub events: Vec<Event>,
    /// Commits that came back to their clients.
    pub acknowledged_total: u64,
    /// Half of the commits took at most this.
    pub latency_p50_seconds: f64,
    /// All but one in a hundred took at most this.
    pub latency_p99_seconds: f64,
    /// Acknowledged commits that a member's log lacks.
    pub lost_total: u64,
    /// Transactions that stand twice in a member's log.
    pub doubled_total: u64,
    /// The first difference between two members' log files.
    pub difference: Option<String>,
    /// Bytes of log files that were compared, on each member.
    pub compared_bytes: u64,
    /// Where the members' files are; gone when they were in a temporary directory.
    pub data_dir: String,
    /// Whether everything was as it should be.
    pub ok: bool,
}

/// One event of the demonstration, such as a killed leader.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// What was done, in words.
    pub what: String,
    /// What was to be seen.
    pub seen: String,
    /// Seconds that the event took.
    pub seconds: f64,
}

impl Story {
    pub(crate) fn record_commits(&mut self, board: &Scoreboard) {
        self.acknowledged_total = board.total();
        self.latency_p50_seconds = board.quantile(0.5).as_secs_f64();
        self.latency_p99_seconds = board.quantile(0.99).as_secs_f64();
    }

    /// Adds an event and answers with its line.
    pub(crate) fn happened(&mut self, what: &str, seen: String, took: Duration) -> String {
        let event = Event {
            what: what.to_owned(),
            seen,
            seconds: took.as_secs_f64(),
        };
        let line = event.line();
        self.events.push(event);
        line
    }

    /// Judges what was found and answers whether all is well.
    pub(crate) fn conclude(&mut self) -> bool {
        self.ok = self.lost_total == 0
            && self.doubled_total == 0
            && self.difference.is_none()
            && self.acknowledged_total > 0;
        self.ok
    }

    /// The story as text, with the verdict at the end.
    pub fn summary(&self) -> String {
        let mut out = String::from("\nWhat happened\n");
        for event in &self.events {
            let _ = writeln!(out, "  {}", event.line());
        }
        let millis = |seconds: f64| seconds * 1000.0;
        let _ = writeln!(
            out,
            "\n{} commits acknowledged, half of them within {:.2} ms, 99 in 100 within {:.2} ms",
            self.acknowledged_total,
            millis(self.latency_p50_seconds),
            millis(self.latency_p99_seconds)
        );
        let _ = match (self.lost_total, self.doubled_total) {
            (0, 0) => writeln!(out, "Every one of them stands once in every member's log"),
            (lost, doubled) => writeln!(out, "LOST: {lost} of them; TWICE in a log: {doubled}"),
        };
        let _ = match &self.difference {
            None => writeln!(
                out,
                "The members' log files are the same, byte by byte ({} bytes each)",
                self.compared_bytes
            ),
            Some(difference) => writeln!(out, "DIFFERENT log files: {difference}"),
        };
        out
    }
}

impl Event {
    fn line(&self) -> String {
        format!("{:<44} {:>7.2} s   {}", self.what, self.seconds, self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Story {
        Story {
            acknowledged_total: 3,
            compared_bytes: 100,
            ..Story::default()
        }
    }

    #[test]
    fn lost_doubled_or_different_transactions_are_not_ok() {
        assert!(good().conclude());
        let changes: [fn(&mut Story); 4] = [
            |story| story.lost_total = 1,
            |story| story.doubled_total = 1,
            |story| story.difference = Some("x".into()),
            |story| story.acknowledged_total = 0,
        ];
        for change in changes {
            let mut story = good();
            change(&mut story);
            assert!(!story.conclude(), "{story:?}");
        }
    }

    #[test]
    fn the_summary_names_what_is_wrong() {
        let story = Story {
            lost_total: 2,
            difference: Some("a at offset 4".into()),
            ..good()
        };
        let text = story.summary();
        assert!(text.contains("LOST: 2"), "{text}");
        assert!(
            text.contains("DIFFERENT log files: a at offset 4"),
            "{text}"
        );
    }
}
