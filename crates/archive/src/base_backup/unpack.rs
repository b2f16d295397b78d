//! Reads the tar stream of a base backup as untrusted input. It unpacks only files and directories below one directory, each once, and no
//! more bytes than the manifest lists.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use tar::EntryType;

use super::BaseError;

/// Longest path on common systems.
const LONGEST_PATH: u64 = 4096;
/// Maximum number of known paths, which limits the memory for them. The paths are needed to detect duplicates.
const MOST_ENTRIES: usize = 10_000_000;
const CHUNK_BYTES: usize = 256 << 10;

/// Destination of unpacked entries.
pub(crate) trait Place {
    /// Writer of a file's bytes.
    type File: Write;

    /// Creates a directory; its parent exists.
    fn directory(&mut self, path: &Path) -> Result<(), BaseError>;

    /// Creates a file in an existing directory.
    fn begin(&mut self, path: &Path) -> Result<Self::File, BaseError>;

    /// Finishes a file.
    fn end(&mut self, path: &Path, file: Self::File) -> Result<(), BaseError>;

    /// Makes a complete backup durable.
    fn finish(self) -> Result<(), BaseError>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// Expected contents of a tar stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Unpacks a tar stream that must have exactly the expected contents. Reads nothing after the end of the stream.
///
/// # Errors
/// If the contents cannot be written, or the caller stopped, the [`io::Error`] contains a [`BaseError`]. If the stream is damaged, it
/// contains another error.
pub(crate) fn unpack(
    from: impl Read,
    expected: Extent,
    to: &mut impl Place,
    progress: &mut impl FnMut(u64) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut archive = tar::Archive::new(from);
    // Header extensions can change the next entry in any way, and are kept in memory. Only long names are accepted; they are read here.
    let entries = archive.entries()?.raw(true);
    let mut unpacking = Unpacking {
        expected,
        found: Extent { files: 0, bytes: 0 },
        paths: HashSet::new(),
        directories: HashSet::new(),
    };
    let mut long_name = None;
    for entry in entries {
        let mut entry = entry?;
        let bytes = entry.size();
        match entry.header().entry_type() {
            EntryType::GNULongName => {
                if long_name.is_some() || bytes > LONGEST_PATH + 1 {
                    return damaged("a name in it is no name of a file");
                }
                let mut name = Vec::new();
                entry.read_to_end(&mut name)?;
                if name.last() == Some(&0) {
                    name.pop();
                }
                long_name = Some(name);
            }
            kind @ (EntryType::Regular | EntryType::Directory) => {
                let name = match long_name.take() {
                    Some(name) => name,
                    None => entry.path_bytes().into_owned(),
                };
                let path = unpacking.admit(name, kind == EntryType::Directory, bytes)?;
                if kind == EntryType::Directory {
                    to.directory(&path)?;
                    continue;
                }
                let mut file = to.begin(&path)?;
                let before = unpacking.found.bytes - bytes;
                let told = |copied| progress(before + copied);
                copy(&mut entry, bytes, &mut file, told)?;
                to.end(&path, file)?;
            }
            other => {
                return damaged(format!(
                    "it has an entry of type {:?}, and a data directory has files and directories alone",
                    char::from(other.as_byte())
                ));
            }
        }
    }
    unpacking.ended(long_name.is_some())
}

fn damaged<T>(what: impl Into<String>) -> io::Result<T> {
    let what: String = what.into();
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Copies the bytes of a file.
fn copy(
    from: &mut impl Read,
    bytes: u64,
    to: &mut impl Write,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(bytes).unwrap_or(CHUNK_BYTES))];
    let mut copied = 0;
    while copied < bytes {
        let read = from.read(&mut chunk)?;
        if read == 0 {
            return damaged("it ends in the middle of a file");
        }
        let written = to.write_all(&chunk[..read]);
        written.map_err(BaseError::disk("a file of the base backup"))?;
        copied += read as u64;
        if progress(copied).is_break() {
            return Err(BaseError::Stopped.into());
        }
    }
    Ok(())
}

/// Contents unpacked so far.
struct Unpacking {
    expected: Extent,
    found: Extent,
    paths: HashSet<PathBuf>,
    directories: HashSet<PathBuf>,
}

impl Unpacking {
    /// The path of the next entry, if it is allowed.
    fn admit(&mut self, name: Vec<u8>, is_directory: bool, bytes: u64) -> io::Result<PathBuf> {
        let shown = String::from_utf8_lossy(&name).into_owned();
        let path = match place(name) {
            Ok(path) => path,
            Err(what) => return damaged(format!("{shown:?} in it {what}")),
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() && !self.directories.contains(parent) {
            return damaged(format!("{shown:?} in it is in no directory that it has"));
        }
        if self.paths.len() >= MOST_ENTRIES || !self.paths.insert(path.clone()) {
            return damaged(format!("{shown:?} is in it twice"));
        }
        if is_directory {
            if bytes > 0 {
                return damaged(format!("the directory {shown:?} in it has bytes"));
            }
            self.directories.insert(path.clone());
            return Ok(path);
        }
        self.found.files += 1;
        self.found.bytes = self.found.bytes.saturating_add(bytes);
        if self.found.files > self.expected.files || self.found.bytes > self.expected.bytes {
            return damaged("it has more files or bytes than its manifest says");
        }
        Ok(path)
    }

    fn ended(&self, in_a_name: bool) -> io::Result<()> {
        if in_a_name || self.found != self.expected {
            let (Extent { files, bytes }, expected) = (self.found, self.expected);
            return damaged(format!(
                "it has {files} files of {bytes} bytes, and its manifest says {} of {}",
                expected.files, expected.bytes
            ));
        }
        Ok(())
    }
}

/// The path of an entry, relative to the destination.
fn place(mut name: Vec<u8>) -> Result<PathBuf, &'static str> {
    if name.last() == Some(&b'/') {
        name.pop();
    }
    if name.is_empty() || name.contains(&0) || name.len() as u64 > LONGEST_PATH {
        return Err("is no name of a file");
    }
    if name.starts_with(b"/") {
        return Err("is not below the directory");
    }
    // Only plain component names are allowed. `..` would leave the destination, and `.` would give a path a second name.
    let mut parts = name.split(|byte| *byte == b'/');
    if parts.any(|part| part.is_empty() || part == b".") {
        return Err("is no name of a file");
    }
    let path = PathBuf::from(OsString::from_vec(name));
    let mut parts = path.components();
    match parts.all(|part| matches!(part, Component::Normal(_))) {
        true => Ok(path),
        false => Err("is not below the directory"),
    }
}

/// Discards all bytes.
pub(crate) struct Nowhere;

impl Place for Nowhere {
    type File = io::Sink;

    fn directory(&mut self, _: &Path) -> Result<(), BaseError> {
        Ok(())
    }

    fn begin(&mut self, _: &Path) -> Result<Self::File, BaseError> {
        Ok(io::sink())
    }

    fn end(&mut self, _: &Path, _: Self::File) -> Result<(), BaseError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the unpacked files in memory.
    #[derive(Debug, Default)]
    struct Kept(Vec<(PathBuf, Option<Vec<u8>>)>);

    impl Place for Kept {
        type File = Vec<u8>;

        fn directory(&mut self, path: &Path) -> Result<(), BaseError> {
            self.0.push((path.to_owned(), None));
            Ok(())
        }

        fn begin(&mut self, _: &Path) -> Result<Self::File, BaseError> {
            Ok(Vec::new())
        }

        fn end(&mut self, path: &Path, file: Self::File) -> Result<(), BaseError> {
            self.0.push((path.to_owned(), Some(file)));
            Ok(())
        }
    }

    /// An entry with an unchecked name, which the library refuses to write.
    fn raw(name: &[u8], kind: EntryType, size: u64, bytes: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o640);
        header.set_cksum();
        let mut entry = header.as_bytes().to_vec();
        entry.extend(bytes);
        entry.resize(entry.len().next_multiple_of(512), 0);
        entry
    }

    fn file(name: &str, bytes: &[u8]) -> Vec<u8> {
        let size = bytes.len() as u64;
        raw(name.as_bytes(), EntryType::Regular, size, bytes)
    }

    fn directory(name: &str) -> Vec<u8> {
        raw(name.as_bytes(), EntryType::Directory, 0, b"")
    }

    fn unpacked(entries: &[Vec<u8>], files: u64, bytes: u64) -> io::Result<Kept> {
        let mut stream = entries.concat();
        stream.extend([0; 1024]);
        let mut kept = Kept::default();
        let mut progress = |_| ControlFlow::Continue(());
        let expected = Extent { files, bytes };
        unpack(stream.as_slice(), expected, &mut kept, &mut progress)?;
        Ok(kept)
    }

    fn is_damage(unpacked: &io::Result<Kept>) -> bool {
        (unpacked.as_ref()).is_err_and(|error| error.kind() == io::ErrorKind::InvalidData)
    }

    #[test]
    fn files_and_directories_are_unpacked_unchanged() {
        let long = format!("shop/{}.ibd", "@0416".repeat(40));
        let mut builder = tar::Builder::new(Vec::new());
        let mut append = |name: &str, kind: EntryType, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, bytes).unwrap();
        };
        append("ibdata1", EntryType::Regular, &[7; 600_000]);
        append("shop", EntryType::Directory, b"");
        append(&long, EntryType::Regular, b"rows");
        append("shop/t.ibd", EntryType::Regular, b"");
        let stream = builder.into_inner().unwrap();
        let kept = unpacked(&[stream], 3, 600_004).unwrap();
        let expected = [
            (PathBuf::from("ibdata1"), Some(vec![7; 600_000])),
            (PathBuf::from("shop"), None),
            (PathBuf::from(long), Some(b"rows".to_vec())),
            (PathBuf::from("shop/t.ibd"), Some(Vec::new())),
        ];
        assert!(kept.0 == expected);
    }

    #[test]
    fn entries_outside_the_directory_are_refused() {
        for name in [
            "/etc/passwd",
            "../x",
            "shop/../../x",
            "shop/..",
            "..",
            ".",
            "shop//x",
            "./x",
            "",
        ] {
            let entries = [directory("shop"), file(name, b"x")];
            let refused = unpacked(&entries, 1, 1);
            assert!(is_damage(&refused), "{name}: {refused:?}");
        }
        assert!(unpacked(&[directory("shop/"), file("shop/x", b"x")], 1, 1).is_ok());
    }

    #[test]
    fn links_devices_and_extensions_are_refused() {
        for kind in [
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Char,
            EntryType::Block,
            EntryType::Fifo,
            EntryType::Continuous,
            EntryType::GNUSparse,
            EntryType::GNULongLink,
            EntryType::XHeader,
            EntryType::XGlobalHeader,
            EntryType::new(b'Z'),
        ] {
            let refused = unpacked(&[raw(b"x", kind, 0, b"")], 0, 0);
            assert!(is_damage(&refused), "{kind:?}: {refused:?}");
        }
    }

    #[test]
    fn duplicate_and_orphaned_entries_are_refused() {
        for entries in [
            [file("x", b"1"), file("x", b"2")],
            [directory("x"), file("x", b"1")],
            [directory("x"), directory("x")],
            [directory("shop"), file("other/x", b"1")],
            [file("shop", b"1"), file("shop/x", b"1")],
        ] {
            let files = entries.iter().filter(|entry| entry.len() > 512).count() as u64;
            let refused = unpacked(&entries, files, files);
            assert!(is_damage(&refused), "{refused:?}");
        }
    }

    #[test]
    fn unpacked_size_must_match() {
        let entries = [file("a", b"12"), file("b", b"3")];
        assert!(unpacked(&entries, 2, 3).is_ok());
        for (files, bytes) in [(1, 3), (2, 2), (3, 3), (2, 4)] {
            let refused = unpacked(&entries, files, bytes);
            assert!(is_damage(&refused), "{refused:?}");
        }
        // An impossible size is refused before a byte is written, and an oversized name before it is read.
        for kind in [EntryType::Regular, EntryType::GNULongName] {
            let huge = raw(b"x", kind, 1 << 62, b"x");
            let refused = unpacked(&[huge], 1, 1);
            assert!(is_damage(&refused), "{kind:?}: {refused:?}");
        }
        // A stream that ends within a file.
        let mut stream = file("a", &[1; 5000]);
        stream.truncate(3000);
        assert!(unpacked(&[stream], 1, 5000).is_err());
        assert!(unpacked(&[file("a", &[1; 5000])], 1, 5000).is_ok());
    }
}
