//! From what a crash left to a log that can be used. First everything is looked at and nothing is
//! changed (`survey`, `log_scan`), then a table decides (`recovery_cases`, `index_cases`), then the
//! decision is carried out (`repair`), each step such that a crash in it is one of the table's cases.

mod index_cases;
mod log_scan;
mod open;
mod recovery_cases;
mod repair;
mod report;
mod survey;

pub use index_cases::{INDEX_CASES, IndexCase, IndexState};
pub use recovery_cases::{MetaState, RECOVERY_CASES, RecoveryCase, TailState, Verdict, judge};
pub use report::{RecoveryReport, TailCut};
