//! Compares GTID sets with a simple model: a set of single GTIDs.

use std::collections::BTreeSet;

use binlog_format::gtid::{Gno, Gtid, GtidSet, GtidSetFormat, Interval, SourceId, Tag};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

type Model = BTreeSet<Gtid>;

/// A change of a set.
#[derive(Debug, Clone)]
enum Change {
    Add(Gtid),
    Remove(Gtid),
    AddInterval(Gtid, u64),
    RemoveInterval(Gtid, u64),
}

fn sources() -> impl Strategy<Value = SourceId> {
    prop_oneof![Just([0; 16]), Just([7; 16]), Just([255; 16])].prop_map(SourceId::from_bytes)
}

fn tags() -> impl Strategy<Value = Tag> {
    prop_oneof![Just(""), Just("a"), Just("ab"), Just("b_9")]
        .prop_map(|name| Tag::new(name.as_bytes()).unwrap())
}

/// A few numbers at both ends of the range, so that they often collide.
fn gnos() -> impl Strategy<Value = Gno> {
    let near_end = Gno::MAX.get() - 30;
    prop_oneof![4 => 1..40_u64, 1 => near_end..=Gno::MAX.get()]
        .prop_map(|gno| Gno::new(gno).unwrap())
}

fn gtids() -> impl Strategy<Value = Gtid> {
    (sources(), tags(), gnos()).prop_map(|(source, tag, gno)| Gtid { source, tag, gno })
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        3 => gtids().prop_map(Change::Add),
        2 => gtids().prop_map(Change::Remove),
        3 => (gtids(), 0..12_u64).prop_map(|(gtid, more)| Change::AddInterval(gtid, more)),
        2 => (gtids(), 0..12_u64).prop_map(|(gtid, more)| Change::RemoveInterval(gtid, more)),
    ];
    proptest::collection::vec(change, 0..40)
}

fn interval(gtid: Gtid, more: u64) -> Interval {
    let last = Gno::new(gtid.gno.get() + more).unwrap_or(Gno::MAX);
    Interval::new(gtid.gno, last).unwrap()
}

fn members(gtid: Gtid, interval: Interval) -> impl Iterator<Item = Gtid> {
    interval.iter().map(move |gno| Gtid { gno, ..gtid })
}

fn build(changes: &[Change]) -> Result<(GtidSet, Model), TestCaseError> {
    let (mut set, mut model) = (GtidSet::new(), Model::new());
    for change in changes {
        match *change {
            Change::Add(gtid) => prop_assert_eq!(set.add(gtid), model.insert(gtid)),
            Change::Remove(gtid) => prop_assert_eq!(set.remove(&gtid), model.remove(&gtid)),
            Change::AddInterval(gtid, more) => {
                let interval = interval(gtid, more);
                let before = model.len();
                model.extend(members(gtid, interval));
                prop_assert_eq!(
                    set.add_interval(gtid.source, gtid.tag, interval),
                    model.len() > before
                );
            }
            Change::RemoveInterval(gtid, more) => {
                let interval = interval(gtid, more);
                let before = model.len();
                members(gtid, interval).for_each(|gtid| {
                    model.remove(&gtid);
                });
                prop_assert_eq!(
                    set.remove_interval(gtid.source, gtid.tag, interval),
                    model.len() < before
                );
            }
        }
    }
    same(&set, &model)?;
    Ok((set, model))
}

fn same(set: &GtidSet, model: &Model) -> TestCaseResult {
    prop_assert!(
        set.iter().eq(model.iter().copied()),
        "{} is not {:?}",
        set,
        model
    );
    prop_assert_eq!(set.count(), model.len() as u128);
    prop_assert_eq!(set.is_empty(), model.is_empty());
    prop_assert_eq!(set.has_tags(), model.iter().any(|gtid| !gtid.tag.is_none()));
    for (_, _, intervals) in set.parts() {
        prop_assert!(!intervals.is_empty());
        for pair in intervals.windows(2) {
            prop_assert!(
                pair[0].last().get() + 1 < pair[1].first().get(),
                "{} has neighbours unmerged",
                set
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_set_is_its_members(changes in changes(), probe in gtids()) {
        let (set, model) = build(&changes)?;
        prop_assert_eq!(set.contains(&probe), model.contains(&probe));
        prop_assert_eq!(model.iter().copied().collect::<GtidSet>(), set);
    }

    #[test]
    fn sets_combine_as_their_members_do(left in changes(), right in changes()) {
        let ((left, left_model), (right, right_model)) = (build(&left)?, build(&right)?);
        same(&left.union(&right), &(&left_model | &right_model))?;
        same(&left.difference(&right), &(&left_model - &right_model))?;
        same(&left.intersection(&right), &(&left_model & &right_model))?;
        prop_assert_eq!(left.contains_set(&right), left_model.is_superset(&right_model));
        prop_assert!(left.union(&right).contains_set(&left));
        prop_assert!(left.contains_set(&left.intersection(&right)));
        prop_assert_eq!(left == right, left_model == right_model);
    }

    #[test]
    fn shared_parts_of_sets_change_in_one_set_only(left in changes(), right in changes(), probe in gtids()) {
        let ((left, left_model), (mut right, mut right_model)) = (build(&left)?, build(&right)?);
        right.share_with(&left);
        same(&right, &right_model)?;
        let mut copy = left.clone();
        prop_assert_eq!(copy.add(probe), !left_model.contains(&probe));
        prop_assert_eq!(right.remove(&probe), right_model.remove(&probe));
        same(&left, &left_model)?;
        same(&right, &right_model)?;
        prop_assert!(copy.contains_set(&left) && copy.contains(&probe));
    }

    #[test]
    fn text_and_binary_forms_round_trip(changes in changes()) {
        let (set, model) = build(&changes)?;
        prop_assert_eq!(&set.to_string().parse::<GtidSet>().unwrap(), &set);
        prop_assert_eq!(&format!("{set:#}").to_uppercase().parse::<GtidSet>().unwrap(), &set);
        for format in [GtidSetFormat::Automatic, GtidSetFormat::Tagged] {
            prop_assert_eq!(&GtidSet::decode(&set.encode(format)).unwrap(), &set);
        }
        let untagged: GtidSet = model.iter().filter(|gtid| gtid.tag.is_none()).copied().collect();
        prop_assert_eq!(GtidSet::decode(&set.encode(GtidSetFormat::Classic)).unwrap(), untagged);
        for gtid in model.iter().take(5) {
            prop_assert_eq!(&gtid.to_string().parse::<Gtid>().unwrap(), gtid);
        }
    }

    #[test]
    fn the_order_of_changes_leaves_no_trace(changes in changes()) {
        let (_, model) = build(&changes)?;
        let forward: GtidSet = model.iter().copied().collect();
        let backward: GtidSet = model.iter().rev().copied().collect();
        prop_assert_eq!(forward.encode(GtidSetFormat::Automatic), backward.encode(GtidSetFormat::Automatic));
        prop_assert_eq!(forward.to_string(), backward.to_string());
    }
}
