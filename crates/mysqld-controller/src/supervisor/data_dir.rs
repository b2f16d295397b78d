//! The data directory: what is in it, and its initialisation. A marker file stands in it from before
//! the initialisation to after its end, so that a half-made directory is known as ours, and wiped.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use mysql_link::ConnectOptions;

use crate::supervisor::decision::DataDir;

/// mysqld ignores files whose names begin with a dot when it looks whether a directory is empty.
const MARKER: &str = ".witness-initialising";

/// What is in a directory.
///
/// # Errors
/// When it cannot be listed.
pub(super) fn look(path: &Path) -> io::Result<DataDir> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DataDir::Empty),
        Err(error) => return Err(error),
    };
    let mut found = DataDir::Empty;
    for entry in entries {
        let name = entry?.file_name();
        if name == MARKER {
            return Ok(DataDir::HalfInitialised);
        }
        if !is_ignored(&name) {
            found = DataDir::Ready;
        }
    }
    Ok(found)
}

fn is_ignored(name: &std::ffi::OsStr) -> bool {
    name == "lost+found" || name.as_encoded_bytes().starts_with(b".")
}

/// Marks a directory as being initialised, and removes what an earlier attempt left in it.
///
/// # Errors
/// When that does not work, or there is something in it that is not from such an attempt.
pub(super) fn prepare(path: &Path) -> io::Result<()> {
    match look(path)? {
        DataDir::Ready => {
            return Err(io::Error::other(
                "there is something in the data directory: it is not initialised",
            ));
        }
        DataDir::Empty => {
            fs::create_dir_all(path)?;
            File::create(path.join(MARKER))?.sync_all()?;
            File::open(path)?.sync_all()?;
        }
        DataDir::HalfInitialised => {}
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if is_ignored(&entry.file_name()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Takes the marker away: the directory is ready.
///
/// # Errors
/// When that does not work.
pub(super) fn finish(path: &Path) -> io::Result<()> {
    fs::remove_file(path.join(MARKER))?;
    File::open(path)?.sync_all()
}

/// Writes the statements that make the member's account, readable to nobody else; `None` where the
/// account exists in any fresh server.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_account(file: &Path, account: &ConnectOptions) -> io::Result<bool> {
    if account.user == "root" {
        return Ok(false);
    }
    let mut out = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    out.write_all(account_statements(&account.user, account.password.reveal()).as_bytes())?;
    out.sync_all()?;
    Ok(true)
}

fn account_statements(user: &str, password: &str) -> String {
    let mut statements = String::new();
    for host in ["localhost", "127.0.0.1", "::1"] {
        let account = format!("{}@'{host}'", literal(user));
        statements.push_str(&format!(
            "CREATE USER {account} IDENTIFIED BY {};\n",
            literal(password)
        ));
        // It applies whatever the ring's log says, which may be any statement of an administrator, GRANT included.
        statements.push_str(&format!(
            "GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION;\n"
        ));
    }
    statements
}

/// A string literal, whatever is in it.
fn literal(text: &str) -> String {
    let mut quoted = String::from("'");
    for character in text.chars() {
        match character {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_never_wiped() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        assert_eq!(look(&path).unwrap(), DataDir::Empty);
        fs::create_dir(&path).unwrap();
        fs::create_dir(path.join("lost+found")).unwrap();
        assert_eq!(look(&path).unwrap(), DataDir::Empty);
        fs::write(path.join("ibdata1"), "precious").unwrap();
        assert_eq!(look(&path).unwrap(), DataDir::Ready);
        assert!(prepare(&path).is_err());
        assert_eq!(
            fs::read_to_string(path.join("ibdata1")).unwrap(),
            "precious"
        );
    }

    #[test]
    fn half_an_initialisation_is_wiped() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        prepare(&path).unwrap();
        fs::write(path.join("ibdata1"), "half").unwrap();
        fs::create_dir(path.join("mysql")).unwrap();
        fs::write(path.join("mysql/x"), "half").unwrap();
        assert_eq!(look(&path).unwrap(), DataDir::HalfInitialised);
        prepare(&path).unwrap();
        assert!(!path.join("ibdata1").exists() && !path.join("mysql").exists());
        fs::write(path.join("ibdata1"), "whole").unwrap();
        finish(&path).unwrap();
        assert_eq!(look(&path).unwrap(), DataDir::Ready);
    }

    #[test]
    fn literals_are_safe() {
        assert_eq!(literal("a'b\\c\nd"), "'a''b\\\\c\\nd'");
        let statements = account_statements("w", "p'; DROP USER root; --");
        assert!(statements.contains("IDENTIFIED BY 'p''; DROP USER root; --';"));
        assert_eq!(statements.lines().count(), 6);
    }
}
