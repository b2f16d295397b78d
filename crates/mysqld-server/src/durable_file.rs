//! Small files that are replaced and removed atomically: after a crash, the file has either the old or the new content.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Replaces the file, or creates it. Durable on return.
///
/// # Errors
/// The I/O error; the old content may still be there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_prepared(path, content, |_| Ok(()))
}

/// Replaces the file as [`replace`] does, and calls `prepare` on the new file before writing the content.
///
/// # Errors
/// The I/O error; the old content may still be there.
pub(crate) fn replace_prepared(
    path: &Path,
    content: &[u8],
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = path.with_added_extension("new");
    let mut file = File::create(&temporary)?;
    prepare(&file)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_folder_of(path)
}

/// Replaces the file with this value's JSON. Durable on return.
///
/// # Errors
/// The I/O error; the old content may still be there.
pub(crate) fn store(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace(path, &serde_json::to_vec_pretty(value)?)
}

/// Loads the value of a JSON file; `None` where the file does not exist.
///
/// # Errors
/// The file exists and cannot be read.
pub(crate) fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(serde_json::from_slice(&content)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds the file's path to an error.
pub(crate) fn about(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Removes the file, which may be absent. Durable on return, even if an earlier removal was not yet durable.
///
/// # Errors
/// The I/O error; the file may still be there.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => sync_folder_of(path),
    }
}

/// Makes the entry of this file in its directory durable.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_replaced_and_removed_and_nothing_stays_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("note.json");
        replace(&path, b"first, and longer").unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        assert!(replace(&home.path().join("none/note"), b"").is_err());
    }
}
