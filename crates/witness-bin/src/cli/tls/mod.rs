//! `witness tls`: creates the certificates of a ring (`init`), and shows the contents and problems of certificate files (`show`).

pub(crate) mod certificate;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use member::settings::Settings;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::cli::config_args::ConfigArgs;
use crate::cli::tls::certificate::{Authority, Certificate, Holder, Pair, Role, check_key, day};
use crate::config::{FileCheck, name_of};
use crate::terminal::{Attempt, Exit, Failure, Format, Table, cell, merge, print, word};
use crate::text::lines;

/// Subcommands of `witness tls`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum TlsCommand {
    /// Make the ring's authority and a certificate for each member, or those that are missing
    Init(Box<InitArgs>),
    /// Show certificates: names, issuer, validity, and whether the key fits
    Show(ShowArgs),
}

/// Runs `witness tls`.
///
/// # Errors
/// Exit 1 if a file cannot be used or a certificate is invalid, 2 for a wrong configuration or name, 4 if existing files contradict each
/// other.
pub(crate) fn run(command: &TlsCommand, format: Format) -> Attempt {
    match command {
        TlsCommand::Init(args) => init(args, format),
        TlsCommand::Show(args) => show(args, format),
    }
}

/// Arguments of `witness tls show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Files of certificates, PEM
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Runs `witness tls show`.
///
/// # Errors
/// Exit 1 when a file cannot be read, or a certificate has a problem.
fn show(args: &ShowArgs, format: Format) -> Attempt {
    let now = OffsetDateTime::now_utc();
    let (mut documents, mut texts, mut are_valid) = (Vec::new(), Vec::new(), true);
    for file in &args.files {
        for (index, certificate) in Certificate::all_of(file)?.into_iter().enumerate() {
            let (json, text, is_valid) = shown(file, index == 0, &certificate, now);
            documents.push(json);
            texts.push(text);
            are_valid &= is_valid;
        }
    }
    print(format, &documents, || texts.join("\n"))?;
    Exit::Error.unless(are_valid)
}

/// Returns a certificate as JSON and as text, and whether it is free of problems. `is_first`: the certificate is the first in its
/// file. Only then is it compared with the key next to the file.
fn shown(
    file: &Path,
    is_first: bool,
    certificate: &Certificate,
    now: OffsetDateTime,
) -> (Value, String, bool) {
    let mut problems = Vec::new();
    if certificate.not_after <= now {
        problems.push(format!("expired on {}", day(certificate.not_after)));
    } else if certificate.not_before > now {
        problems.push(format!("not valid before {}", day(certificate.not_before)));
    }
    let key = file.with_extension("key");
    let key_file = (is_first && key != file && key.exists()).then_some(key);
    if let Some(key) = &key_file
        && let Err(error) = check_key(file, key)
    {
        problems.push(error.to_string());
    }
    let ca_file = file.with_file_name("ca.crt");
    let signed_by = |authority: &Certificate| certificate.is_signed_by(authority);
    if let Ok(authorities) = Certificate::all_of(&ca_file)
        && !authorities.iter().any(signed_by)
    {
        problems.push(format!("not signed by {}", ca_file.display()));
    }
    let (from, until) = (day(certificate.not_before), day(certificate.not_after));
    let days_left = (certificate.not_after - now).whole_days();
    let json = json!({
        "file": file,
        "subject": certificate.subject,
        "names": certificate.names,
        "signed_by": certificate.issuer,
        "valid_from": from,
        "valid_until": until,
        "days_left": days_left,
        "usage": certificate.usage,
        // The key that was found next to the file.
        "key_file": key_file,
        "problems": problems,
    });
    let mut text = format!("{}\n", file.display());
    let mut line = |title: &str, value: &str| {
        let _ = writeln!(text, "  {title:<10} {value}");
    };
    line("subject", &certificate.subject);
    line("names", &certificate.names.join(", "));
    line("signed by", &certificate.issuer);
    line("usage", &certificate.usage.join(", "));
    let left = days_left.max(0);
    line("valid", &format!("{from} to {until}, {left} days left"));
    if let Some(key) = &key_file {
        line("key", &key.display().to_string());
    }
    for problem in &problems {
        line("problem", problem);
    }
    (json, text, problems.is_empty())
}

// `witness tls init`: creates the files of a ring's CA and certificates. Existing files are kept, unless `--renew` names them.

const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Arguments of `witness tls init`.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Directory for the files; not a member's
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// How long the certificates are valid
    #[arg(long, value_name = "DAYS", default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Make a certificate for this operator, too, who gives commands; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = name_of)]
    operator: Vec<String>,
    /// Make a certificate for this client that only reads, too, such as a dashboard; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = name_of)]
    reader: Vec<String>,
    /// Replace certificate and key of this member, of `operator-NAME` or `reader-NAME`, or of `all` members
    #[arg(long, value_name = "MEMBER")]
    renew: Vec<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// What the command did with a certificate and its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Made,
    Renewed,
    Kept,
}

/// The paths of a certificate and its key.
#[derive(Debug, Serialize)]
struct Files {
    certificate_file: PathBuf,
    key_file: PathBuf,
}

impl Files {
    fn of(directory: &Path, name: &str) -> Self {
        Self {
            certificate_file: directory.join(format!("{name}.crt")),
            key_file: directory.join(format!("{name}.key")),
        }
    }

    /// True if both files exist.
    ///
    /// # Errors
    /// Exit 4 if only one of them exists.
    fn exist(&self, advice: &str) -> Attempt<bool> {
        let (certificate, key) = (&self.certificate_file, &self.key_file);
        let (there, missing) = match (certificate.exists(), key.exists()) {
            (true, false) => (certificate, key),
            (false, true) => (key, certificate),
            (both, _) => return Ok(both),
        };
        let (there, missing) = (there.display(), missing.display());
        Err(Exit::Refused.because(format!("{there} is there, but not {missing}"), advice))
    }

    /// Writes both files. Each file is replaced by a rename, so it is never incomplete.
    fn write(&self, pair: &Pair) -> Attempt {
        let files = [
            (&self.key_file, &pair.key, SECRET),
            (&self.certificate_file, &pair.certificate, PUBLIC),
        ];
        for (path, text, mode) in files {
            let written = write_new(&temporary(path), text, mode);
            written.map_err(|error| unwritable(path, &error))?;
        }
        for (path, _, _) in files {
            let renamed = std::fs::rename(temporary(path), path);
            renamed.map_err(|error| unwritable(path, &error))?;
        }
        Ok(())
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::error(format!("{} cannot be written: {error}", path.display()))
}

/// Returns the temporary name of a file that is being written.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Writes a temporary file. A file with this name, left by an interrupted run, is removed first.
fn write_new(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(SECRET)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Runs `witness tls init`.
///
/// # Errors
/// Exit 1 if a file cannot be read or written, 2 for a wrong configuration or name, 4 if existing files contradict each other.
fn init(args: &InitArgs, format: Format) -> Attempt {
    let settings = args.config.load(FileCheck::Nothing)?.0.member;
    let holders = holders(args, &settings);
    check_names(&holders, &args.renew)?;
    let ring = settings.ring_name;
    let now = OffsetDateTime::now_utc();
    let directory = args.directory.as_path();
    let mut steps = Vec::new();
    for holder in holders {
        let files = Files::of(directory, &holder.file_name());
        let is_renewed = args.renew.contains(&holder.file_name())
            || holder.role == Role::Member && args.renew.iter().any(|name| name == "all");
        let outcome = if is_renewed && (files.certificate_file.exists() || files.key_file.exists())
        {
            Outcome::Renewed
        } else if files.exist("bring it back, or make both again with --renew")? {
            Outcome::Kept
        } else {
            Outcome::Made
        };
        steps.push((holder, files, outcome));
    }
    let there = steps.iter().find(|step| step.2 != Outcome::Made);
    let there = there.map(|(_, files, _)| files.certificate_file.clone());
    let (authority, was) = authority_in(directory, &ring, there, now)?;
    let ca = Files::of(directory, "ca");
    let ca_certificate = first_of(&ca.certificate_file)?;
    let ca_until = day(ca_certificate.not_after);
    let hint = steps.first().map(|(holder, ..)| hint(&holder.file_name()));

    let mut table = Table::titled("For Address Files Names Until Was");
    let (mut certificates, mut warnings) = (Vec::new(), Vec::new());
    for (holder, files, outcome) in steps {
        if outcome != Outcome::Kept {
            let pair = authority.sign(&holder, now, args.days).map_err(unmade)?;
            files.write(&pair)?;
        }
        let certificate = first_of(&files.certificate_file)?;
        warnings.extend(unfit(&holder, &files, &certificate, &ca_certificate, now));
        let (file, until) = (holder.file_name(), day(certificate.not_after));
        table.row(vec![
            match holder.role {
                Role::Member => holder.name.clone(),
                role => format!("{} {}", word(&role), holder.name),
            },
            cell(holder.address.as_ref()),
            format!("{file}.crt {file}.key"),
            certificate.names.join(" "),
            until.clone(),
            word(&outcome),
        ]);
        let names = certificate.names;
        let mut json = json!({ "outcome": outcome, "names": names, "valid_until": until });
        merge(&mut json, &holder);
        merge(&mut json, &files);
        certificates.push(json);
    }
    let mut authority = json!({ "outcome": was, "valid_until": ca_until });
    merge(&mut authority, &ca);
    let json = json!({
        "ring": ring,
        "directory": directory,
        "authority": authority,
        "certificates": certificates,
        "warnings": warnings,
    });
    print(format, &json, || {
        let (place, was) = (directory.display(), word(&was));
        format!(
            "The authority of ring `{ring}` in {place} was {was}; it is valid until {ca_until}.\n\n{table}{}{}",
            hint.unwrap_or_default(),
            lines("warning: ", &warnings)
        )
    })
}

/// Returns instructions for the use of the files, with the files of one member as an example.
fn hint(file: &str) -> String {
    format!(
        "\nThe host of a member gets ca.crt and the member's two files, say in /etc/witness/tls, and its configuration names them:\n\n\
         [tls]\ncertificate_file = \"/etc/witness/tls/{file}.crt\"\nkey_file = \"/etc/witness/tls/{file}.key\"\n\
         ca_file = \"/etc/witness/tls/ca.crt\"\n\n\
         A member's certificate does not permit commands. On hosts for commands, operator_certificate_file and operator_key_file name \
         an operator's files (--operator NAME).\n\
         ca.key signs certificates that the ring trusts: keep it off the members.\n"
    )
}

/// Returns the members of the ring, and the operators and readers on the command line.
fn holders(args: &InitArgs, settings: &Settings) -> Vec<Holder> {
    let tls = settings.tls.as_ref();
    let peer_name = tls.and_then(|tls| tls.peer_name.as_deref());
    let members = settings.members.iter();
    let mut holders: Vec<_> = members
        .map(|entry| Holder::member(entry, peer_name))
        .collect();
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
    holders
}

fn unmade(error: rcgen::Error) -> Failure {
    Failure::error(format!("a certificate cannot be made: {error}"))
}

/// Checks that no two holders have the same file name, and that all names in `renew` exist.
fn check_names(holders: &[Holder], renew: &[String]) -> Attempt {
    let names: Vec<String> = holders.iter().map(Holder::file_name).collect();
    for (index, name) in names.iter().enumerate() {
        if name == "ca" || names[..index].contains(name) {
            return Err(Exit::Refused.because(
                format!("two files would be called {name}.crt"),
                "give the operator or reader another name; a member cannot be called `ca` here",
            ));
        }
    }
    match renew
        .iter()
        .find(|name| *name != "all" && !names.contains(name))
    {
        Some(unknown) => Err(Exit::Usage.because(
            format!("the ring has no member `{unknown}`"),
            format!(
                "its names are {}, and `all` is every member",
                names.join(", ")
            ),
        )),
        None => Ok(()),
    }
}

fn first_of(file: &Path) -> Attempt<Certificate> {
    Ok(Certificate::all_of(file)?.remove(0))
}

/// Loads the CA in a directory, or creates one if the directory has none. `there` is an existing certificate of the directory: if it exists
/// without a CA, the CA's files are lost, and no new CA is created.
fn authority_in(
    directory: &Path,
    ring: &str,
    there: Option<PathBuf>,
    now: OffsetDateTime,
) -> Attempt<(Authority, Outcome)> {
    let files = Files::of(directory, "ca");
    let lost = "bring it back from where it is kept; a new authority needs a new directory";
    let is_there = files.exist(lost)?;
    let authority = if is_there {
        check_key(&files.certificate_file, &files.key_file)
            .map_err(|error| Exit::Refused.because(error, lost))?;
        let certificate = first_of(&files.certificate_file)?;
        if certificate.not_after <= now {
            return Err(Exit::Refused.because(
                format!(
                    "{} expired on {}",
                    files.certificate_file.display(),
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
            certificate: read(&files.certificate_file)?,
            key: read(&files.key_file)?,
        };
        Authority::of(&pair, ring, certificate.not_after).map_err(unmade)?
    } else if let Some(there) = there {
        return Err(Exit::Refused.because(
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
        files.write(&pair)?;
        authority
    };
    let outcome = match is_there {
        true => Outcome::Kept,
        false => Outcome::Made,
    };
    Ok((authority, outcome))
}

/// Returns why the other members would reject a certificate, if they would.
fn unfit(
    holder: &Holder,
    files: &Files,
    certificate: &Certificate,
    authority: &Certificate,
    now: OffsetDateTime,
) -> Option<String> {
    let file = files.certificate_file.display();
    let renew = format!("make it again with --renew {}", holder.file_name());
    if let Err(error) = check_key(&files.certificate_file, &files.key_file) {
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
