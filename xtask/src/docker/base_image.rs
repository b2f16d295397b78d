//! Provides base images, with the names that the Dockerfiles use. If no registry answers, builds them from Debian's archive.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::bounded_run;
use testkit::mysql_tree::MysqlTree;

use crate::debian::main_archive;
use crate::docker::engine::{Engine, folder_of_containers};
use crate::mysql;

const BOOTSTRAP_LIMIT: Duration = Duration::from_secs(900);
const PULL_LIMIT: Duration = Duration::from_secs(300);
const SLIM: &str = "debian:stable-slim";
const PROMETHEUS: &str = "prom/prometheus:v2.53.0";
/// Debian stable with systemd as its first process.
pub(crate) const WITH_SYSTEMD: &str = "witness-test/debian-systemd:stable";

/// Provides the images that containers of tests, and `containers/`, are made of.
///
/// # Errors
/// Neither a registry nor Debian's archive provides an image.
pub(crate) fn provide_images(engine: &Engine) -> Result<()> {
    debian_slim(engine)?;
    // The unpacked packages contain HAProxy and mysqld.
    for tag in ["mysql:8.4", "haproxy:3.0"] {
        if !has(engine, tag) {
            of_mysql_tree(engine, tag)?;
        }
    }
    let install = "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends";
    if !has(engine, PROMETHEUS) {
        let recipe = format!(
            "FROM {SLIM}\n{install} prometheus && rm -r /var/lib/apt/lists\n\
             RUN mkdir --parents /prometheus && chown prometheus /prometheus\nUSER prometheus\nENTRYPOINT [\"/usr/bin/prometheus\"]\n"
        );
        build(engine, PROMETHEUS, &recipe)?;
    }
    if !exists(engine, WITH_SYSTEMD) {
        let recipe = format!("FROM {SLIM}\n{install} systemd systemd-sysv dbus ca-certificates\n");
        build(engine, WITH_SYSTEMD, &recipe)?;
    }
    Ok(())
}

fn debian_slim(engine: &Engine) -> Result<()> {
    if has(engine, SLIM) {
        return Ok(());
    }
    let site = main_archive()?;
    eprintln!("containers: making {SLIM} from {site}");
    let folder = tempfile::tempdir_in(folder_of_containers())?;
    let root = folder.path().join("root");
    let mut command = Command::new("debootstrap");
    command
        .args(["--variant=minbase", "stable"])
        .arg(&root)
        .arg(&site)
        .env("LC_ALL", "C");
    bounded_run::run("debootstrap", command, Vec::new(), BOOTSTRAP_LIMIT)?
        .into_text("debootstrap")?;
    import(engine, SLIM, &[&root])
}

/// Creates an image from MySQL's programs as `cargo xtask mysql` has unpacked them, in their usual folders.
fn of_mysql_tree(engine: &Engine, tag: &str) -> Result<()> {
    let tree = mysql::provide_unpacked()?;
    eprintln!("containers: making {tag} of MySQL {}", tree.version);
    let links = tempfile::tempdir_in(folder_of_containers())?;
    for folder in ["bin", "sbin", "lib", "lib64"] {
        symlink(Path::new("usr").join(folder), links.path().join(folder))?;
    }
    let temporary = links.path().join("tmp");
    fs::create_dir(&temporary)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777))?;
    let root = MysqlTree::folder().join(mysql::ROOT);
    import(engine, tag, &[&root, links.path()])
}

/// Returns whether the engine has an image, or can download it from a registry.
fn has(engine: &Engine, tag: &str) -> bool {
    if exists(engine, tag) {
        return true;
    }
    let mut pull = engine.command(&["pull", "--quiet", tag]);
    pull.stdin(Stdio::null());
    let pulled = bounded_run::run("docker pull", pull, Vec::new(), PULL_LIMIT);
    pulled.is_ok_and(|done| done.status.success())
}

fn exists(engine: &Engine, tag: &str) -> bool {
    engine.docker(&["image", "inspect", tag]).is_ok()
}

/// Creates an image with the contents of these folders.
fn import(engine: &Engine, tag: &str, folders: &[&Path]) -> Result<()> {
    let archive = tempfile::NamedTempFile::new_in(folder_of_containers())?;
    let mut pack = Command::new("tar");
    pack.arg("-cf").arg(archive.path());
    for folder in folders {
        pack.arg("-C").arg(folder);
        for entry in fs::read_dir(folder)? {
            pack.arg(entry?.file_name());
        }
    }
    bounded_run::run("tar", pack, Vec::new(), BOOTSTRAP_LIMIT)?.into_text("tar")?;
    let mut import = engine.command(&["import", "-", tag]);
    import
        .stdin(File::open(archive.path())?)
        .stdout(Stdio::null());
    let status = import.status().context("docker does not start")?;
    ensure!(status.success(), "docker import: {status}");
    Ok(())
}

/// Builds an image from a Dockerfile that needs no other files.
fn build(engine: &Engine, tag: &str, recipe: &str) -> Result<()> {
    eprintln!("containers: building {tag}");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("Dockerfile");
    File::create(&file)?.write_all(recipe.as_bytes())?;
    engine.build(tag, &file, folder.path())
}
