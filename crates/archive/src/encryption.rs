//! Encrypts archived data in the [age](https://age-encryption.org) format. The archiver has only public keys, so it cannot read the
//! archive. `age -d` decrypts an object without this program. A build without the `encryption` feature refuses key files.
//!
//! No message or `Debug` output contains any part of a secret key or of a key file.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::age_format::new_identity;

/// Maximum number of recipients of an object.
const MOST_RECIPIENTS: usize = 64;
/// Maximum size of a header, which has some hundred bytes per recipient. The time to read a header grows with the square of its size.
const MOST_HEADER_BYTES: usize = 16 << 10;
/// Maximum size of a key file in bytes.
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
    #[error("{}: {}", .0.display(), .1)]
    KeyFile(PathBuf, KeyFileError),
    /// The object is encrypted, and no identity is given.
    #[error("it is encrypted, and no identity is given")]
    NoIdentity,
    /// None of the identities is a recipient.
    #[error("it is encrypted for other recipients than the identities that are given")]
    OtherRecipients,
    /// The ciphertext was altered or truncated.
    #[error("it cannot be decrypted: it was altered or cut")]
    Altered,
    /// The header is longer than any that this program writes.
    #[error("what names its recipients has more than {MOST_HEADER_BYTES} bytes")]
    LongHeader,
    /// This build lacks the `encryption` feature.
    #[error("{NOT_BUILT}")]
    NotBuilt,
}

const NOT_BUILT: &str = "this program was built without encryption; use a released package, or build with `--features encryption`";

/// Why a file of keys is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read; the system's error.
    #[error("{0}")]
    Unreadable(String),
    /// Users other than the owner may access a member's identity file; the file's mode.
    #[error("others than its owner may read or change it (mode {0:04o}); `chmod 600` it")]
    Shared(u32),
    /// This line is a secret key instead of a public one.
    #[error(
        "line {0} is a secret key, which an archiving member must not have; write its public key there (`age1…`)"
    )]
    SecretKey(usize),
    /// This line is not a public key.
    #[error("line {0} is no recipient; write public keys there, one a line (`age1…`)")]
    NotARecipient(usize),
    /// The file has no public key.
    #[error(
        "it has no recipient, and nothing is archived without encryption as long as it is named"
    )]
    NoRecipient,
    /// The file has too many public keys; their number.
    #[error("it has {0} recipients, and {MOST_RECIPIENTS} are possible")]
    TooManyRecipients(usize),
    /// A line is not a secret key; the line's number as text.
    #[error(
        "{0}; an identity is a line as `witness archive keygen` writes it (`AGE-SECRET-KEY-1…`)"
    )]
    NotAnIdentity(String),
    /// The file has no secret key.
    #[error("it has no identity")]
    NoIdentity,
    /// This build lacks the `encryption` feature.
    #[error("{NOT_BUILT}")]
    NotBuilt,
}

impl From<io::Error> for KeyFileError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl KeyFileError {
    fn of(self, file: &Path) -> EncryptionError {
        EncryptionError::KeyFile(file.to_owned(), self)
    }
}

/// Public keys of the recipients. Cheap to clone.
#[derive(Clone)]
pub struct Recipients(Arc<Vec<age_format::Recipient>>);

impl fmt::Debug for Recipients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipients({})", self.0.len())
    }
}

impl Recipients {
    /// Reads a file with one `age1…` recipient per line. Empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// [`EncryptionError::KeyFile`] when the file cannot be read, has any other line, or no recipient.
    pub fn of_file(file: &Path) -> Result<Self, EncryptionError> {
        let mut text = String::new();
        let read =
            File::open(file).and_then(|open| open.take(MOST_FILE_BYTES).read_to_string(&mut text));
        let recipients = read.map_err(KeyFileError::from);
        let recipients = recipients.and_then(|_| Self::of_text(&text));
        recipients.map_err(|why| why.of(file))
    }

    /// Parses the text of such a file.
    pub(crate) fn of_text(text: &str) -> Result<Self, KeyFileError> {
        Ok(Self(Arc::new(age_format::recipients(text)?)))
    }
}

/// Secret keys for reading. Cheap to clone.
#[derive(Clone, Default)]
pub struct Identities(Arc<Vec<age_format::Identity>>);

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
            let open = File::open(file).map_err(KeyFileError::from);
            let of_file = open.and_then(identities_in);
            all.append(&mut of_file.map_err(|why| why.of(file))?);
        }
        Ok(Self(Arc::new(all)))
    }

    /// Reads an identity file on a member. Only the file's owner may have access to it.
    ///
    /// # Errors
    /// As [`Self::of_files`], and when other users have access.
    pub fn of_private_file(file: &Path) -> Result<Self, EncryptionError> {
        let read = || {
            let open = File::open(file)?;
            let mode = open.metadata()?.permissions().mode();
            match mode & 0o077 {
                0 => identities_in(open),
                _ => Err(KeyFileError::Shared(mode & 0o7777)),
            }
        };
        let identities = read().map_err(|why: KeyFileError| why.of(file))?;
        Ok(Self(Arc::new(identities)))
    }

    /// Parses the text of such a file.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn of_text(text: &[u8]) -> Result<Self, KeyFileError> {
        Ok(Self(Arc::new(age_format::identities(text)?)))
    }

    /// True if there is no identity.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decrypts a stream.
    ///
    /// # Errors
    /// When the stream is not encrypted for one of these identities, is not encrypted at all, or cannot be read.
    pub(crate) fn decrypt<'a>(&self, from: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
        if self.is_empty() {
            return Err(EncryptionError::NoIdentity.into());
        }
        let plain = age_format::decrypt(from, &self.0)?;
        Ok(Box::new(BufReader::new(plain)))
    }
}

fn identities_in(file: File) -> Result<Vec<age_format::Identity>, KeyFileError> {
    age_format::identities(BufReader::new(file.take(MOST_FILE_BYTES)))
}

/// Wraps the error as a read error, from which `EncryptionError::of_io` recovers it.
impl From<EncryptionError> for io::Error {
    fn from(error: EncryptionError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

impl EncryptionError {
    /// Returns the [`EncryptionError`] that a read error contains, if any.
    pub(crate) fn of_io(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Writes an object's bytes, encrypted for its recipients, if it has any. If [`Self::finish`] is not called, the output cannot be
/// decrypted.
pub(crate) enum Sealing<W: Write> {
    Plain(W),
    #[cfg(feature = "encryption")]
    Encrypted(age::stream::StreamWriter<W>),
}

impl<W: Write> Sealing<W> {
    /// # Errors
    /// When `to` rejects the header.
    pub(crate) fn of(to: W, recipients: Option<&Recipients>) -> io::Result<Self> {
        match recipients {
            None => Ok(Self::Plain(to)),
            Some(Recipients(recipients)) => age_format::encrypt(to, recipients),
        }
    }

    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(to) => Ok(to),
            #[cfg(feature = "encryption")]
            Self::Encrypted(to) => to.finish(),
        }
    }

    fn inner(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(to) => to,
            #[cfg(feature = "encryption")]
            Self::Encrypted(to) => to,
        }
    }
}

impl<W: Write> Write for Sealing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush()
    }
}

/// Replaces the module of a build without encryption: every function refuses.
#[cfg(not(feature = "encryption"))]
mod age_format {
    use super::*;

    pub(super) enum Recipient {}
    pub(super) enum Identity {}

    /// A new key pair.
    ///
    /// # Errors
    /// [`EncryptionError::NotBuilt`].
    pub fn new_identity() -> Result<(String, String), EncryptionError> {
        Err(EncryptionError::NotBuilt)
    }

    pub(super) fn recipients(_: &str) -> Result<Vec<Recipient>, KeyFileError> {
        Err(KeyFileError::NotBuilt)
    }

    pub(super) fn identities(_: impl BufRead) -> Result<Vec<Identity>, KeyFileError> {
        Err(KeyFileError::NotBuilt)
    }

    pub(super) fn encrypt<W: Write>(_: W, _: &[Recipient]) -> io::Result<Sealing<W>> {
        Err(EncryptionError::NotBuilt.into())
    }

    pub(super) fn decrypt<R: BufRead>(_: R, _: &[Identity]) -> io::Result<R> {
        Err(EncryptionError::NotBuilt.into())
    }
}

#[cfg(feature = "encryption")]
mod age_format {
    use std::cell::Cell;
    use std::rc::Rc;

    use age::secrecy::ExposeSecret;
    use age::stream::StreamReader;
    use age::{DecryptError, Decryptor, Encryptor, IdentityFile, x25519};

    use super::*;

    pub(super) type Recipient = x25519::Recipient;
    pub(super) type Identity = Box<dyn age::Identity + Send + Sync>;

    /// Creates an identity. Returns the text of its file, which has the recipient in a line before the identity, and the recipient.
    ///
    /// # Errors
    /// [`EncryptionError::NotBuilt`] in a build without encryption.
    pub fn new_identity() -> Result<(String, String), EncryptionError> {
        let identity = x25519::Identity::generate();
        let recipient = identity.to_public().to_string();
        let secret = identity.to_string();
        let text = format!("# public key: {recipient}\n{}\n", secret.expose_secret());
        Ok((text, recipient))
    }

    pub(super) fn recipients(text: &str) -> Result<Vec<Recipient>, KeyFileError> {
        let mut recipients = Vec::new();
        for (line, number) in text.lines().zip(1usize..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.to_ascii_uppercase().starts_with("AGE-SECRET-KEY-") {
                return Err(KeyFileError::SecretKey(number));
            }
            let recipient = line.parse();
            recipients.push(recipient.map_err(|_| KeyFileError::NotARecipient(number))?);
        }
        match recipients.len() {
            0 => Err(KeyFileError::NoRecipient),
            count if count > MOST_RECIPIENTS => Err(KeyFileError::TooManyRecipients(count)),
            _ => Ok(recipients),
        }
    }

    /// Parses the identities of a file. An error names the line of the first mistake, not its text.
    pub(super) fn identities(bytes: impl BufRead) -> Result<Vec<Identity>, KeyFileError> {
        let read = IdentityFile::from_buffer(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => KeyFileError::NotAnIdentity(error.to_string()),
            _ => error.into(),
        });
        let unusable = |_| KeyFileError::Unreadable("it cannot be read".to_owned());
        let identities = read?.into_identities().map_err(unusable)?;
        match identities.is_empty() {
            true => Err(KeyFileError::NoIdentity),
            false => Ok(identities),
        }
    }

    pub(super) fn encrypt<W: Write>(to: W, recipients: &[Recipient]) -> io::Result<Sealing<W>> {
        let recipients = recipients.iter().map(|one| one as &dyn age::Recipient);
        let encryptor = Encryptor::with_recipients(recipients).map_err(io::Error::other)?;
        encryptor.wrap_output(to).map(Sealing::Encrypted)
    }

    pub(super) fn decrypt<'a>(
        from: impl BufRead + 'a,
        identities: &[Identity],
    ) -> io::Result<impl Read + 'a> {
        let left = Rc::new(Cell::new(MOST_HEADER_BYTES));
        let from = Bounded {
            inner: from,
            left: left.clone(),
        };
        let decryptor = Decryptor::new_buffered(from).map_err(as_io)?;
        let identities = identities.iter().map(|one| &**one as &dyn age::Identity);
        let plain = decryptor.decrypt(identities).map_err(as_io)?;
        left.set(usize::MAX);
        Ok(Decrypting(plain))
    }

    fn as_io(error: DecryptError) -> io::Error {
        match error {
            DecryptError::Io(error) => altered_or(error),
            DecryptError::NoMatchingKeys => EncryptionError::OtherRecipients.into(),
            _ => EncryptionError::Altered.into(),
        }
    }

    /// Replaces errors of age, and an unexpected end, with this module's errors; other read errors stay.
    fn altered_or(error: io::Error) -> io::Error {
        let is_of_bytes = matches!(
            error.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
        );
        if is_of_bytes && EncryptionError::of_io(&error).is_none() {
            return EncryptionError::Altered.into();
        }
        error
    }

    /// A decrypting reader.
    struct Decrypting<R>(StreamReader<Bounded<R>>);

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
                return Err(EncryptionError::LongHeader.into());
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_file_with_access_for_others_is_refused() {
        let (identity, _) = new_identity().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), identity).unwrap();
        let let_in = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), mode).unwrap();
        };
        for others in [0o640, 0o604, 0o620] {
            let_in(others);
            let refused = Identities::of_private_file(file.path()).unwrap_err();
            assert_eq!(refused, KeyFileError::Shared(others).of(file.path()));
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

    fn why_of(error: &EncryptionError) -> KeyFileError {
        match error {
            EncryptionError::KeyFile(_, why) => why.clone(),
            other => panic!("{other}"),
        }
    }

    fn encrypted(recipients: &Recipients, plain: &[u8]) -> Vec<u8> {
        let mut writer = Sealing::of(Vec::new(), Some(recipients)).unwrap();
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
    fn key_file_errors_do_not_quote_keys() {
        let recipients = |text: &str| {
            let file = file(text);
            let read = Recipients::of_file(file.path()).map(|read| read.0.len());
            read.map_err(|error| (why_of(&error), error.to_string()))
        };
        let (_, another) = new_identity().unwrap();
        assert_eq!(recipients(&format!("# of us\n\n  {PUBLIC}\r\n")), Ok(1));
        assert_eq!(recipients(&format!("{PUBLIC}\n{another}")), Ok(2));
        let typo = PUBLIC.replace("t7rx", "t7rz");
        for (text, expected) in [
            (String::new(), KeyFileError::NoRecipient),
            ("# none\n".to_owned(), KeyFileError::NoRecipient),
            (format!("{PUBLIC}\n{SECRET}\n"), KeyFileError::SecretKey(2)),
            (
                format!("{PUBLIC}\n\n{typo}\n"),
                KeyFileError::NotARecipient(3),
            ),
            (
                format!("{PUBLIC}\n").repeat(65),
                KeyFileError::TooManyRecipients(65),
            ),
        ] {
            let (why, message) = recipients(&text).unwrap_err();
            assert_eq!(why, expected);
            assert!(!message.contains("1GQ9778") && !message.contains("svpy7pa"));
        }
        assert_eq!(
            identities(&format!("# ours\n{SECRET}\n")).unwrap().0.len(),
            1
        );
        for text in ["", PUBLIC, &SECRET[..50]] {
            let refused = identities(text).unwrap_err();
            match why_of(&refused) {
                KeyFileError::NoIdentity => assert_eq!(text, ""),
                KeyFileError::NotAnIdentity(line) => assert!(line.contains("line 1"), "{line}"),
                other => panic!("{other}"),
            }
            assert!(!refused.to_string().contains("1GQ9778"), "{refused}");
        }
        let nowhere = PathBuf::from("/nowhere/key");
        let missing = Identities::of_files([&nowhere]).unwrap_err();
        assert!(matches!(why_of(&missing), KeyFileError::Unreadable(_)));
        let shown = format!("{:?}", identities(SECRET).unwrap());
        assert_eq!(shown, "Identities(1)");
    }

    #[test]
    fn new_identity_decrypts_for_its_recipient() {
        let (text, recipient) = new_identity().unwrap();
        let recipients = Recipients::of_text(&recipient).unwrap();
        let bytes = encrypted(&recipients, b"a row");
        assert!(!bytes.windows(5).any(|part| part == b"a row"));
        assert_eq!(
            decrypted(&identities(&text).unwrap(), &bytes).unwrap(),
            b"a row"
        );
        let (other, _) = new_identity().unwrap();
        let refused = decrypted(&identities(&other).unwrap(), &bytes);
        assert_eq!(refused, Err(EncryptionError::OtherRecipients));
        let refused = decrypted(&Identities::default(), &bytes);
        assert_eq!(refused, Err(EncryptionError::NoIdentity));
    }

    #[test]
    fn altered_and_truncated_ciphertext_is_refused() {
        let (text, recipient) = new_identity().unwrap();
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
    fn endless_age_header_is_bounded() {
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
