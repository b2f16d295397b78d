//! Traces of the real code, checked against the model's rules. A trace records the actions of a simulated ring's members
//! ([`format`](crate::trace::Line)); a replay takes it step by step ([`Replay`]).
//!
//! The model's members receive a leader's current entries; real ones receive entries sent earlier. The replay therefore keeps every
//! leadership with messages in flight (`leadership`), and calls the model's rules with it.

mod format;
mod leadership;
mod replay;

pub use crate::trace::format::{Damage, Line, Seen, SeenContent, SeenEntry, SeenVote};
pub use crate::trace::replay::{Counts, Refusal, Replay};
