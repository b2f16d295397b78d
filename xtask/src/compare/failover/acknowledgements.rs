//! What the writers have acknowledged: the lines that they write, read as they come, and the gaps between them.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use testkit::statistics::longest_gap;

/// A moment by the machine's clock, which all processes share, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub(super) u64);

impl Moment {
    pub(super) fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    /// Milliseconds from `earlier` to this; 0 when it is not earlier.
    pub(super) fn ms_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e3
    }

    pub(super) fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms * 1000))
    }
}

/// One acknowledged commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Acknowledged {
    pub(super) at: Moment,
    /// The index of the member whose writer was answered.
    pub(super) by: usize,
}

/// The accounts of all writers.
pub(super) struct Accounts {
    files: Vec<Account>,
    seen: Vec<Acknowledged>,
}

struct Account {
    member: usize,
    path: PathBuf,
    read: u64,
}

impl Accounts {
    /// Accounts by member.
    pub(super) fn new(paths: impl IntoIterator<Item = (usize, PathBuf)>) -> Self {
        let files = paths.into_iter().map(|(member, path)| Account {
            member,
            path,
            read: 0,
        });
        Self {
            files: files.collect(),
            seen: Vec::new(),
        }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().map(|account| &account.path)
    }

    /// Reads what is new; answers with everything since the last [`Self::forget`].
    pub(super) fn look(&mut self) -> Result<&[Acknowledged]> {
        for account in &mut self.files {
            let text = account.new_lines()?;
            for line in text.lines() {
                let at = line.split(' ').next().and_then(|first| first.parse().ok());
                let at = at.with_context(|| format!("not a line of an account: {line}"))?;
                self.seen.push(Acknowledged {
                    at: Moment(at),
                    by: account.member,
                });
            }
        }
        Ok(&self.seen)
    }

    /// Forgets what is before `moment`.
    pub(super) fn forget(&mut self, moment: Moment) {
        self.seen.retain(|acknowledged| acknowledged.at >= moment);
    }
}

impl Account {
    fn new_lines(&mut self) -> Result<String> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(error.into()),
        };
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // What has no end yet is read again.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        self.read += text.len() as u64;
        Ok(text)
    }
}

/// The longest time without an acknowledged commit that ends after `from`, in milliseconds.
pub(super) fn longest_gap_ms(acknowledged: &[Acknowledged], from: Moment) -> Option<f64> {
    let micros = acknowledged.iter().map(|one| one.at.0);
    let last_before = micros.clone().filter(|at| *at <= from.0).max();
    let after = micros.filter(|at| *at > from.0);
    Some(longest_gap(after.chain(last_before))? as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_between_any_two_writers_and_ends_after_the_beginning() {
        let at = |ms: u64, by| Acknowledged {
            at: Moment(ms * 1000),
            by,
        };
        // The writer of member 3 was answered late, out of the order in which the files are read.
        let seen = [
            at(0, 0),
            at(90, 0),
            at(100, 0),
            at(105, 0),
            at(150, 3),
            at(155, 3),
            at(110, 0),
        ];
        assert_eq!(longest_gap_ms(&seen, Moment(95_000)), Some(40.0));
        assert_eq!(longest_gap_ms(&seen, Moment(80_000)), Some(90.0));
        assert_eq!(longest_gap_ms(&seen[..1], Moment(0)), None);
    }

    #[test]
    fn lines_are_read_once_and_only_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("account");
        let mut accounts = Accounts::new([(4, path.clone())]);
        assert!(accounts.look().unwrap().is_empty());
        std::fs::write(&path, "5 1.1 a:1\n7 1.2 a:2\n9 1.").unwrap();
        assert_eq!(accounts.look().unwrap().len(), 2);
        std::fs::write(&path, "5 1.1 a:1\n7 1.2 a:2\n9 1.3 a:3\n").unwrap();
        let last = Acknowledged {
            at: Moment(9),
            by: 4,
        };
        assert_eq!(accounts.look().unwrap().last(), Some(&last));
        accounts.forget(Moment(7));
        assert_eq!(accounts.look().unwrap().len(), 2);
    }
}
