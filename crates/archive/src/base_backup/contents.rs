//! Contents of a base backup: a data directory's data, without the files that identify one server. Exclusion is by name, in pure code.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::BaseError;

/// Top-level files of a data directory that belong to one server: identity, configuration and keys.
const OF_ONE_SERVER: [&str; 4] = ["auto.cnf", "mysqld-auto.cnf", "mysqld.my", "lost+found"];
/// Top-level directories that mysqld recreates: temporary tables, and redo archived for a clone.
const MADE_ANEW: [&str; 2] = ["#innodb_temp", "#ib_archive"];
/// The directory with the state of a clone. Except for one file, it describes the server that was cloned.
const OF_A_CLONE: &str = "#clone";
/// A file that makes mysqld recreate tables at its first start. A clone copies these tables only in the dictionary: they use other engines
/// than InnoDB, as mysql.slow_log does.
const TO_BE_MADE_ANEW: &str = "#status_fix";
/// File name suffixes of tablespaces, whose names a client chooses.
const TABLESPACES: [&str; 2] = [".ibd", ".ibu"];
/// Name prefixes of the keyring components' and plugins' files.
const KEYRING: [&str; 2] = ["component_keyring", "keyring"];
/// Name suffixes of configuration, TLS keys, text logs and runtime files.
const LEFT_OUT: [&str; 9] = [
    ".cnf", ".pem", ".err", ".log", ".pid", ".sock", ".lock", ".index", ".~rec~",
];
/// Minimum digits in the number of a binlog or relay log file.
const LOG_DIGITS: usize = 6;

/// An entry of a data directory that a base backup includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path relative to the data directory, in UTF-8.
    pub path: PathBuf,
    /// True if it is a directory; otherwise a file.
    pub is_directory: bool,
    /// Size in bytes; 0 for a directory.
    pub bytes: u64,
    /// Modification time; for a directory, the epoch, because other entries may be created next to the backed-up ones.
    pub modified: SystemTime,
}

/// Whether a top-level entry is excluded.
fn is_left_out(name: &str, is_directory: bool) -> bool {
    let is_of_one_server = OF_ONE_SERVER.contains(&name);
    if is_directory {
        return is_of_one_server || MADE_ANEW.contains(&name);
    }
    // A client may have chosen any name.
    !TABLESPACES.iter().any(|end| name.ends_with(end))
        && (is_of_one_server
            || LEFT_OUT.iter().any(|end| name.ends_with(end))
            || KEYRING.iter().any(|begin| name.starts_with(begin))
            || name.starts_with("ibtmp")
            || is_of_a_log(name))
}

/// True if it is a binlog or relay log file: the ring has the binlog, and relay logs are no longer needed.
fn is_of_a_log(name: &str) -> bool {
    let Some((stem, number)) = name.rsplit_once('.') else {
        return false;
    };
    !stem.is_empty()
        && number.len() >= LOG_DIGITS
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// All entries of a data directory's base backup, sorted by name, each directory before its contents.
///
/// # Errors
/// When the directory cannot be read, or contains an entry that cannot be backed up, such as a link.
pub fn list(data_dir: &Path) -> Result<Vec<Entry>, BaseError> {
    let mut entries = Vec::new();
    list_below(data_dir, Path::new(""), &mut entries)?;
    Ok(entries)
}

fn list_below(data_dir: &Path, below: &Path, to: &mut Vec<Entry>) -> Result<(), BaseError> {
    let directory = data_dir.join(below);
    let read = fs::read_dir(&directory).and_then(Iterator::collect);
    let mut found: Vec<fs::DirEntry> = read.map_err(BaseError::disk(&directory))?;
    found.sort_by_key(fs::DirEntry::file_name);
    for one in found {
        let path = one.path();
        // The metadata of a link itself, not of its target.
        let meta = one.metadata().map_err(BaseError::disk(&path))?;
        let unfit = |what| Err(BaseError::Unfit(path.clone(), what));
        let name = one.file_name();
        let Some(name) = name.to_str() else {
            return unfit("mysqld gives no file such a name");
        };
        let is_directory = match meta.file_type() {
            kind if kind.is_dir() => true,
            kind if kind.is_file() => false,
            kind if kind.is_symlink() => {
                return unfit("it is a link, and what it leads to would not be in the backup");
            }
            // Sockets and pipes have no data.
            _ => continue,
        };
        if below.as_os_str().is_empty() && is_left_out(name, is_directory) {
            continue;
        }
        if below.as_os_str() == OF_A_CLONE && name != TO_BE_MADE_ANEW {
            continue;
        }
        let place = below.join(name);
        let (bytes, modified) = match is_directory {
            true => (0, SystemTime::UNIX_EPOCH),
            false => (meta.len(), meta.modified().map_err(BaseError::disk(&path))?),
        };
        to.push(Entry {
            path: place.clone(),
            is_directory,
            bytes,
            modified,
        });
        if is_directory {
            list_below(data_dir, &place, to)?;
        }
    }
    Ok(())
}

/// Checks that the entries are a complete data directory. If a server has data elsewhere (`innodb_data_home_dir`,
/// `innodb_log_group_home_dir`, `innodb_undo_directory`), it cannot start from the entries alone.
///
/// # Errors
/// Names the missing part.
pub fn assert_whole(data_dir: &Path, entries: &[Entry]) -> Result<(), BaseError> {
    let has = |name: &str| {
        let name = OsStr::new(name);
        entries.iter().any(|entry| entry.path.as_os_str() == name)
    };
    let missing = if !has("ibdata1") {
        "the system tablespace (ibdata1) is not in it"
    } else if !has("mysql.ibd") {
        "the data dictionary (mysql.ibd) is not in it"
    } else if !has("#innodb_redo") && !has("ib_logfile0") {
        "the redo log (#innodb_redo) is not in it"
    } else if !has("undo_001") {
        "the undo tablespaces (undo_001) are not in it"
    } else {
        return Ok(());
    };
    Err(BaseError::Unfit(data_dir.to_owned(), missing))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn fill(directory: &Path, names: &[&str]) {
        for name in names {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
    }

    fn paths(entries: &[Entry]) -> Vec<&str> {
        let paths = entries.iter().map(|entry| entry.path.to_str().unwrap());
        paths.collect()
    }

    #[test]
    fn backup_has_the_data_without_server_identity() {
        let folder = tempfile::tempdir().unwrap();
        let of_data = [
            "#clone",
            "#clone/#status_fix",
            "#ib_16384_0.dblwr",
            "#innodb_redo",
            "#innodb_redo/#ib_redo7",
            "ib_buffer_pool",
            "ibdata1",
            "ibtmp_of_a_client.ibd",
            "keyring_audit.ibd",
            "keyring_undo.ibu",
            "mysql",
            "mysql/general_log_213.sdi",
            "mysql.ibd",
            "mysql_upgrade_history",
            "shop",
            "shop/auto.cnf",
            "shop/binlog.000001",
            "shop/orders.ibd",
            "undo_001",
        ];
        let files = of_data.into_iter().filter(|name| {
            let is_folder = ["#clone", "#innodb_redo", "mysql", "shop"].contains(name);
            !is_folder
        });
        fill(folder.path(), &files.collect::<Vec<_>>());
        fill(
            folder.path(),
            &[
                "#clone/#view_status",
                "#innodb_temp/temp_1.ibt",
                "auto.cnf",
                "binlog.000001",
                "binlog.1000000",
                "binlog.index",
                "binlog.~rec~",
                "ca-key.pem",
                "component_keyring_file",
                "component_keyring_file.cnf",
                "host-relay-bin-witness.000002",
                "host.err",
                "ibtmp1",
                "keyring",
                "mysqld-auto.cnf",
                "mysqld.my",
                "mysqld.pid",
            ],
        );
        let _socket = UnixListener::bind(folder.path().join("s")).unwrap();
        let entries = list(folder.path()).unwrap();
        assert_eq!(paths(&entries), of_data);
        let redo = &entries[4];
        assert_eq!((redo.is_directory, redo.bytes), (false, 22));
        assert_whole(folder.path(), &entries).unwrap();
    }

    #[test]
    fn links_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), &["shop/orders.ibd"]);
        symlink("/elsewhere", folder.path().join("shop/link")).unwrap();
        let refused = list(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("shop/link: it is a link"), "{refused}");
    }

    #[test]
    fn incomplete_data_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let all = ["ibdata1", "mysql.ibd", "#innodb_redo/#ib_redo0", "undo_001"];
        for missing in all {
            let _ = fs::remove_dir_all(folder.path().join("#innodb_redo"));
            for name in all {
                let _ = fs::remove_file(folder.path().join(name));
            }
            let there = all.into_iter().filter(|name| *name != missing);
            fill(folder.path(), &there.collect::<Vec<_>>());
            let entries = list(folder.path()).unwrap();
            let refused = assert_whole(folder.path(), &entries).unwrap_err();
            let part = missing.split('/').next().unwrap();
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }
}
