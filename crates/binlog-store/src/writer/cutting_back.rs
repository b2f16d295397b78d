//! Cuts a log back to an entry, also below what it took as committed: for a member without which a lost
//! quorum was repaired. Its Raft does not run.
//!
//! First the tail's bytes are kept, then the committed op id is lowered, then the tail goes as in any
//! truncation. After a crash the log is a longer prefix, whose tail counts as uncommitted from the second
//! step on; cutting again completes it. The vote stays: it may only ever grow, whatever became of the log.

use std::io;

use raft_types::OpId;

use crate::cut_tail::{CutTail, GoingPart, keep};
use crate::error::StoreError;
use crate::log::FileIndex;

use super::command::CuttingBack;
use super::log_writer::LogWriter;
use super::truncation::{plan_truncation, scan_failure, scan_kept};

impl LogWriter {
    /// Cuts the log back; the tail that went, if there was one.
    pub(super) fn cut_back(&mut self, cut: &CuttingBack) -> Result<Option<CutTail>, StoreError> {
        let tail = self.keep_tail(cut)?;
        self.lower_committed(cut.to)?;
        if tail.is_some() {
            self.truncate(cut.to)?;
        }
        Ok(tail)
    }

    /// Keeps the bytes of what is about to go.
    fn keep_tail(&self, cut: &CuttingBack) -> Result<Option<CutTail>, StoreError> {
        let from = cut.to.map_or(0, |to| to.index + 1);
        let view = self.view.lock();
        let Some((first, last)) = view.bounds().filter(|(_, last)| last.index >= from) else {
            return Ok(None);
        };
        let first = view.terms.op_id(from.max(first.index)).unwrap_or(first);
        let committed = view.committed.max(self.state.saved_committed);
        let gtids = view.gtids.clone();
        let files: FileIndex = view.files.clone();
        drop(view);

        let Some(plan) = plan_truncation(&files, from) else {
            return Ok(None);
        };
        let (mut parts, mut kept_gtids) = (Vec::new(), Default::default());
        for file in files.files().filter(|file| file.number() >= plan.keep) {
            let number = file.number();
            let open = self.fs.open_read_only(&self.dir.join(number.name()));
            let open = open.map_err(|error| StoreError::io(format!("opening {number}"), &error))?;
            let stays = if number == plan.keep {
                let kept = scan_kept(&open, file, from);
                let kept = kept.map_err(|error| scan_failure(number, error))?;
                kept_gtids = kept.gtids;
                kept.end
            } else {
                0
            };
            parts.push(GoingPart {
                number,
                file: open,
                from: stays,
                end: file.end,
            });
        }
        parts.retain(|part| part.from < part.end);
        let tail = CutTail {
            reason: cut.reason.clone(),
            at: cut.at,
            kept: cut.to,
            first,
            last,
            committed,
            gtids: gtids.difference(&kept_gtids).to_string(),
            parts: Vec::new(),
        };
        let kept = keep(&*self.fs, &self.data_dir, tail, &parts);
        kept.map(Some).map_err(|error: io::Error| {
            StoreError::io("keeping the bytes that are to be cut off", &error)
        })
    }

    /// Takes back that entries behind `to` are committed.
    fn lower_committed(&mut self, to: Option<OpId>) -> Result<(), StoreError> {
        let lowered = |committed: Option<OpId>| {
            committed.filter(|committed| Some(committed.index) <= to.map(|to| to.index))
        };
        let beyond = |committed: Option<OpId>| committed != lowered(committed);
        let mut view = self.view.lock();
        if beyond(view.committed) {
            view.committed = to;
        }
        drop(view);
        if beyond(self.state.saved_committed) {
            let saved = self.hard.put_committed(to);
            let saved = saved.and_then(|()| self.hard.flush());
            saved.map_err(|error| StoreError::io("lowering the committed op id", &error))?;
            self.state.saved_committed = to;
        }
        Ok(())
    }
}

/// Whether a log can be cut back to an entry: it has it, or begins behind it.
pub(crate) fn can_keep(
    to: Option<OpId>,
    floor: Option<OpId>,
    there: impl FnOnce(u64) -> Option<OpId>,
) -> Result<(), Option<OpId>> {
    match (to, floor) {
        (to, floor) if to == floor => Ok(()),
        (None, Some(floor)) => Err(Some(floor)),
        (Some(to), floor) if floor.is_some_and(|floor| floor.index >= to.index) => Err(floor),
        (Some(to), _) => match there(to.index) {
            Some(found) if found == to => Ok(()),
            found => Err(found),
        },
        (None, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_cut_back_to_what_it_has() {
        let id = OpId::new;
        let there = |index: u64| (5..=9).contains(&index).then(|| id(2, index));
        for (to, floor, expected) in [
            (Some(id(2, 7)), None, Ok(())),
            (Some(id(3, 7)), None, Err(Some(id(2, 7)))),
            (Some(id(2, 12)), None, Err(None)),
            (None, None, Ok(())),
            (None, Some(id(1, 4)), Err(Some(id(1, 4)))),
            (Some(id(1, 4)), Some(id(1, 4)), Ok(())),
            (Some(id(1, 3)), Some(id(1, 4)), Err(Some(id(1, 4)))),
            (Some(id(2, 5)), Some(id(1, 4)), Ok(())),
        ] {
            assert_eq!(can_keep(to, floor, there), expected, "{to:?} {floor:?}");
        }
    }
}
