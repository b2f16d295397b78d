//! A tree of installed programs: a mysqld that is there already, and what stands beside it.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{MysqlTree, Origin};
use crate::bounded_run;

const VERSION_LIMIT: Duration = Duration::from_secs(30);

impl MysqlTree {
    /// Runs this tree's server for its version number, such as `9.7.4`.
    ///
    /// # Errors
    /// When it does not run, or is not MySQL 8 or later.
    pub fn ask_version(&self) -> Result<String> {
        let mut command = self.command(&self.mysqld);
        command.args(["--no-defaults", "--version"]);
        let what = format!("{} --version", self.mysqld.display());
        version_of(
            &bounded_run::run(what.as_str(), command, Vec::new(), VERSION_LIMIT)?
                .into_text(&what)?,
        )
    }
}

/// Describes an installed mysqld. Its client programs are looked for beside it, then on the PATH; it knows its own folders.
///
/// # Errors
/// When it is missing, does not run, or is not MySQL 8 or later.
pub fn installed_tree(mysqld: &Path, origin: Origin) -> Result<MysqlTree> {
    let mysqld = mysqld
        .canonicalize()
        .with_context(|| format!("{} is not there", mysqld.display()))?;
    let beside = |name: &str| program_beside(&mysqld, name).or_else(|| find_on_path(name));
    let sysbench = find_on_path("sysbench");
    let mut tree = MysqlTree {
        origin,
        version: String::new(),
        loader: None,
        library_path: Vec::new(),
        mysql: beside("mysql"),
        mysqlbinlog: beside("mysqlbinlog"),
        sysbench_scripts: sysbench.as_deref().and_then(scripts_of),
        sysbench,
        haproxy: find_on_path("haproxy"),
        basedir: None,
        plugin_dir: None,
        messages_dir: None,
        charsets_dir: None,
        client_plugin_dir: None,
        mysqld,
    };
    tree.version = tree.ask_version()?;
    Ok(tree)
}

/// The first executable file called `name` on the PATH.
#[must_use]
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| is_program(file))
}

/// The version number in what `mysqld --version` says, if it is one of MySQL 8 or later (MariaDB's binlog differs).
fn version_of(said: &str) -> Result<String> {
    if said.contains("MariaDB") {
        bail!("it is MariaDB, whose binlog is another format; MySQL 8.0 or later is needed");
    }
    let version = said
        .split_whitespace()
        .skip_while(|word| *word != "Ver")
        .nth(1)
        .map(|word| word.split('-').next().unwrap_or(word))
        .with_context(|| format!("it does not tell its version: {:?}", said.trim()))?;
    let major = version
        .split('.')
        .next()
        .and_then(|number| number.parse::<u32>().ok());
    match major {
        Some(major) if major >= 8 => Ok(version.to_owned()),
        _ => bail!("its version is {version}; MySQL 8.0 or later is needed"),
    }
}

/// Programs of one installation are in the server's folder, or in `bin` beside its `sbin`.
fn program_beside(mysqld: &Path, name: &str) -> Option<PathBuf> {
    let folder = mysqld.parent()?;
    [folder.join(name), folder.join("../bin").join(name)]
        .into_iter()
        .find(|file| is_program(file))
}

/// Packages put the scripts into `<prefix>/share/sysbench` for a `<prefix>/bin/sysbench`.
fn scripts_of(sysbench: &Path) -> Option<PathBuf> {
    let prefix = sysbench
        .canonicalize()
        .ok()?
        .parent()?
        .parent()?
        .to_path_buf();
    Some(prefix.join("share/sysbench"))
        .filter(|folder| folder.join("oltp_write_only.lua").is_file())
}

fn is_program(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_others_than_mysql_8_refused() {
        let accepted = [
            (
                "/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))",
                "9.7.4",
            ),
            (
                "mysqld  Ver 8.0.41 for Linux on x86_64 (MySQL Community Server - GPL)",
                "8.0.41",
            ),
            ("mysqld  Ver 26.1.0 for Linux on aarch64", "26.1.0"),
        ];
        for (said, version) in accepted {
            assert_eq!(version_of(said).unwrap(), version);
        }
        for said in [
            "mysqld  Ver 5.7.44 for Linux",
            "mariadbd  Ver 11.8.2-MariaDB for Linux",
            "what?",
            "Ver",
            "Ver x.y",
        ] {
            assert!(version_of(said).is_err(), "{said}");
        }
    }

    #[test]
    fn a_file_that_is_no_server_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = installed_tree(&folder.path().join("mysqld"), Origin::Variable).unwrap_err();
        assert!(format!("{error:#}").contains("is not there"), "{error:#}");
    }
}
