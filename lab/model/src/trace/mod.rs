//! Traces of the real code, checked against the model's rules. A trace records the actions of a simulated ring's members
//! ([`format`](crate::trace::Line)); a replay checks the actions one by one ([`Replay`]).
//!
//! The model's members receive the current entries of a leader's log; real members may receive entries that were sent earlier. The replay
//! therefore keeps each past leadership whose messages may still arrive (`leadership`), and passes it to the model's rules.

mod format;
mod leadership;
mod replay;

pub use crate::trace::format::{Damage, Line, Seen, SeenContent, SeenEntry, SeenVote};
pub use crate::trace::replay::{Counts, Refusal, Replay};
