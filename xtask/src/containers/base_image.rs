//! Images to begin with, made by debootstrap from Debian's archive: no registry is needed.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::bounded_run;

use crate::containers::engine::{Engine, folder_of_containers};
use crate::debian::main_archive;

const BOOTSTRAP_LIMIT: Duration = Duration::from_secs(900);
const TAG: &str = "witness-test/debian-systemd:stable";

/// Debian stable as it is on a host: with systemd as its first process. Returns the image's name.
pub(crate) fn debian_with_systemd(engine: &Engine) -> Result<&'static str> {
    if engine.docker(&["image", "inspect", TAG]).is_ok() {
        return Ok(TAG);
    }
    let site = main_archive()?;
    eprintln!("containers: making an image of Debian stable from {site}");
    let folder = tempfile::tempdir_in(folder_of_containers())?;
    let (root, archive) = (folder.path().join("root"), folder.path().join("root.tar"));
    let mut command = Command::new("debootstrap");
    command
        .args([
            "--variant=minbase",
            "--include=systemd,systemd-sysv,dbus,ca-certificates",
            "stable",
        ])
        .arg(&root)
        .arg(&site)
        .env("LC_ALL", "C");
    bounded_run::run("debootstrap", command, Vec::new(), BOOTSTRAP_LIMIT)?
        .into_text("debootstrap")?;
    let mut pack = Command::new("tar");
    pack.arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".");
    bounded_run::run("tar", pack, Vec::new(), BOOTSTRAP_LIMIT)?.into_text("tar")?;
    let mut import = engine.command(&["import", "-", TAG]);
    import.stdin(File::open(&archive)?).stdout(Stdio::null());
    let status = import.status().context("docker does not start")?;
    ensure!(status.success(), "docker import: {status}");
    Ok(TAG)
}
