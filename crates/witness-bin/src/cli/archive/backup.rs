//! `witness archive backup`: a base backup of this host's running mysqld, or of a stopped server's data directory.

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use archive::base_backup::{
    BaseManifest, UploadOptions, assert_whole, finish, free_name, list, remove_unfinished, survey,
    upload,
};
use binlog_format::gtid::GtidSet;
use member::connect_options;
use member::settings::MysqlSettings;
use member::status::MemberView;
use mysqld_server::tail_trim::lock_data;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::cli::archive::conditions::{Wanted, belongs_to_the_ring, is_due, may_copy};
use crate::cli::archive::copying::{Alone, Copied, Copying, remove};
use crate::cli::archive::findings::{listed, sentence};
use crate::cli::archive::place::{OwnArchive, gtids};
use crate::cli::process::StopSignals;
use crate::config::duration_of;
use crate::terminal::{Attempt, Exit, Failure, Format, bytes_bar, print};
use crate::text::times::now;

/// Arguments of `witness archive backup`.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// Where mysqld makes the copy: a directory in which its account may make one; without it, as in `archive.copy_directory`
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "data_directory")]
    copy_directory: Option<PathBuf>,
    /// Also where this member's mysqld is the primary
    #[arg(long, conflicts_with = "data_directory")]
    on_primary: bool,
    /// How far a follower may be behind the ring
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration_of)]
    max_lag: Duration,
    /// Back up the data directory of a server that was stopped in good order, as it is
    #[arg(long, value_name = "DIRECTORY", requires = "gtids")]
    data_directory: Option<PathBuf>,
    /// GTIDs that this server had executed when it was stopped (gtid_executed)
    #[arg(long, value_name = "SET", requires = "data_directory", value_parser = gtids)]
    gtids: Option<GtidSet>,
    /// Do nothing where a base backup that is in the archive, and not only registered, was begun less than this ago, e.g. 1d
    #[arg(long, value_name = "DURATION", value_parser = duration_of)]
    if_older_than: Option<Duration>,
    /// Configuration file of the member; without it ./witness.toml or /etc/witness/witness.toml
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

/// How long the member may take to report its mysqld after the copy.
const ANSWERS: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(1);

/// Takes a base backup.
///
/// # Errors
/// Exit 2 where the configuration or a path is wrong, 4 where it is refused, 1 where mysqld, the disk or the storage fails.
pub(super) async fn backup(args: &BackupArgs, format: Format) -> Attempt {
    let archive = OwnArchive::open(args.config.clone())?;
    let known = survey(&archive.storage, None).await?;
    // A restore cannot begin with one that is only registered.
    let newest = known.bases.iter().rfind(|base| base.has_data());
    if let Some(newest) = newest
        && !is_due(Some(newest.began_at), args.if_older_than, now())
    {
        return print_base(false, newest, format);
    }
    let _alone = Alone::take(&archive.config.member.data_dir)?;
    for name in remove_unfinished(&archive.storage, archive.member).await? {
        say(format, &format!("removed {name}, which was not finished"));
    }
    let stop = CancellationToken::new();
    // The next backup removes the remains of a second signal.
    let tell = |name: &str| drop(writeln!(io::stderr(), "witness: {name}: ending cleanly"));
    let listening = tokio::spawn(StopSignals::new()?.cancel(stop.clone(), tell));
    let taken = match &args.data_directory {
        Some(directory) => {
            let gtids = args.gtids.clone().unwrap_or_default();
            of_stopped(&archive, directory, gtids, &stop, format).await
        }
        None => of_running(&archive, args, &stop, format).await,
    };
    listening.abort();
    print_base(true, &taken?, format)
}

/// `taken`: otherwise none was due, and this is the newest one.
fn print_base(taken: bool, base: &BaseManifest, format: Format) -> Attempt {
    let mut json = listed(base);
    json["taken"] = json!(taken);
    print(format, &json, || match taken {
        true => sentence(base),
        false => format!("none is due: {}", sentence(base)),
    })
}

/// On standard error, for operators.
fn say(format: Format, what: &str) {
    if format == Format::Table {
        // The caller may have closed standard error.
        drop(writeln!(io::stderr(), "{what}"));
    }
}

/// Of this host's mysqld, which continues.
async fn of_running(
    archive: &OwnArchive,
    args: &BackupArgs,
    stop: &CancellationToken,
    format: Format,
) -> Attempt<BaseManifest> {
    let wanted = Wanted {
        on_primary: args.on_primary,
        max_lag: args.max_lag,
    };
    let copying = copying(archive, args)?;
    let ring = may_copy(&archive.view().await?, wanted)?;
    for left in copying.remove_left().await? {
        say(
            format,
            &format!("removed {}, which a backup has left", left.display()),
        );
    }
    let began_at = now();
    let name = free_name(&archive.storage, began_at, archive.member).await?;
    say(format, "mysqld copies its data");
    let copied = copying.copy(name, stop).await?;
    let Copied {
        source,
        at_least,
        at_most,
        directory,
    } = copied;
    let taken = async {
        let base = BaseManifest {
            gtids_at_least: at_least,
            gtids_at_most: at_most,
            committed: sound_still(archive).await?.committed,
            mysqld_version: Some(source.version),
            server_uuid: Some(source.server_uuid),
            keyring_needed: Some(source.keyring_needed),
            ..archive.base(ring, name, began_at)
        };
        store(archive, &directory, base, stop, format).await
    };
    let taken = taken.await;
    let removed = remove(&directory);
    // A stored backup counts, whatever happened to the copy; a remaining copy is reported.
    let base = taken?;
    removed?;
    Ok(base)
}

fn copying(archive: &OwnArchive, args: &BackupArgs) -> Attempt<Copying> {
    let configured = archive.settings.copy_directory.as_ref();
    let directory = args.copy_directory.as_ref().or(configured);
    let directory = directory.ok_or_else(|| {
        Exit::Usage.because(
            "neither --copy-directory nor `archive.copy_directory` says where mysqld can make a copy",
            "name a directory in which its account may make one, with room for all of its data",
        )
    })?;
    let mysql: &MysqlSettings = archive.config.member.mysql.as_ref().ok_or_else(|| {
        Exit::Refused.because(
            "this member is a witness, and has no data",
            "run the command on the host of a database member",
        )
    })?;
    let copying = Copying {
        connect: connect_options(mysql).map_err(|error| {
            Failure::error(format!("the password of mysqld's account: {error}"))
        })?,
        directory: directory.clone(),
        member: archive.member,
    };
    copying.check()?;
    Ok(copying)
}

/// The member's view after the copy, if the data still belong to the ring. The member may be restarting at that moment.
async fn sound_still(archive: &OwnArchive) -> Attempt<MemberView> {
    let deadline = Instant::now() + ANSWERS;
    loop {
        match archive.view().await {
            Ok(view) => {
                belongs_to_the_ring(&view)?;
                return Ok(view);
            }
            Err(failure) if Instant::now() >= deadline => return Err(failure),
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Of a stopped server.
async fn of_stopped(
    archive: &OwnArchive,
    directory: &Path,
    gtids: GtidSet,
    stop: &CancellationToken,
    format: Format,
) -> Attempt<BaseManifest> {
    let in_use = |error: io::Error| {
        Exit::Refused.because(
            format!("{}: {error}", directory.display()),
            "stop the server first, or back it up while it runs, without --data-directory",
        )
    };
    let lock = lock_data(directory).map_err(in_use)?;
    let entries = list(directory)?;
    assert_whole(directory, &entries)?;
    let began_at = now();
    let ring = archive.ring().await?;
    let name = free_name(&archive.storage, began_at, archive.member).await?;
    let of_server = |file: &str| fs::read_to_string(directory.join(file)).ok();
    let base = BaseManifest {
        gtids_at_least: gtids.clone(),
        gtids_at_most: gtids,
        mysqld_version: of_server(UPGRADE_HISTORY).and_then(|history| last_version(&history)),
        server_uuid: of_server("auto.cnf").and_then(|text| server_uuid(&text)),
        ..archive.base(ring, name, began_at)
    };
    let base = store(archive, directory, base, stop, format).await;
    drop(lock);
    base
}

/// Stores the data in the archive, then the manifest.
async fn store(
    archive: &OwnArchive,
    directory: &Path,
    base: BaseManifest,
    stop: &CancellationToken,
    format: Format,
) -> Attempt<BaseManifest> {
    let entries = list(directory)?;
    let bar = bytes_bar();
    bar.set_length(entries.iter().map(|entry| entry.bytes).sum());
    say(format, &format!("storing {}", base.name));
    let options = UploadOptions {
        recipients: archive.recipients.clone(),
        bytes_per_second: archive.settings.bytes_per_second,
        ..UploadOptions::default()
    };
    let (shown, asked) = (bar.clone(), stop.clone());
    let progress = move |bytes| {
        shown.set_position(bytes);
        match asked.is_cancelled() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let packed = upload(&archive.storage, base.name, directory, options, progress).await;
    bar.finish_and_clear();
    let packed = packed?;
    let base = BaseManifest {
        ended_at: now().max(base.began_at),
        objects: packed.objects,
        tar: Some(packed.tar),
        unpacked_bytes: packed.unpacked_bytes,
        files: packed.files,
        ..base
    };
    finish(&archive.storage, &base).await?;
    Ok(base)
}

/// mysqld's record of its versions (from 8.4 on).
const UPGRADE_HISTORY: &str = "mysql_upgrade_history";

/// The last version of a data directory.
fn last_version(history: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct History {
        upgrade_history: Vec<Upgrade>,
    }
    #[derive(Deserialize)]
    struct Upgrade {
        version: String,
    }
    let History { upgrade_history } = serde_json::from_str(history).ok()?;
    Some(upgrade_history.into_iter().next_back()?.version)
}

/// The UUID in a server's `auto.cnf`.
fn server_uuid(text: &str) -> Option<Uuid> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.trim().strip_prefix("server-uuid"))?;
    value.trim_start_matches([' ', '=']).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_directory_identifies_its_server() {
        let history = r#"{"file_format":"1","upgrade_history":[
            {"date":"2026-01-01 00:00:00","version":"8.4.5","maturity":"LTS","initialize":true},
            {"date":"2026-02-01 00:00:00","version":"9.7.4","maturity":"LTS"}]}"#;
        assert_eq!(last_version(history), Some("9.7.4".to_owned()));
        assert_eq!(last_version("{}"), None);
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let text = format!("[auto]\nserver-uuid={uuid}\n");
        assert_eq!(server_uuid(&text), uuid.parse().ok());
        assert_eq!(server_uuid("[auto]\n"), None);
    }
}
