//! The one writer: votes, appends, truncations and purges in the order in which they were asked for.

mod command;
mod cutting_back;
mod housekeeping;
mod log_writer;
mod purging;
mod queue;
mod rotation;
mod staging;
mod start_over;
mod truncation;
mod waiting;

pub(crate) use command::{Command, CuttingBack, Done};
pub(crate) use cutting_back::can_keep;
pub(crate) use housekeeping::serve;
pub(crate) use log_writer::{LogWriter, WriterState};
pub(crate) use purging::Purger;
pub(crate) use queue::CommandQueue;
pub(crate) use rotation::{NewFile, begin_file, write_index};
pub(crate) use start_over::start_over;
pub(crate) use truncation::{entry_offset, scan_failure};
pub(crate) use waiting::{Waiting, WaitingFileSystem, WaitingMeta};
