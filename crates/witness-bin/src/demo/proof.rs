//! The proof at the end of a demonstration, from the members' files alone.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use binlog_format::gtid::GtidSet;
use binlog_store::{DirectoryError, LogDirectory};
use member::status::MemberView;
use raft_types::OpId;

use crate::demo::story::Story;
use crate::terminal::Failure;

/// What a member's log holds.
struct Logged {
    gtids: GtidSet,
    /// Transactions that stand there more than once.
    doubled: u64,
}

/// The index of the last entry in a member's log; none when it has none that can be read.
pub(crate) fn last_index(data_dir: &Path) -> Option<u64> {
    let files = LogDirectory::on_disk(data_dir).ok()?.files().ok()?;
    files
        .iter()
        .rev()
        .find_map(|file| file.last)
        .map(|last| last.index)
}

/// Looks for every acknowledged transaction in every member's log, and compares the logs.
///
/// # Errors
/// When a log cannot be read.
pub(crate) fn prove(
    story: &mut Story,
    acknowledged: &GtidSet,
    data_dirs: &[PathBuf],
) -> Result<(), Failure> {
    for data_dir in data_dirs {
        let logged = logged(data_dir).map_err(|error| Failure::error(error.to_string()))?;
        let lost = acknowledged.difference(&logged.gtids).count();
        story.lost_total += u64::try_from(lost).unwrap_or(u64::MAX);
        story.doubled_total += logged.doubled;
    }
    let comparison = compare_logs(data_dirs)?;
    story.compared_bytes = comparison.bytes;
    story.difference = comparison.difference;
    story.conclude();
    Ok(())
}

fn logged(data_dir: &Path) -> Result<Logged, DirectoryError> {
    let mut logged = Logged {
        gtids: GtidSet::new(),
        doubled: 0,
    };
    for record in LogDirectory::on_disk(data_dir)?.entries()? {
        if let Some(gtid) = record?.gtid
            && !logged.gtids.add(gtid)
        {
            logged.doubled += 1;
        }
    }
    Ok(logged)
}

// Compares the log files of members byte by byte, in pieces, so that large logs take no memory.

/// What comparing members' logs found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Bytes of the first member's files.
    pub(crate) bytes: u64,
    /// The first difference, in words.
    pub(crate) difference: Option<String>,
}

/// Compares every member's `log/` directory with the first one's.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn compare_logs(data_dirs: &[PathBuf]) -> io::Result<Comparison> {
    let mut result = Comparison::default();
    let Some((first, others)) = data_dirs.split_first() else {
        return Ok(result);
    };
    let first = first.join("log");
    let names = files(&first)?;
    for name in &names {
        result.bytes += std::fs::metadata(first.join(name))?.len();
    }
    for other in others {
        let other = other.join("log");
        let all: BTreeSet<_> = names.union(&files(&other)?).cloned().collect();
        for name in all {
            let found = difference(&first.join(&name), &other.join(&name))?;
            if found.is_some() {
                result.difference = found;
                return Ok(result);
            }
        }
    }
    Ok(result)
}

/// The names of the binlog files and their index.
fn files(log_dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(log_dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("binlog.") {
            names.insert(name);
        }
    }
    Ok(names)
}

fn difference(left: &Path, right: &Path) -> io::Result<Option<String>> {
    let open = |path: &Path| match File::open(path) {
        Ok(file) => Ok(Some(BufReader::with_capacity(1 << 16, file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let (mut one, mut other) = match (open(left)?, open(right)?) {
        (Some(one), Some(other)) => (one, other),
        (None, _) => return Ok(Some(format!("{} does not exist", left.display()))),
        (_, None) => return Ok(Some(format!("{} does not exist", right.display()))),
    };
    let mut offset = 0_u64;
    let (mut ours, mut theirs) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let (read, also_read) = (fill(&mut one, &mut ours)?, fill(&mut other, &mut theirs)?);
        let common = read.min(also_read);
        let differs = ours[..common]
            .iter()
            .zip(&theirs[..common])
            .position(|(a, b)| a != b);
        let place = differs.or((read != also_read).then_some(common));
        if let Some(place) = place {
            let offset = offset + place as u64;
            return Ok(Some(format!(
                "{} and {} at offset {offset}",
                left.display(),
                right.display()
            )));
        }
        if read < ours.len() {
            return Ok(None);
        }
        offset += read as u64;
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

// What the members' views say of each other: who has caught up, whether all logs end alike. Pure.

/// A member under load is always some entries behind what the leader has committed by now.
const NEARLY: u64 = 100;

/// Whether a member follows this leader and has nearly all that it committed.
pub(crate) fn has_caught_up(own: &MemberView, leader: &MemberView) -> bool {
    let index = |end: Option<OpId>| end.map_or(0, |end| end.index);
    own.leader == Some(leader.member.id)
        && own.log_end.is_some()
        && index(own.log_end) + NEARLY >= index(leader.committed)
}

/// Whether every member is up and all logs end at the same entry, committed everywhere.
pub(crate) fn all_equal<'a>(views: impl Iterator<Item = Option<&'a MemberView>>) -> bool {
    let Some(views) = views.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let Some(first) = views.first() else {
        return false;
    };
    first.log_end.is_some()
        && views.iter().all(|view| {
            view.log_end == first.log_end
                && view.committed == first.log_end
                && (&view.log.file, view.log.file_bytes) == (&first.log.file, first.log.file_bytes)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("log")).unwrap();
        for (name, bytes) in files {
            std::fs::write(directory.path().join("log").join(name), bytes).unwrap();
        }
        directory
    }

    fn compared(members: &[&tempfile::TempDir]) -> Comparison {
        let paths: Vec<_> = members
            .iter()
            .map(|member| member.path().to_owned())
            .collect();
        compare_logs(&paths).unwrap()
    }

    #[test]
    fn a_difference_of_one_byte_is_found_wherever_it_is() {
        let long = vec![7_u8; 200_000];
        let mut changed = long.clone();
        changed[150_000] = 8;
        let one = member(&[("binlog.000001", &long), ("binlog.index", b"x")]);
        let same = member(&[("binlog.000001", &long), ("binlog.index", b"x")]);
        let other = member(&[("binlog.000001", &changed), ("binlog.index", b"x")]);
        let shorter = member(&[("binlog.000001", &long[..199_999]), ("binlog.index", b"x")]);
        let fewer = member(&[("binlog.000001", &long)]);
        let found = compared(&[&one, &same]);
        assert_eq!((found.bytes, found.difference), (200_001, None));
        let words = |other| {
            compared(&[&one, &same, other])
                .difference
                .unwrap_or_default()
        };
        assert!(
            words(&other).ends_with("at offset 150000"),
            "{}",
            words(&other)
        );
        assert!(
            words(&shorter).ends_with("at offset 199999"),
            "{}",
            words(&shorter)
        );
        assert!(
            words(&fewer).ends_with("binlog.index does not exist"),
            "{}",
            words(&fewer)
        );
    }
}

#[cfg(test)]
mod agreement_tests {
    use super::*;
    use member::status::sample::database_leader;
    use member::status::sample::witness_follower;

    #[test]
    fn a_member_that_is_down_or_behind_is_not_equal() {
        let (leader, follower) = (database_leader(), witness_follower());
        assert!(all_equal([Some(&leader), Some(&follower)].into_iter()));
        assert!(!all_equal([Some(&leader), None].into_iter()));
        assert!(!all_equal(std::iter::empty()));
        let changes: [fn(&mut MemberView); 3] = [
            |view| view.log_end = Some(OpId::new(3, 41)),
            |view| view.committed = Some(OpId::new(3, 41)),
            |view| view.log.file_bytes += 1,
        ];
        for change in changes {
            let mut other = witness_follower();
            change(&mut other);
            assert!(
                !all_equal([Some(&leader), Some(&other)].into_iter()),
                "{other:?}"
            );
        }
    }

    #[test]
    fn caught_up_means_nearly_all_of_the_right_leader() {
        let mut leader = database_leader();
        let mut own = witness_follower();
        assert!(has_caught_up(&own, &leader));
        leader.committed = Some(OpId::new(3, 42 + NEARLY));
        assert!(has_caught_up(&own, &leader));
        leader.committed = Some(OpId::new(3, 43 + NEARLY));
        assert!(!has_caught_up(&own, &leader));
        own.log_end = leader.committed;
        assert!(has_caught_up(&own, &leader));
        own.leader = None;
        assert!(!has_caught_up(&own, &leader));
    }
}
