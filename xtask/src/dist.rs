//! `cargo xtask dist`: builds the files for installation. A tarball and Debian packages contain the program, manual pages, shell
//! completions and the systemd unit. Further files are a package with debug information, a bill of materials, and the checksums of all
//! files.

mod debian_package;
mod materials;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use testkit::bounded_run;
use testkit::figures::target_folder;

use crate::dist::debian_package::{Package, libraries};

const TOOL_LIMIT: Duration = Duration::from_secs(120);
const PROFILE: &str = "dist";
/// The cargo features of the packaged program.
const FEATURES: [&str; 3] = ["--no-default-features", "--features", "cloud"];

#[derive(Args)]
pub(crate) struct Options {
    /// Folder for the results
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    pub(crate) out: PathBuf,
    /// Version of the packages; the workspace's, unless named
    #[arg(long, value_name = "VERSION")]
    pub(crate) package_version: Option<String>,
    /// Pack the programs `witness` and `examples/manual` of this folder instead of building them
    #[arg(long, value_name = "DIR")]
    pub(crate) built_in: Option<PathBuf>,
}

/// Builds all files, and prints their list.
pub(crate) fn run(options: &Options) -> Result<()> {
    for file in build(options)? {
        let bytes = fs::metadata(&file)?.len();
        println!("{:>12} {}", mebibytes(bytes), file.display());
    }
    Ok(())
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Builds all files. Returns their paths.
pub(crate) fn build(options: &Options) -> Result<Vec<PathBuf>> {
    let built = match &options.built_in {
        Some(folder) => folder.clone(),
        None => compile()?,
    };
    let version = options
        .package_version
        .clone()
        .unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let architecture = tool("dpkg", &["--print-architecture"])?.trim().to_owned();
    let out = &options.out;
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
    fs::create_dir_all(out)?;
    let work = tempfile::tempdir_in(out)?;
    // Packages for tests are not compressed, because they are soon deleted.
    let level = match options.built_in {
        Some(_) => "-z0",
        None => "-z6",
    };
    let parts = Parts::make(&built, work.path())?;
    let mut files = vec![
        parts.tarball(out, work.path(), &version)?,
        parts
            .package(work.path(), &version, &architecture)?
            .write(out, level)?,
        parts
            .debug_package(work.path(), &version, &architecture)?
            .write(out, level)?,
        external_mysqld(work.path(), &version)?.write(out, level)?,
    ];
    let bill = out.join(format!("witness-{version}.cdx.json"));
    fs::write(&bill, materials::of_witness(&version)?)?;
    files.push(bill);
    work.close()?;
    files.push(checksums(out, &files)?);
    Ok(files)
}

/// Builds the packaged program. Returns its folder.
fn compile() -> Result<PathBuf> {
    for what in [["--bin", "witness"], ["--example", "manual"]] {
        let mut command = bounded_run::cargo();
        command.args([
            "build",
            "--locked",
            "--profile",
            PROFILE,
            "-p",
            "witness-bin",
        ]);
        command.args(FEATURES).args(what);
        let status = command.status().context("cargo does not start")?;
        ensure!(status.success(), "the program cannot be built");
    }
    Ok(target_folder().join(PROFILE))
}

/// The contents of the packages.
struct Parts {
    program: PathBuf,
    /// The file with the program's debug information, whose build id debuggers use to find it.
    debug: PathBuf,
    build_id: String,
    /// A folder with manual pages in `man1/`, and with shell completions.
    manual: PathBuf,
}

impl Parts {
    fn make(built: &Path, work: &Path) -> Result<Self> {
        let whole = built.join("witness");
        let (program, debug) = (work.join("witness"), work.join("witness.debug"));
        let text = |path: &Path| path.display().to_string();
        tool(
            "objcopy",
            &[
                "--only-keep-debug",
                "--compress-debug-sections",
                &text(&whole),
                &text(&debug),
            ],
        )?;
        let link = format!("--add-gnu-debuglink={}", debug.display());
        tool(
            "objcopy",
            &["--strip-all", &link, &text(&whole), &text(&program)],
        )?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let notes = tool("readelf", &["--notes", &text(&whole)])?;
        let build_id = build_id(&notes).context("the program has no build id")?;
        let manual = work.join("manual");
        tool(&text(&built.join("examples/manual")), &[&text(&manual)])?;
        Ok(Self {
            program,
            debug,
            build_id,
            manual,
        })
    }

    fn package(&self, work: &Path, version: &str, architecture: &str) -> Result<Package> {
        let depends = libraries(&tool(
            "objdump",
            &["-T", &self.program.display().to_string()],
        )?);
        let mut package = Package::new(work, "witness", version, architecture)?;
        package.file(&self.program, "usr/bin/witness", 0o755)?;
        package.file(
            &source("packaging/systemd/witness.service"),
            "usr/lib/systemd/system/witness.service",
            0o644,
        )?;
        package.file(
            &source("packaging/systemd/witness.sysusers"),
            "usr/lib/sysusers.d/witness.conf",
            0o644,
        )?;
        for page in files_in(&self.manual.join("man1"))? {
            package.compressed(&page, &format!("usr/share/man/man1/{}", name_of(&page)))?;
        }
        for (completion, place) in COMPLETIONS {
            package.file(&self.manual.join(completion), place, 0o644)?;
        }
        package.documentation()?;
        for example in files_in(&source("docs/examples"))? {
            package.file(
                &example,
                &format!("usr/share/doc/witness/examples/{}", name_of(&example)),
                0o644,
            )?;
        }
        package.set_dependencies(&depends);
        Ok(package)
    }

    fn debug_package(&self, work: &Path, version: &str, architecture: &str) -> Result<Package> {
        let mut package = Package::new(work, "witness-dbgsym", version, architecture)?;
        let (folder, file) = self.build_id.split_at(2);
        package.file(
            &self.debug,
            &format!("usr/lib/debug/.build-id/{folder}/{file}.debug"),
            0o644,
        )?;
        package.documentation()?;
        Ok(package)
    }

    /// Writes the tarball, for systems other than Debian.
    fn tarball(&self, out: &Path, work: &Path, version: &str) -> Result<PathBuf> {
        let name = format!("witness-{version}-linux-{}", std::env::consts::ARCH);
        let root = work.join(&name);
        for folder in ["bin", "share/man", "completions", "systemd"] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::copy(&self.program, root.join("bin/witness"))?;
        tool(
            "cp",
            &[
                "-r",
                &self.manual.join("man1").display().to_string(),
                &root.join("share/man").display().to_string(),
            ],
        )?;
        for (completion, _) in COMPLETIONS {
            fs::copy(
                self.manual.join(completion),
                root.join("completions").join(completion),
            )?;
        }
        for file in files_in(&source("packaging/systemd"))? {
            fs::copy(&file, root.join("systemd").join(name_of(&file)))?;
        }
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            fs::copy(source(file), root.join(file))?;
        }
        let archive = out.join(format!("{name}.tar.gz"));
        let (archive_text, work) = (archive.display().to_string(), work.display().to_string());
        tool(
            "tar",
            &[
                "--sort=name",
                "--owner=0",
                "--group=0",
                "--numeric-owner",
                "-czf",
                &archive_text,
                "-C",
                &work,
                &name,
            ],
        )?;
        Ok(archive)
    }
}

const COMPLETIONS: [(&str, &str); 3] = [
    (
        "witness.bash",
        "usr/share/bash-completion/completions/witness",
    ),
    ("_witness", "usr/share/zsh/vendor-completions/_witness"),
    (
        "witness.fish",
        "usr/share/fish/vendor_completions.d/witness.fish",
    ),
];

/// Packs the drop-ins and rights for a member in mode `external`.
fn external_mysqld(work: &Path, version: &str) -> Result<Package> {
    let mut package = Package::new(work, "witness-external-mysqld", version, "all")?;
    let from = source("packaging/external-mysqld");
    for (file, place) in [
        (
            "witness.service.conf",
            "usr/lib/systemd/system/witness.service.d/external-mysqld.conf",
        ),
        (
            "mysql.service.conf",
            "usr/lib/systemd/system/mysql.service.d/witness.conf",
        ),
        (
            "witness.rules",
            "usr/share/polkit-1/rules.d/50-witness-external-mysqld.rules",
        ),
        ("witness.cnf", "usr/share/witness/external-mysqld.cnf"),
    ] {
        package.file(&from.join(file), place, 0o644)?;
    }
    let script = "kill-managed-mysqld";
    let place = format!("usr/lib/witness/{script}");
    package.file(&from.join(script), &place, 0o755)?;
    package.documentation()?;
    Ok(package)
}

/// Returns the path of a file in the checkout.
fn source(path: &str) -> PathBuf {
    testkit::checkout().join(path)
}

/// Runs a tool of the machine. Returns its output.
fn tool(name: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(name);
    command.args(arguments).env("LC_ALL", "C");
    bounded_run::run(name, command, Vec::new(), TOOL_LIMIT)
        .with_context(|| format!("{name} is needed: install binutils and dpkg"))?
        .into_text(name)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Writes `SHA256SUMS` in the format of `sha256sum --check`.
fn checksums(out: &Path, files: &[PathBuf]) -> Result<PathBuf> {
    let names: Vec<String> = files.iter().map(|file| name_of(file)).collect();
    let mut command = Command::new("sha256sum");
    command.current_dir(out).args(&names);
    let sums =
        bounded_run::run("sha256sum", command, Vec::new(), TOOL_LIMIT)?.into_text("sha256sum")?;
    let file = out.join("SHA256SUMS");
    fs::write(&file, sums)?;
    Ok(file)
}

/// Returns the build id in the output of `readelf --notes`.
fn build_id(notes: &str) -> Option<String> {
    let line = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "))?;
    Some(line.trim().to_owned()).filter(|id| id.len() > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_is_read() {
        let notes =
            "  GNU  0x14  NT_GNU_BUILD_ID (unique build ID bitstring)\n    Build ID: 00ff12\n";
        assert_eq!(build_id(notes).as_deref(), Some("00ff12"));
        assert_eq!(build_id("nothing"), None);
    }
}
