//! What of an archive may go, and in which order: a decision over what its names and manifests say. Pure.
//!
//! Two things go: pieces that a whole file has replaced, and files that lie before what is to be kept. The archive's new begin is
//! written before any of these files is deleted ([`Begin`]), so that whoever looks in between, or after this was stopped, sees an
//! archive that begins later, and takes none of what is left of them for a part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use binlog_format::gtid::GtidSet;
use binlog_store::FileNumber;

use crate::base_backup::BaseManifest;
use crate::chain::Pieces;
use crate::manifest::{Manifest, Object};
use crate::name::{Begin, Named, PieceName, Timeline};
use crate::storage::Listing;

/// How long pieces that are replaced stay: whoever reads the archive by an older listing, and writes that come late, are done by
/// then.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);
/// So many files of the newest history always stay: the last one may have no entry, and whoever goes on needs the one before.
const ALWAYS_KEPT: usize = 2;

/// What is to be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    /// What was committed after this moment, in microseconds since 1970; `None`: everything.
    pub since_us: Option<u64>,
    /// So many of the newest base backups, and what comes behind them; `None`: all of them that the time does not let go.
    pub base_backups: Option<usize>,
    /// For each backup that is kept, the transactions that it has: whatever comes behind them is kept, too.
    pub behind: Vec<GtidSet>,
}

impl Keep {
    /// What was committed in this time before now; `None`: everything.
    #[must_use]
    pub fn for_the_last(time: Option<Duration>, now: SystemTime) -> Self {
        Self {
            since_us: time.map(|time| micros(now.checked_sub(time))),
            ..Self::default()
        }
    }

    /// The same, and so many of the newest base backups, whatever their age. Without a time, nothing older than these.
    #[must_use]
    pub fn with_base_backups(self, newest: Option<usize>) -> Self {
        Self {
            base_backups: newest,
            ..self
        }
    }

    /// The same by a clock that says so much less.
    #[must_use]
    pub(crate) fn earlier_by(self, time: Duration) -> Self {
        let earlier = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            since_us: self.since_us.map(|since| since.saturating_sub(earlier)),
            ..self
        }
    }

    /// What was committed before this moment may go, in microseconds since 1970, as long as no backup needs it; `None`: nothing may.
    /// Where a number of backups says what is kept, and there is one, they alone decide.
    pub(crate) fn until_us(&self) -> Option<u64> {
        let by_number = self.base_backups.filter(|_| !self.behind.is_empty());
        self.since_us.or(by_number.map(|_| u64::MAX))
    }
}

/// In microseconds since 1970; 0 for what lies before.
fn micros(time: Option<SystemTime>) -> u64 {
    let since = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// A file of the newest history, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAge {
    /// Which.
    pub file: FileNumber,
    /// When the last of it was committed, in microseconds since 1970; `None` where that is not known.
    pub last_us: Option<u64>,
    /// The GTIDs of the whole log before it; `None` where they are not known.
    pub gtids_before: Option<GtidSet>,
}

/// When the last transaction of a piece was committed at the latest, in microseconds since 1970, by three clocks of which one may be
/// wrong: that of the primary, that of the member that archived it, and that of the storage. It is what the one in the middle says;
/// where the piece has no transaction, the later of two.
#[must_use]
pub fn committed_by(manifest: &Manifest, written: SystemTime) -> u64 {
    let committed = manifest.committed_to_us.unwrap_or(u64::MAX);
    let archived = manifest.archived_at.saturating_mul(1_000_000);
    let mut clocks = [committed, archived, micros(Some(written))];
    clocks.sort_unstable();
    clocks[1]
}

/// The file with which the archive may begin, if that is a later one than the first of these, which are all of the newest history, in
/// order. Files that are not known hold nothing up: the log is in the order of its commits, so that whatever stands before a file that
/// may go may go as well.
#[must_use]
pub fn may_begin_with(files: &[FileAge], keep: &Keep) -> Option<FileNumber> {
    let since = keep.until_us()?;
    let mut begin = None;
    let followed = files.len().saturating_sub(ALWAYS_KEPT);
    for (file, next) in files.iter().zip(files.iter().skip(1)).take(followed) {
        let Some(last) = file.last_us else { continue };
        if last >= since {
            break;
        }
        let has_all_before = |backup: &GtidSet| {
            let before = next.gtids_before.as_ref();
            before.is_some_and(|before| backup.contains_set(before))
        };
        if keep.behind.iter().all(has_all_before) {
            begin = Some(next.file);
        }
    }
    begin
}

/// One step of pruning. Each may be done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Write that the archive begins there.
    Begin(Begin),
    /// Delete the object of this name.
    Delete(String),
}

/// Objects, and how many bytes they take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub objects: u64,
    /// Of all of them, in the storage.
    pub bytes: u64,
}

/// What is to be done, in this order. Stopped behind any step, it leaves an archive that can be relied on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps.
    pub acts: Vec<Act>,
    /// Where the archive begins then; `None` where nothing of it was ever pruned.
    pub begins: Option<FileNumber>,
    /// What is replaced by whole files.
    pub replaced: Amount,
    /// What lies before the begin.
    pub expired: Amount,
    /// Base backups.
    pub base_backups: Amount,
}

impl Plan {
    /// Lets these base backups go first, of each the manifest before its data: one that is named has all of it.
    #[must_use]
    pub fn without(mut self, bases: &[&BaseManifest]) -> Self {
        let names = bases.iter().flat_map(|base| {
            let objects = base.objects.iter().map(|object| object.name.clone());
            std::iter::once(base.name.manifest()).chain(objects)
        });
        let mut acts: Vec<Act> = names.map(Act::Delete).collect();
        self.base_backups = Amount {
            objects: acts.len() as u64,
            bytes: bases.iter().map(|base| base.stored_bytes()).sum(),
        };
        acts.append(&mut self.acts);
        self.acts = acts;
        self
    }
}

/// What to do about an archive with these objects, if it is to begin with this file. `wholes` are the objects of whole files, as their
/// manifests name them; only those of them replace anything that are there as they should be.
#[must_use]
pub fn plan(
    listing: &Listing,
    wholes: &BTreeMap<PieceName, Object>,
    begin: Option<FileNumber>,
    now: SystemTime,
) -> Plan {
    let archive = Objects::of(listing);
    let pieces = Pieces::of_names(listing.keys());
    let Some(newest) = pieces.newest() else {
        return Plan::default();
    };
    let begun = pieces.begin(newest);
    let begins = begun.max(begin);
    let replaced = archive.replaced(wholes, begins, now);
    let expired = begins.map_or_else(Vec::new, |begins| archive.before(begins));
    let mut plan = Plan {
        acts: Vec::new(),
        begins,
        replaced: archive.amount(&replaced),
        expired: archive.amount(&expired),
        base_backups: Amount::default(),
    };
    let delete = |name: &str| Act::Delete(name.to_owned());
    plan.acts.extend(replaced.into_iter().map(delete));
    if let Some(file) = begins.filter(|_| begins > begun) {
        plan.acts.push(Act::Begin(Begin {
            timeline: newest,
            file,
        }));
    }
    plan.acts.extend(expired.into_iter().map(delete));
    plan
}

/// The whole files that are there for a while, and beside which there is more of the same file: pieces that they replace, or another
/// object.
#[must_use]
pub fn that_replace(listing: &Listing, now: SystemTime) -> Vec<PieceName> {
    let archive = Objects::of(listing);
    let pieces = Pieces::of_names(listing.keys());
    let wholes: BTreeMap<_, _> = (pieces.all().filter(PieceName::is_whole_file))
        .map(|whole| ((whole.timeline, whole.file), whole))
        .collect();
    let mut objects: BTreeMap<(Timeline, FileNumber), usize> = BTreeMap::new();
    for (named, names) in &archive.named {
        if !matches!(named, Named::Begin(_)) {
            *objects.entry(named.file()).or_default() += names.len();
        }
    }
    // A manifest and an object are its own.
    let has_more = |of: &(Timeline, FileNumber)| objects.get(of) > Some(&2);
    let replacing = wholes.into_iter().filter(|(of, _)| has_more(of));
    (replacing.map(|(_, whole)| whole))
        .filter(|whole| archive.is_old(&whole.manifest(), now))
        .collect()
}

/// A listing by what its names are of.
struct Objects<'a> {
    listing: &'a Listing,
    named: BTreeMap<Named, Vec<&'a str>>,
}

impl<'a> Objects<'a> {
    fn of(listing: &'a Listing) -> Self {
        let mut named: BTreeMap<Named, Vec<&str>> = BTreeMap::new();
        for name in listing.keys() {
            if let Some(of) = Named::of(name) {
                named.entry(of).or_default().push(name);
            }
        }
        Self { listing, named }
    }

    fn names(&self, named: Named) -> impl Iterator<Item = &'a str> + '_ {
        self.named.get(&named).into_iter().flatten().copied()
    }

    fn amount(&self, names: &[&str]) -> Amount {
        let listed = names.iter().filter_map(|name| self.listing.get(*name));
        Amount {
            objects: names.len() as u64,
            bytes: listed.map(|listed| listed.bytes).sum(),
        }
    }

    /// Whether it was written so long ago that nobody is about to read it by an older listing, or to write it.
    fn is_old(&self, name: &str, now: SystemTime) -> bool {
        let written = self.listing.get(name).map(|listed| listed.written);
        let age = written.and_then(|written| now.duration_since(written).ok());
        age.is_some_and(|age| age >= GRACE)
    }

    /// What whole files have replaced, of each piece the manifest first: nobody finds a manifest whose bytes are gone.
    fn replaced(
        &self,
        wholes: &BTreeMap<PieceName, Object>,
        begins: Option<FileNumber>,
        now: SystemTime,
    ) -> Vec<&'a str> {
        let mut of_files: BTreeMap<(Timeline, FileNumber), BTreeSet<PieceName>> = BTreeMap::new();
        for named in self.named.keys() {
            if let Named::Manifest(piece) | Named::Object(piece) = named {
                of_files.entry(named.file()).or_default().insert(*piece);
            }
        }
        let mut replaced = Vec::new();
        for (whole, object) in wholes {
            let stored = self.listing.get(&object.name).map(|listed| listed.bytes);
            let is_there = stored == Some(object.bytes) && self.is_old(&whole.manifest(), now);
            if !is_there || begins > Some(whole.file) {
                continue;
            }
            let of_file = of_files.get(&(whole.timeline, whole.file));
            let within = of_file
                .into_iter()
                .flatten()
                .filter(|piece| piece.end <= whole.end);
            for piece in within {
                let manifest = self
                    .names(Named::Manifest(*piece))
                    .filter(|_| piece != whole);
                let objects = self
                    .names(Named::Object(*piece))
                    .filter(|name| *name != object.name);
                let of_piece: Vec<&str> = manifest.chain(objects).collect();
                if of_piece.iter().all(|name| self.is_old(name, now)) {
                    replaced.extend(of_piece);
                }
            }
        }
        replaced
    }

    /// What stands before a file in whichever history, the oldest first, and where the archive began before that last of all.
    fn before(&self, begins: FileNumber) -> Vec<&'a str> {
        let in_order = self.named.iter().map(|(named, names)| {
            let (timeline, file) = named.file();
            let is_begin = matches!(named, Named::Begin(_));
            (is_begin, file, timeline, named, names)
        });
        let mut expired: Vec<_> = in_order.filter(|(_, file, ..)| *file < begins).collect();
        expired.sort_unstable();
        let names = expired.into_iter().map(|(.., names)| names);
        names.flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use raft_types::{MemberId, RingId};

    use super::*;
    use crate::chain::tests::{number, piece};
    use crate::contents::Hash;
    use crate::storage::Listed;

    const HOUR: u64 = 3_600_000_000;

    fn gtids(until: u64) -> GtidSet {
        let text = match until {
            0 => String::new(),
            _ => format!("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-{until}"),
        };
        text.parse().unwrap()
    }

    /// `7@30`: the last of file 7 was committed in hour 30; `?` where that is not known. Each file has ten transactions.
    fn ages(text: &str) -> Vec<FileAge> {
        let ages = text.split_whitespace().map(|age| {
            let (file, hour) = age.split_once('@').unwrap();
            let file: u64 = file.parse().unwrap();
            FileAge {
                file: number(file),
                last_us: hour.parse().ok().map(|hour: u64| hour * HOUR),
                gtids_before: Some(gtids((file - 1) * 10)),
            }
        });
        ages.collect()
    }

    #[test]
    fn what_was_committed_before_what_is_kept_may_go() {
        let all = "1@10 2@20 3@30 4@40 5@50";
        for (files, since, behind, expected) in [
            // Everything is kept.
            (all, None, &[][..], None),
            (all, None, &[40], None),
            // The second file has what was committed in the hour from which on everything is kept.
            (all, Some(20), &[], Some(2)),
            (all, Some(21), &[], Some(3)),
            (all, Some(10), &[], None),
            (all, Some(0), &[], None),
            // Two files always stay.
            (all, Some(1000), &[], Some(4)),
            ("1@10 2@20", Some(1000), &[], None),
            ("1@10", Some(1000), &[], None),
            ("", Some(1000), &[], None),
            // A backup needs what follows it: the older one of the two decides.
            (all, Some(1000), &[20], Some(3)),
            (all, Some(1000), &[25], Some(3)),
            (all, Some(1000), &[40, 20], Some(3)),
            (all, Some(21), &[40], Some(3)),
            (all, Some(1000), &[5], None),
            (all, Some(1000), &[0], None),
            // What is not known goes with what follows it, and not by itself.
            ("1@? 2@20 3@30 4@40 5@50", Some(21), &[], Some(3)),
            ("1@10 2@? 3@30 4@40 5@50", Some(21), &[], Some(2)),
            ("1@10 2@? 3@30 4@40 5@50", Some(31), &[], Some(4)),
            ("1@? 2@? 3@? 4@? 5@?", Some(1000), &[], None),
            // A file is missing: the archive has a gap, and goes on all the same.
            ("1@10 3@30 4@40 5@50", Some(21), &[], Some(3)),
            // A clock that was ahead for a while.
            ("1@10 2@900 3@30 4@40 5@50", Some(100), &[], Some(2)),
        ] {
            let keep = Keep {
                since_us: since.map(|hour: u64| hour * HOUR),
                behind: behind.iter().map(|until| gtids(*until)).collect(),
                ..Keep::default()
            };
            let begin = may_begin_with(&ages(files), &keep).map(FileNumber::get);
            assert_eq!(
                begin, expected,
                "{files}, since {since:?}, behind {behind:?}"
            );
        }
        let mut unknown = ages(all);
        unknown[2].gtids_before = None;
        let keep = Keep {
            since_us: Some(21 * HOUR),
            behind: vec![gtids(100)],
            ..Keep::default()
        };
        assert_eq!(may_begin_with(&unknown, &keep), Some(number(2)));
    }

    #[test]
    fn a_number_of_backups_decides_where_no_time_does() {
        let files = ages("1@10 2@20 3@30 4@40 5@50");
        let begin = |since_us, behind: &[u64]| {
            let keep = Keep {
                since_us,
                base_backups: Some(2),
                behind: behind.iter().map(|until| gtids(*until)).collect(),
            };
            may_begin_with(&files, &keep)
        };
        assert_eq!(begin(None, &[25, 40]), Some(number(3)));
        assert_eq!(begin(None, &[5]), None);
        // There is none yet, and everything may be needed.
        assert_eq!(begin(None, &[]), None);
        assert_eq!(begin(Some(15 * HOUR), &[25, 40]), Some(number(2)));
    }

    #[test]
    fn one_of_three_clocks_may_be_wrong() {
        let manifest = |committed: Option<u64>, archived: u64| {
            let mut manifest = manifest(piece("1/1:0-50!"));
            manifest.committed_to_us = committed.map(|hour| hour * HOUR);
            manifest.archived_at = archived * 3600;
            manifest
        };
        let at = |hour: u64| SystemTime::UNIX_EPOCH + Duration::from_micros(hour * HOUR);
        for (committed, archived, written, expected) in [
            (Some(10), 11, 12, 11),
            (Some(900), 11, 12, 12),
            (Some(0), 11, 12, 11),
            (Some(10), 900, 12, 12),
            (Some(10), 0, 12, 10),
            (Some(10), 11, 900, 11),
            (Some(10), 11, 0, 10),
            (None, 11, 12, 12),
            (None, 12, 11, 12),
        ] {
            let by = committed_by(&manifest(committed, archived), at(written));
            assert_eq!(by, expected * HOUR, "{committed:?} {archived} {written}");
        }
    }

    fn manifest(piece: PieceName) -> Manifest {
        Manifest {
            version: 2,
            ring: RingId("11111111-2222-3333-4444-555555555555".parse().unwrap()),
            piece,
            sha256: Some(Hash([0; 32])),
            first: None,
            last: None,
            terms: Vec::new(),
            follows: None,
            transactions: 0,
            gtids: GtidSet::new(),
            gtids_before: GtidSet::new(),
            committed_from_us: None,
            committed_to_us: None,
            object: object(&piece.object()),
            before: None,
            archived_by: MemberId(1),
            archived_at: 0,
        }
    }

    fn object(name: &str) -> Object {
        Object {
            name: name.to_owned(),
            bytes: 100,
            sha256: Hash([0; 32]),
            encryption: None,
        }
    }

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn now() -> SystemTime {
        NOW + 10 * GRACE
    }

    /// Objects of 100 bytes that were written long ago.
    fn listing<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Listing {
        let listed = Listed {
            bytes: 100,
            written: NOW,
        };
        let names = names
            .into_iter()
            .map(|name| (name.as_ref().to_owned(), listed));
        names.collect()
    }

    fn both(of: &str) -> [String; 2] {
        [piece(of).manifest(), piece(of).object()]
    }

    fn of_pieces(text: &str) -> Listing {
        listing(text.split_whitespace().flat_map(both))
    }

    /// As their manifests name them.
    fn wholes(listing: &Listing) -> BTreeMap<PieceName, Object> {
        let wholes = that_replace(listing, now()).into_iter();
        wholes
            .map(|whole| (whole, object(&whole.object())))
            .collect()
    }

    fn deleted(plan: &Plan) -> Vec<&str> {
        let names = plan.acts.iter().filter_map(|act| match act {
            Act::Delete(name) => Some(name.as_str()),
            Act::Begin(_) => None,
        });
        names.collect()
    }

    #[test]
    fn pieces_go_once_the_whole_file_is_there_for_a_while() {
        let archive = of_pieces("1/1:0-30 1/1:30-50! 1/1:0-50! 1/2:0-7 1/2:7-9!");
        assert_eq!(that_replace(&archive, now()), [piece("1/1:0-50!")]);
        assert_eq!(that_replace(&archive, NOW + GRACE / 2), []);
        let wholes = wholes(&archive);
        let done = plan(&archive, &wholes, None, now());
        let expected = [both("1/1:0-30"), both("1/1:30-50!")].concat();
        assert_eq!(deleted(&done), expected);
        let replaced = Amount {
            objects: 4,
            bytes: 400,
        };
        assert_eq!((done.replaced, done.expired), (replaced, Amount::default()));
        assert_eq!(done.begins, None);

        let none = |listing: &Listing, now| plan(listing, &wholes, None, now).acts;
        assert_eq!(none(&archive, NOW + GRACE / 2), []);
        // The whole file's object is not there, or is cut.
        let mut lost = archive.clone();
        lost.remove(&piece("1/1:0-50!").object());
        assert_eq!(none(&lost, now()), []);
        let mut cut = archive.clone();
        cut.get_mut(&piece("1/1:0-50!").object()).unwrap().bytes = 50;
        assert_eq!(none(&cut, now()), []);
        // A write that came late: neither the manifest nor its bytes go before the other can.
        let mut late = archive.clone();
        late.get_mut(&piece("1/1:0-30").manifest()).unwrap().written = now();
        let done = plan(&late, &wholes, None, now());
        assert_eq!(deleted(&done), both("1/1:30-50!"));
        // Its clock is ahead of ours.
        assert_eq!(none(&archive, NOW - GRACE), []);
    }

    #[test]
    fn objects_that_no_manifest_names_go_with_the_pieces() {
        let whole = piece("1/1:0-50!");
        let (first, second) = (whole.encrypted_object(1), whole.encrypted_object(2));
        let part = piece("1/1:0-20");
        let names = [
            whole.manifest(),
            first.clone(),
            second.clone(),
            whole.object(),
            part.encrypted_object(3),
            part.encrypted_object(4),
            "log/00000001/binlog.000001/notes.txt".to_owned(),
        ];
        let archive = listing(names);
        let wholes = BTreeMap::from([(whole, object(&second))]);
        let done = plan(&archive, &wholes, None, now());
        let expected = [
            part.encrypted_object(3),
            part.encrypted_object(4),
            first,
            whole.object(),
        ];
        assert_eq!(deleted(&done), expected);
    }

    #[test]
    fn the_new_begin_is_written_before_anything_of_it_is_deleted() {
        let archive = of_pieces("1/1:0-50! 1/2:0-90! 1/3:0-60! 1/4:0-10");
        let done = plan(&archive, &BTreeMap::new(), Some(number(3)), now());
        let begin = Begin {
            timeline: Timeline::FIRST,
            file: number(3),
        };
        assert_eq!(done.acts[0], Act::Begin(begin));
        let expected = [both("1/1:0-50!"), both("1/2:0-90!")].concat();
        assert_eq!(deleted(&done), expected);
        let expired = Amount {
            objects: 4,
            bytes: 400,
        };
        assert_eq!((done.begins, done.expired), (Some(number(3)), expired));

        // It was stopped behind that, and goes on.
        let mut stopped = archive.clone();
        stopped.extend(listing([begin.name()]));
        for begin in [None, Some(number(2)), Some(number(3))] {
            let done = plan(&stopped, &BTreeMap::new(), begin, now());
            assert_eq!(deleted(&done), expected);
            assert_eq!(done.acts.len(), expected.len());
        }
        // The former begin goes with the files before the next one, behind them.
        let done = plan(&stopped, &BTreeMap::new(), Some(number(4)), now());
        assert_eq!(deleted(&done).last(), Some(&begin.name().as_str()));
    }

    #[test]
    fn what_a_repair_has_given_up_goes_with_the_files_of_its_numbers() {
        let archive =
            of_pieces("1/1:0-50! 1/2:0-90! 1/3:0-60! 2/2:0-70! 2/3:0-80! 2/4:0-5! 2/5:0-5");
        let done = plan(&archive, &BTreeMap::new(), Some(number(3)), now());
        let begin = Begin {
            timeline: Timeline(2),
            file: number(3),
        };
        assert_eq!(done.acts[0], Act::Begin(begin));
        let expected = [both("1/1:0-50!"), both("1/2:0-90!"), both("2/2:0-70!")].concat();
        assert_eq!(deleted(&done), expected);
    }

    /// A file that was archived in parts, of which some are replaced.
    fn files() -> impl Strategy<Value = Vec<(bool, bool)>> {
        prop::collection::vec((any::<bool>(), any::<bool>()), 1..6)
    }

    proptest! {
        /// Whatever was done of a plan: the newest history is one run, from its begin to its end, and nothing of what is kept is lost.
        #[test]
        fn a_plan_that_was_stopped_leaves_one_chain(
            files in files(),
            parted in 0usize..6,
            begin in 0u64..8,
            again in 0u64..8,
        ) {
            let mut names = Vec::new();
            for (file, (in_parts, is_whole)) in (1u64..).zip(&files) {
                let timelines = match file as usize > parted {
                    true => &[1, 2][..],
                    false => &[1],
                };
                for timeline in timelines {
                    let of = |range: &str| both(&format!("{timeline}/{file}:{range}"));
                    if *in_parts || !is_whole {
                        names.extend([of("0-30"), of("30-50!")].concat());
                    }
                    if *is_whole {
                        names.extend(of("0-50!"));
                    }
                }
            }
            let mut left = listing(&names);
            let newest = Pieces::of_names(left.keys()).newest().unwrap();
            // A begin is always one of its files.
            let last = files.len() as u64;
            for begin in [begin, again] {
                let begin = (1..=last).contains(&begin).then(|| number(begin));
                let wholes = wholes(&left);
                let plan = plan(&left, &wholes, begin, now());
                let mut so_far = left.clone();
                for act in std::iter::once(None).chain(plan.acts.iter().map(Some)) {
                    match act {
                        None => {}
                        Some(Act::Begin(begin)) => so_far.extend(listing([begin.name()])),
                        Some(Act::Delete(name)) => { so_far.remove(name); }
                    }
                    let pieces = Pieces::of_names(so_far.keys());
                    prop_assert_eq!(pieces.newest(), Some(newest));
                    let history = pieces.history(newest);
                    prop_assert_eq!(history.len(), 1, "{:?}", history);
                    let begins = history[0].begins().unwrap();
                    let from = plan.begins.map_or(1, FileNumber::get);
                    prop_assert!(begins.offset == 0 && begins.file.get() <= from);
                    let ends = history[0].goes_on().unwrap();
                    prop_assert_eq!(ends.file.get(), last + 1);
                    for piece in &history[0].pieces {
                        prop_assert!(so_far.contains_key(&piece.object()), "{}", piece);
                    }
                }
                left = so_far;
                let pieces = Pieces::of_names(left.keys());
                prop_assert_eq!(pieces.begin(newest), plan.begins);
                let before = left.keys().filter_map(|name| Named::of(name));
                let mut files = before.map(|named| named.file().1);
                prop_assert!(files.all(|file| Some(file) >= plan.begins));
                prop_assert_eq!(pieces.superfluous().iter().filter(|piece| Some(piece.file) >= plan.begins).count(), 0);
            }
        }
    }
}
