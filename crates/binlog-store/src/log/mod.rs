//! What is known of the log in memory: files and places in them, recent entries, terms, memberships,
//! GTIDs. The writer and the readers share one [`LogView`] under one short lock.

mod file_index;
mod memberships;
mod recent;
mod term_runs;
mod view;
mod written_tail;

pub(crate) use file_index::{FileIndex, LogFile, Place, Point, Points};
pub(crate) use memberships::Memberships;
pub(crate) use recent::RecentEntries;
pub(crate) use term_runs::TermRuns;
pub(crate) use view::{DiskRead, LogView, ReadHint, ReadPlan, SharedView};
pub use written_tail::LogPlace;
pub(crate) use written_tail::WrittenTail;
