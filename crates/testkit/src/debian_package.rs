//! Unpacks a package of Debian's archive once into the target folder. The package is not installed, so no service starts and the machine
//! stays unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bounded_run;

const LISTS_LIMIT: Duration = Duration::from_secs(300);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(300);
const UNPACK_LIMIT: Duration = Duration::from_secs(60);

/// Returns the folder with the files that this package would install below `/`.
///
/// # Errors
/// If this machine's Debian archive does not have the package; the message says what to do.
pub fn unpacked(package: &str) -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let folder = crate::checkout().join("target/debian").join(package);
    if !folder.is_dir() {
        unpack(package, &folder).with_context(|| {
            format!("this test needs `{package}`, which comes from Debian's archive: is there a network?")
        })?;
    }
    Ok(folder)
}

/// Downloads and unpacks the package into a temporary folder, then renames the folder, so that an interrupted unpack is never used
/// later.
fn unpack(package: &str, folder: &Path) -> Result<()> {
    let parent = folder.parent().context("the folder has a parent")?;
    fs::create_dir_all(parent)?;
    let work = tempfile::Builder::new()
        .prefix("unpacking-")
        .tempdir_in(parent)?;
    if download(package, work.path(), &[]).is_err() {
        // The machine's package lists may never have been downloaded.
        let lists = work.path().join("lists");
        fs::create_dir_all(lists.join("partial"))?;
        let lists = format!("Dir::State::Lists={}", lists.display());
        let mut update = apt_get(work.path(), &["-o", &lists]);
        update.arg("update");
        bounded_run::text("apt-get update", update, LISTS_LIMIT)?;
        download(package, work.path(), &["-o", &lists])?;
    }
    let packages = fs::read_dir(work.path())?.filter_map(|entry| Some(entry.ok()?.path()));
    let file = packages
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get downloaded nothing")?;
    let fresh = work.path().join("root");
    let mut unpacking = Command::new("dpkg");
    unpacking.arg("-x").arg(&file).arg(&fresh);
    bounded_run::text("dpkg -x", unpacking, UNPACK_LIMIT)?;
    match fs::rename(&fresh, folder) {
        // Another process has unpacked the package in the meantime.
        Err(_) if folder.is_dir() => Ok(()),
        moved => moved.with_context(|| format!("cannot move it to {}", folder.display())),
    }
}

fn download(package: &str, work: &Path, options: &[&str]) -> Result<()> {
    let mut download = apt_get(work, options);
    download.args(["download", package]);
    bounded_run::text("apt-get download", download, DOWNLOAD_LIMIT).map(drop)
}

fn apt_get(work: &Path, options: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.current_dir(work).env("LC_ALL", "C");
    // apt's account for downloads may not enter the checkout. Signatures are verified nevertheless.
    command.args(["--quiet=2", "-o", "APT::Sandbox::User=root"]);
    command.args(options);
    command
}
