//! Reads binlog files as a source: checks the transactions, and the error for each kind of damage
//! and each gap.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use applier::source::{FileSource, LimitedSource, Source, SourceError, Until};
use binlog_format::MAGIC;
use binlog_format::canonical::stamp_payload;
use binlog_format::event::EventFlags;
use binlog_format::events::{
    CommitTimestamp, EncodeEvent, EventOrigin, FormatDescription, LogicalClock, PreviousGtids,
    ServerVersion,
};
use binlog_format::gtid::{Gno, Gtid, GtidSet, SourceId, Tag};
use binlog_format::synthesis::{TransactionHead, statement_transaction};
use bytes::Bytes;
use tempfile::TempDir;

const LIMIT: u64 = 1 << 20;

fn gtid(number: u64) -> Gtid {
    Gtid {
        source: SourceId::from_bytes([0xaa; 16]),
        tag: Tag::NONE,
        gno: Gno::new(number).unwrap(),
    }
}

fn set(numbers: impl IntoIterator<Item = u64>) -> GtidSet {
    let mut set = GtidSet::new();
    for number in numbers {
        set.add(gtid(number));
    }
    set
}

/// Returns a transaction that was committed `number` seconds after the epoch.
fn transaction(number: u64) -> Bytes {
    let head = TransactionHead {
        gtid: gtid(number),
        server_id: 11,
        thread_id: 7,
        commit: CommitTimestamp(number * 1_000_000),
        version: ServerVersion(80_403),
        clock: LogicalClock {
            last_committed: number as i64 - 1,
            sequence_number: number as i64,
        },
        xid: number,
    };
    statement_transaction(head, "s", &format!("create table t{number} (a int)"))
}

/// Returns a file of transactions. If `in_use`, it is as a server leaves it when it dies.
fn file(numbers: std::ops::Range<u64>, in_use: bool) -> Vec<u8> {
    let origin = |flags| EventOrigin {
        timestamp: 0,
        server_id: 11,
        flags,
    };
    let flags = match in_use {
        true => EventFlags::BINLOG_IN_USE,
        false => EventFlags::NONE,
    };
    let previous = PreviousGtids {
        gtids: set(1..numbers.start),
    };
    let mut content = FormatDescription::built_in("8.4.3").encode(origin(flags));
    content.extend(previous.encode(origin(EventFlags::NONE)));
    for number in numbers {
        content.extend_from_slice(&transaction(number));
    }
    let mut bytes = MAGIC.to_vec();
    stamp_payload(&content, MAGIC.len() as u64, &mut bytes).unwrap();
    bytes
}

struct Files {
    _directory: TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn new(contents: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let directory = TempDir::new().unwrap();
        let write = |(at, content): (usize, Vec<u8>)| {
            let path = directory.path().join(format!("binlog.{at:06}"));
            std::fs::write(&path, content).unwrap();
            path
        };
        let paths = contents.into_iter().enumerate().map(write).collect();
        Self {
            _directory: directory,
            paths,
        }
    }

    async fn source(&self, executed: GtidSet) -> Result<FileSource, SourceError> {
        FileSource::open(self.paths.clone(), Some(executed), LIMIT).await
    }

    /// Returns the numbers of the transactions read, and the final result.
    async fn read(&self, executed: GtidSet) -> (Vec<u64>, Result<(), SourceError>) {
        match self.source(executed).await {
            Ok(source) => drain(source).await,
            Err(error) => (Vec::new(), Err(error)),
        }
    }
}

async fn drain(mut source: impl Source) -> (Vec<u64>, Result<(), SourceError>) {
    let mut numbers = Vec::new();
    loop {
        match source.next().await {
            Ok(Some(transaction)) => numbers.push(transaction.gtid.gno.get()),
            Ok(None) => return (numbers, Ok(())),
            Err(error) => return (numbers, Err(error)),
        }
    }
}

fn message(result: Result<(), SourceError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn files_are_read_one_after_the_other() {
    let files = Files::new([file(1..4, false), file(4..4, false), file(4..9, false)]);
    let (numbers, end) = files.read(GtidSet::new()).await;
    assert_eq!(numbers, (1..9).collect::<Vec<_>>());
    end.unwrap();

    let mut source = files.source(GtidSet::new()).await.unwrap();
    let total = source.read().total;
    assert!(source.next().await.unwrap().is_some());
    assert!(source.read().done > 0 && source.read().done < total);
    while source.next().await.unwrap().is_some() {}
    assert_eq!(source.read().done, total);
    assert!(source.drained().get());
}

#[tokio::test]
async fn transactions_that_neither_the_target_nor_a_file_has_are_missed() {
    let files = Files::new([file(4..6, false)]);
    let (numbers, end) = files.read(set(1..3)).await;
    assert_eq!(numbers, [] as [u64; 0]);
    let message = message(end);
    assert!(
        message.contains("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:3;"),
        "{message}"
    );
    files.read(set(1..4)).await.1.unwrap();

    let gap = Files::new([file(1..3, false), file(4..6, false)]);
    let (numbers, end) = gap.read(GtidSet::new()).await;
    assert_eq!(numbers, [1, 2]);
    assert!(end.is_err());
}

#[tokio::test]
async fn an_unfinished_end_is_left_out_only_where_a_server_may_have_left_it() {
    for cut in [1, 5, 30] {
        let cut_off = |in_use| {
            let mut bytes = file(1..4, in_use);
            bytes.truncate(bytes.len() - cut);
            bytes
        };
        let (numbers, end) = Files::new([cut_off(true)]).read(GtidSet::new()).await;
        assert_eq!((numbers, end.is_ok()), (vec![1, 2], true), "cut by {cut}");

        let (numbers, end) = Files::new([cut_off(false)]).read(GtidSet::new()).await;
        assert_eq!(numbers, [1, 2]);
        assert!(message(end).contains("it ends within a transaction"));

        let before_another = Files::new([cut_off(true), file(4..5, false)]);
        assert!(before_another.read(GtidSet::new()).await.1.is_err());
    }
}

#[tokio::test]
async fn every_flipped_bit_is_noticed_or_changes_nothing() {
    let whole = file(1..4, false);
    let expected: Vec<u64> = (1..4).collect();
    for at in (0..whole.len() * 8).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        let (numbers, end) = Files::new([bytes]).read(GtidSet::new()).await;
        assert!(end.is_err() || numbers == expected, "bit {at}: {numbers:?}");
    }
}

#[tokio::test]
async fn what_is_no_binlog_says_so() {
    let mut encrypted = file(1..2, false);
    encrypted[0] = 0xfd;
    for (content, said) in [
        (encrypted, "binlog_encryption=OFF"),
        (b"select 1;".to_vec(), "is no binlog file"),
        (Vec::new(), "is no binlog file"),
    ] {
        let message = message(Files::new([content]).read(GtidSet::new()).await.1);
        assert!(message.contains(said), "{message}");
    }
    let missing = FileSource::open(vec![Path::new("no-such-file").into()], None, LIMIT);
    let message = missing.await.unwrap_err().to_string();
    assert!(message.contains("no-such-file"), "{message}");
}

#[tokio::test]
async fn it_ends_where_it_is_told() {
    let files = Files::new([file(1..9, false)]);
    let read = async |until: Until, executed: GtidSet| {
        let source = files.source(executed.clone()).await.unwrap();
        drain(LimitedSource::new(source, Some(until), &executed, None)).await
    };
    let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    for (until, executed, expected) in [
        (Until::Gtids(set([3, 5])), set([]), vec![1, 2, 3, 4, 5]),
        // The source does not wait for transactions that the target already has.
        (Until::Gtids(set([2])), set([1, 2]), vec![]),
        (Until::Time(time(4)), set([]), vec![1, 2, 3, 4]),
        (Until::Time(time(0)), set([]), vec![]),
        (Until::Time(time(99)), set([]), (1..9).collect()),
    ] {
        let (numbers, end) = read(until.clone(), executed).await;
        assert_eq!((numbers, end.is_ok()), (expected, true), "{until:?}");
    }
    let (numbers, end) = read(Until::Gtids(set([8, 12])), set([])).await;
    assert_eq!(numbers, (1..9).collect::<Vec<_>>());
    assert!(message(end).contains(":12; give a log that has them"));
}
