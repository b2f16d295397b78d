//! Opens the primary for writes, and closes it: the only place that touches `read_only` and
//! `super_read_only` of a primary. Closing is a courtesy to clients; the fence is that nobody
//! acknowledges.

mod decision;
mod gate_task;

pub use decision::{
    CloseReason, GateAction, GateInputs, GateMemory, GateView, StayReason, decide,
    is_attached_and_looked_at,
};
pub use gate_task::{Gate, GateOptions, GateState, GateStatus};
