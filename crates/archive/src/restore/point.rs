//! The point up to which the log is restored.

use std::time::{Duration, SystemTime};

use binlog_format::events::CommitTimestamp;
use binlog_format::gtid::{Gtid, GtidSet};

use crate::manifest::Manifest;
use crate::name::PieceName;

/// The operator's request for the end of the restored log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The whole archive.
    End,
    /// Up to, but excluding, the first transaction in the log that was committed after this time.
    Time(SystemTime),
    /// Up to the point where all of these are included. Transactions between them in the log are restored as well.
    Gtids(GtidSet),
    /// Up to this transaction, excluding it.
    Before(Gtid),
}

/// Exactly what a restore contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// `gtid_executed` of the restored server.
    pub gtids: GtidSet,
    /// Number of pieces of the log that the restore uses, counted from the first.
    pub pieces: usize,
    /// The commit time of the last transaction, if known; `None` if the point is before the log's first transaction.
    pub last_commit: Option<SystemTime>,
    /// For [`Target::Time`], the transaction at which the restore ends; `None` if no timestamp in the log is later.
    pub range_end: Option<RangeEnd>,
}

/// The first transaction in the log with a timestamp later than the requested time. Timestamps come from the clocks of successive
/// primaries, so later transactions in the log may have earlier timestamps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeEnd {
    /// The transaction, the first one that is excluded.
    pub gtid: Gtid,
    /// The transaction's timestamp.
    pub committed: SystemTime,
    /// Number of excluded transactions with a timestamp up to the requested time.
    pub excluded_earlier: u64,
    /// The GTIDs which, used as [`Target::Gtids`], also restore these excluded transactions; empty if there are none.
    pub to_include: GtidSet,
}

/// Why a target has no point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPoint {
    /// There is no log.
    #[error("the archive has no log")]
    NoLog,
    /// The target is in a gap of the archive.
    #[error(
        "the archive has a gap after {0}, and the point that is wanted is in it; name an earlier or a later one"
    )]
    Gap(PieceName),
    /// Some of the transactions are not in the archive.
    #[error("the archive does not have {0}")]
    Missing(GtidSet),
    /// The transaction was committed before the archive begins.
    #[error("{0} was committed before the archive's first piece; there is nothing before it")]
    BeforeTheLog(Gtid),
}

impl NoPoint {
    /// If an unreadable piece may contain the point, the index of the piece before which it may be. If the point may be after all pieces,
    /// the number of pieces.
    pub fn may_lie_before(&self, pieces: &[Manifest]) -> Option<usize> {
        match self {
            Self::NoLog | Self::BeforeTheLog(_) => Some(0),
            Self::Gap(before) => Some(number_of(before, pieces)? + 1),
            Self::Missing(_) => Some(pieces.len()),
        }
    }
}

/// The position of a target, as far as the manifests show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// After the last piece.
    AtTheEnd,
    /// Before the first piece. Only the set of GTIDs before that piece is known.
    AtTheBeginning,
    /// In the piece of this index, which must be read.
    Within(usize),
}

/// Finds the piece that contains a target. The pieces belong to one history and are in log order.
///
/// # Errors
/// [`NoPoint`].
pub fn place(pieces: &[Manifest], target: &Target) -> Result<Place, NoPoint> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
        return Err(NoPoint::NoLog);
    };
    let (at, lies_before) = match target {
        Target::End => return Ok(Place::AtTheEnd),
        // Clocks of successive primaries may differ. So the first match in log order counts, not the earliest timestamp.
        Target::Time(time) => {
            let is_later = |micros: Option<u64>| {
                micros.is_some_and(|micros| committed_at(CommitTimestamp(micros)) > *time)
            };
            let found = pieces
                .iter()
                .position(|piece| is_later(piece.committed_to_us));
            let Some(at) = found else {
                return Ok(Place::AtTheEnd);
            };
            (at, is_later(pieces[at].committed_from_us))
        }
        Target::Gtids(wanted) => {
            let missing = wanted.difference(&last.gtids_after());
            if !missing.is_empty() {
                return Err(NoPoint::Missing(missing));
            }
            let at = pieces.partition_point(|piece| !piece.gtids_after().contains_set(wanted));
            (at, pieces[at].gtids_before.contains_set(wanted))
        }
        Target::Before(gtid) => {
            if first.gtids_before.contains(gtid) {
                return Err(NoPoint::BeforeTheLog(*gtid));
            }
            if !last.gtids_after().contains(gtid) {
                return Err(NoPoint::Missing(std::iter::once(*gtid).collect()));
            }
            let at = pieces.partition_point(|piece| !piece.gtids_after().contains(gtid));
            (at, pieces[at].gtids_before.contains(gtid))
        }
    };
    match at.checked_sub(1).map(|before| pieces[before].piece) {
        // The missing part of the log may contain the target.
        Some(before) if lies_before && before.continues_at() != pieces[at].piece.begins() => {
            Err(NoPoint::Gap(before))
        }
        None if lies_before => Ok(Place::AtTheBeginning),
        _ => Ok(Place::Within(at)),
    }
}

/// The point at the end of the last piece.
pub fn at_the_end(pieces: &[Manifest]) -> Option<Point> {
    let last = pieces.last()?;
    Some(Point {
        gtids: last.gtids_after(),
        pieces: pieces.len(),
        last_commit: last_commit(pieces),
        range_end: None,
    })
}

/// The latest commit time of the last piece that has one.
fn last_commit(pieces: &[Manifest]) -> Option<SystemTime> {
    let latest = pieces.iter().rev().find_map(|piece| piece.committed_to_us);
    latest.map(|latest| committed_at(CommitTimestamp(latest)))
}

fn committed_at(CommitTimestamp(micros): CommitTimestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

/// Finds the point within its piece, transaction by transaction. Later pieces only matter for [`RangeEnd`].
#[derive(Debug)]
pub struct PointFinder {
    target: Target,
    /// For [`Target::Gtids`], the requested GTIDs that were not read yet.
    missing: GtidSet,
    found: GtidSet,
    last_commit: Option<SystemTime>,
    pieces: usize,
    is_over: bool,
    range_end: Option<RangeEnd>,
}

impl PointFinder {
    /// Starts a search in the piece of this index.
    ///
    /// # Panics
    /// When there is no such piece.
    pub fn new(target: Target, pieces: &[Manifest], number: usize) -> Self {
        let before = pieces[number].gtids_before.clone();
        let missing = match &target {
            Target::Gtids(wanted) => wanted.difference(&before),
            _ => GtidSet::new(),
        };
        let is_over = matches!(target, Target::Gtids(_)) && missing.is_empty();
        Self {
            target,
            missing,
            found: before,
            last_commit: last_commit(&pieces[..number]),
            pieces: number + 1,
            is_over,
            range_end: None,
        }
    }

    /// Adds the next transaction.
    pub fn transaction(&mut self, gtid: Gtid, committed: Option<CommitTimestamp>) {
        let committed = committed.map(committed_at);
        match (&self.target, &mut self.range_end, committed) {
            (Target::Time(time), None, Some(at)) if at > *time => {
                self.is_over = true;
                self.range_end = Some(RangeEnd {
                    gtid,
                    committed: at,
                    excluded_earlier: 0,
                    to_include: GtidSet::new(),
                });
            }
            (Target::Time(time), Some(end), Some(at)) if at <= *time => {
                end.exclude(1, std::iter::once(gtid).collect());
            }
            (Target::Before(end), _, _) => self.is_over |= gtid == *end,
            _ => {}
        }
        if self.is_over {
            return;
        }
        self.found.add(gtid);
        self.last_commit = committed.or(self.last_commit);
        if self.missing.remove(&gtid) {
            self.is_over = self.missing.is_empty();
        }
    }

    /// Adds a piece after the point's piece, if its manifest is sufficient. If it returns true, the manifest is not sufficient, and the
    /// caller must pass each transaction of the piece to [`Self::transaction`].
    pub fn must_read(&mut self, piece: &Manifest) -> bool {
        let (Target::Time(time), Some(end)) = (&self.target, &mut self.range_end) else {
            return false;
        };
        let is_later = |micros| committed_at(CommitTimestamp(micros)) > *time;
        match (
            piece.committed_from_us.map(is_later),
            piece.committed_to_us.map(is_later),
        ) {
            (Some(false), Some(false)) => {
                end.exclude(piece.transactions, piece.gtids.clone());
                false
            }
            (Some(false), Some(true)) => true,
            _ => false,
        }
    }

    /// Returns the point, after the piece has been read.
    pub fn point(&self) -> Point {
        Point {
            gtids: self.found.clone(),
            pieces: self.pieces,
            last_commit: self.last_commit,
            range_end: self.range_end.clone(),
        }
    }
}

impl RangeEnd {
    /// Excludes the next transactions in the log, although their timestamps are not later than the requested time.
    fn exclude(&mut self, transactions: u64, gtids: GtidSet) {
        self.excluded_earlier += transactions;
        self.to_include = gtids;
    }
}

/// A piece with an unreadable manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// The piece.
    pub piece: PieceName,
    /// The fault of the manifest, as text.
    pub why: String,
}

/// The first unreadable piece between the piece of this index and the piece before it. If the index is the number of pieces, the first one
/// after all pieces.
pub fn unread_before<'a>(
    unread: &'a [Unread],
    pieces: &[Manifest],
    number: usize,
) -> Option<&'a Unread> {
    let last = number.checked_sub(1).and_then(|last| pieces.get(last));
    let from = last.map(|last| last.piece.continues_at());
    let to = pieces.get(number).map(|next| next.piece.begins());
    unread.iter().find(|Unread { piece, .. }| {
        let begins = piece.begins();
        from.is_none_or(|from| from <= begins) && to.is_none_or(|to| begins < to)
    })
}

/// The index of a piece.
pub(crate) fn number_of(piece: &PieceName, pieces: &[Manifest]) -> Option<usize> {
    pieces.iter().position(|one| one.piece == *piece)
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::contents::Hash;
    use crate::manifest::Object;
    use crate::name::{PieceName, Timeline};
    use binlog_store::FileNumber;
    use raft_types::{MemberId, RingId};

    use super::*;

    const UUID: &str = "11111111-2222-3333-4444-555555555555";

    pub(crate) fn set(numbers: &str) -> GtidSet {
        match numbers {
            "" => GtidSet::new(),
            numbers => format!("{UUID}:{numbers}").parse().unwrap(),
        }
    }

    fn gtid(number: u64) -> Gtid {
        set(&number.to_string()).iter().next().unwrap()
    }

    pub(crate) fn second(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    /// A whole file with these transactions, one per second: transaction N was committed at second N.
    pub(crate) fn file(number: u64, first: u64, last: u64) -> Manifest {
        let piece = PieceName {
            timeline: Timeline::FIRST,
            file: FileNumber::new(number).unwrap(),
            start: 0,
            end: 1000,
            closed: true,
        };
        let before = match first {
            1 => GtidSet::new(),
            first => set(&format!("1-{}", first - 1)),
        };
        Manifest {
            version: 2,
            ring: RingId(UUID.parse().unwrap()),
            piece,
            sha256: Some(Hash([0; 32])),
            first: None,
            last: None,
            terms: Vec::new(),
            follows: None,
            transactions: last + 1 - first,
            gtids: set(&format!("{first}-{last}")),
            gtids_before: before,
            committed_from_us: Some(first * 1_000_000),
            committed_to_us: Some(last * 1_000_000),
            object: Object {
                name: piece.object(),
                bytes: 500,
                sha256: Hash([0; 32]),
                encryption: None,
            },
            before: None,
            archived_by: MemberId(1),
            archived_at: 0,
        }
    }

    /// The point of a target; reads pieces as the archive does. Transaction N was committed at second N.
    pub(crate) fn point(pieces: &[Manifest], target: &Target) -> Result<Point, NoPoint> {
        point_with(pieces, target, |number| number)
    }

    fn point_with(
        pieces: &[Manifest],
        target: &Target,
        second_of: impl Fn(u64) -> u64,
    ) -> Result<Point, NoPoint> {
        let number = match place(pieces, target)? {
            Place::AtTheEnd => return Ok(at_the_end(pieces).unwrap()),
            Place::AtTheBeginning => 0,
            Place::Within(number) => number,
        };
        let mut finder = PointFinder::new(target.clone(), pieces, number);
        for (after, piece) in pieces[number..].iter().enumerate() {
            if after > 0 && !finder.must_read(piece) {
                continue;
            }
            for gtid in piece.gtids.iter() {
                let micros = second_of(gtid.gno.get()) * 1_000_000;
                finder.transaction(gtid, Some(CommitTimestamp(micros)));
            }
        }
        Ok(finder.point())
    }

    #[test]
    fn target_is_found_to_the_transaction() {
        let log = [file(1, 1, 10), file(2, 11, 20), file(3, 21, 30)];
        let table: [(Target, &str, usize, u64); 12] = [
            (Target::End, "1-30", 3, 30),
            (Target::Time(second(15)), "1-15", 2, 15),
            (Target::Time(second(10)), "1-10", 2, 10),
            (Target::Time(second(99)), "1-30", 3, 30),
            (Target::Gtids(set("15")), "1-15", 2, 15),
            (Target::Gtids(set("3:25")), "1-25", 3, 25),
            (Target::Gtids(set("20")), "1-20", 2, 20),
            (Target::Before(gtid(15)), "1-14", 2, 14),
            (Target::Before(gtid(11)), "1-10", 2, 10),
            (Target::Before(gtid(2)), "1", 1, 1),
            (Target::Gtids(set("1")), "1", 1, 1),
            (Target::Time(second(1)), "1", 1, 1),
        ];
        for (target, gtids, pieces, last) in table {
            let range_end = match target {
                Target::Time(_) if last < 30 => Some(RangeEnd {
                    gtid: gtid(last + 1),
                    committed: second(last + 1),
                    excluded_earlier: 0,
                    to_include: GtidSet::new(),
                }),
                _ => None,
            };
            let expected = Point {
                gtids: set(gtids),
                pieces,
                last_commit: Some(second(last)),
                range_end,
            };
            assert_eq!(point(&log, &target), Ok(expected), "{target:?}");
        }
        let nothing = point(&log, &Target::Before(gtid(1))).unwrap();
        assert_eq!((nothing.gtids, nothing.last_commit), (GtidSet::new(), None));
    }

    #[test]
    fn target_outside_the_archive_is_refused() {
        let log = [file(2, 11, 20), file(3, 21, 30)];
        let missing = |target| point(&log, &target);
        assert_eq!(
            missing(Target::Gtids(set("12:31-33"))),
            Err(NoPoint::Missing(set("31-33")))
        );
        assert_eq!(
            missing(Target::Before(gtid(31))),
            Err(NoPoint::Missing(set("31")))
        );
        assert_eq!(
            missing(Target::Before(gtid(10))),
            Err(NoPoint::BeforeTheLog(gtid(10)))
        );
        assert_eq!(point(&[], &Target::End), Err(NoPoint::NoLog));
        // Transactions before the archive's start are all included at its start.
        let begin = point(&log, &Target::Gtids(set("5"))).unwrap();
        assert_eq!(begin.gtids, set("1-10"));
    }

    #[test]
    fn unreadable_pieces_may_contain_the_point() {
        let log = [file(2, 11, 20), file(4, 31, 40)];
        let table = [
            (Target::Before(gtid(10)), 0),
            (Target::Gtids(set("25")), 1),
            (Target::Time(second(25)), 1),
            (Target::Before(gtid(41)), 2),
            (Target::Gtids(set("12:41")), 2),
        ];
        for (target, number) in table {
            let none = place(&log, &target).unwrap_err();
            assert_eq!(none.may_lie_before(&log), Some(number), "{target:?}");
        }
        assert_eq!(NoPoint::NoLog.may_lie_before(&[]), Some(0));
        for target in [Target::Time(second(5)), Target::Gtids(set("5"))] {
            assert_eq!(place(&log, &target), Ok(Place::AtTheBeginning));
        }
        let within = place(&log, &Target::Time(second(15)));
        assert_eq!(within, Ok(Place::Within(0)));
    }

    #[test]
    fn point_in_a_gap_is_refused_and_after_it_found() {
        let log = [file(1, 1, 10), file(3, 21, 30)];
        let gap = Err(NoPoint::Gap(log[0].piece));
        for target in [
            Target::Time(second(15)),
            Target::Gtids(set("15")),
            Target::Before(gtid(15)),
        ] {
            assert_eq!(point(&log, &target), gap, "{target:?}");
        }
        let after = point(&log, &Target::Gtids(set("25"))).unwrap();
        assert_eq!(after.gtids, set("1-25"));
        let after = point(&log, &Target::Time(second(25))).unwrap();
        assert_eq!(after.gtids, set("1-25"));
        let before = point(&log, &Target::Time(second(5))).unwrap();
        assert_eq!(before.gtids, set("1-5"));
    }

    /// The new primary's clock lags: its commits have earlier timestamps than those before them.
    #[test]
    fn first_later_timestamp_in_the_log_ends_the_range() {
        let mut late = file(2, 11, 20);
        (late.committed_from_us, late.committed_to_us) = (Some(4_000_000), Some(8_000_000));
        let log = [file(1, 1, 10), late];
        let point = point(&log, &Target::Time(second(9))).unwrap();
        assert_eq!(point.gtids, set("1-9"));
    }

    /// For one transaction, the server's clock was an hour ahead.
    #[test]
    fn a_range_by_time_counts_the_earlier_transactions_that_it_excludes() {
        const HOUR: u64 = 3600;
        let second_of = |number| if number == 8 { 8 + HOUR } else { number };
        let mut ahead = file(1, 1, 10);
        ahead.committed_to_us = Some((8 + HOUR) * 1_000_000);
        let log = [ahead, file(2, 11, 20), file(3, 21, 30), file(4, 31, 40)];
        let at = |wanted| {
            let point = point_with(&log, &Target::Time(second(wanted)), second_of).unwrap();
            (point.gtids, point.range_end)
        };
        let ends_at_8 = |excluded_earlier, to_include| RangeEnd {
            gtid: gtid(8),
            committed: second(8 + HOUR),
            excluded_earlier,
            to_include,
        };
        let table = [
            (9, ends_at_8(1, set("9"))),
            (20, ends_at_8(12, set("11-20"))),
            (25, ends_at_8(17, set("25"))),
            (99, ends_at_8(32, set("31-40"))),
        ];
        for (wanted, range_end) in table {
            assert_eq!(at(wanted), (set("1-7"), Some(range_end)), "{wanted}");
        }
        let included = point_with(&log, &Target::Gtids(set("25")), second_of).unwrap();
        assert_eq!(included.gtids, set("1-25"));
    }

    #[test]
    fn unreadable_pieces_are_found_by_position() {
        let log = [file(2, 11, 20), file(4, 31, 40), file(5, 41, 50)];
        let of_file = |number: u64| Unread {
            piece: file(number, 1, 10).piece,
            why: "it is not JSON".to_owned(),
        };
        let found = |files: &[u64], number| {
            let unread: Vec<Unread> = files.iter().map(|file| of_file(*file)).collect();
            unread_before(&unread, &log, number).map(|one| one.piece.file.get())
        };
        for (number, file) in [(0, Some(1)), (1, Some(3)), (2, None), (3, Some(6))] {
            assert_eq!(found(&[1, 3, 6], number), file, "{number}");
            assert_eq!(found(&[], number), None);
        }
        // No manifest is readable.
        assert_eq!(unread_before(&[of_file(7)], &[], 0), Some(&of_file(7)));
    }
}
