//! Decides what to delete from an archive and in which order, from names and manifests. Pure: does no I/O.
//!
//! Two kinds of objects are deleted: pieces that a whole file replaces, and files before the retention limit. The archive's new begin
//! ([`Begin`]) is written before any file is deleted. If a reader lists the archive during or after an interrupted pruning, the archive
//! begins later for it, and it ignores the remaining files.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use binlog_format::gtid::GtidSet;
use binlog_store::FileNumber;

use crate::base_backup::BaseManifest;
use crate::chain::Pieces;
use crate::manifest::{Manifest, Object};
use crate::name::{Begin, Named, PieceName, Timeline};
use crate::storage::Listing;

/// Retention of replaced pieces. After this time, no reader uses an older listing, and no delayed write is pending.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);
/// Number of newest files that always stay. The last file may have no entry, and an archiver then needs the previous one.
const ALWAYS_KEPT: usize = 2;

/// What to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    /// Keep transactions committed after this moment, in microseconds since 1970; `None`: all.
    pub since_us: Option<u64>,
    /// Keep this many of the newest base backups and the log after them; `None`: all backups within the time limit.
    pub base_backups: Option<usize>,
    /// For each kept backup, its transactions. All later transactions are kept, too.
    pub after: Vec<GtidSet>,
}

impl Keep {
    /// Keeps transactions committed within this time before now; `None`: all. Also keeps this many of the newest base backups, whatever
    /// their age. If only the number of backups is given, nothing older than these backups is kept.
    pub fn for_the_last(
        time: Option<Duration>,
        base_backups: Option<usize>,
        now: SystemTime,
    ) -> Self {
        Self {
            since_us: time.map(|time| micros(now.checked_sub(time))),
            base_backups,
            after: Vec::new(),
        }
    }

    /// Transactions committed before this moment, in microseconds since 1970, may be deleted unless a backup needs them; `None`: none may
    /// be deleted. If only a number of backups is configured and a backup exists, the backups alone decide.
    pub(crate) fn until_us(&self) -> Option<u64> {
        let by_number = self.base_backups.filter(|_| !self.after.is_empty());
        self.since_us.or(by_number.map(|_| u64::MAX))
    }
}

/// Microseconds since 1970; 0 for earlier times.
fn micros(time: Option<SystemTime>) -> u64 {
    let since = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// What is known about a file of the newest history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAge {
    /// The file.
    pub file: FileNumber,
    /// Time of the file's last commit, in microseconds since 1970; `None` if unknown.
    pub last_us: Option<u64>,
    /// The GTIDs of the log before the file; `None` if unknown.
    pub gtids_before: Option<GtidSet>,
}

/// Upper bound for a piece's last commit, in microseconds since 1970. It is the median of three clocks: the primary's, the archiving
/// member's and the storage's. So one of them may be wrong. For a piece without a transaction, it is the later of the last two.
pub fn committed_by(manifest: &Manifest, written: SystemTime) -> u64 {
    let committed = manifest.committed_to_us.unwrap_or(u64::MAX);
    let archived = manifest.archived_at.saturating_mul(1_000_000);
    let mut clocks = [committed, archived, micros(Some(written))];
    clocks.sort_unstable();
    clocks[1]
}

/// Returns the archive's new first file, if it is later than the first of `files`. `files` are all files of the newest history, in order. A
/// file of unknown age does not prevent the deletion of later files: the log is in commit order, so every file before a deletable one is
/// deletable, too.
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
        if keep.after.iter().all(has_all_before) {
            begin = Some(next.file);
        }
    }
    begin
}

/// One idempotent step of pruning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Record that the archive begins at this file.
    Begin(Begin),
    /// Delete the object of this name.
    Delete(String),
}

/// Number and size of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Amount {
    /// Number of objects.
    pub objects: u64,
    /// Total size of the objects in the storage.
    pub bytes: u64,
}

/// The steps of a pruning, in order. After an interruption at any step, the archive is consistent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps.
    pub acts: Vec<Act>,
    /// The first file of the archive afterwards; `None` if the archive was never pruned.
    pub begins: Option<FileNumber>,
    /// Pieces replaced by whole files.
    pub replaced: Amount,
    /// Objects before the begin.
    pub expired: Amount,
    /// Base backups.
    pub base_backups: Amount,
}

impl Plan {
    /// Adds the deletion of these base backups before all other steps. Each manifest is deleted before its data, because a backup with a
    /// manifest must be complete.
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

/// Plans the pruning of an archive with these objects and this new begin. `wholes` are the objects of whole files, from their manifests. A
/// whole file replaces its pieces only if its object is stored with the right size.
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

/// Whole files, older than [`GRACE`], that have further objects of the same file next to them: pieces that they replace, or another object.
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
    // The first two objects are the whole file's manifest and its bytes.
    let has_more = |of: &(Timeline, FileNumber)| objects.get(of) > Some(&2);
    let replacing = wholes.into_iter().filter(|(of, _)| has_more(of));
    (replacing.map(|(_, whole)| whole))
        .filter(|whole| archive.is_old(&whole.manifest(), now))
        .collect()
}

/// A listing, grouped by the kind of object.
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

    /// True if the object is so old that no reader uses a listing from before it, and no writer is still writing it.
    fn is_old(&self, name: &str, now: SystemTime) -> bool {
        let written = self.listing.get(name).map(|listed| listed.written);
        let age = written.and_then(|written| now.duration_since(written).ok());
        age.is_some_and(|age| age >= GRACE)
    }

    /// The pieces that whole files replace. Each manifest comes first, so that no manifest exists without its bytes.
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

    /// The objects of all files before `begins`, in any history, oldest first; then the archive's earlier begins.
    fn before(&self, begins: FileNumber) -> Vec<&'a str> {
        let named = self.named.iter();
        let mut expired: Vec<_> = named.filter(|(named, _)| named.file().1 < begins).collect();
        expired.sort_by_key(|(named, _)| {
            let (timeline, file) = named.file();
            (matches!(named, Named::Begin(_)), file, timeline)
        });
        let names = expired.into_iter().flat_map(|(_, names)| names);
        names.copied().collect()
    }
}

/// Base backups that may be deleted, oldest first. Every moment since `since_us` (microseconds since 1970) stays restorable: the backups
/// since then stay, and the newest backup before them. The `newest` backups stay as well. Without any limit, all backups stay; the newest
/// one always stays.
///
/// A backup with data in the archive is compared only with other such backups, because a restore needs one of them. A registered backup
/// also expires by comparison with both kinds. So the log is not kept for a backup that the operator deleted long ago.
pub fn may_go(
    bases: &[BaseManifest],
    since_us: Option<u64>,
    newest: Option<usize>,
) -> Vec<&BaseManifest> {
    let mut in_order: Vec<&BaseManifest> = bases.iter().collect();
    in_order.sort_by_key(|base| (base.ended_at, base.name));
    let with_data: Vec<&BaseManifest> = (in_order.iter().copied())
        .filter(|base| base.has_data())
        .collect();
    let kept_with_data = &with_data[go(&with_data, since_us, newest)..];
    in_order.truncate(go(&in_order, since_us, newest));
    in_order.retain(|base| !kept_with_data.contains(base));
    in_order
}

/// Returns how many of these backups may be deleted, starting with the oldest.
fn go(in_order: &[&BaseManifest], since_us: Option<u64>, newest: Option<usize>) -> usize {
    let is_young =
        |since: u64| move |base: &&BaseManifest| base.ended_at.saturating_mul(1_000_000) >= since;
    // With a time limit, one more backup stays: transactions committed between the limit and the next backup need it.
    let by_time = since_us.map(|since| {
        let first_young = in_order.iter().position(is_young(since));
        first_young.unwrap_or(in_order.len()).saturating_sub(1)
    });
    let by_number = newest.map(|newest| in_order.len().saturating_sub(newest.max(1)));
    match (by_time, by_number) {
        (Some(by_time), Some(by_number)) => by_time.min(by_number),
        (by_time, by_number) => by_time.or(by_number).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use raft_types::{MemberId, RingId};

    use super::*;
    use crate::base_backup::{BASE_VERSION, BaseForm, BaseName};
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

    /// `7@30`: file 7's last commit was in hour 30; `?` if unknown. Each file has ten transactions.
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
    fn expired_files_may_be_deleted() {
        let all = "1@10 2@20 3@30 4@40 5@50";
        for (files, since, after, expected) in [
            // Nothing expires without a time limit.
            (all, None, &[][..], None),
            (all, None, &[40], None),
            // The second file has commits at the time limit.
            (all, Some(20), &[], Some(2)),
            (all, Some(21), &[], Some(3)),
            (all, Some(10), &[], None),
            (all, Some(0), &[], None),
            // Two files always stay.
            (all, Some(1000), &[], Some(4)),
            ("1@10 2@20", Some(1000), &[], None),
            ("1@10", Some(1000), &[], None),
            ("", Some(1000), &[], None),
            // A backup needs the files after it: the earlier of backup and time limit decides.
            (all, Some(1000), &[20], Some(3)),
            (all, Some(1000), &[25], Some(3)),
            (all, Some(1000), &[40, 20], Some(3)),
            (all, Some(21), &[40], Some(3)),
            (all, Some(1000), &[5], None),
            (all, Some(1000), &[0], None),
            // A file of unknown age is deleted with a later file, but not alone.
            ("1@? 2@20 3@30 4@40 5@50", Some(21), &[], Some(3)),
            ("1@10 2@? 3@30 4@40 5@50", Some(21), &[], Some(2)),
            ("1@10 2@? 3@30 4@40 5@50", Some(31), &[], Some(4)),
            ("1@? 2@? 3@? 4@? 5@?", Some(1000), &[], None),
            // A missing file is a gap, which does not prevent pruning.
            ("1@10 3@30 4@40 5@50", Some(21), &[], Some(3)),
            // A clock was ahead for one file.
            ("1@10 2@900 3@30 4@40 5@50", Some(100), &[], Some(2)),
        ] {
            let keep = Keep {
                since_us: since.map(|hour: u64| hour * HOUR),
                after: after.iter().map(|until| gtids(*until)).collect(),
                ..Keep::default()
            };
            let begin = may_begin_with(&ages(files), &keep).map(FileNumber::get);
            assert_eq!(begin, expected, "{files}, since {since:?}, after {after:?}");
        }
        let mut unknown = ages(all);
        unknown[2].gtids_before = None;
        let keep = Keep {
            since_us: Some(21 * HOUR),
            after: vec![gtids(100)],
            ..Keep::default()
        };
        assert_eq!(may_begin_with(&unknown, &keep), Some(number(2)));
    }

    #[test]
    fn number_of_backups_applies_without_a_time_limit() {
        let files = ages("1@10 2@20 3@30 4@40 5@50");
        let begin = |since_us, after: &[u64]| {
            let keep = Keep {
                since_us,
                base_backups: Some(2),
                after: after.iter().map(|until| gtids(*until)).collect(),
            };
            may_begin_with(&files, &keep)
        };
        assert_eq!(begin(None, &[25, 40]), Some(number(3)));
        assert_eq!(begin(None, &[5]), None);
        // As long as no backup exists, the whole log may be needed.
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

    /// Objects of 100 bytes, written long ago.
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

    /// The objects of whole files, as their manifests name them.
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
    fn replaced_pieces_are_deleted_after_the_grace_period() {
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
        // The whole file's object is missing or truncated.
        let mut lost = archive.clone();
        lost.remove(&piece("1/1:0-50!").object());
        assert_eq!(none(&lost, now()), []);
        let mut cut = archive.clone();
        cut.get_mut(&piece("1/1:0-50!").object()).unwrap().bytes = 50;
        assert_eq!(none(&cut, now()), []);
        // After a delayed write of the manifest, the manifest and its bytes stay until both may be deleted.
        let mut late = archive.clone();
        late.get_mut(&piece("1/1:0-30").manifest()).unwrap().written = now();
        let done = plan(&late, &wholes, None, now());
        assert_eq!(deleted(&done), both("1/1:30-50!"));
        // The storage's clock is ahead of this host's.
        assert_eq!(none(&archive, NOW - GRACE), []);
    }

    #[test]
    fn unnamed_objects_expire_with_their_pieces() {
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
    fn new_begin_is_written_before_deletions() {
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

        // Pruning was stopped after the begin was written, and continues.
        let mut stopped = archive.clone();
        stopped.extend(listing([begin.name()]));
        for begin in [None, Some(number(2)), Some(number(3))] {
            let done = plan(&stopped, &BTreeMap::new(), begin, now());
            assert_eq!(deleted(&done), expected);
            assert_eq!(done.acts.len(), expected.len());
        }
        // The former begin is deleted after the files before the next begin.
        let done = plan(&stopped, &BTreeMap::new(), Some(number(4)), now());
        assert_eq!(deleted(&done).last(), Some(&begin.name().as_str()));
    }

    #[test]
    fn discarded_files_expire_with_their_numbers() {
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

    /// Files that were archived in parts; some of the parts were replaced.
    fn files() -> impl Strategy<Value = Vec<(bool, bool)>> {
        prop::collection::vec((any::<bool>(), any::<bool>()), 1..6)
    }

    proptest! {
        /// After any prefix of a plan, the newest history is one run, and no kept object is lost.
        #[test]
        fn stopped_pruning_leaves_one_chain(
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
            // The begin is always one of the archive's files.
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
                    let ends = history[0].continues_at().unwrap();
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

    fn base(second: u64) -> BaseManifest {
        BaseManifest {
            version: BASE_VERSION,
            ring: RingId("11111111-2222-3333-4444-555555555555".parse().unwrap()),
            name: BaseName::new(second, MemberId(1)).unwrap(),
            form: BaseForm::DataDirectory,
            gtids_at_least: GtidSet::new(),
            gtids_at_most: GtidSet::new(),
            committed: None,
            began_at: second,
            ended_at: second,
            mysqld_version: None,
            server_uuid: None,
            keyring_needed: None,
            objects: Vec::new(),
            tar: None,
            unpacked_bytes: 0,
            files: 0,
            taken_by: MemberId(1),
        }
    }

    #[test]
    fn backups_within_the_retention_stay() {
        // The backups are listed in any order.
        let all = [30, 10, 50, 20, 40];
        // Backups, time limit, count limit, and the deletable ones.
        type Case<'a> = (&'a [u64], Option<u64>, Option<usize>, &'a [u64]);
        let table: [Case<'_>; 14] = [
            (&all, None, None, &[]),
            // Backup 30 is needed for transactions committed at 35.
            (&all, Some(35), None, &[10, 20]),
            (&all, Some(30), None, &[10]),
            (&all, Some(31), None, &[10, 20]),
            (&all, Some(5), None, &[]),
            (&all, Some(10), None, &[]),
            (&all, Some(1000), None, &[10, 20, 30, 40]),
            (&all, None, Some(2), &[10, 20, 30]),
            (&all, None, Some(9), &[]),
            (&all, None, Some(0), &[10, 20, 30, 40]),
            // If both limits are given, the one that keeps more decides.
            (&all, Some(35), Some(4), &[10]),
            (&all, Some(1000), Some(2), &[10, 20, 30]),
            (&[7], Some(1000), Some(0), &[]),
            (&[], Some(1000), Some(1), &[]),
        ];
        for (seconds, since, newest, expected) in table {
            let bases: Vec<BaseManifest> = seconds.iter().map(|second| base(*second)).collect();
            let gone = may_go(&bases, since.map(|since| since * 1_000_000), newest);
            let gone: Vec<u64> = gone.iter().map(|base| base.ended_at).collect();
            assert_eq!(
                gone, expected,
                "{seconds:?} since {since:?}, newest {newest:?}"
            );
        }
    }
    /// Only backups with data can be restored.
    #[test]
    fn registered_backups_never_expire_one_with_data() {
        let registered = |second| BaseManifest {
            form: BaseForm::Registered {
                tool: "mysqldump".to_owned(),
                place: "nfs://h/b".to_owned(),
            },
            ..base(second)
        };
        // Backups with data, registered ones, time limit, count limit, and the deletable ones.
        type Case<'a> = (&'a [u64], &'a [u64], Option<u64>, Option<usize>, &'a [u64]);
        let table: [Case<'_>; 8] = [
            (&[10], &[20, 30, 40], Some(35), None, &[20]),
            (&[10], &[20, 30, 40], Some(1000), None, &[20, 30]),
            (&[10], &[20, 30, 40], None, Some(2), &[20]),
            (&[10, 15], &[20, 30], None, Some(1), &[10, 20]),
            (&[10, 15], &[20, 30], Some(25), None, &[10]),
            // The operator has deleted the registered backups.
            (&[20, 30, 40], &[10], Some(35), None, &[10, 20]),
            (&[20, 30, 40], &[10, 15], None, Some(2), &[10, 15, 20]),
            (&[], &[10, 20], Some(1000), Some(0), &[10]),
        ];
        for (with_data, elsewhere, since, newest, expected) in table {
            let with_data = with_data.iter().map(|second| base(*second));
            let bases: Vec<BaseManifest> = (elsewhere.iter().map(|second| registered(*second)))
                .chain(with_data)
                .collect();
            let gone = may_go(&bases, since.map(|since| since * 1_000_000), newest);
            let gone: Vec<u64> = gone.iter().map(|base| base.ended_at).collect();
            assert_eq!(
                gone, expected,
                "{elsewhere:?} since {since:?}, newest {newest:?}"
            );
        }
    }
}
