//! Reads the events of a server's binlog files, decompressed and with their tables.

use std::collections::HashMap;

use binlog_format::canonical::{CanonicalEvents, canonicalise};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventType, RawEvent};
use binlog_format::events::{TableId, TableMap, TransactionPayload};
use testkit::mysqld::Mysqld;

/// Returns all events of the server's files in order, in canonical form. Events of compressed payloads replace the payload. Also returns
/// the number of payloads.
pub(crate) fn events(server: &Mysqld) -> (Vec<RawEvent>, usize) {
    let mut all = Vec::new();
    let mut payloads = 0;
    for file in server.binlog_files().unwrap() {
        let content = bytes::Bytes::from(std::fs::read(file).unwrap()).slice(4..);
        for event in CanonicalEvents::new(content) {
            let event = canonicalise(&event.unwrap(), ChecksumAlgorithm::Crc32).unwrap();
            let event = RawEvent::new(event).unwrap();
            match event.event_type() {
                EventType::TransactionPayload => {
                    let payload = TransactionPayload::decode(event.canonical()).unwrap();
                    all.extend(payload.events(1 << 30).unwrap().map(Result::unwrap));
                    payloads += 1;
                }
                _ => all.push(event),
            }
        }
    }
    (all, payloads)
}

/// The table maps that apply at a place in the log.
#[derive(Default)]
pub(crate) struct TableMaps(HashMap<TableId, TableMap<'static>>);

impl TableMaps {
    /// Records a table map; ignores other events.
    pub(crate) fn note(&mut self, event: &RawEvent) {
        if event.event_type() != EventType::TableMap {
            return;
        }
        let map = TableMap::decode(event.canonical()).unwrap();
        let owned = TableMap {
            table_id: map.table_id,
            flags: map.flags,
            schema: map.schema.into_owned().into(),
            table: map.table.into_owned().into(),
            column_types: map.column_types.into_owned().into(),
            metadata: map.metadata.into_owned().into(),
            nullable: map.nullable.into_owned().into(),
            optional_metadata: map.optional_metadata.into_owned().into(),
        };
        self.0.insert(owned.table_id, owned);
    }

    /// The table with this number.
    pub(crate) fn get(&self, id: TableId) -> &TableMap<'static> {
        &self.0[&id]
    }
}
