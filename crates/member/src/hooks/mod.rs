//! Commands of the operator's that the member runs when the primary changes: to tell a proxy, a name service, a person. They
//! come after the change and cannot hold it up: `event.rs` finds the changes in what the member says of itself, the watch puts
//! them into a short queue, and one task runs the commands one after the other, each with its time.

mod event;
mod process;
mod task;

pub(crate) use task::{HookFigures, run};
