//! What this crate reads from a mysqld, for fuzzing. Nothing of the product calls it.

use std::sync::Arc;

use bytes::Bytes;

use crate::client::{
    Answer, RowPacket, check_public_key, foreign_in, parse_answer, parse_column_name,
    parse_greeting, parse_row, parse_switch,
};
use crate::error::ServerError;
use crate::replication::Prefix;
use crate::wire::{Packet, PacketDecoder};

/// Reads the first packet of a server; whether it is a greeting.
pub fn greeting(bytes: &[u8]) -> bool {
    let packet = Packet {
        first_sequence: 0,
        last_sequence: 0,
        payload: Bytes::copy_from_slice(bytes),
    };
    let greeting = parse_greeting(&packet);
    let foreign = foreign_in(bytes);
    greeting.is_ok() || foreign.is_some()
}

/// Reads what a server says while a client logs in: that it wants another plugin, its public key, an error. Whether it is one of
/// them.
pub fn login_answer(bytes: &[u8]) -> bool {
    let switch = parse_switch(bytes).is_ok();
    let key = check_public_key(bytes).is_ok();
    switch || key || ServerError::parse(bytes).is_ok()
}

/// Reads packets as the answer to a statement; how many rows it has, `None` where it is none.
pub fn answer(bytes: &[u8]) -> Option<usize> {
    let mut packets = PacketDecoder::new(1 << 20);
    packets.buffer_mut().extend_from_slice(bytes);
    let mut next = || packets.next_packet().ok()?.map(|packet| packet.payload);
    let first = next()?;
    if first.first() == Some(&0xff) {
        return ServerError::parse(&first).ok().map(|_| 0);
    }
    let Answer::Columns(count) = parse_answer(first).ok()? else {
        return Some(0);
    };
    let names: Option<Vec<_>> = (0..count)
        .map(|_| parse_column_name(next()?).ok())
        .collect();
    let names: Arc<[String]> = names?.into();
    let mut rows = 0;
    while let RowPacket::Row(row) = parse_row(next()?, &names).ok()? {
        assert_eq!(row.values().len(), count);
        rows += 1;
    }
    Some(rows)
}

/// What stands in front of an event of a dump is as long as this; 0 where the dump is not semi-synchronous.
pub fn dump_prefix(event: &[u8]) -> usize {
    match Prefix::of(event) {
        Prefix::SemiSync { .. } => Prefix::SEMI_SYNC_LEN,
        Prefix::None => 0,
    }
}
