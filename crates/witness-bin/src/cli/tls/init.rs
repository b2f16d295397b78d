//! `witness tls init`: files of a ring's CA and certificates. Existing files are kept.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use time::OffsetDateTime;

use crate::cli::config_args::ConfigArgs;
use crate::cli::tls::authority::{Authority, Holder, Pair, Role};
use crate::cli::tls::certificate::{Certificate, check_key, day};
use crate::terminal::{Exit, Failure, Format, Table, print_json, print_text};

const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Arguments of `witness tls init`.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Where the files are made; a directory that is not a member's
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// How long the certificates are valid
    #[arg(long, value_name = "DAYS", default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Make a certificate for this operator, too, who gives commands; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = caller_name)]
    operator: Vec<String>,
    /// Make a certificate for somebody who only reads, too, as a dashboard; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = caller_name)]
    reader: Vec<String>,
    /// Replace certificate and key of this member, of `operator-NAME` or `reader-NAME`, or of `all` members
    #[arg(long, value_name = "MEMBER")]
    renew: Vec<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// A part of a file name.
fn caller_name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || !text.chars().all(allowed) {
        return Err("use letters, digits, `-`, `_` and `.` only".into());
    }
    Ok(text.to_owned())
}

/// Result for a pair of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Made,
    Renewed,
    Kept,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Renewed => "renewed",
            Self::Kept => "kept",
        }
    }
}

/// Output of `witness tls init --output json`.
#[derive(Debug, Serialize)]
struct Report {
    ring: String,
    directory: PathBuf,
    authority: AuthorityLine,
    certificates: Vec<Line>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct AuthorityLine {
    outcome: Outcome,
    certificate_file: PathBuf,
    key_file: PathBuf,
    valid_until: String,
}

#[derive(Debug, Serialize)]
struct Line {
    role: Role,
    name: String,
    address: Option<String>,
    outcome: Outcome,
    certificate_file: PathBuf,
    key_file: PathBuf,
    names: Vec<String>,
    valid_until: String,
}

/// A holder's certificate and key files.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(directory: &Path, name: &str) -> Self {
        Self {
            certificate: directory.join(format!("{name}.crt")),
            key: directory.join(format!("{name}.key")),
        }
    }

    /// Whether both exist.
    ///
    /// # Errors
    /// Exit 4 when only one does.
    fn exist(&self, lost: &str) -> Result<bool, Failure> {
        match (self.certificate.exists(), self.key.exists()) {
            (true, true) => Ok(true),
            (false, false) => Ok(false),
            (true, false) => Err(half(&self.certificate, &self.key, lost)),
            (false, true) => Err(half(&self.key, &self.certificate, lost)),
        }
    }

    /// Writes both, where neither exists.
    fn create(&self, pair: &Pair) -> Result<(), Failure> {
        write_new(&self.key, &pair.key, SECRET)?;
        write_new(&self.certificate, &pair.certificate, PUBLIC)
    }

    /// Replaces both. At any moment, each file is the old or the new one.
    fn replace(&self, pair: &Pair) -> Result<(), Failure> {
        let (key, certificate) = (beside(&self.key), beside(&self.certificate));
        for left_over in [&key, &certificate] {
            match std::fs::remove_file(left_over) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(unwritable(left_over, &error));
                }
                _ => {}
            }
        }
        write_new(&key, &pair.key, SECRET)?;
        write_new(&certificate, &pair.certificate, PUBLIC)?;
        for (from, to) in [(&key, &self.key), (&certificate, &self.certificate)] {
            std::fs::rename(from, to).map_err(|error| unwritable(to, &error))?;
        }
        Ok(())
    }
}

fn half(there: &Path, missing: &Path, advice: &str) -> Failure {
    Failure::new(
        Exit::Refused,
        format!(
            "{} is there, but not {}",
            there.display(),
            missing.display()
        ),
        advice,
    )
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::error(format!("{} cannot be written: {error}", path.display()))
}

/// A temporary name for a file.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Writes a file that does not exist yet.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(SECRET)
        .open(path);
    let write = |mut file: File| {
        file.write_all(text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()
    };
    created
        .and_then(write)
        .map_err(|error| unwritable(path, &error))
}

/// Runs `witness tls init`.
///
/// # Errors
/// Exit 1 when a file cannot be read or written, 2 for a wrong configuration or name, 4 when files do not fit together.
pub(super) fn run(args: &InitArgs, format: Format) -> Result<(), Failure> {
    let settings = args.config.load_without_files()?.0.member;
    let ring = settings.ring_name;
    let peer_name = settings.tls.and_then(|tls| tls.peer_name);
    let members = settings.members.iter();
    let members = members.map(|entry| Holder::member(entry, peer_name.as_deref()));
    let mut holders: Vec<Holder> = members.collect();
    for (role, prefix, wanted) in [
        (Role::Operator, "operator-", &args.operator),
        (Role::Reader, "reader-", &args.reader),
    ] {
        let renewed = args.renew.iter().filter_map(|name| {
            let is_member = holders.iter().any(|member| member.name == **name);
            name.strip_prefix(prefix).filter(|_| !is_member)
        });
        let names: BTreeSet<&str> = renewed.chain(wanted.iter().map(String::as_str)).collect();
        let callers = names.into_iter().map(|name| Holder::caller(role, name));
        holders.extend(callers.collect::<Vec<_>>());
    }
    check_names(&holders, &args.renew)?;

    let now = OffsetDateTime::now_utc();
    let directory = args.directory.as_path();
    let mut steps = Vec::new();
    for holder in holders {
        let files = Files::of(directory, &holder.file_name());
        let is_renewed = args.renew.contains(&holder.file_name())
            || holder.role == Role::Member && args.renew.iter().any(|name| name == "all");
        let outcome = if is_renewed && (files.certificate.exists() || files.key.exists()) {
            Outcome::Renewed
        } else if files.exist("bring it back, or make both anew with --renew")? {
            Outcome::Kept
        } else {
            Outcome::Made
        };
        steps.push((holder, files, outcome));
    }
    let there = steps.iter().find(|step| step.2 != Outcome::Made);
    let there = there.map(|(_, files, _)| files.certificate.clone());
    let (authority, line) = authority_in(directory, &ring, there, now)?;
    let authority_certificate = first_of(&line.certificate_file)?;

    let mut report = Report {
        ring,
        directory: directory.to_owned(),
        authority: line,
        certificates: Vec::new(),
        warnings: Vec::new(),
    };
    for (holder, files, outcome) in steps {
        if outcome != Outcome::Kept {
            let pair = authority.sign(&holder, now, args.days).map_err(unmade)?;
            match outcome {
                Outcome::Renewed => files.replace(&pair)?,
                _ => files.create(&pair)?,
            }
        }
        let certificate = first_of(&files.certificate)?;
        report.warnings.extend(unfit(
            &holder,
            &files,
            &certificate,
            &authority_certificate,
            now,
        ));
        report.certificates.push(Line {
            role: holder.role,
            name: holder.name,
            address: holder.address,
            outcome,
            certificate_file: files.certificate,
            key_file: files.key,
            names: certificate.names,
            valid_until: day(certificate.not_after),
        });
    }
    match format {
        Format::Json => print_json(&report),
        Format::Table => print_text(&page(&report)),
    }
}

fn unmade(error: rcgen::Error) -> Failure {
    Failure::error(format!("a certificate cannot be made: {error}"))
}

/// Checks that every file has one owner, and that all names in `renew` exist.
fn check_names(holders: &[Holder], renew: &[String]) -> Result<(), Failure> {
    let names: Vec<String> = holders.iter().map(Holder::file_name).collect();
    for (index, name) in names.iter().enumerate() {
        if name == "ca" || names[..index].contains(name) {
            return Err(Failure::new(
                Exit::Refused,
                format!("two files would be called {name}.crt"),
                "give the operator or reader another name; a member cannot be called `ca` here",
            ));
        }
    }
    match renew
        .iter()
        .find(|name| *name != "all" && !names.contains(name))
    {
        Some(unknown) => Err(Failure::new(
            Exit::Usage,
            format!("the ring has no member `{unknown}`"),
            format!(
                "its names are {}, and `all` is every member",
                names.join(", ")
            ),
        )),
        None => Ok(()),
    }
}

fn first_of(file: &Path) -> Result<Certificate, Failure> {
    Ok(Certificate::all_of(file)?.remove(0))
}

/// The CA of a directory; a new one if none exists. `there` is a certificate signed by a CA.
fn authority_in(
    directory: &Path,
    ring: &str,
    there: Option<PathBuf>,
    now: OffsetDateTime,
) -> Result<(Authority, AuthorityLine), Failure> {
    let files = Files::of(directory, "ca");
    let lost = "bring it back from where it is kept; a new authority needs a new directory";
    let is_there = files.exist(lost)?;
    let authority = if is_there {
        check_key(&files.certificate, &files.key)
            .map_err(|error| Failure::new(Exit::Refused, error.to_string(), lost))?;
        let certificate = first_of(&files.certificate)?;
        if certificate.not_after <= now {
            return Err(Failure::new(
                Exit::Refused,
                format!(
                    "{} expired on {}",
                    files.certificate.display(),
                    day(certificate.not_after)
                ),
                "make a new authority in a new directory",
            ));
        }
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map_err(|error| Failure::error(format!("{}: {error}", path.display())))
        };
        let pair = Pair {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
        };
        Authority::of(&pair, ring, certificate.not_after).map_err(unmade)?
    } else if let Some(there) = there {
        return Err(Failure::new(
            Exit::Refused,
            format!(
                "{} is there, but neither ca.crt nor ca.key",
                there.display()
            ),
            lost,
        ));
    } else {
        let (authority, pair) = Authority::make(ring, now).map_err(unmade)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| unwritable(directory, &error))?;
        files.create(&pair)?;
        authority
    };
    let line = AuthorityLine {
        outcome: if is_there {
            Outcome::Kept
        } else {
            Outcome::Made
        },
        valid_until: day(first_of(&files.certificate)?.not_after),
        certificate_file: files.certificate,
        key_file: files.key,
    };
    Ok((authority, line))
}

/// Why the other members would reject a kept certificate.
fn unfit(
    holder: &Holder,
    files: &Files,
    certificate: &Certificate,
    authority: &Certificate,
    now: OffsetDateTime,
) -> Option<String> {
    let file = files.certificate.display();
    let renew = format!("make it anew with --renew {}", holder.file_name());
    if let Err(error) = check_key(&files.certificate, &files.key) {
        return Some(format!("{error}, or {renew}"));
    }
    if !certificate.is_signed_by(authority) {
        return Some(format!("{file} is not signed by ca.crt; {renew}"));
    }
    if certificate.not_after <= now {
        let day = day(certificate.not_after);
        return Some(format!("{file} expired on {day}; {renew}"));
    }
    let names = holder.names();
    let missing = names
        .iter()
        .find(|name| !certificate.names.contains(name))?;
    Some(format!("{file} is not for {missing}; {renew}"))
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn page(report: &Report) -> String {
    let authority = &report.authority;
    let mut text = format!(
        "The authority of ring `{}` in {} was {}; it is valid until {}.\n\n",
        report.ring,
        report.directory.display(),
        authority.outcome.word(),
        authority.valid_until
    );
    let mut table = Table::new(&["For", "Address", "Files", "Names", "Until", "Was"]);
    for line in &report.certificates {
        table.row(vec![
            match line.role {
                Role::Member => line.name.clone(),
                Role::Operator => format!("operator {}", line.name),
                Role::Reader => format!("reader {}", line.name),
            },
            line.address.clone().unwrap_or_else(|| "-".into()),
            format!(
                "{} {}",
                file_name(&line.certificate_file),
                file_name(&line.key_file)
            ),
            line.names.join(" "),
            line.valid_until.clone(),
            line.outcome.word().into(),
        ]);
    }
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if let Some(line) = report.certificates.first() {
        let _ = write!(
            text,
            "\nThe host of a member gets ca.crt and the member's two files, say in /etc/witness/tls, and its configuration names them:\n\n\
             [tls]\ncertificate_file = \"/etc/witness/tls/{}\"\nkey_file = \"/etc/witness/tls/{}\"\nca_file = \"/etc/witness/tls/ca.crt\"\n\n\
             A member's certificate gives no commands: where they are given, operator_certificate_file and operator_key_file name an \
             operator's (--operator NAME).\n\
             ca.key signs certificates that the ring believes: keep it off the members.\n",
            file_name(&line.certificate_file),
            file_name(&line.key_file)
        );
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}
