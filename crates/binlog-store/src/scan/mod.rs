//! Reading log files: a window over a file, single events, file headers, and entries one after the
//! other, each checked as far as the caller asks. Recovery, readers and the command line share it.

mod entry_scanner;
mod entry_search;
mod event_reader;
mod fault;
mod header_scan;
mod start_scan;
mod window;

pub(crate) use entry_scanner::{Depth, EntryScanner, Scanned, ScannedContent};
pub(crate) use entry_search::find_entry_after;
pub(crate) use fault::ScanError;
pub use fault::{Corruption, Fault, FaultKind};
pub(crate) use header_scan::scan_header;
pub(crate) use start_scan::{scan_noted_start, scan_start};
pub(crate) use window::Window;
