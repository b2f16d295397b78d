//! A *tree*: the locations of MySQL's programs.
//!
//! `cargo xtask mysql` finds or unpacks a tree and describes it in `.mysql/tree.json`. Tests, benches and comparisons read that file
//! through [`MysqlTree::require`]. `$WITNESS_MYSQL_TREE` names another tree (its folder or its description), `$MYSQLD` another server. An
//! unpacked tree runs through its own dynamic loader: it neither uses nor changes the machine's libraries.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::bounded_run;

/// The variable that names another tree: its folder, or its description file.
pub const TREE_VARIABLE: &str = "WITNESS_MYSQL_TREE";
/// The variable that names another server.
pub const MYSQLD_VARIABLE: &str = "MYSQLD";
/// Set by `cargo xtask test --quick`: no test of that run may use a mysqld.
pub const QUICK_VARIABLE: &str = "WITNESS_QUICK_TESTS";

const FOLDER: &str = ".mysql";
const DESCRIPTION: &str = "tree.json";

/// Origin of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Named by `$MYSQLD`.
    Variable,
    /// Found on the PATH.
    Path,
    /// Unpacked from Debian's archive into the checkout.
    Unpacked,
}

/// MySQL's programs and the folders that they need as options.
///
/// In the description file, a relative path is relative to the file's folder, so that a checkout can be moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqlTree {
    /// How the tree was found.
    pub origin: Origin,
    /// The version from `mysqld --version`, such as `9.7.4`.
    pub version: String,
    /// The dynamic loader to run every program through; `None` for installed programs.
    pub loader: Option<PathBuf>,
    /// The loader's search path for shared libraries, in order.
    pub library_path: Vec<PathBuf>,
    /// The server.
    pub mysqld: PathBuf,
    /// The command line client.
    pub mysql: Option<PathBuf>,
    /// The reader of binlog files.
    pub mysqlbinlog: Option<PathBuf>,
    /// The load generator.
    pub sysbench: Option<PathBuf>,
    /// The folder of sysbench's Lua programs.
    pub sysbench_scripts: Option<PathBuf>,
    /// HAProxy, through which clients find the primary.
    pub haproxy: Option<PathBuf>,
    /// `--basedir`. This option and the next three are `None` if the server finds its folders itself.
    pub basedir: Option<PathBuf>,
    /// `--plugin-dir`.
    pub plugin_dir: Option<PathBuf>,
    /// `--lc-messages-dir`.
    pub messages_dir: Option<PathBuf>,
    /// `--character-sets-dir`.
    pub charsets_dir: Option<PathBuf>,
    /// The plugins of the client library that sysbench is linked with (its `caching_sha2_password` is one of them).
    pub client_plugin_dir: Option<PathBuf>,
}

impl MysqlTree {
    /// Returns the tree to use: that of `$WITNESS_MYSQL_TREE`, then `$MYSQLD`, then `.mysql/` of the checkout.
    ///
    /// # Panics
    /// If there is no tree. A test that needs a mysqld fails without one; it is never skipped.
    #[must_use]
    pub fn require() -> Self {
        required(Self::locate())
    }

    /// As [`MysqlTree::require`], for callers that report errors themselves.
    ///
    /// # Errors
    /// If there is no tree, or its configuration is wrong.
    pub fn locate() -> Result<Self> {
        if let Some(named) = env::var_os(TREE_VARIABLE) {
            let named = PathBuf::from(named);
            let file = if named.is_dir() {
                named.join(DESCRIPTION)
            } else {
                named
            };
            return Self::read(&file)
                .with_context(|| format!("${TREE_VARIABLE} names no usable tree"));
        }
        if let Some(mysqld) = env::var_os(MYSQLD_VARIABLE) {
            return installed_tree(Path::new(&mysqld), Origin::Variable)
                .with_context(|| format!("${MYSQLD_VARIABLE} names no usable mysqld"));
        }
        Self::read_in(&Self::folder())
    }

    /// Returns the tree of the oldest MySQL version that is tested.
    ///
    /// # Panics
    /// If there is no tree, as [`MysqlTree::require`].
    #[must_use]
    pub fn require_oldest() -> Self {
        let tree = Self::read_in(&Self::oldest_folder());
        required(tree.context("run `cargo xtask mysql --oldest`"))
    }

    /// The folder of the oldest MySQL.
    #[must_use]
    pub fn oldest_folder() -> PathBuf {
        Self::folder().join("oldest")
    }

    /// Reads the description in a folder.
    ///
    /// # Errors
    /// As [`MysqlTree::read`].
    pub fn read_in(folder: &Path) -> Result<Self> {
        Self::read(&folder.join(DESCRIPTION))
    }

    /// The folder `.mysql` of the checkout.
    #[must_use]
    pub fn folder() -> PathBuf {
        crate::checkout().join(FOLDER)
    }

    /// Reads a description file; relative paths in it become absolute.
    ///
    /// # Errors
    /// If the file is missing or damaged, or the server named in the file does not exist.
    pub fn read(file: &Path) -> Result<Self> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!(
                    "there is no mysqld to test with ({} is missing): run `cargo xtask mysql`",
                    file.display()
                )
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        let mut tree: Self = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is damaged: remove it and run `cargo xtask mysql`",
                file.display()
            )
        })?;
        let folder = std::path::absolute(file)?
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default();
        tree.each_path(|path| *path = folder.join(&*path));
        if !tree.mysqld.is_file() {
            bail!(
                "{} names {}, which is gone: run `cargo xtask mysql`",
                file.display(),
                tree.mysqld.display()
            );
        }
        Ok(tree)
    }

    /// Writes the description into `folder`, replacing an older one in one step. Paths inside `folder` become relative.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let mut relative = self.clone();
        relative.each_path(|path| {
            if let Ok(inside) = path.strip_prefix(folder) {
                *path = inside.to_path_buf();
            }
        });
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut file = crate::figures::readable_file_in(folder)?;
        serde_json::to_writer_pretty(&mut file, &relative)?;
        file.write_all(b"\n")?;
        file.persist(folder.join(DESCRIPTION))
            .context("cannot write the tree's description")?;
        Ok(())
    }

    /// Returns the command line that starts `program` of this tree, without the program's own arguments. It begins with the loader if
    /// there is one.
    #[must_use]
    pub fn words(&self, program: &Path) -> Vec<OsString> {
        let Some(loader) = &self.loader else {
            return vec![program.into()];
        };
        let libraries = self
            .library_path
            .iter()
            .map(|folder| folder.as_os_str())
            .collect::<Vec<_>>();
        // Programs use this name in their messages, and mysqld searches the list of its components next to it.
        let name = match program == self.mysqld {
            true => program.as_os_str(),
            false => program.file_name().unwrap_or(program.as_os_str()),
        };
        vec![
            loader.into(),
            "--argv0".into(),
            name.into(),
            "--library-path".into(),
            libraries.join(OsStr::new(":")),
            program.into(),
        ]
    }

    /// A command that runs `program` of this tree.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let words = self.words(program);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// Returns the path of one file in `folder` that starts `program` of this tree. If the tree has a loader, the file is a script.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn as_one_program(&self, program: &Path, folder: &Path) -> Result<PathBuf> {
        let name = program.file_name().context("a program has a name")?;
        bounded_run::write_program(folder, &name.to_string_lossy(), &self.words(program), &[])
    }

    /// Returns a command for a program that not every tree has.
    ///
    /// # Errors
    /// If this tree lacks the program.
    pub fn optional(&self, name: &str, program: Option<&PathBuf>) -> Result<Command> {
        match program {
            Some(program) => Ok(self.command(program)),
            None => bail!(
                "the MySQL at {} comes without `{name}`: install it beside mysqld or on the PATH, then run `cargo xtask mysql`",
                self.mysqld.display()
            ),
        }
    }

    /// Returns this tree with a server that has a keyring, in the file `keyring` of `folder`. The folder contains links to the files that
    /// the server needs next to its program and its plugins.
    ///
    /// # Errors
    /// If the folder cannot be written, or the tree does not name its plugin folder, as with an installed server.
    pub fn with_keyring(&self, folder: &Path) -> Result<Self> {
        let plugins = self.plugin_dir.as_ref();
        let plugins = plugins.context("a keyring needs an unpacked server")?;
        let [mysqld, plugin_dir] = ["mysqld", "plugin"].map(|name| folder.join(name));
        fs::create_dir_all(&plugin_dir)?;
        for plugin in fs::read_dir(plugins)? {
            let plugin = plugin?;
            symlink(plugin.path(), plugin_dir.join(plugin.file_name()))?;
        }
        symlink(&self.mysqld, &mysqld)?;
        let components = r#"{"components": "file://component_keyring_file"}"#;
        fs::write(folder.join("mysqld.my"), components)?;
        let keyring = format!(
            r#"{{"path": {:?}, "read_only": false}}"#,
            folder.join("keyring")
        );
        fs::write(plugin_dir.join("component_keyring_file.cnf"), keyring)?;
        Ok(Self {
            mysqld,
            plugin_dir: Some(plugin_dir),
            ..self.clone()
        })
    }

    /// The server's own folders, as options.
    #[must_use]
    pub fn server_options(&self) -> Vec<String> {
        let options = [
            ("basedir", &self.basedir),
            ("plugin-dir", &self.plugin_dir),
            ("lc-messages-dir", &self.messages_dir),
            ("character-sets-dir", &self.charsets_dir),
        ];
        options
            .into_iter()
            .filter_map(|(name, folder)| Some(format!("--{name}={}", folder.as_ref()?.display())))
            .collect()
    }

    /// Returns the programs that the whole test suite needs and this tree lacks.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        [
            ("mysql", &self.mysql),
            ("mysqlbinlog", &self.mysqlbinlog),
            ("sysbench", &self.sysbench),
            ("haproxy", &self.haproxy),
        ]
        .into_iter()
        .filter_map(|(name, program)| program.is_none().then_some(name))
        .collect()
    }

    fn each_path(&mut self, mut change: impl FnMut(&mut PathBuf)) {
        change(&mut self.mysqld);
        self.library_path.iter_mut().for_each(&mut change);
        let optional = [
            &mut self.loader,
            &mut self.mysql,
            &mut self.mysqlbinlog,
            &mut self.sysbench,
            &mut self.sysbench_scripts,
            &mut self.haproxy,
            &mut self.basedir,
            &mut self.plugin_dir,
            &mut self.messages_dir,
            &mut self.charsets_dir,
            &mut self.client_plugin_dir,
        ];
        optional.into_iter().flatten().for_each(change);
    }
}

fn required(tree: Result<MysqlTree>) -> MysqlTree {
    assert!(
        env::var_os(QUICK_VARIABLE).is_none(),
        "this test uses a mysqld, but its name does not contain `mysqld`: `cargo xtask test --quick` leaves tests out by that"
    );
    tree.unwrap_or_else(|error| panic!("{error:#}"))
}

// A tree of installed programs: an existing mysqld and the programs next to it.

const VERSION_LIMIT: Duration = Duration::from_secs(30);

impl MysqlTree {
    /// Runs this tree's server for its version number, such as `9.7.4`.
    ///
    /// # Errors
    /// If the server does not run, or is not MySQL 8 or later.
    pub fn ask_version(&self) -> Result<String> {
        let mut command = self.command(&self.mysqld);
        command.args(["--no-defaults", "--version"]);
        let what = format!("{} --version", self.mysqld.display());
        version_of(&bounded_run::text(&what, command, VERSION_LIMIT)?)
    }
}

/// Describes an installed mysqld. Its client programs are searched next to it, then on the PATH. The server itself finds its own folders.
///
/// # Errors
/// If the server is missing, does not run, or is not MySQL 8 or later.
pub fn installed_tree(mysqld: &Path, origin: Origin) -> Result<MysqlTree> {
    let mysqld = mysqld
        .canonicalize()
        .with_context(|| format!("{} is not there", mysqld.display()))?;
    let program = |name: &str| program_next_to(&mysqld, name).or_else(|| find_on_path(name));
    let sysbench = find_on_path("sysbench");
    let mut tree = MysqlTree {
        origin,
        version: String::new(),
        loader: None,
        library_path: Vec::new(),
        mysql: program("mysql"),
        mysqlbinlog: program("mysqlbinlog"),
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

/// Returns the version number in the output of `mysqld --version`. Fails for MariaDB, whose binlog differs, and for MySQL before 8.
fn version_of(said: &str) -> Result<String> {
    if said.contains("MariaDB") {
        bail!("it is MariaDB, which has another binlog format; MySQL 8.0 or later is needed");
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

/// Client programs of an installation are in the server's folder, or in the `bin` folder next to the server's `sbin`.
fn program_next_to(mysqld: &Path, name: &str) -> Option<PathBuf> {
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

    fn tree(folder: &Path) -> MysqlTree {
        MysqlTree {
            origin: Origin::Unpacked,
            version: "9.7.4".into(),
            loader: Some(folder.join("root/lib/ld.so")),
            library_path: vec![folder.join("root/lib"), folder.join("root/lib2")],
            mysqld: folder.join("root/mysqld"),
            mysql: Some(folder.join("root/mysql")),
            mysqlbinlog: None,
            sysbench: Some("/usr/bin/sysbench".into()),
            sysbench_scripts: None,
            haproxy: None,
            basedir: Some(folder.join("root")),
            plugin_dir: None,
            messages_dir: None,
            charsets_dir: None,
            client_plugin_dir: None,
        }
    }

    #[test]
    fn a_description_survives_a_move_of_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let (before, after) = (home.path().join("before"), home.path().join("after"));
        fs::create_dir_all(before.join("root")).unwrap();
        fs::write(before.join("root/mysqld"), b"").unwrap();
        tree(&before).write(&before).unwrap();
        fs::rename(&before, &after).unwrap();
        assert_eq!(
            MysqlTree::read(&after.join(DESCRIPTION)).unwrap(),
            tree(&after)
        );
    }

    #[test]
    fn a_missing_tree_is_reported_in_one_line_with_the_remedy() {
        let home = tempfile::tempdir().unwrap();
        let error = format!(
            "{:#}",
            MysqlTree::read(&home.path().join(DESCRIPTION)).unwrap_err()
        );
        assert!(
            error.contains("run `cargo xtask mysql`") && error.lines().count() == 1,
            "{error}"
        );
    }

    #[test]
    fn a_tree_without_its_server_is_reported() {
        let home = tempfile::tempdir().unwrap();
        tree(home.path()).write(home.path()).unwrap();
        let error = format!(
            "{:#}",
            MysqlTree::read(&home.path().join(DESCRIPTION)).unwrap_err()
        );
        assert!(error.contains("which is gone"), "{error}");
    }

    #[test]
    fn programs_run_through_the_loader_of_the_tree() {
        let tree = tree(Path::new("/t"));
        let expected = [
            "/t/root/lib/ld.so",
            "--argv0",
            "/t/root/mysqld",
            "--library-path",
            "/t/root/lib:/t/root/lib2",
            "/t/root/mysqld",
        ];
        assert_eq!(tree.words(&tree.mysqld), expected);
        let installed = MysqlTree {
            loader: None,
            ..tree
        };
        assert_eq!(installed.words(&installed.mysqld), ["/t/root/mysqld"]);
    }

    #[test]
    fn missing_programs_are_named() {
        assert_eq!(tree(Path::new("/t")).missing(), ["mysqlbinlog", "haproxy"]);
        let error = tree(Path::new("/t"))
            .optional("mysqlbinlog", None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("comes without `mysqlbinlog`"), "{error}");
    }
}

#[cfg(test)]
mod installed_tests {
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
