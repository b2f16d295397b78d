//! Selects the base backup for a restore, and the pieces of the log after it. Pure: does no I/O.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use binlog_format::gtid::GtidSet;
use raft_types::OpId;

use super::point::{Point, number_of};
use crate::base_backup::{BaseForm, BaseManifest, BaseName};
use crate::manifest::Manifest;
use crate::name::PieceName;

/// The objects that a restore reads, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorePlan {
    /// The base backup.
    pub base: BaseManifest,
    /// The pieces of the log to apply to the base backup. They start at the beginning of a file and have no gap. Empty if the backup has
    /// every transaction.
    pub log: Vec<Manifest>,
    /// The point that the restored server has at the end.
    pub point: Point,
}

impl RestorePlan {
    /// The objects that the plan reads, with their sizes in bytes.
    pub fn objects(&self) -> impl Iterator<Item = (&str, u64)> {
        let base = self.base.objects.iter();
        let log = self.log.iter().map(|piece| &piece.object);
        base.chain(log)
            .map(|object| (object.name.as_str(), object.bytes))
    }
}

/// Why no base backup can reach a point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NoBase(pub Vec<(BaseName, Unfit)>);

impl fmt::Display for NoBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("there is no base backup in the archive");
        }
        f.write_str("no base backup leads there")?;
        for (name, why) in &self.0 {
            write!(f, "; {name}: {why}")?;
        }
        Ok(())
    }
}

/// Why a base backup cannot reach a point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The operator named another backup.
    #[error("it is not the one that is named")]
    NotNamed,
    /// It is an operator's own backup: the archive records only its position.
    #[error("it is kept at {0}; restore it there, and apply the log with `witness apply`")]
    Elsewhere(String),
    /// The backup has, or may have, transactions after the point.
    #[error("it may have {0}, after the point")]
    Later(GtidSet),
    /// The backup belongs to another history of the ring: a repair discarded entries that the backup may have. The GTIDs of these entries
    /// may have been reused.
    #[error(
        "it was taken when entry {0} was committed, and the log that is restored does not have that entry: a repair of the quorum has \
         given it up"
    )]
    OtherHistory(OpId),
    /// The archive, or the part of a file in it, begins after the end of the backup.
    #[error("the archive lacks {gtids} between it and the point")]
    Missing {
        /// The missing transactions.
        gtids: GtidSet,
        /// The piece before which they are missing; `None` if there is no piece.
        before: Option<PieceName>,
    },
    /// The log has a gap between the backup and the point.
    #[error("the archive has a gap after {0}, between it and the point")]
    Gap(PieceName),
}

impl Unfit {
    /// The index of the piece before which a part of the log is missing that the backup needs.
    pub fn lacks_before(&self, pieces: &[Manifest]) -> Option<usize> {
        match self {
            Self::NotNamed | Self::Elsewhere(_) | Self::Later(_) | Self::OtherHistory { .. } => {
                None
            }
            Self::Missing { before, .. } => match before {
                Some(before) => number_of(before, pieces),
                None => Some(0),
            },
            Self::Gap(before) => Some(number_of(before, pieces)? + 1),
        }
    }
}

/// Selects the newest base backup that reaches the point, or the named one. `log` contains the pieces of one history in log order.
///
/// # Errors
/// [`NoBase`], with the reason for each backup, the newest first.
pub fn plan(
    bases: &[BaseManifest],
    log: &[Manifest],
    point: &Point,
    named: Option<&BaseName>,
) -> Result<RestorePlan, NoBase> {
    let mut unfit = Vec::new();
    let mut newest_first: Vec<&BaseManifest> = bases.iter().collect();
    newest_first.sort_by_key(|base| std::cmp::Reverse(base.ended_at));
    for base in newest_first {
        let needed = match named {
            Some(name) if *name != base.name => Err(Unfit::NotNamed),
            _ => needed(base, log, point),
        };
        match needed {
            Ok(pieces) => {
                return Ok(RestorePlan {
                    base: base.clone(),
                    log: log[pieces].to_vec(),
                    point: point.clone(),
                });
            }
            Err(why) => unfit.push((base.name, why)),
        }
    }
    if named.is_some_and(|name| unfit.iter().any(|(other, _)| other == name)) {
        unfit.retain(|(_, why)| *why != Unfit::NotNamed);
    }
    Err(NoBase(unfit))
}

/// Whether this log can contain the entry: terms never decrease in a log.
fn may_have(log: &[Manifest], entry: OpId) -> bool {
    log.iter()
        .flat_map(Manifest::known_entries)
        .all(|known| match known.index.cmp(&entry.index) {
            Ordering::Less => known.term <= entry.term,
            Ordering::Equal => known.term == entry.term,
            Ordering::Greater => known.term >= entry.term,
        })
}

/// The range of pieces that are needed from a base backup to the point.
fn needed(base: &BaseManifest, log: &[Manifest], point: &Point) -> Result<Range<usize>, Unfit> {
    if let BaseForm::Registered { place, .. } = &base.form {
        return Err(Unfit::Elsewhere(place.clone()));
    }
    if let Some(committed) = base
        .committed
        .filter(|committed| !may_have(log, *committed))
    {
        return Err(Unfit::OtherHistory(committed));
    }
    let later = base.gtids_at_most.difference(&point.gtids);
    if !later.is_empty() {
        return Err(Unfit::Later(later));
    }
    if base.gtids_at_least.contains_set(&point.gtids) {
        return Ok(0..0);
    }
    let log = &log[..point.pieces];
    // The base backup certainly has everything before these pieces. If every piece begins after the backup, the first piece shows the
    // missing transactions.
    let known = log.partition_point(|piece| base.gtids_at_least.contains_set(&piece.gtids_before));
    let Some(from) = known.checked_sub(1) else {
        let first = log.first();
        let before = first.map_or(&point.gtids, |first| &first.gtids_before);
        return Err(Unfit::Missing {
            gtids: before.difference(&base.gtids_at_least),
            before: first.map(|first| first.piece),
        });
    };
    // A file can only be read from its beginning.
    let of_file = log[..=from].iter().rev();
    let file = log[from].piece.file;
    let from = from + 1 - of_file.take_while(|piece| piece.piece.file == file).count();
    if log[from].piece.start > 0 {
        return Err(Unfit::Missing {
            gtids: log[from].gtids_before.clone(),
            before: Some(log[from].piece),
        });
    }
    let gap = log[from..]
        .windows(2)
        .find(|pair| pair[0].piece.continues_at() != pair[1].piece.begins());
    match gap {
        Some(pair) => Err(Unfit::Gap(pair[0].piece)),
        None => Ok(from..log.len()),
    }
}

#[cfg(test)]
mod tests {
    use raft_types::{MemberId, RingId};

    use super::*;
    use crate::restore::point::Target;
    use crate::restore::point::tests::{file, point, set};

    const UUID: &str = "11111111-2222-3333-4444-555555555555";

    /// A base backup that began after transaction `at_least` and ended after transaction `at_most`.
    fn base(at_least: u64, at_most: u64) -> BaseManifest {
        let up_to = |last: u64| set(&format!("1-{last}"));
        BaseManifest {
            version: 1,
            ring: RingId(UUID.parse().unwrap()),
            name: BaseName::new(at_most, MemberId(1)).unwrap(),
            form: BaseForm::DataDirectory,
            gtids_at_least: up_to(at_least),
            gtids_at_most: up_to(at_most),
            committed: None,
            began_at: at_least,
            ended_at: at_most,
            mysqld_version: None,
            server_uuid: None,
            keyring_needed: None,
            objects: Vec::new(),
            tar: None,
            unpacked_bytes: 1,
            files: 1,
            taken_by: MemberId(1),
        }
    }

    /// The selected base backup and files.
    fn planned(
        bases: &[BaseManifest],
        log: &[Manifest],
        target: &Target,
    ) -> Result<(u64, Vec<u64>), NoBase> {
        let point = point(log, target).unwrap();
        let plan = plan(bases, log, &point, None)?;
        let files = plan.log.iter().map(|piece| piece.piece.file.get());
        Ok((plan.base.ended_at, files.collect()))
    }

    #[test]
    fn newest_base_before_the_point_is_used() {
        let log = [file(1, 1, 10), file(2, 11, 20), file(3, 21, 30)];
        let bases = [base(5, 7), base(14, 16), base(20, 20)];
        let table: [(&str, u64, &[u64]); 8] = [
            ("30", 20, &[3]),
            ("21", 20, &[3]),
            ("20", 20, &[]),
            ("19", 16, &[2]),
            ("16", 16, &[2]),
            // The backup may already have transaction 16.
            ("15", 7, &[1, 2]),
            ("8", 7, &[1]),
            ("7", 7, &[1]),
        ];
        for (end, base, files) in table {
            let target = Target::Gtids(set(end));
            let expected = Ok((base, files.to_vec()));
            assert_eq!(planned(&bases, &log, &target), expected, "{end}");
        }
        let too_early = planned(&bases, &log, &Target::Gtids(set("6"))).unwrap_err();
        let later = |gtids| Unfit::Later(set(gtids));
        let why: Vec<Unfit> = too_early.0.into_iter().map(|(_, why)| why).collect();
        assert_eq!(why, [later("7-20"), later("7-16"), later("7")]);
    }

    /// A repair discarded the entries from 16 on, in term 2, and the ring continued in term 1002. The GTIDs were reused.
    #[test]
    fn base_of_a_history_ended_by_a_repair_is_refused() {
        let op = |term, index| OpId::new(term, index);
        let mut log = [file(1, 1, 10), file(2, 11, 20), file(3, 21, 30)];
        let ranges = [
            (op(1, 1), op(2, 10), None),
            (op(2, 11), op(1002, 20), Some(op(2, 10))),
            (op(1002, 21), op(1002, 30), Some(op(1002, 20))),
        ];
        for (piece, (first, last, follows)) in log.iter_mut().zip(ranges) {
            (piece.first, piece.last, piece.follows) = (Some(first), Some(last), follows);
        }
        log[0].terms = vec![op(1, 1), op(2, 5)];
        log[1].terms = vec![op(2, 11), op(1002, 16)];
        let taken = |log: &[Manifest], committed| {
            let bases = [
                base(3, 4),
                BaseManifest {
                    committed: Some(committed),
                    ..base(12, 12)
                },
            ];
            let planned = planned(&bases, log, &Target::End).unwrap();
            planned.0 == 12
        };
        for (committed, expected) in [
            (op(2, 12), true),
            (op(2, 15), true),
            (op(2, 16), false),
            (op(2, 20), false),
            (op(2, 25), false),
            (op(2, 40), false),
            (op(1002, 16), true),
            (op(1002, 15), false),
            (op(1002, 30), true),
            (op(1003, 40), true),
            (op(1, 12), false),
        ] {
            assert_eq!(taken(&log, committed), expected, "{committed}");
        }
        // The archive begins after the repair.
        assert!(!may_have(&log[2..], op(2, 20)) && may_have(&log[2..], op(2, 19)));
        let refused = planned(
            &[BaseManifest {
                committed: Some(op(2, 18)),
                ..base(12, 12)
            }],
            &log,
            &Target::End,
        );
        let refused = refused.unwrap_err();
        assert_eq!(refused.0[0].1, Unfit::OtherHistory(op(2, 18)));
        assert_eq!(refused.0[0].1.lacks_before(&log), None);
        // Manifests of versions that did not record terms, and a base backup without a committed entry.
        log.iter_mut().for_each(|piece| piece.terms.clear());
        assert!(taken(&log, op(2, 18)) && !taken(&log, op(2, 20)));
    }

    #[test]
    fn log_without_a_path_from_the_base_is_refused() {
        let (begins_late, gap) = (
            [file(2, 11, 20), file(3, 21, 30)],
            [file(1, 1, 10), file(2, 11, 20), file(4, 31, 40)],
        );
        let why = |bases: &[BaseManifest], log: &[Manifest]| {
            let refused = planned(bases, log, &Target::End).unwrap_err();
            refused.0.into_iter().map(|(_, why)| why).next().unwrap()
        };
        assert_eq!(
            why(&[base(8, 9)], &begins_late),
            Unfit::Missing {
                gtids: set("9-10"),
                before: Some(begins_late[0].piece)
            }
        );
        let unfit = why(&[base(8, 9)], &begins_late);
        assert_eq!(unfit.lacks_before(&begins_late), Some(0));
        assert_eq!(
            planned(&[base(10, 12)], &begins_late, &Target::End),
            Ok((12, vec![2, 3]))
        );
        let unfit = why(&[base(8, 9)], &gap);
        assert_eq!(unfit, Unfit::Gap(gap[1].piece));
        assert_eq!(unfit.lacks_before(&gap), Some(2));
        assert_eq!(
            planned(&[base(30, 30)], &gap, &Target::End),
            Ok((30, vec![4]))
        );
        assert_eq!(planned(&[], &gap, &Target::End), Err(NoBase(Vec::new())));
    }

    #[test]
    fn restore_reads_files_from_their_beginning() {
        let mut log = [file(1, 1, 10), file(1, 11, 20), file(2, 21, 30)];
        (log[0].piece.closed, log[0].piece.end) = (false, 400);
        log[1].piece.start = 400;
        assert_eq!(
            planned(&[base(15, 15)], &log, &Target::End),
            Ok((15, vec![1, 1, 2]))
        );
        let tail = &log[1..];
        let refused = planned(&[base(15, 15)], tail, &Target::End).unwrap_err();
        let unfit = &refused.0[0].1;
        assert!(matches!(unfit, Unfit::Missing { .. }), "{refused}");
        assert_eq!(unfit.lacks_before(tail), Some(0));
    }

    #[test]
    fn named_base_is_used_or_refused() {
        let log = [file(1, 1, 10), file(2, 11, 20)];
        let bases = [base(3, 4), base(8, 9)];
        let point = point(&log, &Target::End).unwrap();
        let named = |number: usize| plan(&bases, &log, &point, Some(&bases[number].name));
        assert_eq!(named(0).unwrap().base, bases[0]);
        let other = BaseName::new(77, MemberId(1)).unwrap();
        let refused = plan(&bases, &log, &point, Some(&other)).unwrap_err();
        assert_eq!(refused.0.len(), 2, "{refused}");
        let registered = BaseManifest {
            form: BaseForm::Registered {
                tool: "xtrabackup".to_owned(),
                place: "s3://dumps/7".to_owned(),
            },
            ..base(3, 3)
        };
        let refused = plan(&[registered], &log, &point, None).unwrap_err();
        assert!(refused.to_string().contains("s3://dumps/7"), "{refused}");
    }
}
