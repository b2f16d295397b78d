//! The member's mysqld as a process: starts, watches, restarts and stops it. A restarted member finds the process again. The pure
//! `decision` chooses the action.
//!
//! mysqld boots `super_read_only`, and the write fence opens it. mysqld is asked to stop (SIGTERM) only when no commit waits for an ACK,
//! because a shutdown reports to waiting clients that their commits succeeded. If commits still wait at the deadline, mysqld is killed. The
//! start guard decides before each start; while it refuses, mysqld stays down.

mod command_line;
mod decision;
mod external;
mod launch;
mod options;
mod process;
mod starting;
mod supervisor_task;

pub use crate::supervisor::command_line::{AccountRights, ServerCommand};
pub use crate::supervisor::decision::{
    Action, Backoff, DataDir, Found, ProcessId, Restart, Situation, Stopping, UNASKED_STOP, Wanted,
    decide,
};
pub use crate::supervisor::external::{BootedOpen, ExternalCommands, ExternalServer, started_open};
pub use crate::supervisor::launch::SupervisorError;
pub use crate::supervisor::options::{
    GuardError, StartGuard, SupervisorHandle, SupervisorOptions, SupervisorState, SupervisorStatus,
};
pub use crate::supervisor::process::{Identity, Mark};
#[cfg(feature = "fuzzing")]
pub(crate) use crate::supervisor::process::{is_ending_in, parent_of, pid_of};
pub use crate::supervisor::supervisor_task::Supervisor;
