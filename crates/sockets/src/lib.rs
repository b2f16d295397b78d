//! TCP connections: the limit of a listener's connections, and the lookup of host names.

mod connection_limit;
mod name_lookup;

pub use connection_limit::{ConnectionLimit, Place};
pub use name_lookup::{Found, LOOKUP_LIMIT, LookupError, Names};
