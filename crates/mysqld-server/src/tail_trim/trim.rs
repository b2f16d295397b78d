//! The steps on disk before a start: survey mysqld's last binlog file, cut it, and record the start.

use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use binlog_format::event::EventFlags;
use binlog_format::gtid::{GtidSet, SourceId};
use raft_types::MAX_TRANSACTION_BYTES;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::binlog_place::BinlogPlace;
use crate::durable_file;
use crate::provision::other_engines::OF_THE_SYSTEM;
use crate::supervisor::{ServerCommand, SupervisorError};
use crate::tail_trim::cut::{Carrier, STEPS, TrimmedTail, lock_data};
use crate::tail_trim::last_file::{Beginning, LastFile, encrypted_flags};
use crate::tail_trim::plan::{Keep, Plan, Refusal};
use crate::tail_trim::restore::CutNote;

/// Options of the tail trim.
#[derive(Debug, Clone)]
pub struct TailTrimOptions {
    /// The member's data directory. Tails are kept in its `trimmed/mysqld/`.
    pub member_dir: PathBuf,
    /// The command that runs mysqld; it determines the location of the binlog.
    pub server: ServerCommand,
    /// How long one attempt waits for the ring's answer.
    pub ring_limit: Duration,
}

impl TailTrimOptions {
    /// The defaults: one attempt waits five seconds for the ring.
    pub fn new(member_dir: PathBuf, server: ServerCommand) -> Self {
        Self {
            member_dir,
            server,
            ring_limit: Duration::from_secs(5),
        }
    }

    /// Returns the location of the server's binlog; `None` if it has no binlog.
    ///
    /// # Errors
    /// When mysqld does not print the options of its option files.
    pub async fn place(&self) -> Result<Option<BinlogPlace>, SupervisorError> {
        let words = self.server.options_in_force().await?;
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let words = words.iter().map(String::as_str);
        Ok(BinlogPlace::of_options(words, &self.server.data_dir, &host))
    }
}

/// The result for the last file.
#[derive(Debug)]
pub enum Trimmed {
    /// The file is unchanged.
    Kept(Keep),
    /// The tail that was cut off.
    Cut(TrimmedTail),
    /// mysqld must not start.
    Refused(Refusal),
}

/// Returns the location of the server's last writes. If its options name a location without files, returns the location recorded when the
/// server was prepared for a crash.
///
/// # Errors
/// The I/O error.
pub fn last_written(place: &BinlogPlace, member_dir: &Path) -> io::Result<BinlogPlace> {
    let record = StartRecord::load(member_dir)?;
    let recorded = record.filter(|record| !place.index().exists() && record.index.exists());
    let Some(record) = recorded else {
        return Ok(place.clone());
    };
    warn!(
        "mysqld has its binlog by {}, and by its options it would be {}: in mode external, set mysql.log_bin",
        record.index.display(),
        place.index().display()
    );
    let data_dir = place.data_dir.clone();
    Ok(BinlogPlace::of_index(data_dir, &record.index))
}

/// Checks whether anything may have to be cut. Returns `None` if so, and then the ring must be asked; otherwise returns the result.
///
/// # Errors
/// The I/O error.
pub fn survey(place: &BinlogPlace, member_dir: &Path) -> io::Result<Option<Trimmed>> {
    let files = place.files()?;
    let Some(path) = files.last() else {
        return Ok(Some(Trimmed::Kept(match place.index().exists() {
            true => Keep::NoTransactions,
            false => Keep::NoIndex,
        })));
    };
    let record = StartRecord::load(member_dir)?;
    if !is_ours(record.as_ref(), place, &files)? {
        return Ok(Some(Trimmed::Kept(Keep::NotOurStart)));
    }
    let file = path.display().to_string();
    Ok(Some(match LastFile::open(path)?.beginning()? {
        Beginning::Header(header) if header.in_use => return Ok(None),
        Beginning::Header(_) => Trimmed::Kept(Keep::ClosedInOrder),
        Beginning::Torn => Trimmed::Kept(Keep::NoTransactions),
        Beginning::Encrypted => {
            let flags = encrypted_flags(path)?;
            let encrypted = record.as_ref().and_then(|record| record.encrypted.as_ref());
            match encrypted.is_some_and(|in_use| in_use.was_closed(path, flags)) {
                true => Trimmed::Kept(Keep::ClosedInOrder),
                false => Trimmed::Refused(Refusal::Encrypted { file }),
            }
        }
        Beginning::Damaged(at, reason) => Trimmed::Refused(Refusal::Damaged { file, at, reason }),
    }))
}

/// Trims the last file, after [`survey`] has returned `None`.
///
/// # Errors
/// The I/O error.
pub fn trim_last(
    place: &BinlogPlace,
    member_dir: &Path,
    committed: &GtidSet,
) -> io::Result<Trimmed> {
    if committed.is_empty() {
        return Ok(Trimmed::Kept(Keep::RingIsEmpty));
    }
    let files = place.files()?;
    let Some(path) = files.last() else {
        return Ok(Trimmed::Kept(Keep::NoTransactions));
    };
    let mut file = LastFile::open(path)?;
    let Beginning::Header(header) = file.beginning()? else {
        return Err(io::Error::other(
            "it has changed; is another mysqld started on it?",
        ));
    };
    let own = server_uuid(&place.data_dir);
    let had = StartRecord::load(member_dir)?.is_none_or(|record| record.other_engines);
    let other_engines = had || may_have_other_engines(&place.data_dir);
    let limit = MAX_TRANSACTION_BYTES;
    match file.plan(&header, committed, own, other_engines, limit)? {
        Plan::Keep(keep) => Ok(Trimmed::Kept(keep)),
        Plan::Refuse(refusal) => Ok(Trimmed::Refused(refusal)),
        Plan::Cut { at, gtids } => {
            let _locked = lock_data(&place.data_dir)?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default().as_secs();
            let gtids = gtids.to_string().replace('\n', "");
            let carrier = Carrier::new(member_dir, path, header.end, at, gtids, now)?;
            CutNote::new(carrier.tail.clone()).store(member_dir)?;
            STEPS.iter().try_for_each(|step| carrier.perform(*step))?;
            Ok(Trimmed::Cut(carrier.tail))
        }
    }
}

/// Records that a start follows.
///
/// # Errors
/// The I/O error.
pub fn record_start(place: &BinlogPlace, member_dir: &Path) -> io::Result<()> {
    StartRecord::of(place, place.files()?.pop()).store(member_dir)
}

/// Records the encrypted file in use, before a running mysqld is asked to stop. If the record is made too late, the file is already closed,
/// and a clean close can never be recognised.
///
/// # Errors
/// The I/O error.
pub fn record_in_use(place: &BinlogPlace, member_dir: &Path) -> io::Result<()> {
    let (Some(mut record), Some(file)) = (StartRecord::load(member_dir)?, place.files()?.pop())
    else {
        return Ok(());
    };
    if let Some(flags) = encrypted_flags(&file)? {
        record.encrypted = Some(EncryptedInUse { file, flags });
        record.store(member_dir)?;
    }
    Ok(())
}

/// True if clients' schemas may have tables of another engine than InnoDB. Each such table has an `.sdi` file, whatever other files its
/// engine uses. An unreadable directory may contain one.
fn may_have_other_engines(data_dir: &Path) -> bool {
    let of_the_system = |schema: &DirEntry| {
        let name = schema.file_name();
        OF_THE_SYSTEM.iter().any(|system| name == *system)
    };
    let has_one = |schema: DirEntry| {
        let is_one = |file: io::Result<DirEntry>| {
            file.map_or(true, |file| {
                file.path().extension().is_some_and(|end| end == "sdi")
            })
        };
        let kind = schema.file_type();
        let is_schema = kind.map_or(true, |kind| kind.is_dir() || kind.is_symlink());
        is_schema
            && !of_the_system(&schema)
            && match std::fs::read_dir(schema.path()) {
                Ok(mut files) => files.any(is_one),
                Err(error) => error.kind() != io::ErrorKind::NotADirectory,
            }
    };
    std::fs::read_dir(data_dir).map_or(true, |mut entries| {
        entries.any(|entry| entry.map_or(true, has_one))
    })
}

/// Returns the server's UUID, if it can be read.
fn server_uuid(data_dir: &Path) -> Option<SourceId> {
    server_uuid_in(&std::fs::read_to_string(data_dir.join("auto.cnf")).ok()?)
}

/// Parses the server's file with its UUID, `auto.cnf`.
pub(super) fn server_uuid_in(text: &str) -> Option<SourceId> {
    let uuid = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("server-uuid"))?;
    let uuid = uuid.trim_start_matches([' ', '=']).trim();
    uuid.parse().ok().map(SourceId)
}

/// Returns the record to store after the next rotation of the binlog; `None` if the present file may already be cut.
///
/// # Errors
/// The I/O error.
pub fn record_after_rotation(
    place: &BinlogPlace,
    member_dir: &Path,
) -> io::Result<Option<StartRecord>> {
    let mut files = place.files()?;
    if is_ours(StartRecord::load(member_dir)?.as_ref(), place, &files)? {
        return Ok(None);
    }
    let last = files.pop();
    Ok(last.map(|last| StartRecord::of(place, Some(last))))
}

// The member's record of starts of mysqld. Every commit in a file waited for the ring only if the file was written after a recorded start
// and no other start followed. Earlier transactions of an existing server, and those of a server started by hand, did not wait. A server's
// first file after a start is marked as such.

const FILE: &str = "mysqld-start.json";

/// State of the binlog when this member last started mysqld.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    /// The server's binlog index.
    pub index: PathBuf,
    /// The last file that the index listed.
    pub last_file: Option<PathBuf>,
    /// The encrypted last file before mysqld was asked to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<EncryptedInUse>,
    /// True if the server's data directory had tables of another engine than InnoDB. Missing in a record of an earlier version.
    #[serde(default = "unknown")]
    pub other_engines: bool,
}

fn unknown() -> bool {
    true
}

/// An encrypted file while its server ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptedInUse {
    /// The file's path.
    pub file: PathBuf,
    /// The byte with the in-use flag.
    pub flags: u8,
}

impl EncryptedInUse {
    /// True if the server has closed the file since then: it has cleared the flag, and no other bit of that byte.
    pub(super) fn was_closed(&self, file: &Path, flags: Option<u8>) -> bool {
        let cleared = self.flags ^ (EventFlags::BINLOG_IN_USE.0 as u8);
        self.file == file && flags == Some(cleared)
    }
}

impl StartRecord {
    fn of(place: &BinlogPlace, last_file: Option<PathBuf>) -> Self {
        Self {
            index: place.index().to_owned(),
            last_file,
            encrypted: None,
            other_engines: may_have_other_engines(&place.data_dir),
        }
    }

    /// Loads the stored record.
    ///
    /// # Errors
    /// When the record exists and cannot be read.
    pub(super) fn load(member_dir: &Path) -> io::Result<Option<Self>> {
        durable_file::load(&member_dir.join(FILE))
    }

    /// Stores the record. Durable on return.
    ///
    /// # Errors
    /// The I/O error; the previous record may still exist.
    pub fn store(&self, member_dir: &Path) -> io::Result<()> {
        durable_file::store(&member_dir.join(FILE), self)
    }
}

/// True if the last file was written after the recorded start, and no other start followed.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn is_ours(
    record: Option<&StartRecord>,
    place: &BinlogPlace,
    files: &[PathBuf],
) -> io::Result<bool> {
    let Some(since) = record.and_then(|record| since(record, place, files)) else {
        return Ok(false);
    };
    let mut starts = 0;
    for file in since {
        let starting = match LastFile::open(file)?.beginning()? {
            Beginning::Header(header) => header.after_a_start,
            Beginning::Torn | Beginning::Damaged(..) => false,
            Beginning::Encrypted => return Ok(true),
        };
        starts += u32::from(starting);
    }
    Ok(starts <= 1 && !since.is_empty())
}

/// Returns the files since the recorded start; `None` if they are unknown. Pure.
fn since<'a>(
    record: &StartRecord,
    place: &BinlogPlace,
    files: &'a [PathBuf],
) -> Option<&'a [PathBuf]> {
    if record.index != place.index() {
        return None;
    }
    let Some(last) = &record.last_file else {
        return Some(files);
    };
    if let Some(at) = files.iter().position(|file| file == last) {
        return files.get(at + 1..);
    }
    // The recorded file was purged since, or the numbers began again.
    let purged = number(files.first()?)? > number(last)?;
    purged.then_some(files)
}

fn number(file: &Path) -> Option<u64> {
    file.extension()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a file of a 9.7.4 with `component_keyring_file`, before and after a clean stop.
    #[test]
    fn an_encrypted_file_is_closed_in_order_when_its_flag_has_changed() {
        let (server, member) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = BinlogPlace::of_options(["--log-bin=b"], server.path(), "h").unwrap();
        let file = server.path().join("b.000002");
        let write = |flags: u8, length: usize| {
            let mut bytes = vec![0x55; length];
            bytes[..4].copy_from_slice(&[0xfd, b'b', b'i', b'n']);
            bytes[533] = flags;
            std::fs::write(&file, bytes).unwrap();
        };
        let closed = || {
            matches!(
                survey(&place, member.path()).unwrap(),
                Some(Trimmed::Kept(Keep::ClosedInOrder))
            )
        };
        std::fs::write(place.index(), "").unwrap();
        record_start(&place, member.path()).unwrap();
        std::fs::write(place.index(), "./b.000002\n").unwrap();
        write(0x3b, 710);
        assert!(!closed(), "it crashed before anybody asked it to stop");
        record_in_use(&place, member.path()).unwrap();
        assert!(!closed(), "it crashed while it was asked to stop");
        write(0x3a, 733);
        assert!(closed());
        // Any other change of the byte does not prove a clean stop.
        write(0x39, 733);
        assert!(!closed());
        write(0x3a, 733);
        record_start(&place, member.path()).unwrap();
        std::fs::write(place.index(), "./b.000002\n./b.000003\n").unwrap();
        std::fs::rename(&file, server.path().join("b.000003")).unwrap();
        assert!(!closed(), "another start has written another file");
    }
}

#[cfg(test)]
mod history_tests {
    use std::fs;

    use super::*;

    fn files(numbers: &[u32]) -> Vec<PathBuf> {
        let name = |number| PathBuf::from(format!("/d/binlog.{number:06}"));
        numbers.iter().copied().map(name).collect()
    }

    #[test]
    fn files_behind_the_start_on_record() {
        let place = BinlogPlace::of_options([], Path::new("/d"), "h").unwrap();
        type Numbers = &'static [u32];
        let table: [(Option<u32>, Numbers, Option<Numbers>); 6] = [
            (None, &[1, 2], Some(&[1, 2])),
            (Some(2), &[1, 2, 3, 4], Some(&[3, 4])),
            (Some(2), &[1, 2], Some(&[])),
            // The recorded file was purged.
            (Some(2), &[4, 5], Some(&[4, 5])),
            // The files were renumbered.
            (Some(7), &[1, 2], None),
            (Some(7), &[], None),
        ];
        for (last, listed, expected) in table {
            let record = StartRecord {
                index: place.index().to_owned(),
                last_file: last.map(|number| files(&[number]).remove(0)),
                encrypted: None,
                other_engines: false,
            };
            let listed = files(listed);
            let found = since(&record, &place, &listed).map(<[PathBuf]>::to_vec);
            assert_eq!(found, expected.map(files), "{last:?} {listed:?}");
            let elsewhere = BinlogPlace::of_options(["--log-bin=o"], Path::new("/d"), "h").unwrap();
            assert_eq!(since(&record, &elsewhere, &listed), None);
        }
        // Another basename under the same index: its first file has the recorded number, and does not follow the recorded file.
        let record = StartRecord {
            index: place.index().to_owned(),
            last_file: Some("/d/other.000001".into()),
            encrypted: None,
            other_engines: false,
        };
        assert_eq!(since(&record, &place, &files(&[1, 2])), None);
    }

    #[test]
    fn the_last_file_is_ours_if_no_other_start_came_behind_the_one_on_record() {
        let home = tempfile::tempdir().unwrap();
        let place = BinlogPlace::of_options([], home.path(), "h").unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../binlog-format/testdata");
        let content = |name: &str| match name {
            "torn" => Vec::new(),
            "encrypted" => vec![0xfd, b'b', b'i', b'n'],
            name => fs::read(golden.join(name).with_extension("binlog")).unwrap(),
        };
        let record = StartRecord {
            index: place.index().to_owned(),
            last_file: None,
            encrypted: None,
            other_engines: false,
        };
        // `first_file` is the first after a start, `rows` one after a rotation.
        let table: [(&[&str], bool); 7] = [
            (&[], false),
            (&["first_file"], true),
            (&["first_file", "rows", "rows"], true),
            (&["first_file", "rows", "first_file"], false),
            (&["rows"], true),
            (&["first_file", "torn"], true),
            // A file with an unreadable header is checked by its flags.
            (&["encrypted"], true),
        ];
        for (names, expected) in table {
            let write = |(at, name): (usize, &&str)| {
                let file = home.path().join(format!("binlog.{at:06}"));
                fs::write(&file, content(name)).unwrap();
                file
            };
            let files: Vec<PathBuf> = names.iter().enumerate().map(write).collect();
            let ours = |record| is_ours(record, &place, &files).unwrap();
            assert_eq!(ours(Some(&record)), expected, "{names:?}");
            assert!(!ours(None), "an unrecorded start is not ours");
        }
    }

    #[test]
    fn an_encrypted_file_was_closed_when_its_flag_alone_is_another() {
        let file = Path::new("/d/binlog.000003");
        let before = EncryptedInUse {
            file: file.to_owned(),
            flags: 0x3b,
        };
        assert!(before.was_closed(file, Some(0x3a)));
        for flags in [Some(0x3b), Some(0x38), None] {
            assert!(!before.was_closed(file, flags), "{flags:?}");
        }
        assert!(!before.was_closed(Path::new("/d/binlog.000004"), Some(0x3a)));
    }

    #[test]
    fn a_record_is_found_again() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(StartRecord::load(home.path()).unwrap(), None);
        let record = StartRecord {
            index: "/d/binlog.index".into(),
            last_file: Some("/d/binlog.000002".into()),
            encrypted: Some(EncryptedInUse {
                file: "/d/binlog.000003".into(),
                flags: 0x3b,
            }),
            other_engines: false,
        };
        record.store(home.path()).unwrap();
        assert_eq!(StartRecord::load(home.path()).unwrap(), Some(record));
        fs::write(home.path().join(FILE), "{").unwrap();
        assert!(StartRecord::load(home.path()).is_err());
        // An unreadable file differs from a missing one.
        fs::remove_file(home.path().join(FILE)).unwrap();
        fs::create_dir(home.path().join(FILE)).unwrap();
        assert!(StartRecord::load(home.path()).is_err());
    }
}
