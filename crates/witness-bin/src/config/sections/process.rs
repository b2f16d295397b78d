//! The process of this member: `[log]`, `[archive]`, `[tls]`, `[http]`, `[hooks]` and `[logging]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use binlog_store::{Durability, VerifyAtStart};
use member::settings::{ArchiveSettings, HookSettings, LogSettings, PasswordSource, TlsSettings};
use transport::NamedRoles;
use url::Url;

use crate::config::key::{check_pair, section};
use crate::config::problem::Problems;
use crate::config::value::{DAY, GIB, KIB, Kind};

/// The shortest `log.keep_for` without a warning. Readers of the log cannot use files that are purged sooner.
const SHORTEST_AGE: Duration = Duration::from_secs(60);

section! {
    /// Section `[log]`.
    Log, "log.", "The log on disk";

    /// When an entry counts as durable: `fsync` after it was forced to the disk, `os` after the operating system has it. A cut of the power
    /// can lose it: the member then votes for no member until the leader, or all other members, have reported the ends of their logs, and a
    /// ring that lost its power as a whole waits for all of its members.
    durability: String = Kind::Choice(&["fsync", "os"]), Some("\"fsync\""), "";
    /// Size after which the leader rotates to the next binlog file, as `max_binlog_size` does in MySQL.
    max_file_bytes: u64 = Kind::Bytes(4 * KIB, GIB), Some("\"1GiB\""), "";
    /// Memory for the newest entries, from which other members are served without reading the disk.
    cache_bytes: u64 = Kind::Bytes(1 << 20, 64 * GIB), Some("\"64MiB\""), "";
    /// Memory for entries that wait for the disk. When it is full, proposals and the leader's entries wait. One larger transaction is
    /// accepted when the queue is empty.
    queue_bytes: u64 = Kind::Bytes(1 << 20, 64 * GIB), Some("\"64MiB\""), "";
    /// How much of the log is checked before the member joins. `recent`: the newest files. `new`: those, and everything that was never read
    /// back since it was written (at most 4 GiB). `all`: everything. The rest is checked when it is read, and by the scrub.
    verify_at_start: String = Kind::Choice(&["new", "recent", "all"]), Some("\"new\""), "";
    /// Speed of the scrub, in bytes per second: it reads closed files back and checks them, new files soon after they were closed, and all
    /// files again one day after the last pass has ended. `0` turns it off.
    scrub_rate: u64 = Kind::Bytes(0, 64 * GIB), Some("\"8MiB\""), "";
    /// Largest total size of the log files. Beyond it, new transactions are refused. Transactions already in progress, and the ring's own
    /// entries, may exceed it by `log.disk_reserve_bytes`. `0`: no limit.
    disk_limit_bytes: u64 = Kind::Bytes(0, u64::MAX), Some("0"), "\"200GiB\"";
    /// Disk space that transactions cannot use. When only this much is left, new transactions are refused until space is free; elections,
    /// rotations and purges still work, so a ring with full disks recovers by itself. Set it to at least `raft.proposals_bytes`. Other
    /// programs can still fill the disk: then the member waits, acknowledges nothing, reports it in `witness status`, and continues when
    /// there is space. A start needs free space.
    disk_reserve_bytes: u64 = Kind::Bytes(0, u64::MAX), Some("\"256MiB\""), "";
    /// Files of the log are purged this long after they were closed, as `binlog_expire_logs_seconds` does in MySQL, and only once no
    /// region, no reader and no mysqld needs them. `0s`: never by age.
    keep_for: Duration = Kind::Duration(0, 10 * 365 * DAY), Some("\"30d\""), "";
    /// The oldest files are purged while the log takes more, under the same conditions. 0: never by size.
    keep_bytes: u64 = Kind::Bytes(0, u64::MAX), Some("0"), "\"100GiB\"";
    /// How long an absent member keeps old log files from being purged. If it is away longer, its log starts with a later file when it
    /// returns, and its mysqld has to be reprovisioned. The majority of a region keeps files for as long as it is away.
    absent_after: Duration = Kind::Duration(1_000, 365 * DAY), Some("\"1d\""), "";
}

impl Log {
    /// Warns of limits that are too small for the member to accept entries, or to keep them.
    pub(crate) fn validate(&self, problems: &mut Problems) {
        if let (Some(bytes), Some(file)) =
            (self.disk_limit_bytes.given(), self.max_file_bytes.usable())
            && bytes < file
        {
            self.disk_limit_bytes.warning(
                problems,
                format!(
                    "`log.disk_limit_bytes` is {bytes} bytes, less than one file of the log has (`log.max_file_bytes`, {file}): no file \
                     can be purged before new transactions are refused"
                ),
                "give the log room for some files, or 0 for no limit",
            );
        }
        if let Some(age) = self.keep_for.given()
            && *age < SHORTEST_AGE
        {
            self.keep_for.warning(
                problems,
                format!(
                    "with a `log.keep_for` of {} ms files go as soon as they are closed: a replica or consumer that was away for a \
                     moment cannot continue",
                    age.as_millis()
                ),
                "keep them for hours, better days; `0s` is never by age",
            );
        }
    }

    pub(crate) fn settings(&self) -> LogSettings {
        LogSettings {
            durability: match self.durability.as_str() {
                "os" => Durability::Os,
                _ => Durability::Fsync,
            },
            max_file_bytes: *self.max_file_bytes,
            cache_bytes: *self.cache_bytes,
            queue_bytes: *self.queue_bytes,
            verify: match self.verify_at_start.as_str() {
                "all" => VerifyAtStart::All,
                "recent" => VerifyAtStart::Recent,
                _ => VerifyAtStart::New,
            },
            scrub_rate: self.scrub_rate.given().copied(),
            disk_limit_bytes: self.disk_limit_bytes.given().copied(),
            disk_reserve_bytes: *self.disk_reserve_bytes,
            keep_for: self.keep_for.given().copied(),
            keep_bytes: self.keep_bytes.given().copied(),
            absent_after: *self.absent_after,
        }
    }
}

section! {
    /// Section `[archive]`.
    Archive, "archive.", "The log in object storage";

    /// Where the ring's log is archived: `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder`, or `file:///folder` for a
    /// directory that is there. The same on all members, a folder for each ring; one of them archives at a time, a witness where there is
    /// one. Empty: this member does not archive.
    url: String = Kind::Text, Some("\"\""), "\"s3://backups/orders\"";
    /// File with what the storage has to know, in lines as `aws_endpoint = "https://…"` and `aws_secret_access_key = "…"`: the names of its
    /// environment variables in lower case. They come before those of the environment; with neither, the rights of the machine's role are
    /// used. Read again after each failure.
    options_file: String = Kind::SecretFile, Some("\"\""), "";
    /// How often new commits are archived: the commits that the loss of all members would lose.
    interval: Duration = Kind::Duration(100, 3_600_000), Some("\"5s\""), "";
    /// How old a file of the log gets before the leader rotates for the next transaction, as by `archive_timeout` of PostgreSQL. A file
    /// that is closed is archived as a whole, and the pieces that were archived of it go a day later. `0s`: a file ends by its size alone,
    /// and has a piece for each interval in which something was committed.
    max_file_age: Duration = Kind::Duration(0, 365 * DAY), Some("\"1h\""), "";
    /// How long one call of the storage may take.
    call_limit: Duration = Kind::Duration(1_000, 3_600_000), Some("\"60s\""), "";
    /// What archiving takes of the network at most, in bytes per second. `0`: no limit.
    bytes_per_second: u64 = Kind::Bytes(0, 64 * GIB), Some("0"), "\"20MiB\"";
    /// Files of the log that are not archived yet are not purged as long as they take no more than this together. Beyond it the oldest go,
    /// and the archive has a gap there.
    hold_bytes: u64 = Kind::Bytes(0, u64::MAX), Some("\"20GiB\""), "";
    /// File with public keys of age, one a line (`age1…`): the archive is encrypted for them, and a member cannot read it. `witness archive
    /// keygen` makes a pair. Read again at each interval; as long as it cannot be, nothing is archived. Empty: nothing is encrypted.
    recipients_file: String = Kind::File, Some("\"\""), "\"/etc/witness/archive-recipients.txt\"";
    /// Files that this member has purged are fetched from the archive for consumers of its binlog server, and take no more than this of the
    /// data directory's disk together. At least as much as the largest file of the log; a file for each consumer that reads old ones at the
    /// same time. `0`: purged files are not served.
    serve_bytes: u64 = Kind::Bytes(0, u64::MAX), Some("\"4GiB\""), "";
    /// File with secret keys of age (`AGE-SECRET-KEY-1…`), which only its owner may read (mode 0600): with them, encrypted files of the
    /// archive are served to consumers of the binlog server, and nothing else is done. An attacker that takes over a member with it can
    /// read the archive. Read again at each query of the archive. Empty: encrypted files are not served.
    identity_file: String = Kind::SecretFile, Some("\"\""), "\"/etc/witness/archive.identity\"";
    /// How long one can go back. Files of the log that have nothing younger are deleted in the archive, the oldest first, and base backups
    /// that are not needed for it. `0s`: without limit, or as set by `archive.keep_base_backups`.
    keep: Duration = Kind::Duration(0, 100 * 365 * DAY), Some("\"0s\""), "\"30d\"";
    /// So many of the newest base backups stay in the archive, with the log after them, regardless of `archive.keep`. Older ones are
    /// deleted. `0`: all that `archive.keep` keeps.
    keep_base_backups: usize = Kind::Integer(0, 100_000), Some("0"), "7";
    /// Whether the member that archives deletes in the archive what may go: pieces that a whole file has replaced a day ago, and what is
    /// older than `archive.keep`. Where its credentials may not delete: `false`, and `witness archive prune` somewhere else.
    prune: bool = Kind::Bool, Some("true"), "";
    /// Where mysqld makes the copy of its data that `witness archive backup` puts into the archive, and that is removed then: a directory
    /// in which mysqld's account may make one, with room for all of its data. Not the disk of the log. Empty: `--copy-directory` names it.
    copy_directory: String = Kind::Text, Some("\"\""), "\"/var/lib/witness-copies\"";
}

impl Archive {
    /// Reports mistakes in the URL of the archive and in `archive.copy_directory`.
    pub(crate) fn validate(&self, problems: &mut Problems) {
        let directory = self.copy_directory.given();
        if directory.is_some_and(|directory| !Path::new(directory).is_absolute()) {
            self.copy_directory.error(
                problems,
                "`archive.copy_directory` is a relative path, and mysqld works in its own directory",
                "write the whole path, as in \"/var/lib/witness-copies\"",
            );
        }
        let Some(url) = self.url.given() else {
            return;
        };
        let schemes = ["s3", "gs", "az", "file"];
        if !Url::parse(url).is_ok_and(|url| schemes.contains(&url.scheme())) {
            self.url.error(
                problems,
                "`archive.url` is no place for an archive",
                "write `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder` or `file:///folder`",
            );
        }
    }

    /// Returns the settings of the archive; `None` for a member that does not archive.
    pub(crate) fn settings(&self) -> Option<ArchiveSettings> {
        Some(ArchiveSettings {
            url: Url::parse(self.url.given()?).ok()?,
            options_file: self.options_file.file(),
            interval: *self.interval,
            max_file_age: self.max_file_age.given().copied(),
            call_limit: *self.call_limit,
            bytes_per_second: self.bytes_per_second.given().copied(),
            hold_bytes: *self.hold_bytes,
            recipients_file: self.recipients_file.file(),
            identity_file: self.identity_file.file(),
            serve_bytes: self.serve_bytes.given().copied(),
            prune: *self.prune,
            keep: self.keep.given().copied(),
            keep_base_backups: self.keep_base_backups.given().copied(),
            copy_directory: self.copy_directory.file(),
        })
    }
}

section! {
    /// Section `[tls]`.
    Tls, "tls.", "TLS between members";

    /// Certificate that this member shows to the others, PEM. Needed as soon as something listens, or a member is, beyond loopback, unless
    /// `tls.plaintext` is set.
    certificate_file: String = Kind::File, Some("\"\""), "\"/etc/witness/tls/member.crt\"", reloaded, shown;
    /// Private key of that certificate, PEM.
    key_file: String = Kind::SecretFile, Some("\"\""), "\"/etc/witness/tls/member.key\"", reloaded, shown;
    /// Authorities that may have signed the other members' certificates, PEM. Both sides are checked.
    ca_file: String = Kind::File, Some("\"\""), "\"/etc/witness/tls/ca.crt\"", reloaded, shown;
    /// Name that the other members' certificates must carry. Empty: the host in the address of each.
    peer_name: String = Kind::Text, Some("\"\""), "\"witness.example.org\"", reloaded;
    /// Certificate that commands on this host show, PEM; the member itself does not use it. Empty: the member's own, which may only read.
    operator_certificate_file: String = Kind::Text, Some("\"\""), "\"/etc/witness/tls/operator-ana.crt\"", reloaded;
    /// Private key of that certificate, PEM.
    operator_key_file: String = Kind::Text, Some("\"\""), "\"/etc/witness/tls/operator-ana.key\"", reloaded;
    /// Common names of members, where an authority of your own signs. Empty: every certificate of the authority without a role is a
    /// member's, unless `tls.operators` or `tls.readers` lists it. List the members where the authority signs for others too. Where one of
    /// the three lists has a name, a role in a certificate holds only if that role's list has its common name.
    members: Vec<String> = Kind::List, Some("[]"), "[\"db-1.example.org\", \"db-2.example.org\"]", reloaded;
    /// Common names of operators, where an authority of your own signs.
    operators: Vec<String> = Kind::List, Some("[]"), "[\"ana\"]", reloaded;
    /// Common names of readers, where an authority of your own signs.
    readers: Vec<String> = Kind::List, Some("[]"), "[\"dashboard\"]", reloaded;
    /// `true`: members, operators' commands, HTTP and the binlog server talk without TLS, on purpose. Without it and without a certificate,
    /// a member serves loopback alone.
    plaintext: bool = Kind::Bool, Some("false"), "";
}

impl Tls {
    /// Checks the section, and reports every broken rule.
    pub(crate) fn validate(&self, problems: &mut Problems) {
        let files = [&self.certificate_file, &self.key_file, &self.ca_file];
        let Some(present) = files.iter().find(|file| file.given().is_some()) else {
            return;
        };
        for file in files {
            if file.is_empty() {
                problems.error(
                    &present.at,
                    file.path(),
                    format!(
                        "`{}` is given, but `{}` is not",
                        present.path(),
                        file.path()
                    ),
                    "TLS between members needs certificate, key and authorities",
                );
            }
        }
        check_pair(
            &self.operator_certificate_file,
            &self.operator_key_file,
            problems,
        );
        if *self.plaintext {
            self.plaintext.error(
                problems,
                format!("`tls.plaintext` is set, and so is `{}`", present.path()),
                "keep one of them: members talk with TLS, or without",
            );
        }
    }

    /// Returns the paths of this member's certificate and private key.
    pub(crate) fn certificate(&self) -> Option<(PathBuf, PathBuf)> {
        Some((self.certificate_file.file()?, self.key_file.as_str().into()))
    }

    /// Returns the settings for TLS; `None` if no certificate is configured.
    pub(crate) fn settings(&self) -> Option<TlsSettings> {
        let (certificate_file, key_file) = self.certificate()?;
        let operator_key = self.operator_key_file.file();
        Some(TlsSettings {
            certificate_file,
            key_file,
            ca_file: self.ca_file.as_str().into(),
            peer_name: self.peer_name.given().cloned(),
            roles: NamedRoles {
                members: self.members.to_vec(),
                operators: self.operators.to_vec(),
                readers: self.readers.to_vec(),
            },
            operator: self.operator_certificate_file.file().zip(operator_key),
        })
    }
}

section! {
    /// Section `[http]`.
    Http, "http.", "Metrics, health and status";

    /// Where metrics, health and status are served over HTTP. Empty: nowhere.
    listen: String = Kind::HostPort, Some("\"\""), "\"127.0.0.1:7480\"", shown;
    /// Where clients reach it, for `/cluster` and for orders that are sent on to the leader. Empty: the host of the member's `address`,
    /// with the port of `http.listen`.
    connect_address: String = Kind::HostPort, Some("\"\""), "\"db-1.example.org:7480\"";
    /// Whether that is HTTPS, with the certificate of `tls.certificate_file`; without `[tls]` it is plain HTTP in any case. Callers need no
    /// certificate.
    tls: bool = Kind::Bool, Some("true"), "", reloaded;
    /// File with the token that orders over HTTP (`POST /pause`, `/resume`, `/switchover`, `/failover`, `/reinitialize`, `/restart`,
    /// `/reload`) have to bring. Empty: no orders over HTTP.
    token_file: String = Kind::SecretFile, Some("\"\""), "", reloaded;
    /// File with a token for reading. When set, the page, `/ring`, `/status`, `/cluster`, `/config`, `/history` and `/metrics` need it or
    /// that of `http.token_file`; what load balancers ask stays open. Empty: everybody may read.
    read_token_file: String = Kind::SecretFile, Some("\"\""), "", reloaded;
    /// From which lag of a replica on `/check/APP/mysql/RING` answers 429, so that applications that can wait do not write.
    throttle_threshold: Duration = Kind::Duration(1, 3_600_000), Some("\"1s\""), "";
}

/// Section `[http]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The listen address.
    pub listen: String,
    /// The paths of the certificate and the private key for HTTPS; `None` for plain HTTP.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The token for orders; `None`: orders are off.
    pub token: Option<PasswordSource>,
    /// The token for reads. The health checks of load balancers need no token. `None`: no read needs a token.
    pub read_token: Option<PasswordSource>,
    /// The replica lag from which writers are throttled.
    pub throttle_threshold: Duration,
}

impl Http {
    /// Returns the settings for HTTP; `None` if HTTP is not served.
    pub(crate) fn settings(&self, tls: &Tls) -> Option<HttpSettings> {
        Some(HttpSettings {
            listen: self.listen.given()?.clone(),
            certificate: tls.certificate().filter(|_| *self.tls),
            token: self.token_file.file().map(PasswordSource::File),
            read_token: self.read_token_file.file().map(PasswordSource::File),
            throttle_threshold: *self.throttle_threshold,
        })
    }
}

section! {
    /// Section `[hooks]`.
    Hooks, "hooks.", "Commands that the member runs when the primary changes";

    /// Command to run when this member's mysqld has become the primary. A list of words, no shell; docs/discovery.md lists its environment.
    on_primary: Vec<String> = Kind::List, Some("[]"), "", reloaded;
    /// Command to run when this member's mysqld is no longer the primary.
    on_demoted: Vec<String> = Kind::List, Some("[]"), "", reloaded;
    /// Command that every member with this key runs when another member's mysqld has become the primary.
    on_primary_changed: Vec<String> = Kind::List, Some("[]"), "", reloaded;
    /// How long a hook's command may take before it is killed with everything that it started. Only the next hook waits for it.
    timeout: Duration = Kind::Duration(100, 3_600_000), Some("\"30s\""), "", reloaded;
}

impl Hooks {
    pub(crate) fn settings(&self) -> HookSettings {
        HookSettings {
            on_primary: self.on_primary.to_vec(),
            on_demoted: self.on_demoted.to_vec(),
            on_primary_changed: self.on_primary_changed.to_vec(),
            timeout: *self.timeout,
        }
    }
}

section! {
    /// Section `[logging]`.
    Logging, "logging.", "The process's own log";

    /// Form of the process's own log lines, which go to standard error.
    format: String = Kind::Choice(&["text", "json"]), Some("\"text\""), "";
    /// Which of them are written: `error`, `warn`, `info`, `debug`, `trace`, or a list such as `info,transport=debug`.
    level: String = Kind::Text, Some("\"info\""), "", reloaded;
}

/// Section `[logging]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggingSettings {
    /// True for log lines as JSON objects, false for text.
    pub json: bool,
    /// A filter of tracing-subscriber, such as `info,transport=debug`.
    pub level: String,
}

impl Logging {
    pub(crate) fn settings(&self) -> LoggingSettings {
        LoggingSettings {
            json: *self.format == "json",
            level: self.level.clone(),
        }
    }
}
