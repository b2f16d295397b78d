//! What the server says, in MySQL's packets. Pure: bytes are put together here and sent elsewhere.

mod errors;
mod packets;
mod result_set;

pub(crate) use errors::{ErrorAnswer, code};
pub(crate) use packets::{EventPackets, Outgoing, eof_packet, ok_packet};
pub(crate) use result_set::{ColumnKind, ResultSet, Value};
