//! The statements and commands that come before a dump, pure. Names of both generations (slave,
//! master; replica, source) are sent: they are user variables, which a server that does not look at
//! them only stores.

use binlog_format::gtid::GtidSetFormat;
use mysql_common::packets::ComRegisterSlave;
use mysql_common::proto::MySerialize;

use crate::replication::{DumpError, DumpOptions};

const COM_BINLOG_DUMP_GTID: u8 = 0x1e;
/// Where the events of a binlog file begin.
const FIRST_POSITION: u64 = 4;
/// The longest host name that a register command can carry.
const MAX_REPORT_HOST: usize = 255;

/// What must be right before anything is sent.
pub(crate) fn check(options: &DumpOptions) -> Result<(), DumpError> {
    if options.server_id == 0 {
        return Err(DumpError::BadOptions("a replica's server id must not be 0"));
    }
    if options.report_host.len() > MAX_REPORT_HOST {
        return Err(DumpError::BadOptions(
            "the reported host is longer than 255 bytes",
        ));
    }
    if options.silence_limit <= options.heartbeat {
        return Err(DumpError::BadOptions(
            "the silence limit must be longer than the heartbeat period",
        ));
    }
    Ok(())
}

/// Says who we are and how the events shall come. One statement: one round trip.
pub(crate) fn session_statement(options: &DumpOptions) -> String {
    let uuid = options.uuid;
    let heartbeat = options.heartbeat.as_nanos();
    let mut assignments = vec![
        format!("@replica_uuid = '{uuid}'"),
        format!("@slave_uuid = '{uuid}'"),
        format!("@source_heartbeat_period = {heartbeat}"),
        format!("@master_heartbeat_period = {heartbeat}"),
        // As the source writes them, so that it need not compute any, and we can check them.
        "@source_binlog_checksum = @@global.binlog_checksum".to_owned(),
        "@master_binlog_checksum = @@global.binlog_checksum".to_owned(),
    ];
    if options.semi_sync {
        assignments.push("@rpl_semi_sync_replica = 1".to_owned());
        assignments.push("@rpl_semi_sync_slave = 1".to_owned());
    }
    format!("SET {}", assignments.join(", "))
}

/// `COM_REGISTER_SLAVE`: makes us visible in `SHOW REPLICAS`.
pub(crate) fn register_command(options: &DumpOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    ComRegisterSlave::new(options.server_id)
        .with_hostname(options.report_host.as_bytes())
        .serialize(&mut bytes);
    bytes
}

/// `COM_BINLOG_DUMP_GTID`: no flags, so that it waits at the end; no file name, so that the GTIDs decide.
pub(crate) fn dump_command(options: &DumpOptions) -> Result<Vec<u8>, DumpError> {
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
    use std::time::Duration;

    use binlog_format::gtid::GtidSet;
    use mysql_common::io::ParseBuf;
    use mysql_common::packets::ComBinlogDumpGtid;
    use uuid::Uuid;

    use super::*;

    fn options(have: &str) -> DumpOptions {
        DumpOptions::new(7, Uuid::from_u128(0x1234), have.parse::<GtidSet>().unwrap())
    }

    /// The dump request as another implementation reads it.
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
    fn who_we_are_is_said_in_both_generations_of_names() {
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
