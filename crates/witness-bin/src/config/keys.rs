//! The table of all keys, in the order of the documentation and the example.

use Fallback::{Required, Value};

use crate::config::key::{Fallback, Key, Kind};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
/// One day in milliseconds.
const DAY: u64 = 24 * 3_600_000;

const fn key(
    path: &'static str,
    kind: Kind,
    fallback: Fallback,
    example: &'static str,
    meaning: &'static str,
) -> Key {
    Key {
        path,
        kind,
        fallback,
        secret: false,
        reloads: false,
        meaning,
        example,
    }
}

/// The name of the list of members in the file.
pub const MEMBERS: &str = "members";

/// All keys except those of the list of members.
pub const KEYS: &[Key] = &[
    key(
        "data_dir",
        Kind::Directory,
        Required,
        "\"/var/lib/witness\"",
        "Directory of this member: its identity, its log and its metadata. Made when it does not exist; one process at a time.",
    ),
    key(
        "ring.name",
        Kind::Name,
        Required,
        "\"orders\"",
        "Name of the ring (one replicaset), for people and for the `ring` label of metrics.",
    ),
    key(
        "member.id",
        Kind::Integer {
            min: 1,
            max: u64::MAX,
        },
        Required,
        "1",
        "Which entry of `[[members]]` this process is. A number that a lost data directory had is never used again.",
    ),
    key(
        "member.listen",
        Kind::HostPort,
        Value("\"\""),
        "\"0.0.0.0:7400\"",
        "Address on which the member accepts calls of the other members. Empty: its own `address` in `[[members]]`.",
    ),
    key(
        "log.durability",
        Kind::Choice(&["fsync", "os"]),
        Value("\"fsync\""),
        "",
        "When an entry counts as durable: `fsync` after it was forced to the disk, `os` after the operating system has it. A cut of the power can lose it: the member then elects nobody until the leader, or all other members, have told it how far their logs go, and a ring that lost its power as a whole waits for all of its members.",
    ),
    key(
        "log.max_file_bytes",
        Kind::Bytes {
            min: 4 * KIB,
            max: GIB,
        },
        Value("\"1GiB\""),
        "",
        "Size after which the leader rotates to the next binlog file, as `max_binlog_size` does in MySQL.",
    ),
    key(
        "log.cache_bytes",
        Kind::Bytes {
            min: 1 << 20,
            max: 64 * GIB,
        },
        Value("\"64MiB\""),
        "",
        "Memory for the newest entries, from which other members are served without reading the disk.",
    ),
    key(
        "log.queue_bytes",
        Kind::Bytes {
            min: 1 << 20,
            max: 64 * GIB,
        },
        Value("\"64MiB\""),
        "",
        "Memory for entries that wait for the disk. When it is full, proposals and the leader's entries wait. One larger transaction is accepted when the queue is empty.",
    ),
    key(
        "log.verify_at_start",
        Kind::Choice(&["new", "recent", "all"]),
        Value("\"new\""),
        "",
        "How much of the log is checked before the member joins. `recent`: the newest files. `new`: those, and everything that was never read back since it was written (at most 4 GiB). `all`: everything. The rest is checked when it is read, and by the scrub.",
    ),
    key(
        "log.scrub_rate",
        Kind::Bytes {
            min: 0,
            max: 64 * GIB,
        },
        Value("\"8MiB\""),
        "",
        "Speed of the scrub, in bytes per second: it reads closed files back and checks them, new files soon after they were closed, and all files again one day after the last pass has ended. `0` turns it off.",
    ),
    key(
        "log.disk_limit_bytes",
        Kind::Bytes {
            min: 0,
            max: u64::MAX,
        },
        Value("0"),
        "\"200GiB\"",
        "Largest total size of the log files. Beyond it, new transactions are refused. Transactions already in progress, and the ring's own entries, may exceed it by `log.disk_reserve_bytes`. `0`: no limit.",
    ),
    key(
        "log.disk_reserve_bytes",
        Kind::Bytes {
            min: 0,
            max: u64::MAX,
        },
        Value("\"256MiB\""),
        "",
        "Disk space that transactions cannot use. When only this much is left, new transactions are refused until space is free; elections, rotations and purges still work, so a ring with full disks recovers by itself. Set it to at least `raft.proposals_bytes`. Other programs can still fill the disk: then the member waits, acknowledges nothing, says so in `witness status`, and continues when there is space. A start needs free space.",
    ),
    key(
        "log.keep_for",
        Kind::Duration {
            min: 0,
            max: 10 * 365 * DAY,
        },
        Value("\"30d\""),
        "",
        "Files of the log are purged this long after they were closed, as `binlog_expire_logs_seconds` does in MySQL, and only once no region, no reader and no mysqld needs them. `0s`: never by age.",
    ),
    key(
        "log.keep_bytes",
        Kind::Bytes {
            min: 0,
            max: u64::MAX,
        },
        Value("0"),
        "\"100GiB\"",
        "The oldest files are purged while the log takes more, under the same conditions. 0: never by size.",
    ),
    key(
        "log.absent_after",
        Kind::Duration {
            min: 1_000,
            max: 365 * DAY,
        },
        Value("\"1d\""),
        "",
        "How long an absent member keeps old log files from being purged. If it is away longer, its log starts with a later file when it returns, and its mysqld has to be reprovisioned. The majority of a region keeps files for as long as it is away.",
    ),
    key(
        "raft.heartbeat",
        Kind::Duration {
            min: 10,
            max: 10_000,
        },
        Value("\"500ms\""),
        "",
        "Interval of the leader's heartbeat, and its deadline. It must be longer than the slowest round trip to a voting member.",
    ),
    key(
        "raft.lease",
        Kind::Duration {
            min: 0,
            max: 200_000,
        },
        Value("\"0ms\""),
        "\"800ms\"",
        "Without a heartbeat for this long the leader counts as gone and an election may start; and this is how long the leader serves after its last acknowledged heartbeat. `0ms`: 1.5 heartbeats, at least 60 ms more than one.",
    ),
    key(
        "raft.proposals_bytes",
        Kind::Bytes {
            min: 1 << 20,
            max: GIB,
        },
        Value("\"64MiB\""),
        "",
        "Memory for entries that are proposed and not yet committed. When it is full, the next transaction waits.",
    ),
    key(
        "quorum.policy",
        Kind::Choice(&["single-region-dynamic", "majority", "regions"]),
        Value("\"single-region-dynamic\""),
        "",
        "Which members a commit waits for. `single-region-dynamic`: a majority of the leader's region. `majority`: a majority of all voting members. `regions`: a majority in each of `quorum.regions`, or in some of them. Used when the ring is made; change it later with `witness quorum set`.",
    ),
    key(
        "quorum.regions",
        Kind::List,
        Value("[]"),
        "[\"north\", \"south\"]",
        "The regions of which a commit needs a majority in each, for the policy `regions`.",
    ),
    key(
        "quorum.required_regions",
        Kind::Integer { min: 0, max: 64 },
        Value("0"),
        "",
        "For the policy `regions`: in how many of `quorum.regions` a commit needs a majority; the leader's region is one of them. `0`: in all of them.",
    ),
    key(
        "quorum.region_preference",
        Kind::List,
        Value("[]"),
        "[\"north\", \"south\"]",
        "Regions in the order in which a leader is looked for when no member of the last leader's region can lead. Those that are not listed come last, by name.",
    ),
    key(
        "regions.proxy",
        Kind::Choice(&["region", "edges", "off"]),
        Value("\"region\""),
        "",
        "How entries reach other regions. `region`: one member of each region receives them and forwards them to the others there. `edges`: as the members' `proxy_from` says. `off`: the leader sends them to every member. Same on every member.",
    ),
    key(
        "regions.proxy_wait",
        Kind::Duration {
            min: 50,
            max: 10_000,
        },
        Value("\"500ms\""),
        "",
        "How long a proxy waits for an entry, or for the next part of a large one, that has not arrived yet before it reports it missing. Longer than the slowest round trip between regions. The leader stops using a silent proxy after 1.2 times this.",
    ),
    key(
        "regions.proxy_max_hops",
        Kind::Integer { min: 1, max: 64 },
        Value("16"),
        "",
        "The most proxies between a leader and a member.",
    ),
    key(
        "regions.compression_level",
        Kind::Integer { min: 0, max: 19 },
        Value("3"),
        "",
        "Level of zstd for the payloads of entries that are sent to another region. 0: they are not compressed.",
    ),
    key(
        "regions.compression_min_bytes",
        Kind::Bytes { min: 64, max: GIB },
        Value("\"1KiB\""),
        "",
        "Smaller payloads are sent as they are.",
    ),
    key(
        "regions.congestion_control",
        Kind::Text,
        Value("\"bbr\""),
        "",
        "TCP congestion control of the connections to members of other regions, by its name in Linux. `bbr` is fast where packets get lost. Where the system does not give it (net.ipv4.tcp_allowed_congestion_control), the member says so once and uses the system's own. `system`: the system's own.",
    ),
    key(
        "tls.certificate_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/tls/member.crt\"",
        "Certificate that this member shows to the others, PEM. Needed as soon as something listens, or a member is, beyond loopback, unless `tls.plaintext` is set.",
    )
    .reloaded(),
    key(
        "tls.key_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/tls/member.key\"",
        "Private key of that certificate, PEM.",
    )
    .reloaded(),
    key(
        "tls.ca_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/tls/ca.crt\"",
        "Authorities that may have signed the other members' certificates, PEM. Both sides are checked.",
    )
    .reloaded(),
    key(
        "tls.peer_name",
        Kind::Text,
        Value("\"\""),
        "\"witness.example.org\"",
        "Name that the other members' certificates must carry. Empty: the host in the address of each.",
    )
    .reloaded(),
    key(
        "tls.operator_certificate_file",
        Kind::Text,
        Value("\"\""),
        "\"/etc/witness/tls/operator-ana.crt\"",
        "Certificate that commands on this host show, PEM; the member itself does not use it. Empty: the member's own, which may only read.",
    )
    .reloaded(),
    key(
        "tls.operator_key_file",
        Kind::Text,
        Value("\"\""),
        "\"/etc/witness/tls/operator-ana.key\"",
        "Private key of that certificate, PEM.",
    )
    .reloaded(),
    key(
        "tls.members",
        Kind::List,
        Value("[]"),
        "[\"db-1.example.org\", \"db-2.example.org\"]",
        "Common names of members, where an authority of your own signs. Empty: every certificate of the authority that says no role is a member's, unless `tls.operators` or `tls.readers` lists it. List the members where the authority signs for others too. Where one of the three lists has a name, a role in a certificate holds only if that role's list has its common name.",
    )
    .reloaded(),
    key(
        "tls.operators",
        Kind::List,
        Value("[]"),
        "[\"ana\"]",
        "Common names of operators, where an authority of your own signs.",
    )
    .reloaded(),
    key(
        "tls.readers",
        Kind::List,
        Value("[]"),
        "[\"dashboard\"]",
        "Common names of those who may only read, where an authority of your own signs.",
    )
    .reloaded(),
    key(
        "tls.plaintext",
        Kind::Bool,
        Value("false"),
        "",
        "`true`: members, operators' commands, HTTP and the binlog server talk without TLS, on purpose. Without it and without a certificate, a member serves loopback alone.",
    ),
    key(
        "mysql.mode",
        Kind::Choice(&["child", "external", "attach"]),
        Value("\"child\""),
        "",
        "`child`: the member starts, watches and stops mysqld. `external`: the same, through `mysql.start_command`, `stop_command` and `kill_command`, for a mysqld that systemd owns (see `docs/external-mysqld.md`). `attach`: the member connects to a running mysqld, does not start, stop or kill it, and cannot trim its binlog before a start.",
    ),
    key(
        "mysql.host",
        Kind::Text,
        Value("\"127.0.0.1\""),
        "",
        "Host of this member's mysqld.",
    ),
    key(
        "mysql.port",
        Kind::Integer {
            min: 1,
            max: 65_535,
        },
        Value("3306"),
        "",
        "TCP port of that mysqld.",
    ),
    key(
        "mysql.socket",
        Kind::Text,
        Value("\"\""),
        "\"/run/mysqld/mysqld.sock\"",
        "Unix socket of that mysqld, used instead of host and port when given. Empty in mode `child`: `mysqld.sock` in `data_dir`.",
    ),
    key(
        "mysql.connect_address",
        Kind::HostPort,
        Value("\"\""),
        "\"db-1.example.org:3306\"",
        "Where clients reach that mysqld, for `/cluster`. Empty: `mysql.host` and `mysql.port`, with the host of the member's `address` where `mysql.host` is this host.",
    ),
    key(
        "mysql.user",
        Kind::Text,
        Value("\"witness\""),
        "",
        "Account of the member in that mysqld. With `mysql.apply = \"rows\"` it needs ALL PRIVILEGES WITH GRANT OPTION, because it applies whatever the log says; docs/roles.md has the rights that are enough with `native`. A server that the member initialises gets it.",
    ),
    Key {
        path: "mysql.password",
        kind: Kind::Text,
        fallback: Value("\"\""),
        secret: true,
        reloads: true,
        meaning: "Its password. Better given by `WITNESS_MYSQL_PASSWORD` or `mysql.password_file`; there is no flag for it.",
        example: "",
    },
    key(
        "mysql.password_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/mysql-password\"",
        "File whose first line is the password.",
    )
    .reloaded(),
    key(
        "mysql.tls",
        Kind::Choice(&[
            "disabled",
            "preferred",
            "required",
            "verify_ca",
            "verify_identity",
        ]),
        Value("\"preferred\""),
        "",
        "TLS towards mysqld, with the meanings of the `mysql` client's `--ssl-mode`.",
    ),
    key(
        "mysql.tls_ca_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/mysql-ca.pem\"",
        "Authorities that may have signed mysqld's certificate, PEM; needed by the two `verify_` modes.",
    ),
    key(
        "mysql.tls_certificate_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/mysql-client.pem\"",
        "Certificate that the member shows to mysqld, PEM, for an account that demands one.",
    ),
    key(
        "mysql.tls_key_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/mysql-client.key\"",
        "Private key of that certificate, PEM.",
    ),
    key(
        "mysql.public_key_file",
        Kind::File,
        Value("\"\""),
        "\"/var/lib/mysql/public_key.pem\"",
        "A copy of mysqld's RSA public key, for a password over TCP without TLS. Empty: a mysqld on this host is asked for it; the login at one on another host fails.",
    ),
    key(
        "mysql.mysqld",
        Kind::List,
        Value("[\"mysqld\"]"),
        "",
        "Command that starts mysqld in mode `child`: the program, and before it whatever wraps it.",
    ),
    key(
        "mysql.datadir",
        Kind::Directory,
        Value("\"\""),
        "\"/var/lib/mysql\"",
        "Data directory of mysqld in the modes `child` and `external`.",
    ),
    key(
        "mysql.extra_args",
        Kind::List,
        Value("[]"),
        "[\"--innodb-buffer-pool-size=4G\"]",
        "More arguments for mysqld in mode `child`.",
    ),
    key(
        "mysql.initialize",
        Kind::Bool,
        Value("true"),
        "",
        "Whether an empty `mysql.datadir` is initialised in mode `child`.",
    ),
    key(
        "mysql.start_command",
        Kind::List,
        Value("[]"),
        "[\"systemctl\", \"start\", \"mysql\"]",
        "Command that starts mysqld in mode `external`, and ends once it is started.",
    ),
    key(
        "mysql.stop_command",
        Kind::List,
        Value("[]"),
        "[\"systemctl\", \"stop\", \"mysql\"]",
        "Command that asks mysqld to stop in mode `external`.",
    ),
    key(
        "mysql.kill_command",
        Kind::List,
        Value("[]"),
        "[\"systemctl\", \"kill\", \"--signal=KILL\", \"mysql\"]",
        "Command that kills mysqld in mode `external`, so that commits which wait for the ring are not let through.",
    ),
    key(
        "mysql.log_bin",
        Kind::Text,
        Value("\"binlog\""),
        "\"/var/log/mysql/binlog\"",
        "The option `log_bin` of mysqld in mode `external`; relative to `mysql.datadir`.",
    ),
    key(
        "mysql.pid_file",
        Kind::Text,
        Value("\"\""),
        "\"/run/mysqld/mysqld.pid\"",
        "Pid file of mysqld in mode `external`. Needed where the member may not read `/proc/PID/cwd` of that process. Empty: not used.",
    ),
    key(
        "mysql.server_id",
        Kind::Integer {
            min: 0,
            max: 4_294_967_295,
        },
        Value("0"),
        "4001",
        "Server id under which the member attaches as a replica. 0: made from the member's id.",
    ),
    key(
        "mysql.server_uuid",
        Kind::Uuid,
        Value("\"\""),
        "",
        "Server UUID under which the member attaches as a replica. Empty: its incarnation.",
    ),
    key(
        "mysql.manage_settings",
        Kind::Bool,
        Value("true"),
        "",
        "Whether the member sets what the wait for consensus needs on mysqld (semi-sync, timeouts, sync_binlog). Otherwise it only checks. Then nothing of the ring's log is applied to mysqld, as with `mysql.apply = \"off\"`.",
    ),
    key(
        "mysql.accept_unproven",
        Kind::Bool,
        Value("false"),
        "",
        "Whether the member attaches to a MySQL version or product that was not fully tested (docs/versions.md). What cannot work is refused in any case.",
    ),
    key(
        "mysql.apply",
        Kind::Choice(&["rows", "native", "off"]),
        Value("\"rows\""),
        "",
        "How the ring's log is applied to mysqld while another member leads. `rows`: by the member, row by row. `native`: by mysqld's own replica threads, reading from the member's binlog server, with super_read_only on. `off`: not at all, for a ring with one mysqld: once another member's mysqld was the primary, this one lacks what was written there and can never be the primary again (docs/roles.md). With `mysql.manage_settings = false` nothing is applied either.",
    ),
    key(
        "mysql.apply_workers",
        Kind::Integer { min: 1, max: 1024 },
        Value("4"),
        "",
        "Connections over which the applier writes to mysqld.",
    ),
    key(
        "mysql.max_transaction_bytes",
        Kind::Bytes {
            min: 1 << 20,
            max: GIB,
        },
        Value("\"1GiB\""),
        "\"256MiB\"",
        "Largest transaction that the primary takes, in bytes of binlog. The member sets `max_binlog_cache_size` and `max_binlog_stmt_cache_size` by it before clients may write, and leaves a smaller value as it is. A larger transaction fails with MySQL's error 1197 and is rolled back; nothing else is held up. MySQL looks before it writes an event, so the last rows of a transaction, which share an event, may exceed it. A session that wrote before keeps the limit that it had. Give the same on every member with a mysqld: replica threads that log what they apply keep to it, too. A statement that writes more than this to a table of an engine without transactions (MyISAM) leaves its rows there, and MySQL logs that events are lost: nothing behind it can be received, the leadership goes to another member after `mysql.demote_after`, and this mysqld stays down until `witness reprovision` gives it a copy. Use InnoDB.",
    ),
    key(
        "mysql.event_scheduler",
        Kind::Choice(&["as_mysqld", "on", "off"]),
        Value("\"as_mysqld\""),
        "",
        "Whether scheduled events (`CREATE EVENT`) run at the primary; replicas never run them. `as_mysqld`: as mysqld was configured when the member first connected.",
    ),
    key(
        "mysql.demote_after",
        Kind::Duration { min: 0, max: DAY },
        Value("\"30s\""),
        "",
        "Automatic demotion. When the leader's mysqld cannot serve as primary for this long, the leadership moves to a member whose mysqld can. That covers a mysqld that does not start, is stopped by an error, does not catch up, hangs (no commit finishes, or no answer), or is one from which nothing can be received. If the process has exited, the leadership moves at once. A mysqld that hangs is killed on the way, except in mode `attach`; one at which no login succeeds is killed 10 s later, even where no other can be the primary. `0s` turns all of this off.",
    ),
    key(
        "mysql.fence_after",
        Kind::Duration { min: 0, max: DAY },
        Value("\"10s\""),
        "",
        "How long clients may keep using a primary whose member does not serve as the leader, counted from the end of its lease. Then writes are closed. If another mysqld could be primary, reads are closed too, with `offline_mode`: it ends the sessions of ordinary accounts and refuses new ones until this mysqld is a primary or a replica again. Commits wait from the first moment. Make it longer than an election and a restart of the member.",
    ),
    key(
        "mysql.kill_statements_after",
        Kind::Duration { min: 0, max: DAY },
        Value("\"10s\""),
        "",
        "How long a planned switchover waits for running writes and `LOCK TABLES`: `witness switchover`, a member that is stopped, an automatic demotion. Then the sessions that block it are killed and their transactions roll back; a transaction that is already committing is left alone. If the rollback takes more than ten seconds, the primary stays where it is. On a mysqld that is to become the primary, a session whose locks keep the rest of the log from being applied is killed once it has blocked it for that long, and a backup that holds `LOCK INSTANCE FOR BACKUP` or `FLUSH TABLES WITH READ LOCK` at once. `0s`: nothing is killed, and a switchover that has to wait longer than a second fails.",
    ),
    key(
        "binlog_server.listen",
        Kind::HostPort,
        Value("\"\""),
        "\"0.0.0.0:3307\"",
        "Where stock replicas, mysqlbinlog and change-data consumers attach to read what the ring committed. Empty: nowhere.",
    ),
    key(
        "binlog_server.user",
        Kind::Text,
        Value("\"replication\""),
        "",
        "The one account that may log in there.",
    ),
    Key {
        path: "binlog_server.password",
        kind: Kind::Text,
        fallback: Value("\"\""),
        secret: true,
        reloads: true,
        meaning: "Its password. Better given by `WITNESS_BINLOG_SERVER_PASSWORD` or `binlog_server.password_file`; there is no flag for it.",
        example: "",
    },
    key(
        "binlog_server.password_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/replication-password\"",
        "File whose first line is the password.",
    )
    .reloaded(),
    key(
        "binlog_server.tls_certificate_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/binlog-server.pem\"",
        "Certificate that is shown to replicas, PEM. Empty: that of `tls.certificate_file`, if there is one.",
    )
    .reloaded(),
    key(
        "binlog_server.tls_key_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/binlog-server.key\"",
        "Private key of that certificate, PEM.",
    )
    .reloaded(),
    key(
        "binlog_server.require_tls",
        Kind::Bool,
        Value("true"),
        "",
        "Whether a login without TLS is refused, where there is a certificate. The log has every row that was written.",
    ),
    key(
        "binlog_server.max_connections",
        Kind::Integer {
            min: 1,
            max: 10_000,
        },
        Value("100"),
        "",
        "Clients at a time, of those that have logged in.",
    ),
    key(
        "binlog_server.queue_bytes",
        Kind::Bytes {
            min: 256 * KIB,
            max: GIB,
        },
        Value("\"4MiB\""),
        "",
        "Buffer for one consumer. A slow consumer uses no more than this, and never delays commits or other consumers.",
    ),
    key(
        "archive.url",
        Kind::Text,
        Value("\"\""),
        "\"s3://backups/orders\"",
        "Where the ring's log is archived: `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder`, or `file:///folder` for a directory that is there. The same on all members, a folder for each ring; one of them archives at a time, a witness where there is one. Empty: this member does not archive.",
    ),
    key(
        "archive.options_file",
        Kind::File,
        Value("\"\""),
        "",
        "File with what the storage has to know, in lines as `aws_endpoint = \"https://…\"` and `aws_secret_access_key = \"…\"`: the names of its environment variables in lower case. They come before those of the environment; with neither, the rights of the machine's role are used. Read again after each failure.",
    ),
    key(
        "archive.interval",
        Kind::Duration {
            min: 100,
            max: 3_600_000,
        },
        Value("\"5s\""),
        "",
        "How often what was committed since is archived: what the loss of all members at once would lose.",
    ),
    key(
        "archive.max_file_age",
        Kind::Duration {
            min: 0,
            max: 365 * DAY,
        },
        Value("\"1h\""),
        "",
        "How old a file of the log gets before the leader rotates for the next transaction, as by `archive_timeout` of PostgreSQL. A file that is closed is archived as a whole, and the pieces that were archived of it go a day later. `0s`: a file ends by its size alone, and has a piece for each interval in which something was committed.",
    ),
    key(
        "archive.call_limit",
        Kind::Duration {
            min: 1_000,
            max: 3_600_000,
        },
        Value("\"60s\""),
        "",
        "How long one call of the storage may take.",
    ),
    key(
        "archive.bytes_per_second",
        Kind::Bytes {
            min: 0,
            max: 64 * GIB,
        },
        Value("0"),
        "\"20MiB\"",
        "What archiving takes of the network at most, in bytes per second. `0`: no limit.",
    ),
    key(
        "archive.hold_bytes",
        Kind::Bytes {
            min: 0,
            max: u64::MAX,
        },
        Value("\"20GiB\""),
        "",
        "Files of the log that are not archived yet are not purged as long as they take no more than this together. Beyond it the oldest go, and the archive has a gap there.",
    ),
    key(
        "archive.recipients_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/archive-recipients.txt\"",
        "File with public keys of age, one a line (`age1…`): what is archived is encrypted for them, and a member cannot read it. `witness archive keygen` makes a pair. Read again at each interval; as long as it cannot be, nothing is archived. Empty: nothing is encrypted.",
    ),
    key(
        "archive.serve_bytes",
        Kind::Bytes {
            min: 0,
            max: u64::MAX,
        },
        Value("\"4GiB\""),
        "",
        "Files that this member has purged are fetched from the archive for consumers of its binlog server, and take no more than this of the data directory's disk together. At least as much as the largest file of the log; a file for each consumer that reads old ones at the same time. `0`: what is purged is not served.",
    ),
    key(
        "archive.identity_file",
        Kind::File,
        Value("\"\""),
        "\"/etc/witness/archive.identity\"",
        "File with secret keys of age (`AGE-SECRET-KEY-1…`), which only its owner may read (mode 0600): with them, encrypted files of the archive are served to consumers of the binlog server, and nothing else is done. Whoever takes over a member that has it can read the archive. Read again at each look at the archive. Empty: encrypted files are not served.",
    ),
    key(
        "archive.keep",
        Kind::Duration {
            min: 0,
            max: 100 * 365 * DAY,
        },
        Value("\"0s\""),
        "\"30d\"",
        "How long one can go back. Files of the log that have nothing younger are deleted in the archive, the oldest first, and base backups that nobody needs for it. `0s`: for ever, or as `archive.keep_base_backups` says.",
    ),
    key(
        "archive.keep_base_backups",
        Kind::Integer {
            min: 0,
            max: 100_000,
        },
        Value("0"),
        "7",
        "So many of the newest base backups stay in the archive, with the log behind them, whatever `archive.keep` says. Without that, what is older is deleted. `0`: all that `archive.keep` does not let go.",
    ),
    key(
        "archive.prune",
        Kind::Bool,
        Value("true"),
        "",
        "Whether the member that archives deletes in the archive what may go: pieces that a whole file has replaced a day ago, and what is older than `archive.keep`. Where its credentials may not delete: `false`, and `witness archive prune` somewhere else.",
    ),
    key(
        "archive.copy_directory",
        Kind::Text,
        Value("\"\""),
        "\"/var/lib/witness-copies\"",
        "Where mysqld makes the copy of its data that `witness archive backup` puts into the archive, and that is removed then: a directory in which mysqld's account may make one, with room for all of its data. Not the disk of the log. Empty: `--copy-directory` names it.",
    ),
    key(
        "http.listen",
        Kind::HostPort,
        Value("\"\""),
        "\"127.0.0.1:7480\"",
        "Where metrics, health and status are served over HTTP. Empty: nowhere.",
    ),
    key(
        "http.connect_address",
        Kind::HostPort,
        Value("\"\""),
        "\"db-1.example.org:7480\"",
        "Where clients reach it, for `/cluster` and for orders that are sent on to the leader. Empty: the host of the member's `address`, with the port of `http.listen`.",
    ),
    key(
        "http.tls",
        Kind::Bool,
        Value("true"),
        "",
        "Whether that is HTTPS, with the certificate of `tls.certificate_file`; without `[tls]` it is plain HTTP in any case. Callers need no certificate.",
    )
    .reloaded(),
    key(
        "http.token_file",
        Kind::File,
        Value("\"\""),
        "",
        "File with the token that orders over HTTP (`POST /pause`, `/resume`, `/switchover`, `/failover`, `/reinitialize`, `/restart`, `/reload`) have to bring. Empty: no orders over HTTP.",
    )
    .reloaded(),
    key(
        "http.read_token_file",
        Kind::File,
        Value("\"\""),
        "",
        "File with a token for reading. When set, the page, `/ring`, `/status`, `/cluster`, `/config`, `/history` and `/metrics` need it or that of `http.token_file`; what load balancers ask stays open. Empty: everybody may read.",
    )
    .reloaded(),
    key(
        "http.throttle_threshold",
        Kind::Duration {
            min: 1,
            max: 3_600_000,
        },
        Value("\"1s\""),
        "",
        "From which lag of a replica on `/check/APP/mysql/RING` answers 429, so that applications that can wait do not write.",
    ),
    key(
        "hooks.on_primary",
        Kind::List,
        Value("[]"),
        "",
        "Command to run when this member's mysqld has become the primary. A list of words, no shell; docs/discovery.md lists its environment.",
    )
    .reloaded(),
    key(
        "hooks.on_demoted",
        Kind::List,
        Value("[]"),
        "",
        "Command to run when this member's mysqld is no longer the primary.",
    )
    .reloaded(),
    key(
        "hooks.on_primary_changed",
        Kind::List,
        Value("[]"),
        "",
        "Command that every member with this key runs when another member's mysqld has become the primary.",
    )
    .reloaded(),
    key(
        "hooks.timeout",
        Kind::Duration {
            min: 100,
            max: 3_600_000,
        },
        Value("\"30s\""),
        "",
        "How long a hook's command may take before it is killed with everything that it started. Only the next hook waits for it.",
    )
    .reloaded(),
    key(
        "logging.format",
        Kind::Choice(&["text", "json"]),
        Value("\"text\""),
        "",
        "Form of the process's own log lines, which go to standard error.",
    ),
    key(
        "logging.level",
        Kind::Text,
        Value("\"info\""),
        "",
        "Which of them are written: `error`, `warn`, `info`, `debug`, `trace`, or a list such as `info,transport=debug`.",
    )
    .reloaded(),
];

/// The keys of each `[[members]]` entry.
pub const MEMBER_KEYS: &[Key] = &[
    key(
        "members.id",
        Kind::Integer {
            min: 1,
            max: u64::MAX,
        },
        Required,
        "",
        "The member's number, unique in the ring and never used again.",
    ),
    key(
        "members.name",
        Kind::Name,
        Required,
        "",
        "Its name, unique in the ring, for people and for the `member` label of metrics.",
    ),
    key(
        "members.region",
        Kind::Name,
        Required,
        "",
        "The place in which it runs; members of one region share a data quorum.",
    ),
    key(
        "members.kind",
        Kind::Choice(&["database", "witness"]),
        Required,
        "",
        "`database`: a member with a mysqld. `witness`: a member with the log alone.",
    ),
    key(
        "members.votes",
        Kind::Bool,
        Value("true"),
        "",
        "Whether it may count in a quorum; one that does not only receives the log.",
    ),
    key(
        "members.priority",
        Kind::Integer {
            min: 0,
            max: 1_000_000,
        },
        Value("100"),
        "",
        "The member with the highest priority leads, among those that could. `0`: only if no other can. Read when the member is added; later `witness members update`.",
    ),
    key(
        "members.address",
        Kind::HostPort,
        Required,
        "",
        "Where the other members reach it.",
    ),
    key(
        "members.proxy_from",
        Kind::Text,
        Value("\"\""),
        "",
        "With `regions.proxy = \"edges\"`: the name of the member that sends this one's entries on to it. Empty: it gets them from the leader.",
    ),
];

/// The meaning of each section, in the order of the example.
pub const SECTIONS: &[(&str, &str)] = &[
    ("", "The file as a whole"),
    ("ring", "The ring that this member belongs to"),
    ("member", "Which member this process is"),
    ("log", "The log on disk"),
    ("raft", "Timers; the same on every member"),
    (
        "quorum",
        "Which members a commit waits for, and where a leader is looked for, when a ring is made. From then on the ring's log says it: `witness quorum set` changes it, and `witness status` warns where a file says something else",
    ),
    (
        "regions",
        "How entries travel between regions; the same on every member",
    ),
    ("tls", "TLS between members"),
    (
        "mysql",
        "The mysqld of a database member; a witness ignores this section",
    ),
    (
        "binlog_server",
        "The log over MySQL's protocol, for stock replicas and other consumers",
    ),
    ("archive", "The log in object storage"),
    ("http", "Metrics, health and status"),
    (
        "hooks",
        "Commands that the member runs when the primary changes",
    ),
    ("logging", "The process's own log"),
    (
        "members",
        "Every member of the ring, the same list in every member's file",
    ),
];

/// The key of that dotted name, outside the list of members.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_stands_in_a_known_section_and_no_name_is_taken_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for key in KEYS.iter().chain(MEMBER_KEYS) {
            assert!(
                SECTIONS.iter().any(|(name, _)| *name == key.section()),
                "{}",
                key.path
            );
            assert!(seen.insert(key.variable()), "{} twice", key.variable());
            assert!(seen.insert(key.flag()), "{} twice", key.flag());
        }
    }
}
