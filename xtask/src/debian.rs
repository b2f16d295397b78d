//! Unpacks MySQL from Debian's archive into a folder, without changes to the machine.
//!
//! `apt-get` gets a private configuration. Package lists, cache, status and sources are in a temporary folder. The status is empty, so that
//! all dependencies are downloaded. Hooks in the machine's configuration are ignored. `apt-get` only downloads, and `dpkg -x` unpacks
//! without installing. The archive's address and the proxies are those of the machine.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use testkit::bounded_run;
use testkit::bounded_run::Finished;
use testkit::mysql_tree::{MYSQLD_VARIABLE, find_on_path};

/// The suite with MySQL 9.7, which no stable release of Debian contains yet.
const SUITE: &str = "unstable";
const PACKAGES: [&str; 4] = [
    "mysql-server-core",
    "mysql-client-core",
    "sysbench",
    "haproxy",
];
/// The possible paths of Debian's archive keys: the older name and the newer one.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];
const QUERY_LIMIT: Duration = Duration::from_secs(60);
const LISTS_LIMIT: Duration = Duration::from_secs(300);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(1800);
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// Returns advice for users without access to Debian's archive.
fn get_one_yourself() -> String {
    format!(
        "install MySQL 8.0 or later with its client programs, sysbench and haproxy, then set ${MYSQLD_VARIABLE} to its mysqld or put \
         them on the PATH"
    )
}

/// Downloads the packages with all dependencies, and unpacks them into `root`. `work` is a folder for temporary files, which the caller
/// deletes.
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

/// Returns the address of Debian's main archive, from the configuration of this machine's apt.
pub(crate) fn main_archive() -> Result<String> {
    archive(&query("apt-get", &LIST_TARGETS)?).with_context(|| {
        format!(
            "apt knows no Debian archive on this machine: {}",
            get_one_yourself()
        )
    })
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
        let site = main_archive()?;
        let architecture = query("dpkg", &["--print-architecture"])?;
        let keyring = KEYRINGS.into_iter().find(|file| Path::new(file).is_file());
        fs::write(
            folder.join("sources/archive.sources"),
            source_entry(&site, SUITE, keyring),
        )?;
        let inherited = query("apt-config", &["dump"])?;
        fs::write(
            folder.join("apt.conf"),
            private(&folder, architecture.trim(), &inherited),
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

    /// Downloads the packages. Returns their files.
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
        let wanted = downloads(&String::from_utf8_lossy(&done.stdout));
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

    /// Runs apt-get, and shows a progress bar of the downloaded bytes.
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

    /// If apt-get has failed, returns an error with apt-get's first message and what to do.
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

/// Returns the number of bytes in a folder. apt-get adds and removes files at the same time, so that files that cannot be read count as 0.
fn bytes_in(folder: &Path) -> u64 {
    let files = files_in(folder).unwrap_or_default();
    files
        .iter()
        .filter_map(|file| fs::metadata(file).ok())
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

// The archive that this machine uses, and a source for it. Pure: apt's output is an argument.

/// Arguments with which apt lists every package index of its sources, even if it was never downloaded.
pub(super) const LIST_TARGETS: [&str; 5] = [
    "indextargets",
    "--no-release-info",
    "--format",
    "$(REPO_URI)|$(COMPONENT)",
    "Created-By: Packages",
];

/// Returns the address of Debian's main archive from apt's index targets. It may be a mirror or a snapshot. Archives for security updates,
/// and archives of other origins, have other names.
pub(super) fn archive(targets: &str) -> Option<String> {
    targets
        .lines()
        .filter_map(|line| line.split_once('|'))
        .filter(|(_, component)| *component == "main")
        .map(|(address, _)| address.trim_end_matches('/'))
        .find(|address| names_debian(address))
        .map(str::to_owned)
}

/// Returns whether the address ends in `/debian`, or in `/archive/debian/<time>` for a snapshot.
fn names_debian(address: &str) -> bool {
    let mut parts = address.rsplit('/');
    let last = parts.next();
    last == Some("debian") || (last.is_some_and(is_time) && parts.next() == Some("debian"))
}

/// Returns whether the text has the form `20250520T000000Z`.
fn is_time(part: &str) -> bool {
    part.len() == 16
        && part.ends_with('Z')
        && part.starts_with(|first: char| first.is_ascii_digit())
}

/// Returns a source entry for `suite` of the archive at `site`.
pub(super) fn source_entry(site: &str, suite: &str, keyring: Option<&str>) -> String {
    let signed = keyring
        .map(|file| format!("Signed-By: {file}\n"))
        .unwrap_or_default();
    format!("Types: deb\nURIs: {site}\nSuites: {suite}\nComponents: main\n{signed}")
}

/// Returns the sizes of the files in the output of `apt-get --print-uris`. A line is `'address' name bytes checksum`.
pub(super) fn downloads(listing: &str) -> Vec<u64> {
    listing
        .lines()
        .filter(|line| line.starts_with('\''))
        .filter_map(|line| line.split_whitespace().nth(2)?.parse().ok())
        .collect()
}

// The configuration file for the private `apt-get`. Pure.

/// The machine's settings for access to an archive. The private `apt-get` ignores all other settings, above all hooks. Some container
/// images have hooks that empty the machine's package cache after every update.
const INHERITED: [&str; 6] = [
    "Acquire::http::",
    "Acquire::https::",
    "Acquire::Retries",
    "Acquire::ForceIPv4",
    "Acquire::ForceIPv6",
    "Acquire::Check-Valid-Until",
];

/// Returns the text of a configuration with all paths below `folder`. `machine` is the output of `apt-config dump`.
pub(super) fn private(folder: &Path, architecture: &str, machine: &str) -> String {
    let folder = folder.display();
    let mut text = String::new();
    for line in machine
        .lines()
        .filter(|line| INHERITED.iter().any(|prefix| line.starts_with(prefix)))
    {
        let _ = writeln!(text, "{line}");
    }
    let _ = write!(
        text,
        r#"
// The machine's own configuration is ignored.
Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{folder}/sources";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "{folder}";
Dir::State::Lists "{folder}/lists";
Dir::State::Status "{folder}/status";
Dir::State::Extended_States "{folder}/extended_states";
Dir::Cache "{folder}/cache";
Dir::Log "{folder}";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
// Its unprivileged download account may not be able to enter the checkout. Signatures are verified all the same.
APT::Sandbox::User "root";
// A list that cannot be fetched is an error, not a warning.
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::PDiffs "false";
Acquire::http::Timeout "30";
"#
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_archive_is_distinguished_from_others() {
        let cases = [
            (
                "http://m.example/debian-security/|main\nhttp://m.example/debian/|main\n",
                Some("http://m.example/debian"),
            ),
            (
                "http://m.example/debian|contrib\nhttps://n.example/pub/debian|main\n",
                Some("https://n.example/pub/debian"),
            ),
            (
                "http://s.example/archive/debian/20250520T000000Z/|main\n",
                Some("http://s.example/archive/debian/20250520T000000Z"),
            ),
            (
                "http://m.example/ubuntu/|main\nhttp://m.example/debian-ports/|main\n",
                None,
            ),
            ("", None),
        ];
        for (targets, expected) in cases {
            assert_eq!(archive(targets).as_deref(), expected, "{targets}");
        }
    }

    #[test]
    fn a_source_entry_names_its_keyring_if_there_is_one() {
        let entry = source_entry("http://m.example/debian", "unstable", Some("/k.gpg"));
        assert_eq!(
            entry,
            "Types: deb\nURIs: http://m.example/debian\nSuites: unstable\nComponents: main\nSigned-By: /k.gpg\n"
        );
        assert!(!source_entry("http://m.example/debian", "unstable", None).contains("Signed-By"));
    }

    #[test]
    fn downloads_are_counted() {
        let listing = "'http://m/a.deb' a_1_amd64.deb 1200 SHA256:00\nnote\n'http://m/b.deb' b_1%3a2_all.deb 34 SHA256:11\n";
        assert_eq!(downloads(listing), [1200, 34]);
    }
}

#[cfg(test)]
mod apt_settings_tests {
    use super::*;

    #[test]
    fn the_archives_settings_are_inherited_and_hooks_are_not() {
        let machine = "\
Acquire::http::Proxy \"proxy:3128\";
Acquire::Retries \"5\";
APT::Update::Post-Invoke:: \"rm -f the-cache\";
Dir::State::status \"/var/lib/dpkg/status\";
";
        let text = private(Path::new("/checkout/.mysql/w/apt"), "arm64", machine);
        assert!(
            text.contains("Acquire::http::Proxy \"proxy:3128\";")
                && text.contains("Acquire::Retries \"5\";")
        );
        assert!(!text.contains("rm -f") && !text.contains("/var/lib"));
        assert!(text.contains("APT::Architectures { \"arm64\"; };"));
        assert!(text.contains("Dir::State::Status \"/checkout/.mysql/w/apt/status\";"));
    }
}
