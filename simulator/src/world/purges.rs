//! [`Scenario::Purges`]: a region is cut off for a while, and all others purge their logs as the product's members do, as far as the
//! ring does not need them any more. When the region is back it catches up, and leads next.
//!
//! [`Scenario::Purges`]: crate::scenario::Scenario::Purges

use std::collections::BTreeSet;
use std::time::Duration;

use consensus::{RingView, region_watermarks};
use raft_types::{OpId, Region};

use super::World;
use super::operator::last_file_before;
use super::slot::Slot;
use crate::dice::pick;
use crate::event::Event;
use crate::faults::Fault;
use crate::mutation::Mutation;
use crate::shape::Shape;
use crate::workload::Workload;

/// How often a region is cut off.
const CUTS: u32 = 2;
/// How often each member looks what it may purge.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// How long a region that is back is waited for.
const CATCHES_UP: Duration = Duration::from_secs(8);

/// Everybody votes, so that every region has a majority, and files are short.
pub(super) fn with_short_files(shape: &mut Shape, workload: &mut Workload) {
    shape.with_databases_only();
    workload.write_pause = Duration::from_millis(40);
    workload.rotate_one_in = 4;
}

impl World {
    pub(super) fn purges(&mut self) {
        let members = self.slots.iter().filter(|(_, slot)| !slot.absent);
        let voting = members.map(|(id, slot)| (*id, slot.seat.record.region.clone()));
        let voting = voting.collect();
        self.record.saw(&Event::Regions { voting });
        for _ in 0..CUTS {
            let calm = Duration::from_millis(self.dice.u64(500..1_500));
            self.steps(calm);
            self.purge_while_a_region_is_away();
            let goal = self.furthest();
            let until = self.now.after(CATCHES_UP);
            while self.goes_on() && self.now < until && !self.everybody_has(goal) {
                self.step();
            }
            let primaries = self.primaries();
            if !primaries.is_empty() {
                let next = *pick(&mut self.dice, &primaries);
                self.promote(next);
            }
        }
    }

    fn purge_while_a_region_is_away(&mut self) {
        let Some((leader, _)) = self.leading_view() else {
            return;
        };
        let regions = self.regions();
        let there: BTreeSet<&Region> = self
            .there()
            .iter()
            .filter_map(|id| regions.get(id))
            .filter(|region| Some(*region) != regions.get(&leader))
            .collect();
        let away: Vec<&Region> = there.into_iter().collect();
        if away.is_empty() {
            return;
        }
        let away = (*pick(&mut self.dice, &away)).clone();
        let (from, to) = self
            .there()
            .into_iter()
            .partition(|id| regions.get(id) == Some(&away));
        let time = Duration::from_millis(self.dice.u64(1_500..4_000));
        self.play(Fault::Cut {
            from,
            to,
            both: true,
            time,
        });
        let absent_after = Duration::from_millis(*pick(&mut self.dice, &[300, 1_000]));
        let until = self.now.after(time);
        while self.goes_on() && self.now < until {
            self.steps(BETWEEN_LOOKS);
            self.purge_what_nobody_needs(absent_after);
        }
    }

    /// Every member purges as far as its leader says that the ring does not need the log.
    fn purge_what_nobody_needs(&mut self, absent_after: Duration) {
        let past_regions = self.mutation == Some(Mutation::PurgePastRegions);
        let view = self.leading_view().map(|(_, view)| view);
        let own_majority = view.as_ref().and_then(majority_at_home);
        for process in self.slots.values().filter_map(Slot::process) {
            let (record, log) = (self.record.clone(), process.log().clone());
            process.spawn(move |member| async move {
                let floor = match past_regions {
                    true => own_majority,
                    false => {
                        let floor = member.purge_floor(absent_after).await;
                        floor.ok().and_then(|floor| floor.upto)
                    }
                };
                let Some(floor) = floor else { return };
                if let Some(upto) = last_file_before(&log, floor.index).await {
                    let outcome = member.purge(upto).await;
                    record.note(&format!(
                        "member {} purges up to {upto}: {outcome:?}",
                        member.id()
                    ));
                }
            });
        }
    }
}

/// What a majority of the leader's own region has.
fn majority_at_home(view: &RingView) -> Option<OpId> {
    let home = &view.member(view.own)?.record.region;
    let mut regions = region_watermarks(view).into_iter();
    regions.find(|region| region.region == *home)?.majority
}
