//! The replica's side of a dump with semi-sync ACKs: registers, requests the transactions that a GTID set lacks, reads events, and
//! acknowledges positions.

mod stream;

use std::time::Duration;

use binlog_format::DecodeError;
use binlog_format::gtid::{GtidSet, GtidSetFormat};
use mysql_common::packets::ComRegisterSlave;
use mysql_common::proto::MySerialize;
use spilling_bytes::SpillFolder;
use thiserror::Error;
use uuid::Uuid;

use crate::client::Endpoint;
use crate::error::{LinkError, ServerError, server_code};
pub use crate::replication::stream::{Acker, DumpEvent, EventReader, ReplicationStream};
#[cfg(feature = "fuzzing")]
pub(crate) use crate::replication::stream::{SEMI_SYNC_HEADER, ack_wanted};

// Causes for which a dump was refused or ended.

/// The cause of the source's error 1236. MySQL uses this number for all causes, so its message distinguishes them; [`DumpRefusal::Other`]
/// is any other message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpRefusal {
    /// The source purged binlogs with transactions that this replica lacks.
    PurgedGtids,
    /// This replica has transactions of the source that the source lacks.
    SourceBehind,
    /// Another replica with the same server UUID has attached.
    DuplicateUuid,
    /// The source cannot read its own binlog, or writes no GTIDs.
    Other,
}

impl DumpRefusal {
    pub(crate) fn of(error: &ServerError) -> Self {
        if error.code != server_code::SOURCE_FATAL_ERROR_READING_BINLOG {
            return Self::Other;
        }
        let mentions = |message: &str| error.message.contains(message);
        if mentions("purged required binary logs")
            || mentions("purged binary logs containing GTIDs")
        {
            Self::PurgedGtids
        } else if mentions("has more GTIDs than the") {
            Self::SourceBehind
        } else if mentions("same server_uuid") {
            Self::DuplicateUuid
        } else {
            Self::Other
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::PurgedGtids => {
                "A source that cannot read one of its own binlog files says this too: look into its error log first. If its \
                 @@GLOBAL.gtid_purged has transactions that the ring lacks, they are purged: the ring's log ends before the source's \
                 oldest binlog, and cannot be continued from this source. Then make a source the primary that still has them, or \
                 begin a new ring from a backup; and keep binlogs longer (binlog_expire_logs_seconds)"
            }
            Self::SourceBehind => {
                "The ring holds transactions that this source lacks: it was restored from a backup, or lost its disk. \
                 Provision it from a member that has them before it serves"
            }
            Self::DuplicateUuid => {
                "Two replicas use the same server UUID and end each other's dumps: give each member its own"
            }
            Self::Other => "See the source's error log",
        }
    }
}

/// Why there are no events, or no further events.
#[derive(Debug, Error)]
pub enum DumpError {
    /// The connection failed or broke, or a statement before the dump failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The source answered with an error.
    #[error("the dump from {endpoint} ended with an error: {error}. {}", .refusal.advice())]
    Refused {
        /// The address of the source.
        endpoint: Endpoint,
        /// The kind of refusal; it decides the advice.
        refusal: DumpRefusal,
        /// The error that the source sent.
        error: ServerError,
    },
    /// The source ended the dump normally: it shuts down, or the dump was killed.
    #[error("{0} ended the dump: it shuts down, or the dump was killed there")]
    Ended(Endpoint),
    /// The source has sent neither events nor heartbeats within the silence limit.
    #[error(
        "{0} has sent neither an event nor a heartbeat for {1:?}: it hangs, or the network does"
    )]
    Silent(Endpoint, Duration),
    /// The source does not treat the dump as semi-sync, so ACKs would not count.
    #[error(
        "{0} does not treat this as a semi-sync dump: its semi-sync source plugin is not loaded. Load it: \
         INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so' (before 8.0.26: rpl_semi_sync_master, \
         semisync_master.so)"
    )]
    NotSemiSync(Endpoint),
    /// Received bytes that are not a valid event.
    #[error("{0} sent what is no binlog event: {1}")]
    BadEvent(Endpoint, DecodeError),
    /// The options are invalid, so no request was sent.
    #[error("the dump cannot be asked for: {0}")]
    BadOptions(&'static str),
}

// The request for the binlog: the replica's identity, the start, and the silence limit.

/// Options of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpOptions {
    /// The replica's server id: stable, and different from that of every other server. Never 0.
    pub server_id: u32,
    /// The replica's server UUID: stable. A new dump with the same UUID ends the previous one on the source.
    pub uuid: Uuid,
    /// The transactions that the source must not send. The source counts each of them as acknowledged when its dump skips that transaction.
    pub have: GtidSet,
    /// Whether to be a semi-sync replica. The source counts only the ACKs of such replicas.
    pub semi_sync: bool,
    /// Whether to appear in `SHOW REPLICAS`; nothing else depends on it. Registering takes the server's lock on accounts if the account has
    /// only single privileges (9.7.4).
    pub register: bool,
    /// How often the source sends a heartbeat while it has no event to send.
    pub heartbeat: Duration,
    /// The connection ends after this time without an event or heartbeat; several heartbeat intervals.
    pub silence_limit: Duration,
    /// The replica's host in `SHOW REPLICAS` on the source; empty for none.
    pub report_host: String,
    /// The folder for large events during reception; without a folder they are in memory.
    pub spill: SpillFolder,
}

impl DumpOptions {
    /// Semi-sync options with the default limits: a heartbeat every second, five seconds of silence.
    pub fn new(server_id: u32, uuid: Uuid, have: GtidSet) -> Self {
        Self {
            server_id,
            uuid,
            have,
            semi_sync: true,
            register: true,
            heartbeat: Duration::from_secs(1),
            silence_limit: Duration::from_secs(5),
            report_host: String::new(),
            spill: SpillFolder::default(),
        }
    }
}

// The statements and commands before a dump. They use the names of both generations (slave, master; replica, source). These are user
// variables, and a server only stores the ones that it does not use.

const COM_BINLOG_DUMP_GTID: u8 = 0x1e;
/// The position of the first event in a binlog file.
const FIRST_POSITION: u64 = 4;
/// The longest host name that a register command can carry.
const MAX_REPORT_HOST: usize = 255;

/// Checks the options before anything is sent.
fn check(options: &DumpOptions) -> Result<(), DumpError> {
    let reason = if options.server_id == 0 {
        "a replica's server id must not be 0"
    } else if options.report_host.len() > MAX_REPORT_HOST {
        "the reported host is longer than 255 bytes"
    } else if options.silence_limit <= options.heartbeat {
        "the silence limit must be longer than the heartbeat period"
    } else {
        return Ok(());
    };
    Err(DumpError::BadOptions(reason))
}

/// Returns the statement that sets the replica's identity and the format of events. One statement needs one round trip.
fn session_statement(options: &DumpOptions) -> String {
    let uuid = options.uuid;
    let heartbeat = options.heartbeat.as_nanos();
    let mut assignments = vec![
        format!("@replica_uuid = '{uuid}'"),
        format!("@slave_uuid = '{uuid}'"),
        format!("@source_heartbeat_period = {heartbeat}"),
        format!("@master_heartbeat_period = {heartbeat}"),
        // The source's own algorithm: the source need not compute checksums, and the replica can verify them.
        "@source_binlog_checksum = @@global.binlog_checksum".to_owned(),
        "@master_binlog_checksum = @@global.binlog_checksum".to_owned(),
    ];
    if options.semi_sync {
        assignments.push("@rpl_semi_sync_replica = 1".to_owned());
        assignments.push("@rpl_semi_sync_slave = 1".to_owned());
    }
    format!("SET {}", assignments.join(", "))
}

/// `COM_REGISTER_SLAVE`: makes the replica visible in `SHOW REPLICAS`.
fn register_command(options: &DumpOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    ComRegisterSlave::new(options.server_id)
        .with_hostname(options.report_host.as_bytes())
        .serialize(&mut bytes);
    bytes
}

/// `COM_BINLOG_DUMP_GTID` without flags, so the source waits at the end of its binlog, and without a file name, so the GTIDs decide the
/// start.
fn dump_command(options: &DumpOptions) -> Result<Vec<u8>, DumpError> {
    let gtids = options.have.encode(GtidSetFormat::Automatic);
    let gtids_len = u32::try_from(gtids.len())
        .map_err(|_| DumpError::BadOptions("the GTID set is larger than 4 GiB"))?;
    let mut bytes = Vec::with_capacity(23 + gtids.len());
    bytes.push(COM_BINLOG_DUMP_GTID);
    bytes.extend_from_slice(&0_u16.to_le_bytes());
    bytes.extend_from_slice(&options.server_id.to_le_bytes());
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    bytes.extend_from_slice(&FIRST_POSITION.to_le_bytes());
    bytes.extend_from_slice(&gtids_len.to_le_bytes());
    bytes.extend_from_slice(&gtids);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16, message: &str) -> DumpRefusal {
        let error = ServerError {
            code,
            sqlstate: "HY000".to_owned(),
            message: message.to_owned(),
        };
        DumpRefusal::of(&error)
    }

    #[test]
    fn messages_of_all_versions_are_classified() {
        let purged_8_0 = "Cannot replicate because the master purged required binary logs. Replicate the missing \
                          transactions from elsewhere";
        let purged_9 = "Cannot replicate because the source purged required binary logs. Replicate the missing";
        let ahead = "Replica has more GTIDs than the source has, using the source's SERVER_UUID. This may indicate";
        let ahead_8_0 = "Slave has more GTIDs than the master has, using the master's SERVER_UUID.";
        let twin = "A replica with the same server_uuid/server_id as this replica has connected to the source";
        assert_eq!(refusal(1236, purged_8_0), DumpRefusal::PurgedGtids);
        assert_eq!(refusal(1236, purged_9), DumpRefusal::PurgedGtids);
        assert_eq!(refusal(1236, ahead), DumpRefusal::SourceBehind);
        assert_eq!(refusal(1236, ahead_8_0), DumpRefusal::SourceBehind);
        assert_eq!(refusal(1236, twin), DumpRefusal::DuplicateUuid);
        assert_eq!(
            refusal(1236, "log event entry exceeded max_allowed_packet"),
            DumpRefusal::Other
        );
        assert_eq!(refusal(1227, purged_9), DumpRefusal::Other);
    }
}

#[cfg(test)]
mod request_tests {
    use mysql_common::io::ParseBuf;
    use mysql_common::packets::ComBinlogDumpGtid;

    use super::*;

    fn options(have: &str) -> DumpOptions {
        DumpOptions::new(7, Uuid::from_u128(0x1234), have.parse::<GtidSet>().unwrap())
    }

    /// Parses the dump request with another implementation.
    fn read_back(have: &str) -> (u32, u64, String) {
        let bytes = dump_command(&options(have)).unwrap();
        let request: ComBinlogDumpGtid<'_> = ParseBuf(&bytes).parse(()).unwrap();
        let sids: Vec<String> = request
            .sids()
            .iter()
            .map(|sid| sid.to_string().to_lowercase())
            .collect();
        (request.server_id(), request.pos(), sids.join(","))
    }

    #[test]
    fn the_dump_request_reads_as_it_was_meant() {
        assert_eq!(read_back(""), (7, 4, String::new()));
        let plain = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7";
        assert_eq!(read_back(plain), (7, 4, plain.to_owned()));
        let (_, _, tagged) = read_back("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:blue:1-3");
        assert!(
            tagged.contains(":blue:1-3") && tagged.contains(":1-5"),
            "{tagged}"
        );
    }

    #[test]
    fn the_identity_is_sent_in_both_generations_of_names() {
        let statement = session_statement(&options(""));
        for name in [
            "@replica_uuid",
            "@slave_uuid",
            "@rpl_semi_sync_replica = 1",
            "@rpl_semi_sync_slave = 1",
        ] {
            assert!(statement.contains(name), "{statement}");
        }
        let statement = session_statement(&DumpOptions {
            semi_sync: false,
            ..options("")
        });
        assert!(!statement.contains("semi_sync"), "{statement}");
    }

    #[test]
    fn impossible_options_are_refused() {
        assert!(check(&options("")).is_ok());
        assert!(
            check(&DumpOptions {
                server_id: 0,
                ..options("")
            })
            .is_err()
        );
        assert!(
            check(&DumpOptions {
                silence_limit: Duration::from_secs(1),
                ..options("")
            })
            .is_err()
        );
        assert!(
            check(&DumpOptions {
                report_host: "h".repeat(256),
                ..options("")
            })
            .is_err()
        );
    }
}
