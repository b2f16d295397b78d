//! Starts of mysqld recorded by this member. Only in a file written after such a start,
//! and after no other, did every commit wait for the ring: earlier transactions of an existing server,
//! and those of one started by hand, did not. A server's first file after a start is marked
//! as such.

use std::io;
use std::path::{Path, PathBuf};

use binlog_format::event::EventFlags;
use serde::{Deserialize, Serialize};

use super::last_file::{Beginning, LastFile};
use crate::binlog_place::BinlogPlace;
use crate::durable_file;

const FILE: &str = "mysqld-start.json";

/// State of the binlog when this member last started mysqld.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    /// The server's binlog index.
    pub index: PathBuf,
    /// The last file that it listed.
    pub last_file: Option<PathBuf>,
    /// Its encrypted last file before it was asked to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<EncryptedInUse>,
    /// Whether its data directory had tables of another engine than InnoDB; missing in a record of an earlier version.
    #[serde(default = "unknown")]
    pub other_engines: bool,
}

fn unknown() -> bool {
    true
}

/// An encrypted file while its server ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptedInUse {
    /// Its path.
    pub file: PathBuf,
    /// The byte that has the in-use flag.
    pub flags: u8,
}

impl EncryptedInUse {
    /// Whether the server has closed the file since: then it has cleared the flag, and no other bit of that byte.
    pub(super) fn was_closed(&self, file: &Path, flags: Option<u8>) -> bool {
        let cleared = self.flags ^ (EventFlags::BINLOG_IN_USE.0 as u8);
        self.file == file && flags == Some(cleared)
    }
}

impl StartRecord {
    /// Loads the stored record.
    ///
    /// # Errors
    /// When it exists and cannot be read.
    pub(super) fn load(member_dir: &Path) -> io::Result<Option<Self>> {
        durable_file::load(&member_dir.join(FILE))
    }

    /// Stores it, durably on return.
    ///
    /// # Errors
    /// What the disk reports; the previous record may still be there.
    pub fn store(&self, member_dir: &Path) -> io::Result<()> {
        durable_file::store(&member_dir.join(FILE), self)
    }
}

/// Whether the last of the files was written after the recorded start, and no other start followed.
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

/// The files since the recorded start, pure; `None` where that is unknown.
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
    // It was purged since; or the numbers began again.
    let purged = number(files.first()?)? > number(last)?;
    purged.then_some(files)
}

fn number(file: &Path) -> Option<u64> {
    file.extension()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
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
            // Purged.
            (Some(2), &[4, 5], Some(&[4, 5])),
            // Renumbered.
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
        // Another basename under the same index: its first file has the recorded number, and does not follow that file.
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
            // An unreadable file is judged by its flags.
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
            assert!(!ours(None), "a start that nobody wrote down is not ours");
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
