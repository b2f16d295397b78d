//! Compares the log files of members byte by byte, in pieces, so that large logs take no memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

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
