//! One log entry as output of the `log` commands.

use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::CHECKSUM_LEN;
use binlog_format::event::{EventRef, EventType, RawEvent};
use binlog_format::events::summary;
use binlog_format::framing::FramedTransaction;
use binlog_store::{EntryRecord, MarkerKind};
use raft_types::{AppEntry, Entry, EntryPayload, UnixSeconds};
use serde::Serialize;

use crate::terminal::{Attempt, Format, print_json_line, print_text};
use crate::text::times::second_of_day;

/// A log entry in the output: a line of text or a JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct EntryLine {
    pub(super) log_name: String,
    pub(super) pos: u64,
    /// Position at which the entry ends, including its payload.
    pub(super) end_log_pos: u64,
    /// `None` for mysqld's own binlog, which has no op ids.
    pub(super) op_id: Option<String>,
    /// `transaction`, `rotate`, `membership` or `blank`.
    pub(super) kind: &'static str,
    /// Bytes of the entry's canonical payload.
    pub(super) payload_bytes: u64,
    pub(super) events: u32,
    pub(super) gtid: Option<String>,
    /// Time in UTC; `None` for an entry without a time, such as `membership`.
    pub(super) time: Option<String>,
}

/// A line of output: columns with fixed widths, so that each line can be printed before the next is read, or a JSON object.
pub(super) trait Line: Serialize + Sized {
    /// Title and width of every column; a negative width aligns to the left.
    const COLUMNS: &'static [(&'static str, i8)];

    fn cells(&self) -> Vec<String>;

    fn print_titles(format: Format) -> Attempt {
        match format {
            Format::Table => {
                let titles = Self::COLUMNS.iter().map(|(title, _)| (*title).to_owned());
                print_text(&joined(&titles.collect::<Vec<_>>(), Self::COLUMNS))
            }
            Format::Json => Ok(()),
        }
    }

    fn print(&self, format: Format) -> Attempt {
        match format {
            Format::Table => print_text(&joined(&self.cells(), Self::COLUMNS)),
            Format::Json => print_json_line(self),
        }
    }
}

fn joined(cells: &[String], columns: &[(&str, i8)]) -> String {
    let padded = cells.iter().zip(columns).map(|(cell, (_, width))| {
        let wide = usize::from(width.unsigned_abs());
        match *width < 0 {
            true => format!("{cell:<wide$}"),
            false => format!("{cell:>wide$}"),
        }
    });
    format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
}

impl EntryLine {
    pub(super) fn new(record: &EntryRecord) -> Self {
        Self {
            log_name: record.file.name(),
            pos: record.offset,
            end_log_pos: record.end,
            op_id: Some(record.op_id.to_string()),
            kind: record.kind.name(),
            payload_bytes: record.payload_len,
            events: record.event_count,
            gtid: record.gtid.as_ref().map(ToString::to_string),
            time: time_text(record.timestamp),
        }
    }

    /// Creates the line for a transaction in mysqld's own binlog.
    pub(super) fn of_mysqld(log_name: &str, pos: u64, end: u64, of: &FramedTransaction) -> Self {
        Self {
            log_name: log_name.to_owned(),
            pos,
            end_log_pos: end,
            op_id: None,
            kind: MarkerKind::Transaction.name(),
            payload_bytes: end - pos,
            events: of.event_count,
            gtid: Some(of.gtid.to_string()),
            time: time_text(of.timestamp),
        }
    }
}

impl Line for EntryLine {
    const COLUMNS: &'static [(&'static str, i8)] = &[
        ("Log_name", -13),
        ("Pos", 10),
        ("End_log_pos", 11),
        ("Op_id", 14),
        ("Kind", -11),
        ("Size", 9),
        ("Time", -19),
        ("Gtid", -1),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.log_name.clone(),
            self.pos.to_string(),
            self.end_log_pos.to_string(),
            self.op_id.clone().unwrap_or_else(|| "-".to_owned()),
            self.kind.to_owned(),
            self.payload_bytes.to_string(),
            self.time.clone().unwrap_or_default(),
            self.gtid.clone().unwrap_or_default(),
        ]
    }
}

/// Formats seconds since 1970 as a time in UTC; `None` for zero.
pub(super) fn time_text(seconds: u32) -> Option<String> {
    let text = second_of_day(UnixSeconds(seconds.into()));
    (seconds > 0).then(|| text.replace('T', " ").replace('Z', ""))
}

// One event of an entry, in the columns of SHOW BINLOG EVENTS.

/// An event in the output: a line of text or a JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct EventLine {
    log_name: String,
    pos: u64,
    event_type: String,
    server_id: u32,
    end_log_pos: u64,
    op_id: Option<String>,
    info: String,
}

/// The longest description of an event in text output; longer descriptions are truncated.
const LONGEST_INFO: usize = 160;

impl EventLine {
    /// Returns the lines for all events of an entry: its marker event and, for a transaction, the events of the transaction.
    pub(super) fn all_of(record: &EntryRecord, entry: &Entry) -> Vec<Self> {
        let payload = match &entry.payload {
            EntryPayload::Normal(AppEntry::Transaction(payload)) => Some(payload.bytes().clone()),
            _ => None,
        };
        let events: Vec<RawEvent> = payload
            .into_iter()
            .flat_map(|payload| CanonicalEvents::new(payload).map_while(Result::ok))
            .collect();
        let stored = |event: &RawEvent| (event.bytes().len() + CHECKSUM_LEN) as u64;
        let behind_marker: u64 = events.iter().map(stored).sum();
        let mut pos = record.end - behind_marker;
        let line = |pos, event_type: String, server_id, end_log_pos, info| Self {
            log_name: record.file.name(),
            pos,
            event_type,
            server_id,
            end_log_pos,
            op_id: Some(record.op_id.to_string()),
            info,
        };
        let server_id = events.first().map_or(0, |event| event.header().server_id);
        let info = format!("{} {}", record.kind.name(), record.op_id);
        let mut lines = vec![line(
            record.offset,
            EventType::Ignorable.to_string(),
            server_id,
            pos,
            info,
        )];
        for event in &events {
            let end = pos + stored(event);
            let header = event.header();
            lines.push(line(
                pos,
                header.event_type.to_string(),
                header.server_id,
                end,
                summary(event.canonical()),
            ));
            pos = end;
        }
        lines
    }

    /// Creates the line for an event in mysqld's own binlog.
    pub(super) fn of_mysqld(log_name: &str, pos: u64, event: EventRef<'_>, end: u64) -> Self {
        let header = event.header();
        Self {
            log_name: log_name.to_owned(),
            pos,
            event_type: header.event_type.to_string(),
            server_id: header.server_id,
            end_log_pos: end,
            op_id: None,
            info: summary(event),
        }
    }
}

impl Line for EventLine {
    const COLUMNS: &'static [(&'static str, i8)] = &[
        ("Log_name", -13),
        ("Pos", 10),
        ("Event_type", -18),
        ("Server_id", 10),
        ("End_log_pos", 11),
        ("Info", -1),
    ];

    fn cells(&self) -> Vec<String> {
        let mut info: String = self.info.chars().take(LONGEST_INFO).collect();
        if info.len() < self.info.len() {
            info.push('…');
        }
        vec![
            self.log_name.clone(),
            self.pos.to_string(),
            self.event_type.clone(),
            self.server_id.to_string(),
            self.end_log_pos.to_string(),
            info.replace(['\n', '\r', '\t'], " "),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_and_zero_is_none() {
        assert_eq!(time_text(0), None);
        assert_eq!(
            time_text(1_000_000_000).as_deref(),
            Some("2001-09-09 01:46:40")
        );
        assert_eq!(time_text(u32::MAX).as_deref(), Some("2106-02-07 06:28:15"));
    }
}
