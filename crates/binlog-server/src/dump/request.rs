//! The commands that replicas and other consumers send, read with care. Pure.

use binlog_format::gtid::GtidSet;

use crate::consumers::Registration;

/// Do not wait for more at the log's end.
const NON_BLOCKING: u16 = 1;
/// Heartbeats may be of the second form.
const HEARTBEAT_V2: u16 = 2;
/// `COM_BINLOG_DUMP` holds a position of 32 bits.
const LONGEST_NAME: usize = 512;

/// From where on events are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All that are not of these transactions; from a file on where one is named.
    Without {
        have: GtidSet,
        file: Option<(String, u64)>,
    },
    /// Everything from a place on; from the first file where none is named.
    From { file: String, offset: u64 },
}

/// A dump request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) wanted: Wanted,
    pub(crate) server_id: u32,
    pub(crate) non_blocking: bool,
    pub(crate) heartbeat_v2: bool,
}

impl Request {
    /// `COM_BINLOG_DUMP`; `None` when it is cut off.
    pub(crate) fn by_position(mut body: &[u8]) -> Option<Self> {
        let offset = u64::from(number(&mut body)?);
        let flags = short(&mut body)?;
        let server_id = number(&mut body)?;
        let file = name(body)?;
        Some(Self::new(Wanted::From { file, offset }, flags, server_id))
    }

    /// `COM_BINLOG_DUMP_GTID`; `None` when it is cut off, or its GTID set cannot be read.
    pub(crate) fn by_gtids(mut body: &[u8]) -> Option<Self> {
        let flags = short(&mut body)?;
        let server_id = number(&mut body)?;
        let file = name(counted(&mut body)?)?;
        let (offset, rest) = body.split_first_chunk::<8>()?;
        body = rest;
        let offset = u64::from_le_bytes(*offset);
        let have = GtidSet::decode(counted(&mut body)?).ok()?;
        let file = (!file.is_empty()).then_some((file, offset));
        Some(Self::new(Wanted::Without { have, file }, flags, server_id))
    }

    fn new(wanted: Wanted, flags: u16, server_id: u32) -> Self {
        Self {
            wanted,
            server_id,
            // mysqlbinlog has said so by a server id of 0 since before there were flags.
            non_blocking: flags & NON_BLOCKING != 0 || server_id == 0,
            heartbeat_v2: flags & HEARTBEAT_V2 != 0,
        }
    }
}

/// `COM_REGISTER_SLAVE`; `None` when it is cut off.
pub(crate) fn parse_register(mut body: &[u8]) -> Option<Registration> {
    let server_id = number(&mut body)?;
    let mut texts = [const { String::new() }; 3];
    for text in &mut texts {
        let (length, rest) = body.split_first()?;
        let (bytes, rest) = rest.split_at_checked(usize::from(*length))?;
        *text = String::from_utf8_lossy(bytes).into_owned();
        body = rest;
    }
    let [host, _user, _password] = texts;
    let port = short(&mut body)?;
    let _rank = number(&mut body)?;
    let _source = number(&mut body)?;
    Some(Registration {
        server_id,
        host,
        port,
    })
}

fn short(body: &mut &[u8]) -> Option<u16> {
    let (bytes, rest) = body.split_first_chunk::<2>()?;
    *body = rest;
    Some(u16::from_le_bytes(*bytes))
}

fn number(body: &mut &[u8]) -> Option<u32> {
    let (bytes, rest) = body.split_first_chunk::<4>()?;
    *body = rest;
    Some(u32::from_le_bytes(*bytes))
}

/// Bytes behind their number.
fn counted<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(body)?).ok()?;
    let (bytes, rest) = body.split_at_checked(length)?;
    *body = rest;
    Some(bytes)
}

/// A file's name; some clients end it with a zero.
fn name(bytes: &[u8]) -> Option<String> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let bytes = bytes.get(..end).filter(|name| name.len() <= LONGEST_NAME)?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use binlog_format::gtid::GtidSetFormat;
    use mysql_common::packets::{BinlogDumpFlags, ComBinlogDump, ComRegisterSlave};
    use mysql_common::proto::MySerialize;
    use proptest::prelude::*;

    use super::*;

    /// A request as another implementation writes it, without its command byte.
    fn written(packet: &impl MySerialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        packet.serialize(&mut bytes);
        bytes.split_off(1)
    }

    fn gtid_request(have: &GtidSet, format: GtidSetFormat) -> Vec<u8> {
        let set = have.encode(format);
        let mut body = vec![2, 0, 7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        body.extend_from_slice(&(set.len() as u32).to_le_bytes());
        body.extend_from_slice(&set);
        body
    }

    #[test]
    fn positions_are_read() {
        let packet = ComBinlogDump::new(9)
            .with_filename(&b"binlog.000002"[..])
            .with_pos(1234_u32)
            .with_flags(BinlogDumpFlags::BINLOG_DUMP_NON_BLOCK);
        let request = Request::by_position(&written(&packet)).unwrap();
        let file = "binlog.000002".to_owned();
        assert_eq!(request.wanted, Wanted::From { file, offset: 1234 });
        assert!(request.non_blocking && !request.heartbeat_v2);
        assert_eq!(request.server_id, 9);
        let quiet = Request::by_position(&written(&ComBinlogDump::new(0))).unwrap();
        assert!(quiet.non_blocking);
    }

    #[test]
    fn gtid_sets_of_both_forms_are_read() {
        let plain: GtidSet = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7"
            .parse()
            .unwrap();
        let tagged: GtidSet = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:blue:1-3"
            .parse()
            .unwrap();
        for (have, format) in [
            (&plain, GtidSetFormat::Classic),
            (&plain, GtidSetFormat::Tagged),
            (&tagged, GtidSetFormat::Tagged),
        ] {
            let request = Request::by_gtids(&gtid_request(have, format)).unwrap();
            let wanted = Wanted::Without {
                have: have.clone(),
                file: None,
            };
            assert_eq!(request.wanted, wanted);
            assert!(request.heartbeat_v2 && !request.non_blocking);
        }
    }

    #[test]
    fn registrations_are_read() {
        let packet = ComRegisterSlave::new(5)
            .with_hostname(&b"replica"[..])
            .with_port(3307);
        let expected = Registration {
            server_id: 5,
            host: "replica".into(),
            port: 3307,
        };
        assert_eq!(parse_register(&written(&packet)), Some(expected));
    }

    proptest! {
        #[test]
        fn no_bytes_make_them_panic(body in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Request::by_position(&body);
            let _ = Request::by_gtids(&body);
            let _ = parse_register(&body);
        }

        #[test]
        fn damaged_gtid_requests_never_panic(at in 0_usize..60, with in any::<u8>()) {
            let have: GtidSet = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7".parse().unwrap();
            let mut body = gtid_request(&have, GtidSetFormat::Classic);
            let place = at % body.len();
            body[place] = with;
            let _ = Request::by_gtids(&body);
        }
    }
}
