//! `witness archive backup`: takes a base backup of this host's running mysqld, or of a stopped server's data directory. `witness archive
//! register`: records a backup that the operator has made by other means.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use archive::base_backup::{
    BaseForm, BaseManifest, BaseName, UploadOptions, assert_whole, finish, free_name, list,
    remove_unfinished, survey, upload,
};
use archive::name::Malformed;
use binlog_format::gtid::GtidSet;
use member::connect_options;
use member::settings::MysqlSettings;
use member::status::MemberView;
use mysql_link::ConnectOptions;
use mysqld_server::provision::{
    LocalCopy, LocalSource, ProvisionError, copy_under_way, end_copy, executed,
    executed_and_applied, local_source, ready_for_copies,
};
use mysqld_server::tail_trim::lock_data;
use raft_types::{MemberId, RingId, UnixSeconds};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use crate::cli::archive::place::{OwnArchive, gtids, stopped};
use crate::cli::archive::reading::{listed, sentence};
use crate::cli::process::StopSignals;
use crate::config::duration_of;
use crate::terminal::{Attempt, Exit, Failure, Format, bytes_bar, print};
use crate::text::times::{moment, now};

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
/// Exit 2 if the configuration or a path is wrong, 4 if the backup is refused, 1 if mysqld, the disk or the storage fails.
pub(super) async fn backup(args: &BackupArgs, format: Format) -> Attempt {
    let archive = OwnArchive::open(args.config.clone())?;
    let known = survey(&archive.storage, None).await?;
    // Backups that are only registered do not count: a restore cannot begin with them.
    let newest = known.bases.iter().rfind(|base| base.has_data());
    if let Some(newest) = newest
        && !is_due(Some(newest.began_at), args.if_older_than, now())
    {
        return print_base(false, newest, format);
    }
    let _lock = lock_backups(&archive.config.member.data_dir)?;
    for name in remove_unfinished(&archive.storage, archive.member).await? {
        say(format, &format!("removed {name}, which was not finished"));
    }
    let stop = CancellationToken::new();
    // A second signal ends the program immediately. The next backup removes the remains.
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

/// Prints a base backup. If `taken` is false, none was due, and `base` is the newest existing one.
fn print_base(taken: bool, base: &BaseManifest, format: Format) -> Attempt {
    let mut json = listed(base);
    json["taken"] = json!(taken);
    print(format, &json, || match taken {
        true => sentence(base),
        false => format!("none is due: {}", sentence(base)),
    })
}

/// Prints a message for the operator on standard error, unless the output is JSON.
fn say(format: Format, what: &str) {
    if format == Format::Table {
        // The caller may have closed standard error.
        drop(writeln!(io::stderr(), "{what}"));
    }
}

/// Takes a base backup of this host's mysqld while mysqld continues to run.
async fn of_running(
    archive: &OwnArchive,
    args: &BackupArgs,
    stop: &CancellationToken,
    format: Format,
) -> Attempt<BaseManifest> {
    let copying = copying(archive, args)?;
    let ring = may_copy(&archive.view().await?, args.on_primary, args.max_lag)?;
    for left in copying.remove_left().await? {
        say(
            format,
            &format!("removed {}, which a backup has left", left.display()),
        );
    }
    let began_at = now();
    let name = free_name(&archive.storage, began_at, archive.member).await?;
    say(format, "mysqld copies its data");
    let (directory, source, at_least, at_most) = copying.copy(name, stop).await?;
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
    // The backup is stored even if its copy cannot be removed. In that case the command fails, and names the copy.
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

/// Returns the member's view after the copy, if mysqld has no errant transactions. The member may be restarting, so the query is repeated
/// for up to [`ANSWERS`].
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

/// Takes a base backup of the data directory of a stopped server.
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

/// The file in which mysqld records its versions (from 8.4 on).
const UPGRADE_HISTORY: &str = "mysql_upgrade_history";

/// Returns the last version of mysqld that used a data directory.
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

/// Returns the UUID in a server's `auto.cnf`.
fn server_uuid(text: &str) -> Option<Uuid> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.trim().strip_prefix("server-uuid"))?;
    value.trim_start_matches([' ', '=']).trim().parse().ok()
}

// `witness archive register`: adds a manifest for a backup that the operator has made by other means. The archive then keeps the log after
// that backup, and a restore lists the backup.

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

/// Parses a text that must be one non-empty line.
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
/// Exit 2 for invalid arguments, 4 if the ring is unknown, 1 if the storage fails.
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

// Decides whether a base backup of this server may be taken now, from the state of the member, mysqld and the disk. Pure.

/// Returns the ring of a member whose mysqld may be copied now: a follower with a lag up to `max_lag`, or a primary if `on_primary` is set.
///
/// # Errors
/// Exit 4 with the reason.
fn may_copy(view: &MemberView, on_primary: bool, max_lag: Duration) -> Attempt<RingId> {
    let Some(ring) = view.ring.id else {
        return Err(Exit::Refused.because(
            "the ring is not bootstrapped, so that nothing is the ring's data",
            "bootstrap it first",
        ));
    };
    let Some(mysql) = &view.mysql else {
        return Err(Exit::Refused.because(
            "this member is a witness, and has no data",
            "run the command on the host of a database member",
        ));
    };
    belongs_to_the_ring(view)?;
    if mysql.follows() {
        let lag = mysql.lag_ms.map(Duration::from_millis);
        return match lag.filter(|lag| *lag > max_lag) {
            None => Ok(ring),
            Some(lag) => Err(Exit::Refused.because(
                format!(
                    "this member's mysqld is {} behind the ring, and {} is the most",
                    humantime::format_duration(lag),
                    humantime::format_duration(max_lag)
                ),
                "wait until it has caught up, run the command on another follower's host, or allow more with --max-lag",
            )),
        };
    }
    if mysql.writable {
        return match on_primary {
            true => Ok(ring),
            false => Err(Exit::Refused.because(
                "this member's mysqld is the primary, which a copy of all data would slow down",
                "run the command on a follower's host, or with --on-primary",
            )),
        };
    }
    Err(Exit::Refused.because(
        format!(
            "this member's mysqld does not follow the ring: {}",
            (mysql.trouble.clone()).unwrap_or_else(|| mysql.role.to_string())
        ),
        "`witness status` says what it waits for",
    ))
}

/// Checks that a mysqld has no transactions that the ring lacks, according to its member's last comparison.
///
/// # Errors
/// Exit 4 with the transactions that the ring lacks.
fn belongs_to_the_ring(view: &MemberView) -> Attempt {
    let errant = (view.mysql.as_ref()).and_then(|mysql| mysql.errant.as_ref());
    match errant {
        None => Ok(()),
        Some(errant) => Err(Exit::Refused.because(
            format!(
                "this member's mysqld has executed {} transactions that the ring has not committed ({}), which would be in the backup",
                errant.transactions, errant.gtids
            ),
            "take the backup on another member's host; docs/roles.md says what becomes of these transactions",
        )),
    }
}

/// True if a base backup is due. `newest` is the time at which the newest backup began, in seconds since 1970.
fn is_due(newest: Option<u64>, older_than: Option<Duration>, now: u64) -> bool {
    match (newest, older_than) {
        (Some(newest), Some(older_than)) => now.saturating_sub(newest) >= older_than.as_secs(),
        _ => true,
    }
}

/// Checks that the disk has room for a copy of the current data, and for a tenth more, because the server continues to write.
///
/// # Errors
/// Exit 4 if there is too little room.
fn has_room(data: u64, free: u64, directory: &str) -> Attempt {
    let needed = data.saturating_add(data / 10);
    match needed <= free {
        true => Ok(()),
        false => Err(Exit::Refused.because(
            format!(
                "a copy of the data takes about {needed} bytes, and {directory} has {free} left"
            ),
            "make room there, or name a directory on another disk with --copy-directory",
        )),
    }
}

// Copies of a running mysqld's data. The server itself makes a copy, in a separate directory, which is removed after it is archived. A
// member takes one backup at a time, so a directory of another copy is left from a killed backup.

/// Prefix of directories with copies.
const PREFIX: &str = "witness-base-";
/// The lock file for backups, in the member's data directory.
const LOCK: &str = "base-backup.lock";
/// The wait between a copy and the query of its GTIDs. A commit is in the engine, and so in a copy, shortly before it is in
/// `gtid_executed`.
const SETTLE: Duration = Duration::from_secs(1);

/// Locks a member for one backup, without waiting. The lock lasts until the returned file is closed.
///
/// # Errors
/// Exit 4 if another backup of this member is being taken.
fn lock_backups(data_dir: &Path) -> Attempt<File> {
    let path = data_dir.join(LOCK);
    let mut options = File::options();
    let options = options.create(true).truncate(false).write(true);
    let file = options.open(&path).map_err(on_disk(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Exit::Refused.because(
            "another base backup of this member is being taken",
            "wait for its end",
        )),
        Err(TryLockError::Error(error)) => Err(on_disk(&path)(error)),
    }
}

/// The directory for copies, with the mysqld and the member that they are made of.
struct Copying {
    connect: ConnectOptions,
    directory: PathBuf,
    member: MemberId,
}

impl Copying {
    /// Checks that a copy can be made in the directory.
    ///
    /// # Errors
    /// Exit 2 for a relative path, 4 if the directory does not exist.
    fn check(&self) -> Attempt {
        let shown = self.directory.display();
        if !self.directory.is_absolute() {
            return Err(Exit::Usage.because(
                format!("{shown} is a relative path, and mysqld works in its own directory"),
                "write the whole path",
            ));
        }
        match self.directory.is_dir() {
            true => Ok(()),
            false => Err(Exit::Refused.because(
                format!("there is no directory {shown}"),
                "make it, and give it to the account of mysqld: without its mount, the copy would fill the wrong disk",
            )),
        }
    }

    /// Removes the remains of this member's killed backups. If mysqld still makes a copy for a killed backup, ends that copy first.
    ///
    /// # Errors
    /// Exit 4 if mysqld makes a copy for another client, 1 if the removal fails.
    async fn remove_left(&self) -> Attempt<Vec<PathBuf>> {
        if let Some(under_way) = copy_under_way(&self.connect).await? {
            if !self.is_own(&under_way.into) {
                return Err(Exit::Refused.because(
                    format!(
                        "mysqld makes a copy of its data in {} for another client",
                        under_way.into.display()
                    ),
                    "wait for its end",
                ));
            }
            end_copy(&self.connect, under_way.id).await?;
        }
        let entries = fs::read_dir(&self.directory).and_then(Iterator::collect);
        let entries: Vec<fs::DirEntry> = entries.map_err(on_disk(&self.directory))?;
        let own = entries.iter().map(fs::DirEntry::path);
        let own: Vec<PathBuf> = own.filter(|path| self.is_own(path)).collect();
        own.iter().try_for_each(|path| remove(path))?;
        Ok(own)
    }

    /// True if `path` is the directory of a copy for this member.
    fn is_own(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.and_then(|name| name.strip_prefix(PREFIX)?.parse::<BaseName>().ok());
        path.parent() == Some(&self.directory)
            && name.is_some_and(|name| name.member() == self.member)
    }

    /// Makes mysqld copy its data. Returns the copy's directory, the server, and two GTID sets: those that the copy has for certain, and
    /// those that it has at most. After a failure or a stop, the partial copy is removed.
    ///
    /// # Errors
    /// Exit 4 if there is no room, or a copy would lack tables; 1 if mysqld fails, or `stop` is cancelled.
    async fn copy(
        &self,
        name: BaseName,
        stop: &CancellationToken,
    ) -> Attempt<(PathBuf, LocalSource, GtidSet, GtidSet)> {
        let source = local_source(&self.connect).await?;
        if !source.other_engines.is_empty() {
            return Err(Exit::Refused.because(
                format!(
                    "a copy would have no rows of tables of other engines than InnoDB, as {}",
                    source.other_engines.join(", ")
                ),
                "alter them to ENGINE=InnoDB, or back up a stopped server with --data-directory",
            ));
        }
        let space = rustix::fs::statvfs(&self.directory);
        let space = space.map_err(|error| on_disk(&self.directory)(error.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        has_room(source.bytes, free, &self.directory.display().to_string())?;
        ready_for_copies(&self.connect).await?;
        let directory = self.directory.join(format!("{PREFIX}{name}"));
        let at_least = executed(&self.connect).await?;
        let copied = async {
            self.clone_into(&directory, stop).await?;
            tokio::time::sleep(SETTLE).await;
            Ok::<_, Failure>(executed_and_applied(&self.connect).await?)
        };
        match copied.await {
            Ok(at_most) => Ok((directory, source, at_least, at_most)),
            Err(failure) => {
                // If the removal fails, the next backup removes the rest.
                let _ = remove(&directory);
                Err(failure)
            }
        }
    }

    async fn clone_into(&self, directory: &Path, stop: &CancellationToken) -> Attempt {
        let copy = LocalCopy::open(&self.connect).await?;
        let id = copy.id();
        tokio::select! {
            copied = copy.copy(directory) => copied.map_err(|error| match error {
                ProvisionError::Server { .. } => Exit::Error.because(
                    error,
                    format!(
                        "the account of mysqld has to be allowed to make a directory in {}",
                        self.directory.display()
                    ),
                ),
                error => error.into(),
            }),
            () = stop.cancelled() => {
                end_copy(&self.connect, id).await?;
                Err(stopped())
            }
        }
    }
}

/// Removes the directory of a copy, if it exists.
///
/// # Errors
/// Exit 1 if the directory cannot be removed.
fn remove(directory: &Path) -> Attempt {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Exit::Error.because(
            format!("{} cannot be removed: {error}", directory.display()),
            "run the command as root or as the account of mysqld, whose files they are",
        )),
        _ => Ok(()),
    }
}

impl From<ProvisionError> for Failure {
    fn from(error: ProvisionError) -> Self {
        Self::error(error)
    }
}

fn on_disk(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::error(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use member::status::{ErrantTransactions, MysqlView, MysqldState, RoleState, WaitingFor};
    use mysql_link::{Endpoint, Secret};

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

    #[test]
    fn register_arguments_are_parsed() {
        assert_eq!(words(" mysqldump "), Ok("mysqldump".to_owned()));
        assert!(words("a\nb").is_err() && words(" ").is_err());
        assert!(gtids("").is_err() && gtids("x").is_err());
        assert!(gtids("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7").is_ok());
    }

    const MAX_LAG: Duration = Duration::from_secs(60);

    fn ring() -> RingId {
        RingId("11111111-2222-3333-4444-555555555555".parse().unwrap())
    }

    fn view(mysql: Option<MysqlView>) -> MemberView {
        let mut view = member::status::sample::database_leader();
        view.ring.id = Some(ring());
        view.mysql = mysql;
        view
    }

    fn follower() -> MysqlView {
        MysqlView {
            following: true,
            state: MysqldState::Running,
            lag_ms: Some(900),
            ..MysqlView::default()
        }
    }

    fn why_not(mysql: Option<MysqlView>) -> String {
        let refused = may_copy(&view(mysql), false, MAX_LAG).unwrap_err();
        assert_eq!(refused.exit, Exit::Refused);
        refused.what
    }

    #[test]
    fn primary_is_copied_only_on_request() {
        assert_eq!(
            may_copy(&view(Some(follower())), false, MAX_LAG).unwrap(),
            ring()
        );
        let primary = MysqlView {
            writable: true,
            ..MysqlView::default()
        };
        let words = why_not(Some(primary.clone()));
        assert!(words.contains("is the primary"), "{words}");
        assert_eq!(
            may_copy(&view(Some(primary)), true, MAX_LAG).unwrap(),
            ring()
        );
    }

    #[test]
    fn server_with_errant_transactions_is_not_copied() {
        let words = why_not(None);
        assert!(words.contains("is a witness"), "{words}");
        let lagging = MysqlView {
            lag_ms: Some(61_000),
            ..follower()
        };
        let words = why_not(Some(lagging));
        assert!(words.contains("1m 1s behind"), "{words}");
        let errant = MysqlView {
            errant: Some(ErrantTransactions {
                transactions: 2,
                gtids: "u:7-8".to_owned(),
            }),
            ..follower()
        };
        let words = why_not(Some(errant));
        assert!(
            words.contains("2 transactions") && words.contains("u:7-8"),
            "{words}"
        );
        let replaced = MysqlView {
            role: RoleState::Waiting {
                what: WaitingFor::Step("the data of `b` are being copied".to_owned()),
            },
            ..MysqlView::default()
        };
        let words = why_not(Some(replaced));
        assert!(
            words.ends_with("the data of `b` are being copied"),
            "{words}"
        );
        let mut not_yet = view(Some(follower()));
        not_yet.ring.id = None;
        assert!(may_copy(&not_yet, false, MAX_LAG).is_err());
    }

    #[test]
    fn base_backup_is_due_at_the_configured_age() {
        let day = Some(Duration::from_secs(86_400));
        assert!(is_due(None, day, 5));
        assert!(is_due(Some(5), None, 5));
        assert!(!is_due(Some(5), day, 86_404));
        assert!(is_due(Some(5), day, 86_405));
        // The clock of the host of the newest backup is ahead.
        assert!(!is_due(Some(50), day, 5));
    }

    #[test]
    fn copy_needs_a_tenth_more_space_than_the_data() {
        assert!(has_room(1000, 1100, "/c").is_ok());
        let refused = has_room(1000, 1099, "/c").unwrap_err();
        assert_eq!(
            refused.what,
            "a copy of the data takes about 1100 bytes, and /c has 1099 left"
        );
    }

    #[test]
    fn member_takes_one_backup_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock_backups(folder.path()).unwrap();
        let refused = lock_backups(folder.path()).err().unwrap();
        assert_eq!(refused.exit, Exit::Refused);
        drop(first);
        assert!(lock_backups(folder.path()).is_ok());
    }

    #[test]
    fn copy_directories_of_this_member_are_recognised() {
        let copying = Copying {
            connect: ConnectOptions::new(Endpoint::unix("/s"), "w", Secret::new(String::new())),
            directory: "/copies".into(),
            member: MemberId(3),
        };
        let is_own = |path: &str| copying.is_own(Path::new(path));
        assert!(is_own("/copies/witness-base-20261126T143816Z-3"));
        for other in [
            "/copies/witness-base-20261126T143816Z-4",
            "/copies/witness-base-mine",
            "/copies/20261126T143816Z-3",
            "/elsewhere/witness-base-20261126T143816Z-3",
            "/copies/a/witness-base-20261126T143816Z-3",
            "/copies",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
