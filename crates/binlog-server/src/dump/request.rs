//! The dump commands of replicas and other consumers, and the position at which a dump begins.

use std::collections::BTreeSet;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use bytes::Buf;

use crate::answers::{ErrorAnswer, code};
use crate::committed_files::{CommittedFiles, FileNumber, KeptFile, LogFile, Position, ReadError};
use crate::consumers::Registration;
use crate::dump::feed::Rule;

/// The dump ends at the log's end instead of waiting for more.
const NON_BLOCKING: u16 = 1;
/// The consumer supports heartbeats of the second form.
const HEARTBEAT_V2: u16 = 2;
/// Maximum length of a file name in bytes.
const LONGEST_NAME: usize = 512;

/// The requested events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All events except those of these transactions; starts at a position in a file, if one is named.
    Without {
        have: GtidSet,
        file: Option<(String, u64)>,
    },
    /// All events from a position on; starts with the first file if none is named.
    From { file: String, offset: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) wanted: Wanted,
    pub(crate) server_id: u32,
    pub(crate) non_blocking: bool,
    pub(crate) heartbeat_v2: bool,
}

impl Request {
    /// Decodes `COM_BINLOG_DUMP`, which has a position of 32 bits; `None` if it is truncated.
    pub(crate) fn by_position(mut body: &[u8]) -> Option<Self> {
        let offset = u64::from(body.try_get_u32_le().ok()?);
        let flags = body.try_get_u16_le().ok()?;
        let server_id = body.try_get_u32_le().ok()?;
        let file = name(body)?;
        Some(Self::new(Wanted::From { file, offset }, flags, server_id))
    }

    /// Decodes `COM_BINLOG_DUMP_GTID`; `None` if it is truncated, or its GTID set cannot be decoded.
    pub(crate) fn by_gtids(mut body: &[u8]) -> Option<Self> {
        let flags = body.try_get_u16_le().ok()?;
        let server_id = body.try_get_u32_le().ok()?;
        let file = name(counted(&mut body)?)?;
        let offset = body.try_get_u64_le().ok()?;
        let have = GtidSet::decode(counted(&mut body)?).ok()?;
        let file = (!file.is_empty()).then_some((file, offset));
        Some(Self::new(Wanted::Without { have, file }, flags, server_id))
    }

    fn new(wanted: Wanted, flags: u16, server_id: u32) -> Self {
        Self {
            wanted,
            server_id,
            // A server id of 0 also means non-blocking: before the flag existed, it was the only way.
            non_blocking: flags & NON_BLOCKING != 0 || server_id == 0,
            heartbeat_v2: flags & HEARTBEAT_V2 != 0,
        }
    }
}

/// Decodes `COM_REGISTER_SLAVE`; `None` if it is truncated.
pub(crate) fn parse_register(mut body: &[u8]) -> Option<Registration> {
    let server_id = body.try_get_u32_le().ok()?;
    let mut texts = [const { String::new() }; 3];
    for text in &mut texts {
        let length = body.try_get_u8().ok()?;
        let (bytes, rest) = body.split_at_checked(usize::from(length))?;
        *text = String::from_utf8_lossy(bytes).into_owned();
        body = rest;
    }
    let [host, _user, _password] = texts;
    let port = body.try_get_u16_le().ok()?;
    let _rank_and_source = body.try_get_u64_le().ok()?;
    Some(Registration {
        server_id,
        host,
        port,
    })
}

/// Removes a length and that many bytes from `body`; returns the bytes.
fn counted<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(body.try_get_u32_le().ok()?).ok()?;
    let (bytes, rest) = body.split_at_checked(length)?;
    *body = rest;
    Some(bytes)
}

/// Decodes a file name; some clients end it with a zero byte.
fn name(bytes: &[u8]) -> Option<String> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let bytes = bytes.get(..end).filter(|name| name.len() <= LONGEST_NAME)?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

// The start of a dump, or the reason why there is none. Permanent failures have error 1236, as with any source.

/// The offset of the first event.
pub(super) const FIRST_EVENT: u64 = 4;

/// The start of a dump. `kept` keeps the file while it is read; `None` if the file must be fetched first.
pub(super) struct Beginning {
    pub(super) at: Position,
    pub(super) rule: Rule,
    pub(super) kept: Option<KeptFile>,
}

/// Finds the start of a dump. If the consumer is ahead of this log, waits, because other members may have a longer log.
pub(super) async fn find(
    log: &dyn CommittedFiles,
    wanted: Wanted,
    registered_as: Option<u32>,
    patience: Duration,
) -> Result<Beginning, ErrorAnswer> {
    let (rule, place) = match wanted {
        Wanted::From { file, offset } => (Rule::All { registered_as }, (file, offset)),
        Wanted::Without {
            have,
            file: Some(place),
        } => (Rule::Without(have), place),
        Wanted::Without { have, file: None } => {
            check_not_ahead(log, &have, patience).await?;
            let here = log.begin_for(&have);
            let here = here.and_then(|file| Some((file, log.keep(file)?)));
            let (file, kept) = match here {
                Some((file, kept)) => (file, Some(kept)),
                None => {
                    let older = log.older_begin_for(&have).await.map_err(refused)?;
                    let purged = || lacks_purged(&have, &log.purged());
                    (older.ok_or_else(purged)?, None)
                }
            };
            let offset = FIRST_EVENT;
            return Ok(Beginning {
                at: Position { file, offset },
                rule: Rule::Without(have),
                kept,
            });
        }
    };
    let (at, kept) = at_place(log, &place.0, place.1, patience).await?;
    Ok(Beginning { at, rule, kept })
}

/// Refuses a consumer that has transactions of the ring's sources that the ring never committed. Transactions of other sources are ignored,
/// as any source does.
async fn check_not_ahead(
    log: &dyn CommittedFiles,
    have: &GtidSet,
    patience: Duration,
) -> Result<(), ErrorAnswer> {
    if errant(have, &log.gtids()).is_empty() {
        return Ok(());
    }
    catch_up(log, patience, "the replica has transactions that are").await?;
    let errant = errant(have, &log.gtids());
    if errant.is_empty() {
        return Ok(());
    }
    Err(ErrorAnswer::fatal(format!(
        "Replica has more GTIDs than the ring has, of the ring's own sources: the ring never committed {}. Provision the \
         replica again, or roll its extra transactions back",
        shortened(&errant)
    )))
}

/// Waits until this member has everything that the ring has committed. The member may lag, for example after its start; a consumer that was
/// attached to another member then has more.
async fn catch_up(
    log: &dyn CommittedFiles,
    patience: Duration,
    what: &str,
) -> Result<(), ErrorAnswer> {
    log.catch_up(patience).await.map_err(|why| {
        let message = format!(
            "{what} not here yet, and whether the ring has them is not known: {why}; try again"
        );
        ErrorAnswer::new(code::UNKNOWN, message)
    })
}

/// The GTIDs of `have` that `log` lacks, of those sources that `log` contains.
fn errant(have: &GtidSet, log: &GtidSet) -> GtidSet {
    let sources: BTreeSet<_> = log.parts().map(|(source, ..)| source).collect();
    let mut errant = GtidSet::new();
    // The intervals are in order, so each is added at the end. To remove the others from a long set would move all later intervals each
    // time.
    for (source, tag, interval) in have.difference(log).intervals() {
        if sources.contains(&source) {
            errant.add_interval(source, tag, interval);
        }
    }
    errant
}

/// The error for a file that cannot be read. A consumer reconnects after an error that may be temporary.
pub(super) fn refused(error: ReadError) -> ErrorAnswer {
    match error {
        ReadError::Failed(_) | ReadError::Unavailable(_) => {
            ErrorAnswer::new(code::UNKNOWN, error.to_string())
        }
        ReadError::Gone | ReadError::Unusable(_) => ErrorAnswer::fatal(error.to_string()),
    }
}

fn lacks_purged(have: &GtidSet, purged: &GtidSet) -> ErrorAnswer {
    ErrorAnswer::fatal(format!(
        "Cannot replicate because the source purged required binary logs: {} are no longer in a file that this member has \
         or can get. Provision the replica from a backup, or attach it to a member with a longer log",
        shortened(&purged.difference(have))
    ))
}

/// True if the position is after the committed part of this log.
fn is_beyond(log: &dyn CommittedFiles, name: &str, offset: u64) -> bool {
    let files = log.files();
    let (Some(number), Some(last)) = (log.number_of(name), files.last()) else {
        return false;
    };
    number > last.number || (number == last.number && offset > last.bytes)
}

/// Finds the file of this name, or the first one if the name is empty. An older file is not kept yet. If the position is not committed on
/// this member yet, waits for it.
async fn at_place(
    log: &dyn CommittedFiles,
    name: &str,
    offset: u64,
    patience: Duration,
) -> Result<(Position, Option<KeptFile>), ErrorAnswer> {
    if is_beyond(log, name, offset) {
        catch_up(log, patience, "events at this position are").await?;
    }
    let here = log.files();
    let named = |files: &[LogFile]| files.iter().find(|file| file.name == name).cloned();
    let (file, older) = match named(&here) {
        Some(file) => (Some(file), Vec::new()),
        // The log never has a file with such a name.
        None if !name.is_empty() && log.number_of(name).is_none() => (None, Vec::new()),
        None => {
            let older = log.look_for_older_files().await.map_err(refused)?;
            let file = match name {
                "" => older.first().or(here.first()).cloned(),
                _ => named(&older),
            };
            (file, older)
        }
    };
    let not_found = |file: Option<FileNumber>| {
        let first = older.first().or(here.first());
        let first = first.map_or("", |first| &first.name[..]);
        let what = match (file, log.number_of(name)) {
            (None, None) => "is not the name of one",
            _ => "was purged, or does not exist yet",
        };
        ErrorAnswer::fatal(format!(
            "Could not find log file '{name}' in this member's log: it {what}; the first one is '{first}'"
        ))
    };
    let file = file.ok_or_else(|| not_found(None))?;
    if offset < FIRST_EVENT {
        let message = "Client requested source to start replication from position < 4";
        return Err(ErrorAnswer::fatal(message));
    }
    if offset > file.bytes {
        return Err(ErrorAnswer::fatal(format!(
            "Client requested source to start replication from position > file size: {} of {} bytes of {} are committed",
            offset, file.bytes, file.name
        )));
    }
    let kept = log.keep(file.number);
    if kept.is_none() && !older.contains(&file) {
        return Err(not_found(Some(file.number)));
    }
    let file = file.number;
    Ok((Position { file, offset }, kept))
}

/// The text of a set, truncated for a message.
fn shortened(set: &GtidSet) -> String {
    const LONGEST: usize = 200;
    let text = set.to_string().replace('\n', "");
    match text.char_indices().nth(LONGEST) {
        None => format!("'{text}'"),
        Some((end, _)) => format!("'{}…'", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use binlog_format::gtid::GtidSetFormat;
    use mysql_common::packets::BinlogDumpFlags;
    use mysql_common::packets::ComBinlogDump;
    use mysql_common::packets::ComRegisterSlave;
    use mysql_common::proto::MySerialize;
    use proptest::prelude::*;

    use super::*;

    /// A request as another implementation encodes it, without its command byte.
    fn written(packet: &impl MySerialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        packet.serialize(&mut bytes);
        bytes.split_off(1)
    }

    fn gtid_request(have: &GtidSet, format: GtidSetFormat) -> Vec<u8> {
        let set = have.encode(format);
        let mut body = vec![2, 0, 7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        body.extend_from_slice(&(set.len() as u32).to_le_bytes());
        body.extend_from_slice(&set);
        body
    }

    #[test]
    fn positions_are_read() {
        let packet = ComBinlogDump::new(9)
            .with_filename(&b"binlog.000002"[..])
            .with_pos(1234_u32)
            .with_flags(BinlogDumpFlags::BINLOG_DUMP_NON_BLOCK);
        let request = Request::by_position(&written(&packet)).unwrap();
        let file = "binlog.000002".to_owned();
        assert_eq!(request.wanted, Wanted::From { file, offset: 1234 });
        assert!(request.non_blocking && !request.heartbeat_v2);
        assert_eq!(request.server_id, 9);
        let quiet = Request::by_position(&written(&ComBinlogDump::new(0))).unwrap();
        assert!(quiet.non_blocking);
    }

    #[test]
    fn gtid_sets_of_both_forms_are_read() {
        let plain: GtidSet = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7"
            .parse()
            .unwrap();
        let tagged: GtidSet = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:blue:1-3"
            .parse()
            .unwrap();
        for (have, format) in [
            (&plain, GtidSetFormat::Classic),
            (&plain, GtidSetFormat::Tagged),
            (&tagged, GtidSetFormat::Tagged),
        ] {
            let request = Request::by_gtids(&gtid_request(have, format)).unwrap();
            let wanted = Wanted::Without {
                have: have.clone(),
                file: None,
            };
            assert_eq!(request.wanted, wanted);
            assert!(request.heartbeat_v2 && !request.non_blocking);
        }
    }

    #[test]
    fn registrations_are_read() {
        let packet = ComRegisterSlave::new(5)
            .with_hostname(&b"replica"[..])
            .with_port(3307);
        let expected = Registration {
            server_id: 5,
            host: "replica".into(),
            port: 3307,
        };
        assert_eq!(parse_register(&written(&packet)), Some(expected));
    }

    proptest! {
        #[test]
        fn no_bytes_make_them_panic(body in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Request::by_position(&body);
            let _ = Request::by_gtids(&body);
            let _ = parse_register(&body);
        }

        #[test]
        fn damaged_gtid_requests_never_panic(at in 0_usize..60, with in any::<u8>()) {
            let have: GtidSet = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7".parse().unwrap();
            let mut body = gtid_request(&have, GtidSetFormat::Classic);
            let place = at % body.len();
            body[place] = with;
            let _ = Request::by_gtids(&body);
        }
    }
}

#[cfg(test)]
mod beginning_tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use bytes::Bytes;
    use tokio::sync::watch;

    use super::*;
    use crate::committed_files::CatchUpError;

    const RING: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const FOREIGN: &str = "aaaaaaaa-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        text.parse().unwrap()
    }

    /// A log of one file. Other members have committed more, as far as that is known.
    struct LaggingLog {
        bytes: AtomicU64,
        elsewhere: Option<u64>,
    }

    #[async_trait::async_trait]
    impl CommittedFiles for LaggingLog {
        fn files(&self) -> Vec<LogFile> {
            vec![LogFile {
                number: FileNumber(2),
                name: self.name_of(FileNumber(2)),
                bytes: self.bytes.load(Ordering::Relaxed),
            }]
        }

        fn name_of(&self, file: FileNumber) -> String {
            format!("binlog.{:06}", file.0)
        }

        fn number_of(&self, name: &str) -> Option<FileNumber> {
            Some(FileNumber(name.strip_prefix("binlog.")?.parse().ok()?))
        }

        fn committed(&self) -> watch::Receiver<Position> {
            unreachable!("a place is looked for")
        }

        fn gtids(&self) -> GtidSet {
            GtidSet::new()
        }

        fn purged(&self) -> GtidSet {
            GtidSet::new()
        }

        fn begin_for(&self, _have: &GtidSet) -> Option<FileNumber> {
            None
        }

        async fn catch_up(&self, _patience: Duration) -> Result<(), CatchUpError> {
            let elsewhere = self.elsewhere.ok_or(CatchUpError::Stopping)?;
            self.bytes.store(elsewhere, Ordering::Relaxed);
            Ok(())
        }

        fn keep(&self, _file: FileNumber) -> Option<KeptFile> {
            Some(Box::new(()))
        }

        async fn read(&self, _from: Position, _at_most: usize) -> Result<Bytes, ReadError> {
            Err(ReadError::Gone)
        }

        fn damaged(&self, _file: FileNumber, _why: &str) {}

        fn server_version(&self) -> String {
            String::new()
        }

        fn is_own(&self, _body: &[u8]) -> bool {
            false
        }

        fn describe_own(&self, _body: &[u8]) -> String {
            String::new()
        }
    }

    /// A restarted member has fewer transactions than its consumers have received.
    #[tokio::test]
    async fn a_dump_waits_for_an_uncommitted_position() {
        let table = [
            ("binlog.000002", 150, Some(100), None),
            ("binlog.000002", 150, Some(200), None),
            (
                "binlog.000002",
                250,
                Some(200),
                Some(code::FATAL_READING_BINLOG),
            ),
            ("binlog.000002", 150, None, None),
            ("binlog.000002", 151, None, Some(code::UNKNOWN)),
            ("binlog.000003", 4, None, Some(code::UNKNOWN)),
            (
                "binlog.000003",
                4,
                Some(200),
                Some(code::FATAL_READING_BINLOG),
            ),
            ("binlog.000001", 4, None, Some(code::FATAL_READING_BINLOG)),
            ("other.000003", 4, None, Some(code::FATAL_READING_BINLOG)),
        ];
        for (name, offset, elsewhere, expected) in table {
            let log = LaggingLog {
                bytes: AtomicU64::new(150),
                elsewhere,
            };
            let found = at_place(&log, name, offset, Duration::ZERO).await;
            let refused = found.err().map(|error| error.code);
            assert_eq!(refused, expected, "{name} {offset} {:?}", log.elsewhere);
        }
    }

    #[test]
    fn only_transactions_of_the_rings_sources_are_errant() {
        let log = set(&format!("{RING}:1-100"));
        let have = set(&format!("{RING}:1-50,{FOREIGN}:1-7"));
        assert!(errant(&have, &log).is_empty());
        let ahead = set(&format!("{RING}:1-50:101:blue:1,{FOREIGN}:1-7"));
        assert_eq!(errant(&ahead, &log), set(&format!("{RING}:101:blue:1")));
    }

    #[test]
    fn a_long_set_of_another_source_is_skipped_quickly() {
        // If the intervals were removed one at a time, each would move all later ones: 600 gigabytes in total.
        const INTERVALS: u64 = 300_000;
        let numbers: String = (1..=INTERVALS).map(|at| format!(":{}", 3 * at)).collect();
        let have = set(&format!("{FOREIGN}{numbers}"));
        let began = Instant::now();
        assert!(errant(&have, &set(&format!("{RING}:1-100"))).is_empty());
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn long_sets_are_shortened() {
        let gaps: Vec<String> = (1..500).map(|at| (2 * at).to_string()).collect();
        let long = shortened(&set(&format!("{RING}:{}", gaps.join(":"))));
        assert!(long.chars().count() < 210 && long.ends_with("…'"), "{long}");
        assert_eq!(shortened(&set(&format!("{RING}:1"))), format!("'{RING}:1'"));
    }
}
