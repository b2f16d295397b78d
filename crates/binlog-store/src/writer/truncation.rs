//! Truncates an uncommitted tail, across all its files. First the index drops the files to remove. Then they are deleted, the last one
//! first. Then the file that stays is truncated. Each step is durable before the next one. After a crash at any step the log ends at the
//! wanted entry or later, without a gap.

use std::sync::Arc;

use raft_types::OpId;

use crate::cut_tail::{CutPart, CutTail, keep};
use crate::error::{Doing, StoreError};
use crate::file_system::StorageFile;
use crate::format::FileNumber;
use crate::hard_state::{COMMITTED, DURABLE, DurableMark};
use crate::log::{LogFile, LogFiles, LogPlace};
use crate::scan::{Corruption, Depth, EntryScanner, FileState, ScanError};
use crate::writer::log_writer::LogWriter;
use crate::writer::new_file::write_index;

/// The file that becomes the current one when the entries with an index of `from` or more are dropped. Later files are removed.
fn kept_file(files: &LogFiles, from: u64) -> Option<&LogFile> {
    let begins_before = |file: &&LogFile| {
        let before = file.header.before;
        before.is_none_or(|before| before.index < from)
    };
    files.iter().rev().find(begins_before).or(files.front())
}

/// Scans a file's entries up to before index `from`.
fn scan_kept(
    file: &Arc<dyn StorageFile>,
    kept: &LogFile,
    from: u64,
) -> Result<FileState, ScanError> {
    let mut scanner = EntryScanner::of_file(file, kept.end, &kept.header);
    let mut state = FileState::begin(&kept.header);
    while kept.first.is_some_and(|first| first < from)
        && state.last.is_none_or(|last| last.index + 1 < from)
    {
        let Some(entry) = scanner.next(Depth::FirstEvent)? else {
            break;
        };
        state.add(&entry);
    }
    Ok(state)
}

/// The error of the writer's scan of its own file.
fn scan_failure(file: FileNumber, error: ScanError) -> StoreError {
    match error {
        ScanError::Fault(fault) => StoreError::Corrupt(Corruption { file, fault }),
        ScanError::Io { source, .. } => StoreError::io(format!("reading {file}"), &source),
    }
}

impl LogWriter {
    /// Drops the entries after `keep`.
    pub(super) fn truncate(&mut self, keep: Option<OpId>) -> Result<(), StoreError> {
        let (removed, kept, from) = {
            let view = self.log.view.lock();
            let floor = view.floor_op_id();
            let from = keep.max(floor).map_or(0, |keep| keep.index + 1);
            if view.last().is_none_or(|last| last.index < from) {
                return Ok(());
            }
            let committed = view.committed.max(self.state.saved_committed);
            if let Some(committed) = committed.filter(|committed| committed.index >= from) {
                return Err(StoreError::TruncateCommitted { keep, committed });
            }
            let Some(kept) = kept_file(&view.files, from).cloned() else {
                return Ok(());
            };
            let last_first = view.files.iter().rev().map(LogFile::number);
            let removed: Vec<_> = last_first
                .take_while(|file| *file > kept.number())
                .collect();
            (removed, kept, from)
        };
        let number = kept.number();
        let file = self.fs.open(&self.log.dir.join(number.name()));
        let file = file.doing(format_args!("opening {number}"))?;
        let part = scan_kept(&file, &kept, from).map_err(|error| scan_failure(number, error))?;
        let saved = self.state.saved_mark;
        if saved.is_some_and(|mark| mark.op_id.index >= from) {
            // The stored mark must not name entries that are about to be dropped.
            let (file, end) = (number, part.end);
            let mark = part.last.map(|op_id| DurableMark { op_id, file, end });
            let stored = self.hard.store(DURABLE, mark.as_ref());
            stored.doing("lowering the durable mark")?;
            self.state.saved_mark = mark;
        }

        // Active readers detect from the changed generation that their data may be gone.
        self.log.view.lock().truncate(from);
        if !removed.is_empty() {
            let stay: Vec<FileNumber> = {
                let view = self.log.view.lock();
                let all = view.files.iter().map(LogFile::number);
                all.take_while(|file| *file <= number).collect()
            };
            write_index(&*self.fs, &self.log.dir, stay).doing("writing the index")?;
        }
        for file in removed {
            let removed = self.fs.remove(&self.log.dir.join(file.name()));
            removed
                .and_then(|()| self.fs.sync_dir(&self.log.dir))
                .doing(format_args!("removing {file}"))?;
            if let Some(removed) = self.log.view.lock().files.pop_back() {
                self.log.space.removed(removed.end);
            }
        }
        let is_cut = kept.last.is_some_and(|last| last.index >= from);
        if is_cut {
            file.truncate(part.end)
                .and_then(|()| file.sync_data())
                .doing(format_args!("cutting {number}"))?;
            self.log.space.removed(kept.end.saturating_sub(part.end));
        }

        let mut view = self.log.view.lock();
        if let Some(current) = view.files.back_mut().filter(|_| is_cut) {
            current.truncate(from, part.last, part.end);
        }
        view.gtids = part.gtids.clone();
        view.sequence_number = part.sequence_number;
        // The truncation synced this file; earlier files were synced when they were closed.
        view.synced = view.durable;
        let end = LogPlace::new(number, part.end);
        view.tail.cut_back(from, end);
        drop(view);
        self.state.file = file;
        self.state.end = part.end;
        self.state.last = part.last.or(kept.header.before);
        self.state.gtids = part.gtids;
        self.state.header = kept.header;
        Ok(())
    }
}

// Truncates a log to an entry, even below its commit index. Used after the repair of a lost quorum, for a member that did not take part in
// the repair. The member's Raft does not run then.
//
// First the tail's bytes are saved, then the committed op id is lowered, then the tail is truncated as usual. After a crash the log may
// still have a part of the tail, which counts as uncommitted once the committed op id is lowered. Another call completes the truncation.
// The vote stays: it must never decrease.

impl LogWriter {
    /// Truncates the log; returns the removed tail, if any.
    pub(super) fn cut_back(
        &mut self,
        to: Option<OpId>,
        reason: String,
        at: u64,
    ) -> Result<Option<CutTail>, StoreError> {
        let tail = self.keep_tail(to, reason, at)?;
        self.lower_committed(to)?;
        if tail.is_some() {
            self.truncate(to)?;
        }
        Ok(tail)
    }

    /// Saves the bytes that are about to be truncated.
    fn keep_tail(
        &self,
        to: Option<OpId>,
        reason: String,
        at: u64,
    ) -> Result<Option<CutTail>, StoreError> {
        let from = to.map_or(0, |to| to.index + 1);
        let view = self.log.view.lock();
        let Some((first, last)) = view.terms.bounds().filter(|(_, last)| last.index >= from) else {
            return Ok(None);
        };
        let first = view.terms.op_id(from.max(first.index)).unwrap_or(first);
        let committed = view.committed.max(self.state.saved_committed);
        let gtids = view.gtids.clone();
        let files = view.files.clone();
        drop(view);

        let Some(first_cut) = kept_file(&files, from).map(LogFile::number) else {
            return Ok(None);
        };
        let (mut parts, mut opened) = (Vec::new(), Vec::new());
        let mut kept_gtids = Default::default();
        for file in files.iter().filter(|file| file.number() >= first_cut) {
            let number = file.number();
            let open = self.fs.open_read_only(&self.log.dir.join(number.name()));
            let open = open.doing(format_args!("opening {number}"))?;
            let offset = if number == first_cut {
                let kept = scan_kept(&open, file, from);
                let kept = kept.map_err(|error| scan_failure(number, error))?;
                kept_gtids = kept.gtids;
                kept.end
            } else {
                0
            };
            opened.push(open);
            parts.push(CutPart {
                file: number,
                offset,
                bytes: file.end - offset,
                kept_as: format!("{first}-{last}.{number}.from-{offset}"),
            });
        }
        let tail = CutTail {
            reason,
            at,
            kept: to,
            first,
            last,
            committed,
            gtids: gtids.difference(&kept_gtids).to_string(),
            parts,
        };
        let kept = keep(&*self.fs, &self.log.options.data_dir, &tail, &opened);
        kept.doing("keeping the bytes that are to be cut off")?;
        Ok(Some(tail))
    }

    /// Lowers the committed op id to `to`.
    fn lower_committed(&mut self, to: Option<OpId>) -> Result<(), StoreError> {
        let index = |op_id: Option<OpId>| op_id.map(|op_id| op_id.index);
        let beyond = |committed| index(committed) > index(to);
        let mut view = self.log.view.lock();
        if beyond(view.committed) {
            view.committed = to;
        }
        drop(view);
        if beyond(self.state.saved_committed) {
            let saved = self.hard.store(COMMITTED, to.as_ref());
            saved.doing("lowering the committed op id")?;
            self.state.saved_committed = to;
        }
        Ok(())
    }
}

/// Whether a log can be truncated to an entry: it has the entry, or begins after it.
pub(crate) fn can_keep(
    to: Option<OpId>,
    floor: Option<OpId>,
    there: impl FnOnce(u64) -> Option<OpId>,
) -> Result<(), Option<OpId>> {
    let found = match to {
        Some(to) if floor.is_none_or(|floor| floor.index < to.index) => there(to.index),
        _ => floor,
    };
    match found == to {
        true => Ok(()),
        false => Err(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_truncated_only_to_an_entry_that_it_has() {
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
