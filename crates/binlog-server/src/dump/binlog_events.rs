//! `SHOW BINLOG EVENTS`: lists the committed events of a file, one per row. Rows are sent while the file is read.

use std::fmt::Display;

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventHeader, EventRef, EventType, HEADER_LEN};
use binlog_format::events::{Ignorable, summary};
use mysql_link::wire::Outgoing;

use crate::answers::{ColumnKind, ErrorAnswer, ResultSet, Value, code};
use crate::committed_files::{CommittedFiles, LogFile, Position};
use crate::dump::request::FIRST_EVENT;
use crate::session::{Client, Ended};
use crate::statement::EventRange;

/// Events that are larger are listed without being decoded.
const MAX_LOOKED_INTO: usize = 16 << 10;
/// Maximum characters of an event's text; a statement may have megabytes.
const LONGEST_INFO: usize = 1000;
/// Rows are sent after this many bytes.
const SEND_AT: usize = 64 << 10;

const COLUMNS: [(&str, ColumnKind); 6] = [
    ("Log_name", ColumnKind::Text),
    ("Pos", ColumnKind::Number),
    ("Event_type", ColumnKind::Text),
    ("Server_id", ColumnKind::Number),
    ("End_log_pos", ColumnKind::Number),
    ("Info", ColumnKind::Text),
];

impl Client<'_> {
    pub(crate) async fn show_events(
        &mut self,
        range: EventRange,
        mut out: Outgoing,
    ) -> Result<(), Ended> {
        let log = &*self.shared.log;
        let files = log.files();
        let older = log.older_files();
        let file = match &range.file {
            Some(name) => {
                let mut all = files.iter().chain(&older);
                all.find(|file| file.name == *name).cloned()
            }
            // An older file is not used by default, because it would have to be fetched.
            None => files.first().cloned(),
        };
        let from = range.from.unwrap_or(FIRST_EVENT);
        let Some(file) = file.filter(|file| (FIRST_EVENT..=file.bytes).contains(&from)) else {
            let why = "there is no such file or position; SHOW BINARY LOGS lists them";
            out.push(&failed(why).packet());
            return self.send(&out.bytes).await;
        };
        // Keeps the file during the listing. Otherwise a purge would cause an error in the middle of it.
        let mut kept = log.keep(file.number);
        if kept.is_none() && older.contains(&file) {
            match log.fetch(file.number).await {
                Ok(fetched) => kept = Some(fetched),
                Err(why) => {
                    out.push(&failed(why).packet());
                    return self.send(&out.bytes).await;
                }
            }
        }
        let _kept = kept;
        let result = ResultSet::begin(&mut out, self.deprecate_eof, COLUMNS.into_iter());
        let mut listing = Listing {
            offset: from,
            skip: range.skip,
            left: range.limit.unwrap_or(u64::MAX),
        };
        loop {
            match listing.next(&*self.shared.log, &file).await {
                Ok(Some(row)) => result.row(&mut out, &row),
                Ok(None) => break,
                Err(error) => {
                    out.push(&error.packet());
                    return self.send(&out.bytes).await;
                }
            }
            if out.bytes.len() >= SEND_AT {
                self.send(&out.bytes).await?;
                out.bytes.clear();
            }
        }
        result.end(&mut out);
        self.send(&out.bytes).await
    }
}

fn failed(why: impl Display) -> ErrorAnswer {
    let message = format!("Error when executing command SHOW BINLOG EVENTS: {why}");
    ErrorAnswer::new(code::SHOW_BINLOG_EVENTS, message)
}

struct Listing {
    offset: u64,
    skip: u64,
    left: u64,
}

impl Listing {
    async fn next(
        &mut self,
        log: &dyn CommittedFiles,
        file: &LogFile,
    ) -> Result<Option<Vec<Value>>, ErrorAnswer> {
        while self.offset < file.bytes && self.left > 0 {
            let at = Position {
                file: file.number,
                offset: self.offset,
            };
            let bytes = log.read(at, MAX_LOOKED_INTO).await.map_err(failed)?;
            let header = bytes
                .get(..HEADER_LEN)
                .and_then(|head| EventHeader::parse(head).ok());
            let no_event = || failed(format_args!("no event begins at {}", at.offset));
            let header = header.ok_or_else(no_event)?;
            let end = at.offset + u64::from(header.event_size);
            if header.log_pos != end as u32 || end > file.bytes {
                return Err(no_event());
            }
            self.offset = end;
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left -= 1;
            let whole = bytes.get(..header.event_size as usize);
            let info = whole.map_or_else(String::new, |whole| info(log, whole));
            return Ok(Some(vec![
                Value::text(&file.name),
                Value::Number(at.offset),
                Value::text(header.event_type),
                Value::Number(u64::from(header.server_id)),
                Value::Number(end),
                Value::text(info),
            ]));
        }
        Ok(None)
    }
}

/// The text for an event; empty for an event that cannot be read. A dump of the event will report the damage.
fn info(log: &dyn CommittedFiles, stored: &[u8]) -> String {
    let event = EventRef::new(stored).and_then(|event| event.verified(ChecksumAlgorithm::Crc32));
    let Ok(event) = event else {
        return String::new();
    };
    let info = match event.event_type() {
        EventType::Ignorable => match Ignorable::decode(event) {
            Ok(ignorable) if log.is_own(&ignorable.body) => log.describe_own(&ignorable.body),
            _ => String::new(),
        },
        _ => summary(event),
    };
    match info.char_indices().nth(LONGEST_INFO) {
        None => info,
        Some((end, _)) => format!("{}…", info.get(..end).unwrap_or_default()),
    }
}
