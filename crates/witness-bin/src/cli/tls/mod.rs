//! `witness tls`: creates the certificates of a ring (`init`), and shows the contents of certificate files and their problems.

mod authority;
pub(crate) mod certificate;
mod init;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use time::OffsetDateTime;

use crate::cli::tls::certificate::{Certificate, check_key, day};
use crate::terminal::{Attempt, Exit, Format, print};

/// Subcommands of `witness tls`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum TlsCommand {
    /// Make the ring's authority and a certificate for each member, or those that are missing
    Init(Box<init::InitArgs>),
    /// Show certificates: names, issuer, validity, and whether the key fits
    Show(ShowArgs),
}

/// Runs `witness tls`.
///
/// # Errors
/// Exit 1 when a file cannot be used or a certificate is invalid, 2 for a wrong configuration or name, 4 when a file exists already.
pub(crate) fn run(command: &TlsCommand, format: Format) -> Attempt {
    match command {
        TlsCommand::Init(args) => init::run(args, format),
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

/// One certificate, as `witness tls show --output json` prints it in a list.
#[derive(Debug, Serialize)]
struct Shown {
    file: PathBuf,
    subject: String,
    names: Vec<String>,
    signed_by: String,
    valid_from: String,
    valid_until: String,
    days_left: i64,
    usage: Vec<&'static str>,
    /// The key next to the file, if any.
    key_file: Option<PathBuf>,
    /// Its problems; empty without any.
    problems: Vec<String>,
}

/// Runs `witness tls show`.
///
/// # Errors
/// Exit 1 when a file cannot be read, or a certificate has a problem.
fn show(args: &ShowArgs, format: Format) -> Attempt {
    let now = OffsetDateTime::now_utc();
    let mut all = Vec::new();
    for file in &args.files {
        for (index, certificate) in Certificate::all_of(file)?.into_iter().enumerate() {
            all.push(shown(file, index == 0, certificate, now));
        }
    }
    print(format, &all, || {
        all.iter().map(lines).collect::<Vec<_>>().join("\n")
    })?;
    Exit::Error.unless(all.iter().all(|shown| shown.problems.is_empty()))
}

/// `is_first`: the key next to a file is that of its first certificate.
fn shown(file: &Path, is_first: bool, certificate: Certificate, now: OffsetDateTime) -> Shown {
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
    Shown {
        file: file.to_owned(),
        subject: certificate.subject,
        names: certificate.names,
        signed_by: certificate.issuer,
        valid_from: day(certificate.not_before),
        valid_until: day(certificate.not_after),
        days_left: (certificate.not_after - now).whole_days(),
        usage: certificate.usage,
        key_file,
        problems,
    }
}

fn lines(shown: &Shown) -> String {
    let mut text = format!("{}\n", shown.file.display());
    let mut line = |title: &str, value: &str| {
        let _ = writeln!(text, "  {title:<10} {value}");
    };
    line("subject", &shown.subject);
    line("names", &shown.names.join(", "));
    line("signed by", &shown.signed_by);
    line("usage", &shown.usage.join(", "));
    let days = shown.days_left.max(0);
    let validity = format!(
        "{} to {}, {days} days left",
        shown.valid_from, shown.valid_until
    );
    line("valid", &validity);
    if let Some(key) = &shown.key_file {
        line("key", &key.display().to_string());
    }
    for problem in &shown.problems {
        line("problem", problem);
    }
    text
}
