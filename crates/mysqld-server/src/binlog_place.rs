//! The location of a server's binlog, read from its start options, and the files that the binlog index lists.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The binlog of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinlogPlace {
    /// The data directory. Paths in the index are relative to this directory.
    pub(crate) data_dir: PathBuf,
    index: PathBuf,
}

/// The options of a command line, with their values.
pub(crate) fn named<'a>(
    options: impl IntoIterator<Item = &'a str>,
) -> impl Iterator<Item = (String, Option<&'a str>)> {
    options.into_iter().filter_map(|option| {
        let option = option.strip_prefix("--")?;
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let name = name.replace('_', "-");
        let name = name.strip_prefix("loose-").unwrap_or(&name);
        Some((name.to_owned(), value))
    })
}

impl BinlogPlace {
    /// Determines the location from the server's options, of which the last one wins; `None` where the server has no binlog. If `--log-bin`
    /// has no value, `host` names the files.
    pub fn of_options<'a>(
        options: impl IntoIterator<Item = &'a str>,
        data_dir: &Path,
        host: &str,
    ) -> Option<Self> {
        let mut base = Some("binlog".to_owned());
        let mut index = None;
        for (name, value) in named(options) {
            let value = value.unwrap_or_default();
            match name.as_str() {
                "log-bin" if value.is_empty() => base = Some(format!("{host}-bin")),
                "log-bin" => base = Some(value.to_owned()),
                "log-bin-index" if !value.is_empty() => index = Some(value.to_owned()),
                "skip-log-bin" | "disable-log-bin" => base = None,
                _ => {}
            }
        }
        let base = PathBuf::from(base?);
        let index = match index.map(PathBuf::from) {
            Some(named) if named.extension().is_some() => named,
            named => named.unwrap_or(base).with_extension("index"),
        };
        Some(Self::of_index(data_dir.to_owned(), &index))
    }

    /// Determines the location from the index file that a running server reports.
    pub fn of_index(data_dir: PathBuf, index: &Path) -> Self {
        let index = data_dir.join(index);
        Self { data_dir, index }
    }

    /// Path of the index file.
    pub fn index(&self) -> &Path {
        &self.index
    }

    /// Returns the location that a running server reports if it differs from this location.
    pub fn elsewhere(&self, index: &Path) -> Option<Self> {
        let named = Self::of_index(self.data_dir.clone(), index);
        let whole = |place: &Self| fs::canonicalize(&place.index).ok();
        let same = match (whole(self), whole(&named)) {
            (Some(own), Some(its)) => own == its,
            // Without access to the reported path, assume that it is the same file: the server may have other mounts than the member.
            (Some(_), None) => true,
            _ => self.index == named.index,
        };
        (!same).then_some(named)
    }

    /// Returns the files in order; none if the index does not exist.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub(crate) fn files(&self) -> io::Result<Vec<PathBuf>> {
        let text = match fs::read_to_string(&self.index) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        Ok(self.files_in(&text))
    }

    /// Returns the files that the text of an index lists.
    pub(crate) fn files_in(&self, index: &str) -> Vec<PathBuf> {
        let lines = index.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| self.data_dir.join(line.strip_prefix("./").unwrap_or(line)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_option_wins() {
        let table: [(&[&str], Option<&str>); 9] = [
            (&[], Some("/d/binlog.index")),
            (&["--log-bin=x", "--port=1"], Some("/d/x.index")),
            (
                &["--log_bin=/logs/x.y", "--log-bin"],
                Some("/d/host-bin.index"),
            ),
            (&["--log_bin=/logs/x.y"], Some("/logs/x.index")),
            (
                &["--log-bin=x", "--log-bin-index=/i/list"],
                Some("/i/list.index"),
            ),
            (
                &["--loose-log-bin-index=sub/list.txt"],
                Some("/d/sub/list.txt"),
            ),
            (&["--log-bin=x", "--skip-log-bin"], None),
            (&["--disable_log_bin", "--log-bin-index=l"], None),
            (&["--skip-log-bin", "--log-bin=z"], Some("/d/z.index")),
        ];
        for (options, expected) in table {
            let place = BinlogPlace::of_options(options.iter().copied(), Path::new("/d"), "host");
            let index = place.as_ref().map(BinlogPlace::index);
            assert_eq!(index, expected.map(Path::new), "{options:?}");
        }
    }

    #[test]
    fn an_index_lists_files_relative_to_the_data_directory() {
        let home = tempfile::tempdir().unwrap();
        let place = BinlogPlace::of_options(["--log-bin=b"], home.path(), "h").unwrap();
        assert_eq!(place.files().unwrap(), Vec::<PathBuf>::new());
        fs::write(place.index(), "./b.000001\n/logs/b.000002\n\nb.000003\n").unwrap();
        let expected = [
            home.path().join("b.000001"),
            PathBuf::from("/logs/b.000002"),
            home.path().join("b.000003"),
        ];
        assert_eq!(place.files().unwrap(), expected);
    }
}
