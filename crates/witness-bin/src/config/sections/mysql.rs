//! The sections for MySQL: `[mysql]`, the mysqld of a database member, and `[binlog_server]`, the ring's log over MySQL's protocol.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use member::settings::{
    BinlogServerSettings, ExternalMysqld, MysqlMode, MysqlSettings, PasswordSource,
};
use mysql_link::TlsMode;
use mysqld_server::events::EventsWanted;
use uuid::Uuid;

use crate::config::key::{Setting, check_pair, section};
use crate::config::problem::{Place, Problems};
use crate::config::sections::process::Tls;
use crate::config::value::{DAY, GIB, KIB, Kind};

/// The longest path of a unix socket that the operating system accepts, in bytes.
const LONGEST_SOCKET: usize = 107;

section! {
    /// Section `[mysql]`.
    Mysql, "mysql.", "The mysqld of a database member; a witness ignores this section";

    /// `child`: the member starts, watches and stops mysqld. `external`: the same, through `mysql.start_command`, `stop_command` and
    /// `kill_command`, for a mysqld that systemd owns (see `docs/external-mysqld.md`). `attach`: the member connects to a running mysqld,
    /// does not start, stop or kill it, and cannot trim its binlog before a start.
    mode: String = Kind::Choice(&["child", "external", "attach"]), Some("\"child\""), "";
    /// Host of this member's mysqld.
    host: String = Kind::Text, Some("\"127.0.0.1\""), "";
    /// TCP port of that mysqld.
    port: u16 = Kind::Integer(1, 65_535), Some("3306"), "";
    /// Unix socket of that mysqld, used instead of host and port when given. Empty in mode `child`: `mysqld.sock` in `data_dir`.
    socket: String = Kind::Text, Some("\"\""), "\"/run/mysqld/mysqld.sock\"";
    /// Where clients reach that mysqld, for `/cluster`. Empty: `mysql.host` and `mysql.port`, with the host of the member's `address` where
    /// `mysql.host` is this host.
    connect_address: String = Kind::HostPort, Some("\"\""), "\"db-1.example.org:3306\"";
    /// Account of the member in that mysqld. With `mysql.apply = "rows"` it needs ALL PRIVILEGES WITH GRANT OPTION, because it applies all
    /// statements and rows of the log; docs/roles.md has the rights that are enough with `native`. A server that the member initialises
    /// gets it.
    user: String = Kind::Text, Some("\"witness\""), "";
    /// Its password. Better given by `WITNESS_MYSQL_PASSWORD` or `mysql.password_file`; there is no flag for it.
    password: String = Kind::Text, Some("\"\""), "", reloaded, secret;
    /// File with the password in its first line.
    password_file: String = Kind::SecretFile, Some("\"\""), "\"/etc/witness/mysql-password\"", reloaded;
    /// TLS towards mysqld, with the meanings of the `mysql` client's `--ssl-mode`.
    tls: String = Kind::Choice(&["disabled", "preferred", "required", "verify_ca", "verify_identity"]), Some("\"preferred\""), "";
    /// Authorities that may have signed mysqld's certificate, PEM; needed by the two `verify_` modes.
    tls_ca_file: String = Kind::File, Some("\"\""), "\"/etc/witness/mysql-ca.pem\"";
    /// Certificate that the member shows to mysqld, PEM, for an account that demands one.
    tls_certificate_file: String = Kind::File, Some("\"\""), "\"/etc/witness/mysql-client.pem\"";
    /// Private key of that certificate, PEM.
    tls_key_file: String = Kind::SecretFile, Some("\"\""), "\"/etc/witness/mysql-client.key\"";
    /// A copy of mysqld's RSA public key, for a password over TCP without TLS. Empty: a mysqld on this host is asked for it; the login at
    /// one on another host fails.
    public_key_file: String = Kind::File, Some("\"\""), "\"/var/lib/mysql/public_key.pem\"";
    /// Command that starts mysqld in mode `child`: the program, and before it whatever wraps it.
    mysqld: Vec<String> = Kind::List, Some("[\"mysqld\"]"), "";
    /// Data directory of mysqld in the modes `child` and `external`.
    datadir: String = Kind::Directory, Some("\"\""), "\"/var/lib/mysql\"", shown;
    /// More arguments for mysqld in mode `child`.
    extra_args: Vec<String> = Kind::List, Some("[]"), "[\"--innodb-buffer-pool-size=4G\"]";
    /// Whether an empty `mysql.datadir` is initialised in mode `child`.
    initialize: bool = Kind::Bool, Some("true"), "";
    /// Command that starts mysqld in mode `external`, and ends once it is started.
    start_command: Vec<String> = Kind::List, Some("[]"), "[\"systemctl\", \"start\", \"mysql\"]";
    /// Command that asks mysqld to stop in mode `external`.
    stop_command: Vec<String> = Kind::List, Some("[]"), "[\"systemctl\", \"stop\", \"mysql\"]";
    /// Command that kills mysqld in mode `external`, so that commits which wait for the ring are not let through.
    kill_command: Vec<String> = Kind::List, Some("[]"), "[\"systemctl\", \"kill\", \"--signal=KILL\", \"mysql\"]";
    /// The option `log_bin` of mysqld in mode `external`; relative to `mysql.datadir`.
    log_bin: String = Kind::Text, Some("\"binlog\""), "\"/var/log/mysql/binlog\"";
    /// Pid file of mysqld in mode `external`. Needed where the member may not read `/proc/PID/cwd` of that process. Empty: not used.
    pid_file: String = Kind::Text, Some("\"\""), "\"/run/mysqld/mysqld.pid\"";
    /// Server id under which the member attaches as a replica. 0: made from the member's id.
    server_id: u32 = Kind::Integer(0, 4_294_967_295), Some("0"), "4001";
    /// Server UUID under which the member attaches as a replica. Empty: its incarnation.
    server_uuid: Option<Uuid> = Kind::Uuid, Some("\"\""), "";
    /// Whether the member sets what the wait for consensus needs on mysqld (semi-sync, timeouts, sync_binlog). Otherwise it only checks.
    /// Then nothing of the ring's log is applied to mysqld, as with `mysql.apply = "off"`.
    manage_settings: bool = Kind::Bool, Some("true"), "";
    /// Whether the member attaches to a MySQL version or product that was not fully tested (docs/versions.md). Versions that cannot work
    /// are refused in any case.
    accept_unproven: bool = Kind::Bool, Some("false"), "";
    /// How the ring's log is applied to mysqld while another member leads. `rows`: by the member, row by row. `native`: by mysqld's own
    /// replica threads, reading from the member's binlog server, with super_read_only on. `off`: not at all, for a ring with one mysqld:
    /// once another member's mysqld was the primary, this one lacks what was written there and can never be the primary again
    /// (docs/roles.md). With `mysql.manage_settings = false` nothing is applied either.
    apply: String = Kind::Choice(&["rows", "native", "off"]), Some("\"rows\""), "";
    /// Connections over which the applier writes to mysqld.
    apply_workers: usize = Kind::Integer(1, 1024), Some("4"), "";
    /// Largest transaction that the primary takes, in bytes of binlog. The member sets `max_binlog_cache_size` and
    /// `max_binlog_stmt_cache_size` by it before clients may write, and leaves a smaller value as it is. A larger transaction fails with
    /// MySQL's error 1197 and is rolled back; nothing else is held up. MySQL checks before it writes an event, so the last rows of a
    /// transaction, which share an event, may exceed it. A session that wrote before keeps the limit that it had. Give the same on every
    /// member with a mysqld: replica threads that log what they apply keep to it, too. A statement that writes more than this to a table of
    /// an engine without transactions (MyISAM) leaves its rows there, and MySQL logs that events are lost: later transactions cannot be
    /// received, the leadership goes to another member after `mysql.demote_after`, and this mysqld stays down until `witness reprovision`
    /// gives it a copy. Use InnoDB.
    max_transaction_bytes: u64 = Kind::Bytes(1 << 20, GIB), Some("\"1GiB\""), "\"256MiB\"";
    /// Whether scheduled events (`CREATE EVENT`) run at the primary; replicas never run them. `as_mysqld`: as mysqld was configured when
    /// the member first connected.
    event_scheduler: String = Kind::Choice(&["as_mysqld", "on", "off"]), Some("\"as_mysqld\""), "";
    /// Automatic demotion. When the leader's mysqld cannot serve as primary for this long, the leadership moves to a member with a mysqld
    /// that can. That covers a mysqld that does not start, is stopped by an error, does not catch up, hangs (no commit finishes, or no
    /// answer), or is one from which nothing can be received. If the process has exited, the leadership moves immediately. A mysqld that
    /// hangs is killed on the way, except in mode `attach`; one without successful logins is killed 10 s later, even where no other can be
    /// the primary. `0s` turns all of this off.
    demote_after: Duration = Kind::Duration(0, DAY), Some("\"30s\""), "";
    /// How long clients may keep using a primary after its member no longer serves as the leader, counted from the end of its lease. Then
    /// writes are closed. If another mysqld could be primary, reads are closed too, with `offline_mode`: it ends the sessions of ordinary
    /// accounts and refuses new ones until this mysqld is a primary or a replica again. Commits wait from the first moment. Make it longer
    /// than an election and a restart of the member.
    fence_after: Duration = Kind::Duration(0, DAY), Some("\"10s\""), "";
    /// How long a planned switchover waits for running writes and `LOCK TABLES`: `witness switchover`, a member that is stopped, an
    /// automatic demotion. Then the sessions that block it are killed and their transactions roll back; a transaction that is already
    /// committing is left alone. If the rollback takes more than ten seconds, the primary stays where it is. On a mysqld that is to become
    /// the primary, a session whose locks keep the rest of the log from being applied is killed once it has blocked it for that long, and a
    /// backup that holds `LOCK INSTANCE FOR BACKUP` or `FLUSH TABLES WITH READ LOCK` immediately. `0s`: nothing is killed, and a switchover
    /// that has to wait longer than a second fails.
    kill_statements_after: Duration = Kind::Duration(0, DAY), Some("\"10s\""), "";
}

impl Mysql {
    /// Checks the section of a database member, and reports every broken rule. `has_others`: the ring has other voting members with a
    /// mysqld.
    pub(crate) fn validate(&self, data_dir: &str, has_others: bool, problems: &mut Problems) {
        if self.tls.starts_with("verify_") && self.tls_ca_file.is_empty() {
            let mode = self.tls.as_str();
            problems.error(
                &self.tls.at,
                self.tls_ca_file.path(),
                format!("`mysql.tls` is `{mode}`, but `mysql.tls_ca_file` is not given"),
                "name the file of the authorities that signed mysqld's certificate",
            );
        }
        check_pair(&self.tls_certificate_file, &self.tls_key_file, problems);
        if self.socket.is_empty() && self.host.is_empty() {
            self.host.error(
                problems,
                "neither `mysql.host` nor `mysql.socket` is given",
                "name one of them",
            );
        }
        check_password(&self.password, &self.password_file, problems);
        match self.mode.as_str() {
            "external" => self.validate_external(problems),
            "child" => self.validate_child(data_dir, problems),
            _ => {}
        }
        if has_others {
            self.warn_that_nothing_is_applied(problems);
        }
    }

    /// Reports missing keys in mode `external`.
    fn validate_external(&self, problems: &mut Problems) {
        for command in [&self.start_command, &self.stop_command, &self.kill_command] {
            if command.is_empty() {
                command.error(
                    problems,
                    format!(
                        "`{}` is empty, but the member starts and stops mysqld through it",
                        command.path()
                    ),
                    "write the command as a list of words, as in [\"systemctl\", \"start\", \"mysql\"]",
                );
            }
        }
        for (setting, what) in [
            (&self.datadir, "mysqld's data directory"),
            (&self.log_bin, "the value of mysqld's option log_bin"),
        ] {
            if setting.is_empty() {
                setting.error(
                    problems,
                    format!(
                        "`{}` is missing, but the member checks mysqld's binlog before each start",
                        setting.path()
                    ),
                    format!("name {what}, or set `mysql.mode` to \"attach\""),
                );
            }
        }
    }

    fn validate_child(&self, data_dir: &str, problems: &mut Problems) {
        if let Some(socket) = self.socket_in(data_dir)
            && socket.as_os_str().len() > LONGEST_SOCKET
        {
            self.socket.error(
                problems,
                format!(
                    "the path of the unix socket {} is too long",
                    socket.display()
                ),
                format!("give `mysql.socket` a path of at most {LONGEST_SOCKET} bytes"),
            );
        }
        if self.mysqld.is_empty() {
            self.mysqld.error(
                problems,
                "`mysql.mysqld` is empty, but the member has to start mysqld",
                "write the command, as in [\"/usr/sbin/mysqld\"], or set `mysql.mode` to \"attach\"",
            );
        }
        let names = self.mysqld.iter().map(|word| Path::new(word).file_name());
        let wrappers = ["mysqld_safe", "mysqld_multi", "mariadbd-safe"].map(OsStr::new);
        if let Some(wrapper) = names.flatten().find(|name| wrappers.contains(name)) {
            self.mysqld.error(
                problems,
                format!(
                    "`mysql.mysqld` runs {}, which starts mysqld again by itself: after a crash that mysqld would serve transactions \
                     that the ring lacks",
                    wrapper.to_string_lossy()
                ),
                "write the command of mysqld itself, as in [\"/usr/sbin/mysqld\"]: the member starts it again",
            );
        }
        if self.datadir.is_empty() {
            self.datadir.error(
                problems,
                "`mysql.datadir` is missing, but the member has to start mysqld",
                "name mysqld's data directory, or set `mysql.mode` to \"attach\"",
            );
        }
    }

    /// Warns that the ring's log is not applied to this mysqld: it will lack the transactions of any other primary.
    fn warn_that_nothing_is_applied(&self, problems: &mut Problems) {
        let mut warn = |key: &str, at: &Place, advice: &str| {
            problems.warning(
                at,
                key,
                format!(
                    "with this `{key}` the ring's log is not applied to this member's mysqld: once another one was the primary it \
                     lacks what was written there, and can never be the primary again"
                ),
                format!("{advice}; or, where no mysqld is to follow, make this member a witness"),
            );
        };
        if *self.apply == "off" {
            let advice = "set it to \"rows\" or \"native\"";
            warn(self.apply.path(), &self.apply.at, advice);
        } else if self.manage_settings.is_empty() {
            let manage = &self.manage_settings;
            warn(manage.path(), &manage.at, "set it to true");
        }
    }

    /// Returns the path of mysqld's socket. The default in mode `child` is a path in the member's data directory.
    fn socket_in(&self, data_dir: &str) -> Option<PathBuf> {
        let own = || std::path::absolute(Path::new(data_dir).join("mysqld.sock")).ok();
        let is_child = *self.mode == "child";
        self.socket.file().or_else(|| is_child.then(own).flatten())
    }

    pub(crate) fn settings(&self, data_dir: &str) -> MysqlSettings {
        let is_applied = *self.apply != "off" && *self.manage_settings;
        MysqlSettings {
            mode: match self.mode.as_str() {
                "attach" => MysqlMode::Attach,
                "external" => MysqlMode::External,
                _ => MysqlMode::Child,
            },
            host: self.host.clone(),
            port: *self.port,
            socket: self.socket_in(data_dir),
            user: self.user.clone(),
            password: password_source(&self.password, &self.password_file),
            tls: self.tls.parse().unwrap_or(TlsMode::Preferred),
            tls_ca_file: self.tls_ca_file.file(),
            tls_certificate: self
                .tls_certificate_file
                .file()
                .zip(self.tls_key_file.file()),
            public_key_file: self.public_key_file.file(),
            mysqld: self.mysqld.to_vec(),
            datadir: self.datadir.file(),
            extra_args: self.extra_args.to_vec(),
            external: (*self.mode == "external").then(|| ExternalMysqld {
                start: self.start_command.to_vec(),
                stop: self.stop_command.to_vec(),
                kill: self.kill_command.to_vec(),
                log_bin: self.log_bin.clone(),
                pid_file: self.pid_file.file(),
            }),
            initialize: *self.initialize,
            server_id: self.server_id.given().copied(),
            server_uuid: *self.server_uuid,
            manage_settings: *self.manage_settings,
            accept_unproven: *self.accept_unproven,
            max_transaction_bytes: *self.max_transaction_bytes,
            // A replica that applies the log needs semi-sync off, and the leader's mysqld needs semi-sync on.
            apply_workers: is_applied.then_some(*self.apply_workers),
            native: *self.apply == "native",
            events: match self.event_scheduler.as_str() {
                "on" => EventsWanted::Yes,
                "off" => EventsWanted::No,
                _ => EventsWanted::AsMysqld,
            },
            demote_after: self.demote_after.given().copied(),
            fence_after: *self.fence_after,
            kill_statements_after: self.kill_statements_after.given().copied(),
        }
    }
}

section! {
    /// Section `[binlog_server]`.
    BinlogServer, "binlog_server.", "The log over MySQL's protocol, for stock replicas and other consumers";

    /// Where stock replicas, mysqlbinlog and change-data consumers attach to read what the ring committed. Empty: nowhere.
    listen: String = Kind::HostPort, Some("\"\""), "\"0.0.0.0:3307\"";
    /// The one account that may log in there.
    user: String = Kind::Text, Some("\"replication\""), "";
    /// Its password. Better given by `WITNESS_BINLOG_SERVER_PASSWORD` or `binlog_server.password_file`; there is no flag for it.
    password: String = Kind::Text, Some("\"\""), "", reloaded, secret;
    /// File with the password in its first line.
    password_file: String = Kind::SecretFile, Some("\"\""), "\"/etc/witness/replication-password\"", reloaded;
    /// Certificate that is shown to replicas, PEM. Empty: that of `tls.certificate_file`, if there is one.
    tls_certificate_file: String = Kind::File, Some("\"\""), "\"/etc/witness/binlog-server.pem\"", reloaded;
    /// Private key of that certificate, PEM.
    tls_key_file: String = Kind::SecretFile, Some("\"\""), "\"/etc/witness/binlog-server.key\"", reloaded;
    /// Whether a login without TLS is refused, where there is a certificate. The log has every row that was written.
    require_tls: bool = Kind::Bool, Some("true"), "";
    /// Clients at a time, of those that have logged in.
    max_connections: usize = Kind::Integer(1, 10_000), Some("100"), "";
    /// Buffer for one consumer. A slow consumer uses no more than this, and never delays commits or other consumers.
    queue_bytes: usize = Kind::Bytes(256 * KIB, GIB), Some("\"4MiB\""), "";
}

impl BinlogServer {
    /// Reports every broken rule; `apply` is `mysql.apply`. For a member without a binlog server, only `mysql.apply` is checked.
    pub(crate) fn validate(&self, apply: &Setting<String>, tls: &Tls, problems: &mut Problems) {
        if self.listen.given().is_none() {
            if apply.as_str() == "native" {
                problems.error(
                    &apply.at,
                    self.listen.path(),
                    "`mysql.apply` is \"native\", but the member has no binlog server that mysqld could read from",
                    "set `binlog_server.listen` with an account, or mysql.apply = \"rows\"",
                );
            }
            return;
        }
        if self.user.is_empty() {
            problems.error(
                &self.listen.at,
                self.user.path(),
                "`binlog_server.user` is empty, but the binlog server is to listen",
                "name the account that replicas log in with",
            );
        }
        if self.password.is_empty() && self.password_file.is_empty() {
            problems.error(
                &self.listen.at,
                self.password.path(),
                "the binlog server is to listen, but has neither `binlog_server.password` nor `binlog_server.password_file`",
                "give it one: the log has every row that was written",
            );
        }
        check_password(&self.password, &self.password_file, problems);
        check_pair(&self.tls_certificate_file, &self.tls_key_file, problems);
        // By default, TLS is required only if there is a certificate. A value from a source requires the certificate.
        let is_required = *self.require_tls && self.require_tls.given_by_source;
        if is_required && self.tls_certificate_file.is_empty() && tls.certificate_file.is_empty() {
            problems.error(
                &self.require_tls.at,
                self.tls_certificate_file.path(),
                "`binlog_server.require_tls` is set, but there is no certificate",
                "name one in `binlog_server.tls_certificate_file`, or the member's in `tls.certificate_file`",
            );
        }
    }

    /// Returns the settings of the binlog server; `None` if none is configured.
    pub(crate) fn settings(&self, tls: &Tls) -> Option<BinlogServerSettings> {
        let own = self.tls_certificate_file.file();
        let own = own.map(|certificate| (certificate, self.tls_key_file.as_str().into()));
        let certificate = own.or_else(|| tls.certificate());
        Some(BinlogServerSettings {
            listen: self.listen.given()?.clone(),
            user: self.user.clone(),
            password: password_source(&self.password, &self.password_file),
            require_tls: *self.require_tls && certificate.is_some(),
            certificate,
            max_connections: *self.max_connections,
            queue_bytes: *self.queue_bytes,
        })
    }
}

/// Reports a password that is given twice.
fn check_password(password: &Setting<String>, file: &Setting<String>, problems: &mut Problems) {
    if password.given().is_some() && file.given().is_some() {
        let message = format!("`{}` and `{}` are both given", password.path(), file.path());
        file.error(problems, message, "keep one of them");
    }
}

/// Returns the source of a password: its file, if one is given; otherwise the value.
fn password_source(password: &Setting<String>, file: &Setting<String>) -> PasswordSource {
    match file.file() {
        Some(file) => PasswordSource::File(file),
        None => PasswordSource::Given(password.as_str().to_owned()),
    }
}
