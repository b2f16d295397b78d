//! Selects the base backups that may be deleted. Pure.

use super::manifest::BaseManifest;

/// Base backups that may be deleted, oldest first. Every moment since `since_us` (microseconds since 1970) stays restorable: backups since
/// then stay, and the newest older one. The `newest` ones stay as well. With neither limit, all stay; the newest always stays.
///
/// Backups with data in the archive are compared only with each other, since a restore needs one of them. A registered one also expires by
/// both kinds, so that the log is not kept for a backup that the operator has long deleted.
#[must_use]
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

/// How many of these may be deleted, oldest first.
fn go(in_order: &[&BaseManifest], since_us: Option<u64>, newest: Option<usize>) -> usize {
    let is_young =
        |since: u64| move |base: &&BaseManifest| base.ended_at.saturating_mul(1_000_000) >= since;
    // With a time limit, one more: transactions committed between it and the next backup need it.
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
    use binlog_format::gtid::GtidSet;
    use raft_types::{MemberId, RingId};

    use super::*;
    use crate::base_backup::{BASE_VERSION, BaseForm, BaseName};

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
    fn what_somebody_may_want_to_go_back_to_stays() {
        // In any order.
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
            // The limit that keeps more wins.
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
    fn a_backup_with_its_data_gives_way_to_no_registered_one() {
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
            // The operator has deleted these.
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
