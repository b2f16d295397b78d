//! Where two logs part, from what they say of themselves.

use raft_types::{LogId, LogReport, OpId};

/// The last entry that two logs have in common, or nothing when the reports do not tell it.
///
/// A term has one leader, and its entries follow each other from the same first one in every log that
/// has any of them (Log LogProbe). So the newest term that both logs have decides: up to where it
/// reaches in both they are equal, and behind that one of them ends or goes on with a term that the
/// other does not have. Entries that are purged, or older than a report reaches, can hide that term;
/// then the answer is nothing, never something that is too low.
pub(super) fn last_in_common(own: &LogReport, theirs: &LogReport) -> Option<LogId> {
    let newest_first = own.runs.iter().rev();
    let (own, theirs) = newest_first
        .filter_map(|own| {
            Some((
                own,
                theirs.runs.iter().rev().find(|run| run.term == own.term)?,
            ))
        })
        .next()?;
    let last = own.last.min(theirs.last);
    let both_have_it = last >= own.first.max(theirs.first);
    both_have_it.then(|| OpId::new(own.term, last).into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use raft_types::{REPORTED_RUNS, TermRun};

    use super::*;

    /// The terms of a log's entries, by index.
    type Log = Vec<u64>;

    fn report(log: &[u64], purged: usize, runs: usize) -> LogReport {
        let mut found: Vec<TermRun> = Vec::new();
        for (index, &term) in log.iter().enumerate().skip(purged) {
            let index = index as u64;
            match found.last_mut() {
                Some(run) if run.term == term => run.last = index,
                _ => found.push(TermRun {
                    term,
                    first: index,
                    last: index,
                }),
            }
        }
        LogReport {
            vote: None,
            runs: found.split_off(found.len().saturating_sub(runs)),
        }
    }

    fn common(own: &[u64], theirs: &[u64]) -> Option<(u64, u64)> {
        let last = last_in_common(
            &report(own, 0, REPORTED_RUNS),
            &report(theirs, 0, REPORTED_RUNS),
        );
        last.map(|last| (last.leader_id.term, last.index))
    }

    #[test]
    fn logs_part_where_the_newest_shared_term_ends() {
        type Case<'a> = (&'a [u64], &'a [u64], Option<(u64, u64)>);
        let table: &[Case<'_>] = &[
            (&[1, 1, 1], &[1, 1, 1], Some((1, 2))),
            (&[1, 1, 1, 3], &[1, 1, 1], Some((1, 2))),
            (&[1, 1, 1, 3], &[1, 1], Some((1, 1))),
            (&[1, 1, 3], &[1, 1, 2, 2, 2], Some((1, 1))),
            (&[1, 1, 3], &[1, 1, 1, 1], Some((1, 1))),
            (&[1, 2, 2, 4], &[1, 2, 3], Some((2, 1))),
            (&[1, 1], &[2, 2], None),
            (&[1, 1], &[], None),
        ];
        for (own, theirs, expected) in table {
            assert_eq!(common(own, theirs), *expected, "{own:?} {theirs:?}");
        }
    }

    /// Logs as elections make them: each leader goes on from a copy of somebody's log, which another
    /// log that is not longer in the sense of Raft may take over up to anywhere.
    fn logs() -> impl Strategy<Value = (Log, Log)> {
        let step = (0..4usize, 0..4usize, 0..9usize, 0..40usize);
        proptest::collection::vec(step, 1..40).prop_map(|steps| {
            let mut members: Vec<Log> = vec![Vec::new(); 4];
            for (term, (leader, follower, appended, copied)) in (1..).zip(steps) {
                // A few terms have no entry at all.
                members[leader].extend(std::iter::repeat_n(term, appended));
                let led = members[leader].clone();
                if follower != leader {
                    // As a follower takes entries: up to there it has the leader's log; what it had
                    // behind that stays only while it does not differ from the leader's.
                    let upto = copied.min(led.len());
                    let own = &members[follower];
                    let rest_agrees =
                        own.len() > upto && own.iter().zip(&led).all(|(own, led)| own == led);
                    if !rest_agrees {
                        members[follower] = led[..upto].to_vec();
                    }
                }
            }
            (members[0].clone(), members[1].clone())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn what_is_in_common_is_the_longest_common_prefix(
            (own, theirs) in logs(),
            own_purged in 0..60usize,
            their_purged in 0..60usize,
            runs in 1..=REPORTED_RUNS,
        ) {
            let equal = own.iter().zip(&theirs).take_while(|(own, theirs)| own == theirs).count();
            let expected = equal.checked_sub(1).map(|last| OpId::new(own[last], last as u64));
            let whole = last_in_common(
                &report(&own, 0, usize::MAX),
                &report(&theirs, 0, usize::MAX),
            );
            prop_assert_eq!(whole.map(OpId::from), expected);
            // Purged logs and short reports: the same, or nothing.
            let part = last_in_common(
                &report(&own, own_purged, runs),
                &report(&theirs, their_purged, runs),
            );
            if let Some(part) = part {
                prop_assert_eq!(Some(OpId::from(part)), expected);
            }
        }
    }
}
