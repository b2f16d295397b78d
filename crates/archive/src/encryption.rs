//! Encrypts archived data in the [age](https://age-encryption.org) format. With public keys, an archiver cannot read the archive, and `age
//! -d` decrypts an object without this program.
//!
//! No message or `Debug` output contains any part of a secret key or of a key file.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use age::secrecy::ExposeSecret;
use age::stream::{StreamReader, StreamWriter};
use age::{DecryptError, Decryptor, Encryptor, IdentityFile, x25519};
use serde::{Deserialize, Serialize};

/// Most recipients per object.
const MOST_RECIPIENTS: usize = 64;
/// Most header bytes, with some hundred per recipient. The time to read a header grows with the square of its size.
const MOST_HEADER_BYTES: usize = 16 << 10;
/// Largest key file.
const MOST_FILE_BYTES: u64 = 1 << 20;

/// How an object is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// The age format, version 1, with X25519 recipients.
    Age,
}

/// Why encryption or decryption fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncryptionError {
    /// A recipients or identities file is unusable.
    #[error("{}: {why}", file.display())]
    KeyFile {
        /// The file.
        file: PathBuf,
        /// The cause, without any of its contents.
        why: String,
    },
    /// It is encrypted, and no identity is given.
    #[error("it is encrypted, and no identity is given")]
    NoIdentity,
    /// None of the identities is a recipient.
    #[error("it is encrypted for other recipients than the identities that are given")]
    OtherRecipients,
    /// The ciphertext was altered or truncated.
    #[error("it cannot be decrypted: it was altered or cut")]
    Altered,
    /// Its header is longer than this program writes.
    #[error("what names its recipients has more than {MOST_HEADER_BYTES} bytes")]
    LongHeader,
}

/// Public keys of the recipients. Cheap to clone.
#[derive(Clone)]
pub struct Recipients(Arc<Vec<x25519::Recipient>>);

impl fmt::Debug for Recipients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipients({})", self.0.len())
    }
}

impl Recipients {
    /// Reads a file with one `age1…` recipient a line; empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// [`EncryptionError::KeyFile`] when the file cannot be read, has any other line, or no recipient.
    pub fn of_file(file: &Path) -> Result<Self, EncryptionError> {
        let read = text_of(file).and_then(|text| Self::of_text(&text));
        read.map_err(|why| EncryptionError::KeyFile {
            file: file.to_owned(),
            why,
        })
    }

    /// Parses the text of such a file.
    pub(crate) fn of_text(text: &str) -> Result<Self, String> {
        let mut recipients = Vec::new();
        for (line, number) in text.lines().zip(1usize..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.to_ascii_uppercase().starts_with("AGE-SECRET-KEY-") {
                return Err(format!(
                    "line {number} is a secret key, which whoever archives must not have; write its public key there (`age1…`)"
                ));
            }
            let recipient = line.parse().map_err(|_| {
                format!(
                    "line {number} is no recipient; write public keys there, one a line (`age1…`)"
                )
            })?;
            recipients.push(recipient);
        }
        match recipients.len() {
            0 => Err("it has no recipient, and nothing is archived without encryption as long as it is named".to_owned()),
            count if count > MOST_RECIPIENTS => Err(format!(
                "it has {count} recipients, and {MOST_RECIPIENTS} are possible"
            )),
            _ => Ok(Self(Arc::new(recipients))),
        }
    }

    /// Encrypts everything written. Without a call of [`StreamWriter::finish`], the output cannot be decrypted.
    ///
    /// # Errors
    /// When `to` rejects the header.
    pub(crate) fn encrypt<W: Write>(&self, to: W) -> io::Result<StreamWriter<W>> {
        let recipients = self.0.iter().map(|one| one as &dyn age::Recipient);
        let encryptor = Encryptor::with_recipients(recipients).map_err(io::Error::other)?;
        encryptor.wrap_output(to)
    }
}

/// Secret keys for reading. Cheap to clone.
#[derive(Clone, Default)]
pub struct Identities(Arc<Vec<Identity>>);

type Identity = Box<dyn age::Identity + Send + Sync>;

impl fmt::Debug for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identities({})", self.0.len())
    }
}

impl Identities {
    /// Reads identity files, as `age-keygen` and [`new_identity`] write them.
    ///
    /// # Errors
    /// [`EncryptionError::KeyFile`] for the first file that cannot be read, has any other line, or no identity.
    pub fn of_files<'a>(
        files: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Result<Self, EncryptionError> {
        let mut all = Vec::new();
        for file in files {
            let open = File::open(file).map_err(|error| error.to_string());
            let bytes = open.map(|open| BufReader::new(open.take(MOST_FILE_BYTES)));
            let mut of_file = bytes.and_then(identities_in).map_err(|why| {
                let file = file.clone();
                EncryptionError::KeyFile { file, why }
            })?;
            all.append(&mut of_file);
        }
        Ok(Self(Arc::new(all)))
    }

    /// Reads a file on a member, which only its owner may read or write.
    ///
    /// # Errors
    /// As [`Self::of_files`], and when others have access.
    pub fn of_private_file(file: &Path) -> Result<Self, EncryptionError> {
        let told = |why: String| EncryptionError::KeyFile {
            file: file.to_owned(),
            why,
        };
        let open = File::open(file).map_err(|error| told(error.to_string()))?;
        let mode = open.metadata().map_err(|error| told(error.to_string()))?;
        let mode = mode.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(told(format!(
                "others than its owner may read or change it (mode {:04o}); `chmod 600` it",
                mode & 0o7777
            )));
        }
        let bytes = BufReader::new(open.take(MOST_FILE_BYTES));
        Ok(Self(Arc::new(identities_in(bytes).map_err(told)?)))
    }

    /// Parses the text of such a file.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn of_text(text: &[u8]) -> Result<Self, String> {
        Ok(Self(Arc::new(identities_in(text)?)))
    }

    /// Whether there is no identity.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decrypts a stream.
    ///
    /// # Errors
    /// When it is not encrypted for one of these, is not encrypted, or cannot be read.
    pub(crate) fn decrypt<R: BufRead>(&self, from: R) -> io::Result<Decrypting<R>> {
        if self.is_empty() {
            return Err(told(EncryptionError::NoIdentity));
        }
        let left = Rc::new(Cell::new(MOST_HEADER_BYTES));
        let from = Bounded {
            inner: from,
            left: left.clone(),
        };
        let decryptor = Decryptor::new_buffered(from).map_err(as_io)?;
        let identities = self.0.iter().map(|one| &**one as &dyn age::Identity);
        let plain = decryptor.decrypt(identities).map_err(as_io)?;
        left.set(usize::MAX);
        Ok(Decrypting(plain))
    }
}

/// A new identity as the text of its file, with its recipient in a line before it, and the recipient.
#[must_use]
pub fn new_identity() -> (String, String) {
    let identity = x25519::Identity::generate();
    let recipient = identity.to_public().to_string();
    let secret = identity.to_string();
    let text = format!("# public key: {recipient}\n{}\n", secret.expose_secret());
    (text, recipient)
}

/// Parses the identities of a file. An error names the line of the first mistake, not its text.
fn identities_in(bytes: impl BufRead) -> Result<Vec<Identity>, String> {
    let read = IdentityFile::from_buffer(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => format!(
            "{error}; an identity is a line as `witness archive keygen` writes it (`AGE-SECRET-KEY-1…`)"
        ),
        _ => error.to_string(),
    });
    let identities = read?.into_identities();
    match identities {
        Ok(identities) if identities.is_empty() => Err("it has no identity".to_owned()),
        Ok(identities) => Ok(identities),
        Err(_) => Err("it cannot be read".to_owned()),
    }
}

fn text_of(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read =
        File::open(file).and_then(|open| open.take(MOST_FILE_BYTES).read_to_string(&mut text));
    read.map(|_| text).map_err(|error| error.to_string())
}

/// Wraps it as a read error, from which [`EncryptionError::of_io`] recovers it.
fn told(error: EncryptionError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn as_io(error: DecryptError) -> io::Error {
    match error {
        DecryptError::Io(error) => altered_or(error),
        DecryptError::NoMatchingKeys => told(EncryptionError::OtherRecipients),
        _ => told(EncryptionError::Altered),
    }
}

/// Replaces errors of age, and an unexpected end, by this module's own; other read errors stay.
fn altered_or(error: io::Error) -> io::Error {
    let is_of_bytes = matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    );
    if is_of_bytes && EncryptionError::of_io(&error).is_none() {
        return told(EncryptionError::Altered);
    }
    error
}

impl EncryptionError {
    /// The [`EncryptionError`] behind a read error, if any.
    pub(crate) fn of_io(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// A decrypting reader.
pub(crate) struct Decrypting<R>(StreamReader<Bounded<R>>);

impl<R: BufRead> Read for Decrypting<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes).map_err(altered_or)
    }
}

/// Limits the bytes read: age buffers a header of any length.
struct Bounded<R> {
    inner: R,
    left: Rc<Cell<usize>>,
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let left = self.left.get();
        let bytes = self.inner.fill_buf()?;
        if left == 0 && !bytes.is_empty() {
            return Err(told(EncryptionError::LongHeader));
        }
        Ok(&bytes[..bytes.len().min(left)])
    }

    fn consume(&mut self, bytes: usize) {
        let left = self.left.get();
        if left != usize::MAX {
            self.left.set(left.saturating_sub(bytes));
        }
        self.inner.consume(bytes);
    }
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let there = self.fill_buf()?;
        let taken = there.len().min(bytes.len());
        bytes[..taken].copy_from_slice(&there[..taken]);
        self.consume(taken);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_on_a_member_is_its_owners_alone() {
        let (identity, _) = new_identity();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), identity).unwrap();
        let let_in = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), mode).unwrap();
        };
        for others in [0o640, 0o604, 0o620] {
            let_in(others);
            let refused = Identities::of_private_file(file.path()).unwrap_err();
            let words = refused.to_string();
            assert!(
                words.contains("chmod 600") && !words.contains("AGE-SECRET"),
                "{words}"
            );
        }
        let_in(0o600);
        assert!(!Identities::of_private_file(file.path()).unwrap().is_empty());
    }

    /// A key pair from age's own tests.
    const SECRET: &str =
        "AGE-SECRET-KEY-1GQ9778VQXMMJVE8SK7J6VT8UJ4HDQAJUVSFCWCM02D8GEWQ72PVQ2Y5J33";
    const PUBLIC: &str = "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa";

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn identities(text: &str) -> Result<Identities, EncryptionError> {
        let file = file(text);
        Identities::of_files([&file.path().to_owned()])
    }

    fn encrypted(recipients: &Recipients, plain: &[u8]) -> Vec<u8> {
        let mut writer = recipients.encrypt(Vec::new()).unwrap();
        writer.write_all(plain).unwrap();
        writer.finish().unwrap()
    }

    fn decrypted(identities: &Identities, bytes: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        let mut plain = Vec::new();
        let read = identities
            .decrypt(bytes)
            .and_then(|mut reader| reader.read_to_end(&mut plain));
        read.map(|_| plain)
            .map_err(|error| EncryptionError::of_io(&error).unwrap().clone())
    }

    #[test]
    fn files_of_keys_are_read_and_no_message_quotes_them() {
        let recipients = |text: &str| {
            let file = file(text);
            let read = Recipients::of_file(file.path()).map(|read| read.0.len());
            read.map_err(|error| error.to_string())
        };
        let (_, another) = new_identity();
        assert_eq!(recipients(&format!("# of us\n\n  {PUBLIC}\r\n")), Ok(1));
        assert_eq!(recipients(&format!("{PUBLIC}\n{another}")), Ok(2));
        let typo = PUBLIC.replace("t7rx", "t7rz");
        for (text, words) in [
            (String::new(), "it has no recipient"),
            ("# nobody\n".to_owned(), "it has no recipient"),
            (format!("{PUBLIC}\n{SECRET}\n"), "line 2 is a secret key"),
            (format!("{PUBLIC}\n\n{typo}\n"), "line 3 is no recipient"),
            (format!("{PUBLIC}\n").repeat(65), "it has 65 recipients"),
        ] {
            let refused = recipients(&text).unwrap_err();
            assert!(refused.contains(words), "{refused}");
            assert!(!refused.contains("1GQ9778") && !refused.contains("svpy7pa"));
        }
        assert_eq!(
            identities(&format!("# ours\n{SECRET}\n")).unwrap().0.len(),
            1
        );
        for (text, words) in [
            ("", "it has no identity"),
            (PUBLIC, "line 1"),
            (&SECRET[..50], "line 1"),
        ] {
            let refused = identities(text).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
            assert!(!refused.contains("1GQ9778"), "{refused}");
        }
        let nowhere = PathBuf::from("/nowhere/key");
        let missing = Identities::of_files([&nowhere]).unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/key: "), "{missing}");
        let shown = format!("{:?}", identities(SECRET).unwrap());
        assert_eq!(shown, "Identities(1)");
    }

    #[test]
    fn a_new_identity_is_that_of_its_recipient() {
        let (text, recipient) = new_identity();
        let recipients = Recipients::of_text(&recipient).unwrap();
        let bytes = encrypted(&recipients, b"a row");
        assert!(!bytes.windows(5).any(|part| part == b"a row"));
        assert_eq!(
            decrypted(&identities(&text).unwrap(), &bytes).unwrap(),
            b"a row"
        );
        let (other, _) = new_identity();
        let refused = decrypted(&identities(&other).unwrap(), &bytes);
        assert_eq!(refused, Err(EncryptionError::OtherRecipients));
        let refused = decrypted(&Identities::default(), &bytes);
        assert_eq!(refused, Err(EncryptionError::NoIdentity));
    }

    #[test]
    fn whatever_was_altered_or_cut_is_not_decrypted() {
        let (text, recipient) = new_identity();
        let recipients = Recipients::of_text(&recipient).unwrap();
        let identities = identities(&text).unwrap();
        let plain = vec![7; 200_000];
        let bytes = encrypted(&recipients, &plain);
        assert_eq!(decrypted(&identities, &bytes).unwrap(), plain);
        for at in (0..bytes.len()).step_by(97) {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            assert!(decrypted(&identities, &altered).is_err(), "byte {at}");
        }
        for len in (0..bytes.len()).step_by(1009) {
            let cut = decrypted(&identities, &bytes[..len]).unwrap_err();
            assert_eq!(cut, EncryptionError::Altered, "cut at {len}");
        }
        let longer = [bytes.as_slice(), b"x"].concat();
        assert_eq!(
            decrypted(&identities, &longer),
            Err(EncryptionError::Altered)
        );
    }

    #[test]
    fn a_header_without_an_end_is_not_read_to_it() {
        let identities = identities(SECRET).unwrap();
        let line = b"-> grease AAAA\n\n";
        let header = [b"age-encryption.org/v1\n".as_slice(), &line.repeat(100_000)].concat();
        let refused = decrypted(&identities, &header);
        assert_eq!(refused, Err(EncryptionError::LongHeader));
        let one_line = [b"age-encryption.org/v1\n-> ".as_slice(), &[b'a'; 1 << 20]].concat();
        let refused = decrypted(&identities, &one_line);
        assert_eq!(refused, Err(EncryptionError::LongHeader));
    }
}
