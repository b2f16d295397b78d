//! One event of an entry, in the columns of SHOW BINLOG EVENTS.

use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::CHECKSUM_LEN;
use binlog_format::event::{EventType, RawEvent};
use binlog_format::events::summary;
use binlog_store::EntryRecord;
use raft_types::{AppEntry, Entry, EntryPayload, OpId};
use serde::Serialize;

use super::entry_line::{kind_name, op_id_text};

/// An event; a line of text or a JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct EventLine {
    log_name: String,
    pos: u64,
    event_type: String,
    server_id: u32,
    end_log_pos: u64,
    #[serde(serialize_with = "op_id_text")]
    op_id: OpId,
    info: String,
}

/// Longer statements are cut in text, as terminals are not endless.
const LONGEST_INFO: usize = 160;

impl EventLine {
    /// The marker of an entry and, of a transaction, every event behind it.
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
            op_id: record.op_id,
            info,
        };
        let server_id = events.first().map_or(0, |event| event.header().server_id);
        let info = format!("{} {}", kind_name(record.kind), record.op_id);
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

    /// The titles of the columns.
    pub(super) fn titles() -> String {
        format!(
            "{:<13}  {:>10}  {:<18}  {:>10}  {:>11}  Info",
            "Log_name", "Pos", "Event_type", "Server_id", "End_log_pos"
        )
    }

    /// The line of text.
    pub(super) fn text(&self) -> String {
        let Self {
            log_name,
            pos,
            event_type,
            server_id,
            end_log_pos,
            ..
        } = self;
        let mut info: String = self.info.chars().take(LONGEST_INFO).collect();
        if info.len() < self.info.len() {
            info.push('…');
        }
        let info = info.replace(['\n', '\r', '\t'], " ");
        let line = format!(
            "{log_name:<13}  {pos:>10}  {event_type:<18}  {server_id:>10}  {end_log_pos:>11}  {info}"
        );
        line.trim_end().to_owned()
    }
}
