//! What both directions of the protocol share: packets over a byte stream.

mod byte_stream;
mod lenenc;
mod packet_decoder;
mod packet_io;

pub use byte_stream::{ByteReader, ByteStream, ByteWriter};
pub use lenenc::FieldReader;
pub use packet_decoder::{MAX_CHUNK, Packet, PacketDecoder, encode_packet};
pub use packet_io::{PacketReader, PacketWriter, WireError};
