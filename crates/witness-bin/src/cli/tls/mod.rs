//! `witness tls`: creates the certificates of a ring (`init`), and shows the contents of certificate files and their problems.

mod authority;
pub(crate) mod certificate;
mod init;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
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

/// A certificate's document and text, and whether it has no problem. `is_first`: the key next to a file is that of its first
/// certificate.
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
        // The key next to the file, if any.
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
