//! MySQL from Debian's archive, unpacked into a folder without touching the machine.
//!
//! `apt-get` gets a configuration of its own: package lists, cache, status (empty, so that every dependency is fetched) and
//! sources are in a working folder, hooks of the machine's configuration are left out, and it only downloads. `dpkg -x`
//! unpacks without installing. The archive's site and the way to it (proxies) are those that the machine already uses.

mod apt_settings;
mod site;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use testkit::bounded_run::{self, Finished};
use testkit::mysql_tree::{MYSQLD_VARIABLE, find_on_path};

/// MySQL 9.7 is in no stable release of Debian yet.
const SUITE: &str = "unstable";
const PACKAGES: [&str; 4] = [
    "mysql-server-core",
    "mysql-client-core",
    "sysbench",
    "haproxy",
];
/// Where Debian keeps the archive's public keys, older and newer name.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];
const QUERY_LIMIT: Duration = Duration::from_secs(60);
const LISTS_LIMIT: Duration = Duration::from_secs(300);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(1800);
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// What a user does who cannot have Debian's.
fn get_one_yourself() -> String {
    format!(
        "install MySQL 8.0 or later with its client programs, sysbench and haproxy, then set ${MYSQLD_VARIABLE} to its mysqld or put \
         them on the PATH"
    )
}

/// Downloads the packages with all they depend on, and unpacks them into `root`. `work` is a folder for everything in
/// between, which the caller removes.
pub(crate) fn unpack(work: &Path, root: &Path) -> Result<()> {
    if find_on_path("apt-get").is_none() || find_on_path("dpkg").is_none() {
        bail!(
            "there is no mysqld here, and this is no Debian to unpack one from: {}",
            get_one_yourself()
        );
    }
    let apt = PrivateApt::set_up(work)?;
    apt.read_lists()?;
    let packages = apt.download()?;
    let bar = ProgressBar::new(packages.len() as u64)
        .with_style(style("{prefix} {bar:30} {pos}/{len} packages")?)
        .with_prefix("mysql: unpacking");
    fs::create_dir_all(root)?;
    for package in &packages {
        let mut command = Command::new("dpkg");
        command.arg("-x").arg(package).arg(root);
        bounded_run::run("dpkg -x", command, Vec::new(), UNPACK_LIMIT)?.into_text("dpkg -x")?;
        bar.inc(1);
    }
    bar.finish();
    Ok(())
}

struct PrivateApt {
    folder: PathBuf,
    site: String,
}

impl PrivateApt {
    fn set_up(work: &Path) -> Result<Self> {
        let folder = work.join("apt");
        for part in ["lists/partial", "cache/archives/partial", "sources"] {
            fs::create_dir_all(folder.join(part))?;
        }
        fs::write(folder.join("status"), b"")?;
        let site = site::archive(&query("apt-get", &site::LIST_TARGETS)?).with_context(|| {
            format!(
                "apt knows no Debian archive on this machine: {}",
                get_one_yourself()
            )
        })?;
        let architecture = query("dpkg", &["--print-architecture"])?;
        let keyring = KEYRINGS.into_iter().find(|file| Path::new(file).is_file());
        fs::write(
            folder.join("sources/archive.sources"),
            site::source_entry(&site, SUITE, keyring),
        )?;
        let inherited = query("apt-config", &["dump"])?;
        fs::write(
            folder.join("apt.conf"),
            apt_settings::private(&folder, architecture.trim(), &inherited),
        )?;
        Ok(Self { folder, site })
    }

    fn read_lists(&self) -> Result<()> {
        eprintln!(
            "mysql: reading the package lists of Debian {SUITE} from {}",
            self.site
        );
        let done = bounded_run::run(
            "apt-get update",
            self.command(&["update"]),
            Vec::new(),
            LISTS_LIMIT,
        )?;
        self.check(&done, "the package lists cannot be read")
    }

    /// Downloads the packages; returns their files.
    fn download(&self) -> Result<Vec<PathBuf>> {
        let mut install = vec![
            "install",
            "--yes",
            "--no-install-recommends",
            "--download-only",
        ];
        install.extend(PACKAGES);
        let mut listing = install.clone();
        listing.push("--print-uris");
        let done = bounded_run::run("apt-get", self.command(&listing), Vec::new(), QUERY_LIMIT)?;
        self.check(&done, "the packages cannot be chosen")?;
        let wanted = site::downloads(&String::from_utf8_lossy(&done.stdout));
        let bytes = wanted.iter().sum();
        let bar = ProgressBar::new(bytes)
            .with_style(style("{prefix} {bar:30} {bytes}/{total_bytes}")?)
            .with_prefix("mysql: downloading");
        if bar.is_hidden() {
            eprintln!(
                "mysql: downloading {} packages, {} MB",
                wanted.len(),
                bytes / 1_000_000
            );
        }
        let archives = self.folder.join("cache/archives");
        let done = self.run_watching(&install, &archives, &bar)?;
        self.check(&done, "the packages cannot be downloaded")?;
        bar.finish();
        let mut files = files_in(&archives)?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "deb"));
        files.sort();
        if files.len() < wanted.len() {
            bail!(
                "apt-get downloaded {} of {} packages and does not say why",
                files.len(),
                wanted.len()
            );
        }
        Ok(files)
    }

    /// Runs apt-get while the bar follows the bytes that have arrived.
    fn run_watching(
        &self,
        arguments: &[&str],
        archives: &Path,
        bar: &ProgressBar,
    ) -> Result<Finished> {
        let deadline = Instant::now() + DOWNLOAD_LIMIT;
        let mut running =
            bounded_run::Running::start("apt-get install", self.command(arguments), Vec::new())?;
        while !running.is_finished()? && Instant::now() < deadline {
            bar.set_position(bytes_in(archives) + bytes_in(&archives.join("partial")));
            thread::sleep(Duration::from_millis(100));
        }
        running.finish(Duration::ZERO)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        command
            .env("APT_CONFIG", self.folder.join("apt.conf"))
            .env("LC_ALL", "C")
            .arg("--quiet=2")
            .args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// One clear line when apt-get failed: its own first error, and what to do.
    fn check(&self, done: &Finished, what: &str) -> Result<()> {
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let reason = said
            .lines()
            .find(|line| line.starts_with("E:"))
            .or_else(|| said.lines().find(|line| line.starts_with("W:")))
            .unwrap_or("apt-get does not say why");
        bail!(
            "{what} from {}: {reason} (is there a network? without one: {})",
            self.site,
            get_one_yourself()
        );
    }
}

fn query(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C");
    bounded_run::run(program, command, Vec::new(), QUERY_LIMIT)?.into_text(program)
}

fn style(template: &str) -> Result<ProgressStyle> {
    ProgressStyle::with_template(template).context("a progress bar's template is wrong")
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect()
}

/// Files come and go while apt-get works; what cannot be read counts as nothing.
fn bytes_in(folder: &Path) -> u64 {
    let files = files_in(folder).unwrap_or_default();
    files
        .iter()
        .filter_map(|file| fs::metadata(file).ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}
