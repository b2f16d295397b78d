//! Binlog files that hold transactions which the ring has not: found by their headers alone, and kept whole beside the tails
//! that were cut off, before their server's data are replaced.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use binlog_format::gtid::GtidSet;

use super::carrier::{Carrier, STEPS, Step};
use super::kept_tail::TrimmedTail;
use super::last_file::{Beginning, LastFile};
use super::plan::FileOffset;
use crate::binlog_place::BinlogPlace;

const REASON: &str = "the ring had not committed it when the data of mysqld were replaced";

/// A file with errant transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrantFile {
    /// The file.
    path: PathBuf,
    /// Where its first transaction begins.
    at: FileOffset,
    /// Its errant transactions.
    pub gtids: GtidSet,
}

/// The files of a server that has begun a new one, as far as they hold something of `errant`. `executed` is all that the
/// server has.
///
/// # Errors
/// When a file cannot be read, is encrypted or damaged.
pub fn errant_files(
    place: &BinlogPlace,
    executed: &GtidSet,
    errant: &GtidSet,
) -> io::Result<Vec<ErrantFile>> {
    let mut headers = Vec::new();
    for path in place.files()? {
        let told = |what: &str| io::Error::other(format!("{}: {what}", path.display()));
        let beginning = LastFile::open(&path).and_then(|mut file| file.beginning());
        match beginning
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?
        {
            Beginning::Header(header) => headers.push((path, header.end, header.previous)),
            // There is no transaction in it.
            Beginning::Torn => {}
            Beginning::Encrypted => return Err(told("it is encrypted")),
            Beginning::Damaged(at, reason) => {
                return Err(told(&format!("it is damaged at {at}: {reason}")));
            }
        }
    }
    let before = headers.iter().map(|(_, _, previous)| previous.clone());
    let held = held(before.collect(), executed);
    let files = headers
        .into_iter()
        .zip(held)
        .map(|((path, at, _), held)| ErrantFile {
            path,
            at,
            gtids: held.intersection(errant),
        });
    Ok(files.filter(|file| !file.gtids.is_empty()).collect())
}

/// What each file holds, by what stands before each, pure.
fn held(previous: Vec<GtidSet>, executed: &GtidSet) -> Vec<GtidSet> {
    let next = previous.iter().skip(1).chain([executed]);
    let held = previous.iter().zip(next);
    held.map(|(before, after)| after.difference(before))
        .collect()
}

impl ErrantFile {
    /// Keeps a copy, durably on return. Doing it again changes nothing.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn keep(&self, member_dir: &Path) -> io::Result<TrimmedTail> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let gtids = self.gtids.to_string().replace('\n', "");
        let mut carrier = Carrier::new(member_dir, &self.path, self.at, self.at, gtids, now)?;
        carrier.tail.reason = REASON.to_owned();
        // The server's file stays as it is.
        let steps = STEPS.iter().filter(|step| **step != Step::Cut);
        for step in steps {
            carrier.perform(*step)?;
        }
        Ok(carrier.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> GtidSet {
        format!("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:{text}")
            .parse()
            .unwrap()
    }

    #[test]
    fn what_a_file_holds_stands_between_two_headers() {
        let previous = vec![GtidSet::default(), set("1-5"), set("1-5"), set("1-9")];
        let held = held(previous, &set("1-12"));
        assert_eq!(
            held,
            [set("1-5"), GtidSet::default(), set("6-9"), set("10-12")]
        );
    }
}
