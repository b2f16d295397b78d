//! `witness archive register`: adds a manifest for an operator's own backup, so that the log after it is kept and a restore finds it.

use std::path::PathBuf;

use archive::base_backup::{BaseForm, BaseManifest, finish, free_name};
use archive::name::Malformed;
use binlog_format::gtid::GtidSet;
use raft_types::UnixSeconds;
use url::Url;

use crate::cli::archive::findings::{listed, sentence};
use crate::cli::archive::place::{OwnArchive, gtids};
use crate::terminal::{Attempt, Exit, Format, print};
use crate::text::times::{moment, now};

/// Arguments of `witness archive register`.
#[derive(Debug, clap::Args)]
pub(crate) struct RegisterArgs {
    /// What has made the backup and restores it, as in xtrabackup, mysqldump or mysqlsh
    #[arg(long, value_name = "NAME", value_parser = words)]
    tool: String,
    /// The place of the backup, for the operator who restores it; without a password
    #[arg(long, value_name = "URL", value_parser = words)]
    place: String,
    /// GTIDs that the backup has, exactly: as xtrabackup_binlog_info or the dump's GTID_PURGED says them
    #[arg(long, value_name = "SET", value_parser = gtids)]
    gtids: GtidSet,
    /// When it was taken, as in 2026-11-26T04:00:00Z; without it, now
    #[arg(long, value_name = "TIME", value_parser = moment)]
    taken_at: Option<UnixSeconds>,
    /// Version of the mysqld whose data they are
    #[arg(long, value_name = "VERSION", value_parser = words)]
    mysqld_version: Option<String>,
    /// Configuration file of a member; without it ./witness.toml or /etc/witness/witness.toml
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

/// One non-empty line of text.
fn words(text: &str) -> Result<String, Malformed> {
    match text.trim() {
        words if words.is_empty() || words.contains(char::is_control) => {
            Err(Malformed::new(text, "one line of text"))
        }
        words => Ok(words.to_owned()),
    }
}

/// Registers a backup.
///
/// # Errors
/// Exit 2 for invalid arguments, 4 where the ring is unknown, 1 where the storage rejects it.
pub(super) async fn register(args: &RegisterArgs, format: Format) -> Attempt {
    let has_password = Url::parse(&args.place).is_ok_and(|url| url.password().is_some());
    if has_password {
        return Err(Exit::Usage.because(
            "the URL of --place has a password in it, which every reader of the archive would see",
            "leave it out",
        ));
    }
    let now = now();
    let taken_at = args.taken_at.map_or(now, |at| at.0);
    if taken_at > now {
        return Err(Exit::Usage.because(
            "--taken-at is a time to come",
            "give the time of the backup in UTC, or with its offset",
        ));
    }
    let archive = OwnArchive::open(args.config.clone())?;
    let ring = archive.ring().await?;
    let name = free_name(&archive.storage, taken_at, archive.member).await?;
    let base = BaseManifest {
        form: BaseForm::Registered {
            tool: args.tool.clone(),
            place: args.place.clone(),
        },
        gtids_at_least: args.gtids.clone(),
        gtids_at_most: args.gtids.clone(),
        mysqld_version: args.mysqld_version.clone(),
        ..archive.base(ring, name, taken_at)
    };
    finish(&archive.storage, &base).await?;
    print(format, &listed(&base), || sentence(&base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_arguments_are_parsed() {
        assert_eq!(words(" mysqldump "), Ok("mysqldump".to_owned()));
        assert!(words("a\nb").is_err() && words(" ").is_err());
        assert!(gtids("").is_err() && gtids("x").is_err());
        assert!(gtids("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7").is_ok());
    }
}
