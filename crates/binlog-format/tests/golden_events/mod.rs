//! Events of real servers.

use std::path::Path;

use binlog_format::canonical::{CanonicalEvents, canonicalise};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventType, RawEvent};
use bytes::Bytes;

/// The canonical events of all golden files.
pub(crate) fn golden_events() -> Vec<RawEvent> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut events = Vec::new();
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("testdata")
        .map(|entry| entry.expect("entry").path())
        .collect();
    names.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "binlog")
    });
    names.sort();
    for path in names {
        let checksum = if path.ends_with("no_checksum.binlog") {
            ChecksumAlgorithm::None
        } else {
            ChecksumAlgorithm::Crc32
        };
        let content = Bytes::from(std::fs::read(&path).expect("golden file")).slice(4..);
        for event in CanonicalEvents::new(content).map(|event| event.expect("whole event")) {
            let own = match event.event_type() {
                EventType::FormatDescription => ChecksumAlgorithm::Crc32,
                _ => checksum,
            };
            let canonical = canonicalise(&event, own).expect("golden event");
            events.push(RawEvent::new(canonical).expect("canonical event"));
        }
    }
    events
}
