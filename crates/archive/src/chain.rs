//! Orders pieces into chains: which pieces follow each other without a gap, where archiving continues, and which pieces are superfluous.
//! Pure: uses only names.

use std::collections::{BTreeMap, BTreeSet};

use binlog_store::{FileNumber, LogPlace};

use crate::name::{Begin, PieceName, Timeline};

/// A sequence of pieces, each of which begins where the previous one ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The pieces, at least one.
    pub pieces: Vec<PieceName>,
}

impl Run {
    /// The start of the first piece.
    pub fn begins(&self) -> Option<LogPlace> {
        self.pieces.first().map(PieceName::begins)
    }

    /// The position at which the log continues after the last piece.
    pub fn continues_at(&self) -> Option<LogPlace> {
        self.pieces.last().map(PieceName::continues_at)
    }
}

/// The contents of an archive's log, from a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pieces {
    by_timeline: BTreeMap<Timeline, BTreeMap<FileNumber, BTreeSet<PieceName>>>,
    begins: BTreeSet<Begin>,
}

impl Pieces {
    /// Collects the pieces whose manifests are among these object names, and the begin of a pruned archive.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a String>) -> Self {
        let mut pieces = Self::default();
        for name in names {
            if let Some(piece) = PieceName::of_manifest(name) {
                pieces.add(piece);
            } else if let Some(begin) = Begin::of_name(name) {
                pieces.begin_with(begin);
            }
        }
        pieces
    }

    /// Records that the archive was pruned.
    pub fn begin_with(&mut self, begin: Begin) {
        self.begins.insert(begin);
    }

    /// The first file of a history in a pruned archive; `None` if the archive was never pruned. A repair may return to an entry before the
    /// begin of the history that it ends. The new history then begins earlier.
    pub fn begin(&self, timeline: Timeline) -> Option<FileNumber> {
        self.until(timeline).into_iter().fold(None, |begin, of| {
            let own = self.by_timeline.get(&of);
            let own = own.and_then(|files| files.keys().next().copied());
            let begin = begin.map(|begin: FileNumber| own.map_or(begin, |own| begin.min(own)));
            begin.max(self.pruned_to(of))
        })
    }

    /// All histories up to this one, oldest first.
    fn until(&self, timeline: Timeline) -> BTreeSet<Timeline> {
        let pruned = self.begins.iter().map(|begin| begin.timeline);
        let all = self.timelines().chain(pruned);
        all.filter(|of| *of <= timeline).collect()
    }

    /// The first file of the archive according to the prunings that were made while this history was the newest.
    fn pruned_to(&self, timeline: Timeline) -> Option<FileNumber> {
        let of_history = self
            .begins
            .iter()
            .filter(|begin| begin.timeline == timeline);
        of_history.map(|begin| begin.file).max()
    }

    /// All pieces, including those that no history needs, ordered by history.
    pub fn all(&self) -> impl Iterator<Item = PieceName> + '_ {
        let files = self.by_timeline.values().flat_map(BTreeMap::values);
        files.flatten().copied()
    }

    /// Adds a piece.
    pub fn add(&mut self, name: PieceName) {
        let files = self.by_timeline.entry(name.timeline).or_default();
        files.entry(name.file).or_default().insert(name);
    }

    /// Removes a piece with an unreadable manifest.
    pub fn remove(&mut self, name: &PieceName) {
        if let Some(files) = self.by_timeline.get_mut(&name.timeline)
            && let Some(pieces) = files.get_mut(&name.file)
        {
            pieces.remove(name);
            if pieces.is_empty() {
                files.remove(&name.file);
            }
        }
    }

    /// The histories with pieces in the archive, oldest first.
    pub fn timelines(&self) -> impl Iterator<Item = Timeline> + '_ {
        self.by_timeline.keys().copied()
    }

    /// The newest history, in which the ring's log continues.
    pub fn newest(&self) -> Option<Timeline> {
        let begins = self.begins.last().map(|begin| begin.timeline);
        self.timelines().last().max(begins)
    }

    /// A history as archived: one run if it has no gap. It includes files of earlier histories that precede its own first file, but no
    /// pruned files.
    pub fn history(&self, timeline: Timeline) -> Vec<Run> {
        let mut files: BTreeMap<FileNumber, Vec<PieceName>> = BTreeMap::new();
        for of in self.until(timeline) {
            let of_timeline = self.by_timeline.get(&of);
            if let Some(first) = of_timeline.and_then(|files| files.keys().next()) {
                files.split_off(first);
            }
            for (file, pieces) in of_timeline.into_iter().flatten() {
                files.insert(*file, runs_of_a_file(pieces).concat());
            }
            if let Some(begin) = self.pruned_to(of) {
                files = files.split_off(&begin);
            }
        }
        joined(files.into_values().flatten())
    }

    /// The position at which archiving continues: after the last run of the newest history. `None` if the archive is empty.
    pub fn continues_at(&self) -> Option<LogPlace> {
        self.history(self.newest()?).last()?.continues_at()
    }

    /// Pieces of files that are also archived whole. They may be deleted: every history stays the same. An archiver with an older listing
    /// may continue after such a piece, and then adds no new bytes. If a file is not archived whole, none of its pieces may be deleted,
    /// even if another piece has the same bytes: an archiver may be continuing after it.
    pub fn superfluous(&self) -> Vec<PieceName> {
        let mut superfluous = Vec::new();
        for pieces in self.by_timeline.values().flat_map(BTreeMap::values) {
            if let Some(whole) = pieces.iter().rfind(|piece| piece.is_whole_file()) {
                let within = pieces.iter().filter(|piece| piece.end <= whole.end);
                superfluous.extend(within.filter(|piece| *piece != whole).copied());
            }
        }
        superfluous
    }
}

/// The smallest set of pieces that has all archived bytes of one file in one history; one run if there is no gap.
fn runs_of_a_file(pieces: &BTreeSet<PieceName>) -> Vec<Vec<PieceName>> {
    let mut left: BTreeSet<PieceName> = pieces.clone();
    let mut runs = Vec::new();
    while let Some(first) = left.first().copied() {
        let run = farthest(first.start, &left);
        let end = run.last().map_or(first.end, |last| last.end);
        // Later pieces stay in `left` and are not read: a file with many gaps has as many runs.
        let before_its_end = left.iter().take_while(|piece| piece.start < end);
        let has_all_of = |piece: &&PieceName| piece.end <= end;
        let done: Vec<_> = before_its_end.filter(has_all_of).copied().collect();
        left.remove(&first);
        for piece in &done {
            left.remove(piece);
        }
        runs.push(run);
    }
    runs
}

/// The smallest set of pieces that reaches farthest from a start byte. At equal ends, a piece that closes the file is preferred.
fn farthest(start: u64, pieces: &BTreeSet<PieceName>) -> Vec<PieceName> {
    // For each reachable byte: the number of pieces, and the last one.
    let mut reached: BTreeMap<u64, (usize, Option<PieceName>)> = BTreeMap::new();
    reached.insert(start, (0, None));
    // Pieces are ordered by start, so that all predecessors of a piece are done before it.
    for piece in pieces {
        if reached.keys().next_back() < Some(&piece.start) {
            break;
        }
        let Some((pieces_before, _)) = reached.get(&piece.start).copied() else {
            continue;
        };
        let hops = pieces_before + 1;
        let known = reached.get(&piece.end).copied();
        let better = known.is_none_or(|(known, by)| {
            let is_open = by.is_none_or(|by| !by.closed);
            (!piece.closed, hops) < (is_open, known)
        });
        if better {
            reached.insert(piece.end, (hops, Some(*piece)));
        }
    }
    let mut run = Vec::new();
    let mut at = reached.last_key_value().map(|(end, _)| *end);
    while let Some((_, Some(piece))) = at.and_then(|at| reached.get(&at)) {
        run.push(*piece);
        at = Some(piece.start);
    }
    run.reverse();
    run
}

fn joined(pieces: impl Iterator<Item = PieceName>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for piece in pieces {
        match runs.last_mut() {
            Some(run) if run.continues_at() == Some(piece.begins()) => run.pieces.push(piece),
            _ => runs.push(Run {
                pieces: vec![piece],
            }),
        }
    }
    runs
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn number(number: u64) -> FileNumber {
        FileNumber::new(number).unwrap()
    }

    pub(crate) fn at(file: u64, offset: u64) -> LogPlace {
        LogPlace::new(number(file), offset)
    }

    /// `2/7:0-90!`: history 2, file 7, bytes 0 to 90, closed.
    pub(crate) fn piece(text: &str) -> PieceName {
        let (timeline, rest) = text.split_once('/').unwrap();
        let (file, range) = rest.split_once(':').unwrap();
        let (start, end) = range.trim_end_matches('!').split_once('-').unwrap();
        PieceName {
            timeline: Timeline(timeline.parse().unwrap()),
            file: number(file.parse().unwrap()),
            start: start.parse().unwrap(),
            end: end.parse().unwrap(),
            closed: text.ends_with('!'),
        }
    }

    impl FromIterator<PieceName> for Pieces {
        fn from_iter<I: IntoIterator<Item = PieceName>>(names: I) -> Self {
            let mut pieces = Self::default();
            for name in names {
                pieces.add(name);
            }
            pieces
        }
    }

    fn pieces(text: &str) -> Pieces {
        text.split_whitespace().map(piece).collect()
    }

    fn shown(run: &Run) -> String {
        let shown = run.pieces.iter().map(|piece| {
            let mark = if piece.closed { "!" } else { "" };
            let (timeline, file) = (piece.timeline.0, piece.file.get());
            format!("{timeline}/{file}:{}-{}{mark}", piece.start, piece.end)
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    fn history(of: &Pieces, timeline: u32) -> Vec<String> {
        let runs = of.history(Timeline(timeline));
        runs.iter().map(shown).collect()
    }

    #[test]
    fn pieces_that_follow_each_other_are_one_run() {
        let archive = pieces("1/1:0-50! 1/2:0-30 1/2:30-80! 1/3:0-10");
        let expected = ["1/1:0-50! 1/2:0-30 1/2:30-80! 1/3:0-10"];
        assert_eq!(history(&archive, 1), expected);
        assert_eq!(archive.continues_at().unwrap(), at(3, 10));
        assert_eq!(archive.superfluous(), []);
        assert_eq!(Pieces::default().continues_at(), None);
    }

    #[test]
    fn a_missing_piece_is_a_gap() {
        let archive = pieces("1/1:0-50! 1/2:30-80! 1/3:0-10 1/5:0-7");
        let expected = ["1/1:0-50!", "1/2:30-80! 1/3:0-10", "1/5:0-7"];
        assert_eq!(history(&archive, 1), expected);
        assert_eq!(archive.superfluous(), []);
    }

    #[test]
    fn whole_file_replaces_its_pieces() {
        let archive = pieces("1/1:0-30 1/1:30-50! 1/1:0-50! 1/2:0-7");
        assert_eq!(history(&archive, 1), ["1/1:0-50! 1/2:0-7"]);
        let superfluous = [piece("1/1:0-30"), piece("1/1:30-50!")];
        assert_eq!(archive.superfluous(), superfluous);
    }

    #[test]
    fn farthest_of_concurrent_pieces_counts() {
        let archive = pieces("1/1:0-30 1/1:30-60 1/1:30-50 1/1:50-90 1/1:60-70");
        assert_eq!(history(&archive, 1), ["1/1:0-30 1/1:30-50 1/1:50-90"]);
        // Another member may have an older listing, without the other pieces, and may continue after this piece.
        assert_eq!(archive.superfluous(), []);
    }

    /// No log has so many gaps, but anyone with write access to the storage can create such names.
    #[test]
    fn many_gaps_are_listed_in_linear_time() {
        let gaps = 100_000;
        let piece = |number: u64| PieceName {
            timeline: Timeline::FIRST,
            file: FileNumber::FIRST,
            start: 10 * number,
            end: 10 * number + 5,
            closed: false,
        };
        let archive: Pieces = (0..gaps).map(piece).collect();
        let began = std::time::Instant::now();
        assert_eq!(archive.history(Timeline::FIRST).len() as u64, gaps);
        let took = began.elapsed();
        assert!(took.as_secs() < 10, "{took:?}");
    }

    #[test]
    fn pruned_files_are_in_no_history() {
        let begin = |timeline, file| Begin {
            timeline: Timeline(timeline),
            file: number(file),
        };
        let mut archive = pieces("1/1:0-50! 1/2:0-90! 1/3:0-60! 1/4:0-10");
        archive.begin_with(begin(1, 3));
        archive.begin_with(begin(1, 2));
        assert_eq!(history(&archive, 1), ["1/3:0-60! 1/4:0-10"]);
        assert_eq!(archive.begin(Timeline::FIRST), Some(number(3)));
        // Entries that a repair discarded do not reappear with the files of the next history.
        let mut repaired = pieces("1/2:0-90! 1/3:0-60! 1/4:0-10 2/4:0-70! 2/5:0-5");
        repaired.begin_with(begin(2, 4));
        assert_eq!(history(&repaired, 2), ["2/4:0-70! 2/5:0-5"]);
        assert_eq!(repaired.begin(Timeline::FIRST), None);
        // A repair that returns to an entry before the begin.
        let mut earlier = pieces("1/4:0-60! 1/5:0-10 2/3:0-70! 2/4:0-5");
        earlier.begin_with(begin(1, 4));
        assert_eq!(history(&earlier, 1), ["1/4:0-60! 1/5:0-10"]);
        assert_eq!(history(&earlier, 2), ["2/3:0-70! 2/4:0-5"]);
        assert_eq!(earlier.begin(Timeline(2)), Some(number(3)));
        earlier.begin_with(begin(2, 4));
        assert_eq!(history(&earlier, 2), ["2/4:0-5"]);
        // None of the files after the begin are left.
        archive.begin_with(begin(1, 9));
        assert_eq!(history(&archive, 1), Vec::<String>::new());
        assert_eq!(archive.continues_at(), None);
    }

    #[test]
    fn later_history_includes_files_before_it() {
        let archive = pieces("1/1:0-50! 1/2:0-90! 1/3:0-10 2/2:0-60 2/2:60-70! 2/3:0-5");
        let second = ["1/1:0-50! 2/2:0-60 2/2:60-70! 2/3:0-5"];
        assert_eq!(history(&archive, 2), second);
        assert_eq!(history(&archive, 1), ["1/1:0-50! 1/2:0-90! 1/3:0-10"]);
        assert_eq!(archive.newest(), Some(Timeline(2)));
        assert_eq!(archive.continues_at().unwrap(), at(3, 5));
    }

    /// A member's step: the member lists the names, possibly from an older state, and adds the next bytes.
    #[derive(Debug, Clone)]
    struct Turn {
        /// Number of pieces that the member's listing lacks.
        stale: usize,
        bytes: u64,
        /// Whether the member archives whole files if it can.
        whole: bool,
        deletes: bool,
    }

    fn turns() -> impl Strategy<Value = Vec<Turn>> {
        let turn = (
            0usize..3,
            1u64..40,
            any::<bool>(),
            prop::bool::weighted(0.2),
        );
        let turn = turn.prop_map(|(stale, bytes, whole, deletes)| Turn {
            stale,
            bytes,
            whole,
            deletes,
        });
        prop::collection::vec(turn, 1..40)
    }

    const FILE_BYTES: u64 = 100;

    /// Regression test: a piece was deleted because another piece had its bytes, while a third member continued after it.
    #[test]
    fn piece_that_another_archiver_may_continue_is_kept() {
        let seen = pieces("1/1:0-1 1/1:0-2");
        let mut archive = seen.clone();
        archive.add(piece("1/1:1-12"));
        for gone in seen.superfluous() {
            archive.remove(&gone);
        }
        assert_eq!(history(&archive, 1), ["1/1:0-1 1/1:1-12"]);
    }

    proptest! {
        /// Any number of members may archive concurrently while superfluous pieces are deleted.
        #[test]
        fn archiving_never_leaves_a_gap(turns in turns()) {
            let mut written: Vec<PieceName> = Vec::new();
            let mut deleted: BTreeSet<PieceName> = BTreeSet::new();
            let mut farthest = at(1, 0);
            for turn in turns {
                let seen = written.len().saturating_sub(turn.stale);
                let there = written[..seen].iter().filter(|piece| !deleted.contains(piece));
                let listing: Pieces = there.copied().collect();
                if turn.deletes {
                    deleted.extend(listing.superfluous());
                }
                let from = listing.continues_at().unwrap_or(at(1, 0));
                let end = if turn.whole { FILE_BYTES } else { FILE_BYTES.min(from.offset + turn.bytes) };
                let closed = end == FILE_BYTES;
                let mut next = PieceName {
                    timeline: Timeline::FIRST,
                    file: from.file,
                    start: from.offset,
                    end,
                    closed,
                };
                written.push(next);
                if closed && turn.whole {
                    next.start = 0;
                    written.push(next);
                }
                let there = written.iter().filter(|piece| !deleted.contains(piece));
                let archive: Pieces = there.copied().collect();
                let history = archive.history(Timeline::FIRST);
                prop_assert_eq!(history.len(), 1, "{:?}", history);
                let first = at(1, 0);
                prop_assert_eq!(history[0].begins(), Some(first));
                let now = archive.continues_at().unwrap();
                prop_assert!(now >= farthest);
                farthest = now;
            }
        }
    }
}
