//! The only writer: votes, appends, truncations and purges in the order of the requests.

mod housekeeping;
mod log_writer;
mod new_file;
mod purging;
mod queue;
mod rotation;
mod truncation;
mod waiting;

pub(crate) use crate::writer::housekeeping::serve;
pub(crate) use crate::writer::log_writer::{LogWriter, WriterState, lock};
pub(crate) use crate::writer::new_file::{begin_file, start_over, write_index};
pub(crate) use crate::writer::purging::Purger;
pub(crate) use crate::writer::queue::{Command, CommandQueue};
pub(crate) use crate::writer::truncation::can_keep;
pub(crate) use crate::writer::waiting::Waiting;
