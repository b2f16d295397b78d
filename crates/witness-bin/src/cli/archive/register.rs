//! `witness archive register`: adds a manifest for an operator's own backup, so that the log after it is kept and a restore finds it.

use std::path::PathBuf;

use archive::base_backup::{BASE_VERSION, BaseForm, BaseManifest, finish, free_name};
use binlog_format::gtid::GtidSet;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use url::Url;

use crate::cli::archive::bases::ListedBase;
use crate::cli::archive::own_archive::{OwnArchive, base_failure, gtids, now};
use crate::cli::archive::place::unreachable;
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// Arguments of `witness archive register`.
#[derive(Debug, clap::Args)]
pub(crate) struct RegisterArgs {
    /// What has made the backup and restores it, as in xtrabackup, mysqldump or mysqlsh
    #[arg(long, value_name = "NAME", value_parser = words)]
    tool: String,
    /// Where the backup is, as whoever restores it has to know it; without a password
    #[arg(long, value_name = "URL", value_parser = words)]
    place: String,
    /// GTIDs that the backup has, exactly: as xtrabackup_binlog_info or the dump's GTID_PURGED says them
    #[arg(long, value_name = "SET", value_parser = gtids)]
    gtids: GtidSet,
    /// When it was taken, as in 2026-11-26T04:00:00Z; without it, now
    #[arg(long, value_name = "TIME", value_parser = moment)]
    taken_at: Option<u64>,
    /// Version of the mysqld whose data they are
    #[arg(long, value_name = "VERSION", value_parser = words)]
    mysqld_version: Option<String>,
    /// Configuration file of a member; without it ./witness.toml or /etc/witness/witness.toml
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

/// One non-empty line of text.
fn words(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty".to_owned()),
        text if text.contains(char::is_control) => Err("write it in one line".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// Seconds since 1970.
fn moment(text: &str) -> Result<u64, String> {
    let time = OffsetDateTime::parse(text, &Rfc3339);
    let seconds = time.ok().map(OffsetDateTime::unix_timestamp);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    seconds.ok_or_else(|| format!("`{text}` is no time such as 2026-11-26T04:00:00Z"))
}

/// Registers a backup.
///
/// # Errors
/// Exit 2 for invalid arguments, 4 where the ring is unknown, 1 where the storage rejects it.
pub(super) async fn register(args: &RegisterArgs, format: Format) -> Result<(), Failure> {
    let has_password = Url::parse(&args.place).is_ok_and(|url| url.password().is_some());
    if has_password {
        return Err(Failure::new(
            Exit::Usage,
            "the URL of --place has a password in it, which everybody would read who reads the archive",
            "leave it out",
        ));
    }
    let now = now();
    let taken_at = args.taken_at.unwrap_or(now);
    if taken_at > now {
        return Err(Failure::new(
            Exit::Usage,
            "--taken-at is a time to come",
            "give the time of the backup in UTC, or with its offset",
        ));
    }
    let archive = OwnArchive::open(args.config.clone())?;
    let ring = archive.ring().await?;
    let name = free_name(&archive.storage, taken_at, archive.member);
    let name = name.await.map_err(|error| unreachable(&error))?;
    let base = BaseManifest {
        version: BASE_VERSION,
        ring,
        name,
        form: BaseForm::Registered {
            tool: args.tool.clone(),
            place: args.place.clone(),
        },
        gtids_at_least: args.gtids.clone(),
        gtids_at_most: args.gtids.clone(),
        committed: None,
        began_at: taken_at,
        ended_at: taken_at,
        mysqld_version: args.mysqld_version.clone(),
        server_uuid: None,
        keyring_needed: None,
        objects: Vec::new(),
        tar: None,
        unpacked_bytes: 0,
        files: 0,
        taken_by: archive.member,
    };
    let finished = finish(&archive.storage, &base).await;
    finished.map_err(|error| base_failure(&error))?;
    let listed = ListedBase::of(&base);
    match format {
        Format::Json => print_json(&listed),
        Format::Table => print_text(&listed.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_backup_is_read() {
        assert_eq!(words(" mysqldump "), Ok("mysqldump".to_owned()));
        assert!(words("a\nb").is_err() && words(" ").is_err());
        assert_eq!(moment("1970-01-01T00:01:00+00:00"), Ok(60));
        assert!(moment("1969-12-31T23:59:59Z").is_err() && moment("yesterday").is_err());
        assert!(gtids("").is_err() && gtids("x").is_err());
        assert!(gtids("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7").is_ok());
    }
}
