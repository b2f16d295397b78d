//! Traces of the real code, held against the rules of the model: a trace is what the members of a simulated ring did
//! ([`format`](crate::trace::Line)), a replay takes it step by step ([`Replay`]).
//!
//! The model's members take a leader's entries as they are now; real ones take what it sent a while ago. So the replay has, beside
//! each member, every leadership as the others may still hear of it (`reign`), and calls the model's rules with that.

mod format;
mod reign;
mod replay;

pub use crate::trace::format::{Damage, Line, Seen, SeenContent, SeenEntry, SeenVote};
pub use crate::trace::replay::{Counts, Refusal, Replay};
