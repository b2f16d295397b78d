//! Cuts a crashed primary's binlog as `plan` decides, in steps that may be interrupted. The server's file is unchanged until the last step,
//! and a repetition produces the same files with the same names.
//!
//! ```text
//! copy the tail ─► name it ─► write its document ─► name that ─► sync the directory ─► cut ─► sync
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use binlog_format::MAGIC;
use binlog_format::event::{EventFlags, HEADER_LEN};
use binlog_format::gtid::GtidSet;
use rustix::fs::{FlockOperation, fcntl_lock};
use serde::{Deserialize, Serialize};

use crate::binlog_place::BinlogPlace;
use crate::durable_file::{self, about};
use crate::tail_trim::last_file::{Beginning, LastFile};
use crate::tail_trim::plan::FileOffset;

/// The steps of a cut, in the order in which they become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Copies the cut-off bytes, after their file's header, to a temporary file. Durable.
    CopyTail,
    NameTail,
    /// Writes the document to a temporary file. Durable.
    WriteDocument,
    NameDocument,
    SyncDirectory,
    /// Truncates the server's file at the cut. Durable.
    Cut,
}

/// All steps in their order.
pub(super) const STEPS: [Step; 6] = [
    Step::CopyTail,
    Step::NameTail,
    Step::WriteDocument,
    Step::NameDocument,
    Step::SyncDirectory,
    Step::Cut,
];

pub(super) struct Carrier {
    directory: PathBuf,
    header_end: FileOffset,
    pub(super) tail: TrimmedTail,
}

impl Carrier {
    /// Prepares a cut of `from` at `at`. Reads the tail, because its checksum is part of its name: so different tails get different names.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn new(
        member_dir: &Path,
        from: &Path,
        header_end: FileOffset,
        at: FileOffset,
        gtids: String,
        now: u64,
    ) -> io::Result<Self> {
        let mut file = File::open(from)?;
        file.seek(SeekFrom::Start(at.0))?;
        let (bytes, checksum) = checksum(file)?;
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            directory: TrimmedTail::directory(member_dir),
            header_end,
            tail: TrimmedTail {
                reason: "the ring had not committed it when mysqld was started again".to_owned(),
                at: now,
                from: from.to_owned(),
                offset: at,
                bytes,
                gtids,
                kept_as: format!("{name}.from-{at}.{checksum:08x}"),
            },
        })
    }

    /// Performs one step, after all earlier ones.
    ///
    /// # Errors
    /// The I/O error.
    pub(super) fn perform(&self, step: Step) -> io::Result<()> {
        let tail = self.directory.join(&self.tail.kept_as);
        let document = self.directory.join(self.tail.document());
        match step {
            Step::CopyTail => self.copy(&temporary(&tail)),
            Step::NameTail => fs::rename(temporary(&tail), tail),
            Step::WriteDocument => {
                let mut file = new_file(&temporary(&document))?;
                file.write_all(&serde_json::to_vec_pretty(&self.tail)?)?;
                file.sync_all()
            }
            Step::NameDocument => fs::rename(temporary(&document), document),
            Step::SyncDirectory => {
                // Every directory of the path may be new, so each is synced.
                for directory in self.directory.ancestors().take(3) {
                    File::open(directory)?.sync_all()?;
                }
                Ok(())
            }
            Step::Cut => {
                let file = OpenOptions::new().write(true).open(&self.tail.from)?;
                file.set_len(self.tail.offset.0)?;
                file.sync_all()
            }
        }
    }

    fn copy(&self, to: &Path) -> io::Result<()> {
        let mut directory = DirBuilder::new();
        directory
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let mut from = File::open(&self.tail.from)?;
        let mut out = new_file(to)?;
        let mut description = [0; MAGIC.len() + HEADER_LEN];
        from.read_exact(&mut description)?;
        // No server writes to the kept file, so the in-use flag is cleared. The checksum does not cover that flag.
        let flags = description.len() - 2;
        description[flags] &= !(EventFlags::BINLOG_IN_USE.0 as u8);
        out.write_all(&description)?;
        let rest = self.header_end.0.saturating_sub(description.len() as u64);
        copy_exactly(&mut from, &mut out, rest)?;
        from.seek(SeekFrom::Start(self.tail.offset.0))?;
        copy_exactly(&mut from, &mut out, self.tail.bytes)?;
        out.sync_all()
    }
}

fn copy_exactly(from: &mut File, to: &mut File, bytes: u64) -> io::Result<()> {
    if io::copy(&mut from.take(bytes), to)? == bytes {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Creates a file that only the member's account can read, because it will contain rows.
fn new_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

fn temporary(path: &Path) -> PathBuf {
    path.with_added_extension("new")
}

/// Returns the length and the CRC32 of the rest of a file.
fn checksum(mut file: File) -> io::Result<(u64, u32)> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// Takes InnoDB's lock against a second server on the data. The lock ends when this process closes any of its handles to the file. `None`
/// if InnoDB's data are elsewhere.
///
/// # Errors
/// When a mysqld runs on the data, or the file cannot be opened for writing.
pub fn lock_data(data_dir: &Path) -> io::Result<Option<File>> {
    let path = data_dir.join("ibdata1");
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(error) => Err(io::Error::other(format!(
            "{} is locked ({error}): a mysqld runs on it",
            path.display()
        ))),
    }
}

// Binlog files with transactions that the ring lacks. They are found by their headers alone. Before the server's data are replaced, whole
// copies are kept next to the cut-off tails.

const REASON: &str = "the ring had not committed it when the data of mysqld were replaced";

/// A file with errant transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrantFile {
    path: PathBuf,
    /// Offset of the file's first transaction.
    at: FileOffset,
    /// The errant transactions in the file.
    pub gtids: GtidSet,
}

/// The locations of a server's errant transactions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrantFiles {
    /// The files that contain errant transactions.
    pub files: Vec<ErrantFile>,
    /// Errant transactions that are in no file. They were purged with their file, never written to one, or set by `SET GTID_PURGED`. Their
    /// changes are only in the server's tables.
    pub in_no_file: GtidSet,
}

impl ErrantFiles {
    /// All errant transactions of a server without a binlog are in no file.
    pub fn without_a_binlog(errant: &GtidSet) -> Self {
        Self {
            files: Vec::new(),
            in_no_file: errant.clone(),
        }
    }
}

/// Returns the server's files that contain transactions of `errant`, and the part of `errant` that is in no file. `executed` is the set of
/// all transactions of the server.
///
/// # Errors
/// When a file cannot be read, or is encrypted or damaged.
pub fn errant_files(
    place: &BinlogPlace,
    executed: &GtidSet,
    errant: &GtidSet,
) -> io::Result<ErrantFiles> {
    let mut headers = Vec::new();
    for path in place.files()? {
        let header = LastFile::open(&path).and_then(|mut file| match file.beginning()? {
            Beginning::Header(header) => Ok(Some(header)),
            // A torn file contains no transaction.
            Beginning::Torn => Ok(None),
            Beginning::Encrypted => Err(io::Error::other("it is encrypted")),
            Beginning::Damaged(at, reason) => {
                let damaged = format!("it is damaged at {at}: {reason}");
                Err(io::Error::other(damaged))
            }
        });
        let header = header.map_err(about(&path))?;
        headers.extend(header.map(|header| (path, header)));
    }
    let before = headers.iter().map(|(_, header)| header.previous.clone());
    let may_hold = may_hold(before.collect(), executed);
    let mut in_no_file = errant.clone();
    let mut files = Vec::new();
    for ((path, header), may_hold) in headers.into_iter().zip(may_hold) {
        if may_hold.intersection(errant).is_empty() {
            continue;
        }
        let read = LastFile::open(&path).and_then(|mut file| {
            file.beginning()?;
            file.gtids(&header)
        });
        let gtids = read.map_err(about(&path))?.intersection(errant);
        in_no_file = in_no_file.difference(&gtids);
        if !gtids.is_empty() {
            let at = header.end;
            files.push(ErrantFile { path, at, gtids });
        }
    }
    Ok(ErrantFiles { files, in_no_file })
}

/// Returns an upper limit for the transactions in each file, from the previous GTIDs of all files. Pure. It includes transactions that were
/// executed without the binlog while the file was the last one; only the file's events show its actual content.
fn may_hold(previous: Vec<GtidSet>, executed: &GtidSet) -> Vec<GtidSet> {
    let next = previous.iter().skip(1).chain([executed]);
    let held = previous.iter().zip(next);
    held.map(|(before, after)| after.difference(before))
        .collect()
}

impl ErrantFile {
    /// Stores a copy of the file. Durable on return. Idempotent.
    ///
    /// # Errors
    /// The I/O error.
    pub fn keep(&self, member_dir: &Path) -> io::Result<TrimmedTail> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let gtids = self.gtids.to_string().replace('\n', "");
        let mut carrier = Carrier::new(member_dir, &self.path, self.at, self.at, gtids, now)?;
        carrier.tail.reason = REASON.to_owned();
        // The server's file is not cut.
        let mut steps = STEPS.iter().filter(|step| **step != Step::Cut);
        steps.try_for_each(|step| carrier.perform(*step))?;
        Ok(carrier.tail)
    }
}

// A kept tail of a server's binlog: a file that `mysqlbinlog` can read, and a document that describes it. Only an operator removes them.

/// The document of a kept tail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimmedTail {
    /// Why the tail was cut off.
    pub reason: String,
    /// When the tail was cut off, in seconds since the epoch.
    pub at: u64,
    /// The server's file that contained the tail.
    pub from: PathBuf,
    /// The offset of the tail in that file.
    pub offset: FileOffset,
    /// The size of the tail in bytes.
    pub bytes: u64,
    /// The transactions in the tail, in MySQL's text form. The ring had not committed them.
    pub gtids: String,
    /// The name of the kept file, in the directory of this document. The file starts with the header of the original file.
    pub kept_as: String,
}

const SUFFIX: &str = ".json";

impl TrimmedTail {
    /// The directory of the tails that were cut off from a member's mysqld.
    pub fn directory(member_dir: &Path) -> PathBuf {
        member_dir.join("trimmed").join("mysqld")
    }

    /// The number of transactions in the tail.
    pub fn transactions(&self) -> u64 {
        let gtids = self.gtids.parse::<GtidSet>();
        u64::try_from(gtids.map_or(0, |gtids| gtids.count())).unwrap_or(u64::MAX)
    }

    /// The name of the tail's document.
    pub(super) fn document(&self) -> String {
        format!("{}{SUFFIX}", self.kept_as)
    }

    /// Lists the kept tails below a member's data directory, the oldest first.
    ///
    /// # Errors
    /// I/O errors, and unreadable documents.
    pub fn list(member_dir: &Path) -> io::Result<Vec<Self>> {
        let directory = Self::directory(member_dir);
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut tails = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "json") {
                tails.extend(durable_file::load::<Self>(&path).map_err(about(&path))?);
            }
        }
        tails.sort_by(|one: &Self, other| (one.at, &one.kept_as).cmp(&(other.at, &other.kept_as)));
        Ok(tails)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FileOffset = FileOffset(40);
    const AT: FileOffset = FileOffset(300);

    /// Returns the content of a server's file that is in use.
    fn file() -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..1000).map(|at| (at % 251) as u8).collect();
        bytes[MAGIC.len() + HEADER_LEN - 2] |= 1;
        bytes
    }

    fn carrier(home: &Path, now: u64) -> Carrier {
        let from = home.join("binlog.000007");
        Carrier::new(home, &from, HEADER, AT, "u:1".to_owned(), now).unwrap()
    }

    fn is_done(home: &Path) {
        assert_eq!(fs::read(home.join("binlog.000007")).unwrap(), file()[..300]);
        let tails = TrimmedTail::list(home).unwrap();
        let [tail] = &tails[..] else {
            panic!("{tails:?}");
        };
        assert_eq!((tail.offset, tail.bytes), (AT, 700));
        let mut expected = file()[..40].to_vec();
        expected[MAGIC.len() + HEADER_LEN - 2] &= 0xfe;
        expected.extend_from_slice(&file()[300..]);
        let kept = TrimmedTail::directory(home).join(&tail.kept_as);
        assert_eq!(fs::read(kept).unwrap(), expected);
    }

    #[test]
    fn a_kept_tail_is_readable_by_its_account_alone() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("binlog.000007"), file()).unwrap();
        let carrier = carrier(home.path(), 1);
        STEPS
            .iter()
            .for_each(|step| carrier.perform(*step).unwrap());
        let directory = TrimmedTail::directory(home.path());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700);
        for name in [carrier.tail.document(), carrier.tail.kept_as.clone()] {
            assert_eq!(mode(&directory.join(&name)), 0o600, "{name}");
        }
    }

    #[test]
    fn a_crash_after_any_step_is_made_good_by_doing_all_again() {
        for broken in 0..=STEPS.len() {
            for torn in [false, true] {
                let home = tempfile::tempdir().unwrap();
                let home = home.path();
                fs::write(home.join("binlog.000007"), file()).unwrap();
                let first = carrier(home, 1);
                let (done, next) = STEPS.split_at(broken);
                done.iter().for_each(|step| first.perform(*step).unwrap());
                // The file of the next step exists in part.
                let document = TrimmedTail::directory(home).join(first.tail.document());
                let tail = TrimmedTail::directory(home).join(&first.tail.kept_as);
                match next.first() {
                    Some(Step::CopyTail) if torn => {
                        fs::create_dir_all(TrimmedTail::directory(home)).unwrap();
                        fs::write(temporary(&tail), b"half").unwrap();
                    }
                    Some(Step::WriteDocument) if torn => {
                        fs::write(temporary(&document), b"{").unwrap();
                    }
                    _ => {}
                }
                // The cut is the last step, so no later step can be interrupted.
                if broken < STEPS.len() {
                    assert_eq!(fs::read(home.join("binlog.000007")).unwrap(), file());
                    let again = carrier(home, 2);
                    STEPS.iter().for_each(|step| again.perform(*step).unwrap());
                }
                is_done(home);
            }
        }
    }

    #[test]
    fn another_tail_of_the_same_place_has_a_name_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let from = home.path().join("binlog.000007");
        for last in [1, 2] {
            let mut bytes = file();
            bytes[999] = last;
            fs::write(&from, bytes).unwrap();
            let carrier = carrier(home.path(), u64::from(last));
            STEPS
                .iter()
                .for_each(|step| carrier.perform(*step).unwrap());
        }
        let tails = TrimmedTail::list(home.path()).unwrap();
        assert_eq!(tails.len(), 2);
        assert_ne!(tails[0].kept_as, tails[1].kept_as);
    }
}

#[cfg(test)]
mod errant_files_tests {
    use binlog_format::canonical::stamp_payload;
    use binlog_format::events::{EncodeEvent, EventOrigin, FormatDescription, PreviousGtids};

    use super::*;

    fn set(text: &str) -> GtidSet {
        format!("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:{text}")
            .parse()
            .unwrap()
    }

    #[test]
    fn what_a_file_may_hold_stands_between_two_headers() {
        let previous = vec![GtidSet::default(), set("1-5"), set("1-5"), set("1-9")];
        let held = may_hold(previous, &set("1-12"));
        assert_eq!(
            held,
            [set("1-5"), GtidSet::default(), set("6-9"), set("10-12")]
        );
    }

    /// A server with one empty file whose header lists `previous` as the earlier transactions.
    fn an_empty_file_behind(previous: &GtidSet) -> (tempfile::TempDir, BinlogPlace) {
        let server = tempfile::tempdir().unwrap();
        let before = PreviousGtids {
            gtids: previous.clone(),
        };
        let events = [
            FormatDescription::built_in_event(),
            before.encode(EventOrigin::default()),
        ];
        let mut bytes = MAGIC.to_vec();
        stamp_payload(&events.concat(), bytes.len() as u64, &mut bytes).unwrap();
        fs::write(server.path().join("b.000002"), bytes).unwrap();
        fs::write(server.path().join("b.index"), "./b.000002\n").unwrap();
        let place = BinlogPlace::of_options(["--log-bin=b"], server.path(), "h").unwrap();
        (server, place)
    }

    #[test]
    fn what_was_purged_with_its_file_is_in_none() {
        let errant = set("6-8");
        let (_server, place) = an_empty_file_behind(&set("1-8"));
        let found = errant_files(&place, &set("1-8"), &errant).unwrap();
        assert_eq!(found, ErrantFiles::without_a_binlog(&errant));
    }

    /// The previous GTIDs of a later file do not contain these transactions either.
    #[test]
    fn what_a_dump_has_named_as_purged_is_in_no_file() {
        let dump: GtidSet = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb:1-5000"
            .parse()
            .unwrap();
        let executed = set("1-8").union(&dump);
        let (_server, place) = an_empty_file_behind(&set("1-8"));
        let found = errant_files(&place, &executed, &dump).unwrap();
        assert_eq!(found, ErrantFiles::without_a_binlog(&dump));
    }
}
