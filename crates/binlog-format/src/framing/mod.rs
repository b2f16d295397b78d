//! Cuts the events of a dump stream into transactions in canonical form. Which event may follow which
//! is a table (`boundary`); the framer around it verifies checksums, follows the source's position
//! and keeps memory within the configured bound.

mod boundary;
mod error;
mod framer;
mod item;
mod position;

pub use boundary::TransactionEnd;
pub use error::FramingError;
pub use framer::TransactionFramer;
pub use item::{FramedTransaction, StreamItem};
pub use position::SourcePosition;
