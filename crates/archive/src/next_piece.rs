//! Decides what to archive next, from the archive's names and the log. Pure: does no I/O.

use binlog_store::{FileNumber, LogPlace};

use crate::chain::{Pieces, Run};
use crate::name::{PieceName, Timeline};

/// The log of an archiving member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The log's files with their sizes in bytes, oldest first.
    pub files: Vec<(FileNumber, u64)>,
    /// End of the committed part. Every earlier file is closed and completely committed.
    pub committed: LogPlace,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Archive this piece, which continues the archive.
    Continue(PieceName),
    /// Archive this piece after a gap: the log no longer has the range from `from` to the piece's start.
    AfterGap {
        /// The position at which the archive ended.
        from: LogPlace,
        /// The log's first piece.
        piece: PieceName,
    },
    /// Archive this piece into a gap of the archive: the archive lost the bytes, and the log still has them.
    Fill(PieceName),
    /// Archive this file whole, to replace its pieces.
    Whole(PieceName),
    /// Everything committed is archived.
    Nothing,
}

/// What to archive next in this history of the log.
pub fn next(archive: &Pieces, timeline: Timeline, log: &Log) -> Next {
    let history = archive.history(timeline);
    let Some(&(first, _)) = log.files.first() else {
        return Next::Nothing;
    };
    // Pieces before the archive's begin do not count, so they would be archived again and again.
    let file = archive.begin(timeline);
    let begins = LogPlace::new(file.map_or(first, |begin| begin.max(first)), 0);
    let reached = history.last().and_then(|run| run.continues_at());
    let piece = |from| piece_from(timeline, from, log);
    match reached {
        Some(from) if from < begins => {
            let first = piece(begins);
            first.map_or(Next::Nothing, |piece| Next::AfterGap { from, piece })
        }
        reached => match piece(reached.unwrap_or(begins)) {
            Some(piece) => Next::Continue(piece),
            None => match in_a_gap(&history, timeline, log) {
                Some(piece) => Next::Fill(piece),
                None => whole(&history, timeline, log).map_or(Next::Nothing, Next::Whole),
            },
        },
    }
}

/// The piece that begins at `from`. `None` if the log does not have it, or none of it is committed.
pub fn piece_from(timeline: Timeline, from: LogPlace, log: &Log) -> Option<PieceName> {
    let (_, bytes) = log.files.iter().find(|(file, _)| *file == from.file)?;
    let closed = from.file < log.committed.file;
    let end = if closed { *bytes } else { log.committed.offset };
    let is_there = from.file <= log.committed.file && from.offset < end;
    is_there.then_some(PieceName {
        timeline,
        file: from.file,
        start: from.offset,
        end,
        closed,
    })
}

/// The log's part of the first gap that the log can fill. A gap between two histories is not filled: with an earlier file, the later
/// history would begin earlier.
fn in_a_gap(history: &[Run], timeline: Timeline, log: &Log) -> Option<PieceName> {
    history.windows(2).find_map(|runs| {
        let (last, next) = (runs[0].pieces.last()?, runs[1].pieces.first()?);
        if (last.timeline, next.timeline) != (timeline, timeline) {
            return None;
        }
        let &(first, _) = log.files.first()?;
        let from = last.continues_at().max(LogPlace::new(first, 0));
        let piece = piece_from(timeline, from, log)?;
        (from < next.begins()).then_some(piece)
    })
}

/// The first closed file that the archive has only in several pieces and the log still has.
fn whole(history: &[Run], timeline: Timeline, log: &Log) -> Option<PieceName> {
    let mut in_parts = history.iter().flat_map(|run| &run.pieces);
    in_parts.find_map(|last| {
        let is_in_parts = last.timeline == timeline && last.closed && last.start > 0;
        let (_, bytes) = log.files.iter().find(|(file, _)| *file == last.file)?;
        let is_same = *bytes == last.end && last.file < log.committed.file;
        (is_in_parts && is_same).then_some(PieceName { start: 0, ..*last })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chain::tests::{at, number};
    use crate::name::Begin;

    const ONE: Timeline = Timeline::FIRST;

    fn piece(file: u64, start: u64, end: u64, closed: bool) -> PieceName {
        PieceName {
            timeline: ONE,
            file: number(file),
            start,
            end,
            closed,
        }
    }

    fn log(files: &[(u64, u64)], committed: LogPlace) -> Log {
        let files = files.iter().map(|(file, bytes)| (number(*file), *bytes));
        Log {
            files: files.collect(),
            committed,
        }
    }

    #[test]
    fn files_are_archived_in_order() {
        let log = log(&[(3, 50), (4, 90)], at(4, 80));
        let mut archive = Pieces::default();
        let mut taken = Vec::new();
        while let Next::Continue(piece) = next(&archive, ONE, &log) {
            archive.add(piece);
            taken.push(piece);
        }
        assert_eq!(taken, [piece(3, 0, 50, true), piece(4, 0, 80, false)]);
        assert_eq!(next(&archive, ONE, &log), Next::Nothing);
    }

    #[test]
    fn closed_file_is_archived_whole_when_idle() {
        let archive: Pieces = [piece(3, 0, 20, false)].into_iter().collect();
        let log = log(&[(3, 50), (4, 90)], at(4, 80));
        let rest = piece(3, 20, 50, true);
        assert_eq!(next(&archive, ONE, &log), Next::Continue(rest));
        let mut archive = archive;
        archive.add(rest);
        let open = piece(4, 0, 80, false);
        assert_eq!(next(&archive, ONE, &log), Next::Continue(open));
        archive.add(open);
        let whole = piece(3, 0, 50, true);
        assert_eq!(next(&archive, ONE, &log), Next::Whole(whole));
        archive.add(whole);
        assert_eq!(next(&archive, ONE, &log), Next::Nothing);
    }

    #[test]
    fn purged_range_is_a_gap() {
        let archive: Pieces = [piece(3, 0, 20, false)].into_iter().collect();
        let log = log(&[(5, 50), (6, 90)], at(6, 80));
        let gap = Next::AfterGap {
            from: at(3, 20),
            piece: piece(5, 0, 50, true),
        };
        assert_eq!(next(&archive, ONE, &log), gap);
    }

    /// The storage lost acknowledged objects.
    #[test]
    fn gap_is_filled_from_the_log_where_possible() {
        let files = [(3, 50), (4, 60), (5, 70), (6, 90)];
        let all = log(&files, at(6, 80));
        let archive = [
            piece(3, 0, 20, false),
            piece(5, 40, 70, true),
            piece(6, 0, 80, false),
        ];
        let fills = |files: &[(u64, u64)], archive: &[PieceName]| {
            let mut archive: Pieces = archive.iter().copied().collect();
            let log = log(files, all.committed);
            let mut filled = Vec::new();
            while let Next::Fill(piece) = next(&archive, ONE, &log) {
                archive.add(piece);
                filled.push(piece);
            }
            (filled, archive.history(ONE).len())
        };
        let rest = [
            piece(3, 20, 50, true),
            piece(4, 0, 60, true),
            piece(5, 0, 70, true),
        ];
        assert_eq!(fills(&files, &archive), (rest.to_vec(), 1));
        // Files that were purged in the meantime cannot be filled.
        assert_eq!(fills(&files[1..], &archive), (rest[1..].to_vec(), 2));
        assert_eq!(fills(&files[3..], &archive), (Vec::new(), 2));
        // After a later history begins, no piece of it is added before its first file.
        let of_two = [
            piece(3, 0, 20, false),
            PieceName {
                timeline: Timeline(2),
                ..archive[2]
            },
        ];
        let of_two: Pieces = of_two.into_iter().collect();
        let nothing = next(&of_two, Timeline(2), &all);
        assert_eq!(nothing, Next::Nothing);
    }

    /// More objects were deleted than were pruned.
    #[test]
    fn empty_pruned_archive_continues_at_its_begin() {
        let mut archive = Pieces::default();
        archive.begin_with(Begin {
            timeline: ONE,
            file: number(4),
        });
        let log = log(&[(3, 50), (4, 90)], at(4, 80));
        let open = piece(4, 0, 80, false);
        assert_eq!(next(&archive, ONE, &log), Next::Continue(open));
        archive.add(open);
        assert_eq!(next(&archive, ONE, &log), Next::Nothing);
    }

    #[test]
    fn lagging_member_archives_nothing() {
        let archive: Pieces = [piece(3, 0, 50, true), piece(4, 0, 80, false)]
            .into_iter()
            .collect();
        for committed in [at(4, 60), at(4, 80), at(3, 40)] {
            let log = log(&[(3, 50), (4, 90)], committed);
            assert_eq!(next(&archive, ONE, &log), Next::Nothing);
        }
    }

    proptest! {
        /// For any log and archive, all committed bytes are archived. Each closed file is one piece, and there is one run if nothing was
        /// purged.
        #[test]
        fn everything_committed_is_archived(
            sizes in prop::collection::vec(10u64..90, 1..6),
            looks in prop::collection::vec(0u64..100, 0..6),
            purged in 0usize..3,
        ) {
            let files: Vec<_> = (1u64..).zip(sizes.iter().copied()).collect();
            let (last, bytes) = *files.last().unwrap();
            let all = log(&files, at(last, bytes));
            let mut archive = Pieces::default();
            // Earlier states of the same log.
            let mut moments: Vec<_> = looks.iter().map(|look| {
                let (file, bytes) = files[*look as usize * files.len() / 100];
                at(file, bytes * (look % 10 + 1) / 11)
            }).filter(|at| at.offset > 0).collect();
            moments.sort_unstable();
            for committed in moments {
                let seen = Log { committed, ..all.clone() };
                while let Next::Continue(piece) | Next::Whole(piece) = next(&archive, ONE, &seen) {
                    archive.add(piece);
                }
            }
            let mut left = all.clone();
            left.files.drain(..purged.min(files.len() - 1));
            let mut gaps = 0;
            loop {
                match next(&archive, ONE, &left) {
                    Next::Continue(piece) | Next::Fill(piece) | Next::Whole(piece) => archive.add(piece),
                    Next::AfterGap { piece, .. } => { archive.add(piece); gaps += 1; }
                    Next::Nothing => break,
                }
            }
            let history = archive.history(ONE);
            prop_assert_eq!(history.len(), 1 + gaps);
            let last_run = history.last().unwrap();
            prop_assert_eq!(last_run.continues_at(), Some(at(last, bytes)));
            for superfluous in archive.superfluous() {
                prop_assert!(superfluous.file < number(last));
            }
            for piece in &last_run.pieces {
                let whole = piece.file == number(last) || piece.is_whole_file();
                prop_assert!(whole || piece.file < left.files[0].0, "{}", piece);
            }
        }
    }
}
