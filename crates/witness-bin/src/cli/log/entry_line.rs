//! One entry of a log as the `log` verbs print it.

use binlog_store::{EntryRecord, MarkerKind};
use raft_types::OpId;
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

/// An entry; a line of text or a JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct EntryLine {
    pub(super) log_name: String,
    /// Where its marker begins.
    pub(super) pos: u64,
    /// Where it ends, payload included.
    pub(super) end_log_pos: u64,
    #[serde(serialize_with = "op_id_text")]
    pub(super) op_id: OpId,
    /// `transaction`, `rotate`, `membership` or `blank`.
    pub(super) kind: &'static str,
    /// Bytes of its canonical payload.
    pub(super) payload_bytes: u64,
    /// Events of its payload.
    pub(super) events: u32,
    pub(super) gtid: Option<String>,
    /// UTC; none for an entry of the ring itself.
    pub(super) time: Option<String>,
}

/// Title and width of every column; a negative width aligns to the left.
const COLUMNS: [(&str, i8); 8] = [
    ("Log_name", -13),
    ("Pos", 10),
    ("End_log_pos", 11),
    ("Op_id", 14),
    ("Kind", -11),
    ("Size", 9),
    ("Time", -19),
    ("Gtid", -1),
];

impl EntryLine {
    pub(super) fn new(record: &EntryRecord) -> Self {
        Self {
            log_name: record.file.name(),
            pos: record.offset,
            end_log_pos: record.end,
            op_id: record.op_id,
            kind: kind_name(record.kind),
            payload_bytes: record.payload_len,
            events: record.event_count,
            gtid: record.gtid.as_ref().map(ToString::to_string),
            time: time_text(record.timestamp),
        }
    }

    /// The titles of the columns.
    pub(super) fn titles() -> String {
        joined(COLUMNS.map(|(title, _)| title.to_owned()))
    }

    /// The line of text.
    pub(super) fn text(&self) -> String {
        joined([
            self.log_name.clone(),
            self.pos.to_string(),
            self.end_log_pos.to_string(),
            self.op_id.to_string(),
            self.kind.to_owned(),
            self.payload_bytes.to_string(),
            self.time.clone().unwrap_or_default(),
            self.gtid.clone().unwrap_or_default(),
        ])
    }
}

/// Columns of fixed widths, so that lines can be printed as they come.
fn joined(cells: [String; 8]) -> String {
    let padded = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| {
        let wide = usize::from(width.unsigned_abs());
        if width < 0 {
            format!("{cell:<wide$}")
        } else {
            format!("{cell:>wide$}")
        }
    });
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

pub(super) fn kind_name(kind: MarkerKind) -> &'static str {
    match kind {
        MarkerKind::FileHeader => "header",
        MarkerKind::Blank => "blank",
        MarkerKind::Membership => "membership",
        MarkerKind::Transaction => "transaction",
        MarkerKind::Rotate => "rotate",
    }
}

/// Seconds since the epoch as people read them; none for zero.
pub(super) fn time_text(seconds: u32) -> Option<String> {
    if seconds == 0 {
        return None;
    }
    let time = OffsetDateTime::from_unix_timestamp(i64::from(seconds)).ok()?;
    let form = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    time.format(&form).ok()
}

/// An op id as `term.index`.
pub(super) fn op_id_text<S: serde::Serializer>(op_id: &OpId, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(op_id)
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
