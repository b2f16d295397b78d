//! The safety properties of every state, and the reachability properties.

use std::collections::BTreeSet;

use stateright::Property;

use crate::explored::RingModel;
use crate::ring::{Member, Ring};
use crate::scope::Scope;

/// Returns the properties that apply to rings within `scope`.
pub(crate) fn of(scope: &Scope) -> Vec<Property<RingModel>> {
    let mut properties = safe();
    properties.push(Property::sometimes(
        "a later leader commits",
        |_, ring: &Ring| ring.committed.last().is_some_and(|entry| entry.term > 2),
    ));
    if scope.lease > 0 {
        properties.push(Property::sometimes(
            "a member serves",
            |model: &RingModel, ring: &Ring| {
                let mut members = ring.members.iter().enumerate();
                members.any(|(id, member)| model.serves(id, member))
            },
        ));
    }
    if scope.plans > 0 {
        properties.push(Property::sometimes(
            "a repaired ring commits with one that was given up",
            |model: &RingModel, ring: &Ring| {
                let repaired = ring.repairs.last().is_some_and(|repair| {
                    let mut entries = ring.committed.iter();
                    entries.any(|entry| entry.term > *repair)
                });
                let has_all = |member: &&Member| member.log.starts_with(&ring.committed);
                repaired
                    && ring.members.iter().filter(has_all).count() == model.first_members().len()
            },
        ));
    }
    if scope.spares > 0 && scope.changes > 0 && scope.moves > 0 {
        properties.push(Property::sometimes(
            "a member that joined has a vote",
            |model: &RingModel, ring: &Ring| {
                let first_members = model.first_members();
                let mut sets = ring.members.iter().flat_map(Member::voters);
                sets.any(|set| set.ids().any(|id| !first_members.has(id)))
            },
        ));
    }
    properties
}

/// Returns the safety properties, which each state must have.
fn safe() -> Vec<Property<RingModel>> {
    vec![
        Property::always("one leader per term", |_, ring: &Ring| {
            let mut terms = BTreeSet::new();
            let mut leaders = ring.members.iter().filter(|one| one.leads().is_some());
            leaders.all(|leader| terms.insert(leader.term))
        }),
        Property::always("a committed entry never changes", |_, ring: &Ring| {
            !ring.contradicted
        }),
        Property::always(
            "what is committed and not accepted as lost stays",
            |_, ring: &Ring| !ring.lost,
        ),
        Property::always("a leader has all committed entries", |_, ring: &Ring| {
            // A leader of an older term may not know yet that it was replaced. No member accepts its messages, so only the latest leader is
            // checked.
            let leaders = ring.members.iter().filter(|one| one.leads().is_some());
            let latest = leaders.max_by_key(|leader| leader.term);
            let made = ring.committed.last().map_or(0, |entry| entry.term);
            latest
                .is_none_or(|leader| leader.term < made || leader.log.starts_with(&ring.committed))
        }),
        Property::always("logs match", |_, ring: &Ring| {
            let logs = ring.members.iter().map(|member| member.log.as_slice());
            let logs: Vec<_> = logs.collect();
            let mut pairs = logs.iter().enumerate().flat_map(|(at, one)| {
                let others = logs[at + 1..].iter();
                others.map(move |other| one.iter().zip(*other))
            });
            pairs.all(|pair| {
                let mut later = pair.skip_while(|(one, other)| one == other);
                later.all(|(one, other)| one.term != other.term)
            })
        }),
        Property::always("nothing stale is served", |model, ring: &Ring| {
            let mut serving =
                (ring.members.iter().enumerate()).filter(|(id, member)| model.serves(*id, member));
            serving.all(|(_, member)| member.commit as usize >= ring.committed.len())
        }),
    ]
}
