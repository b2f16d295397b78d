//! A switchover that an operator scheduled for a time. The membership stores it in the record of its target, so the leader at that time
//! executes it. It is retried for [`TRIED_FOR`], and then abandoned. The ring's history records the outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::{HistoryEvent, MoveError, Named, RingView};
use raft_types::{MemberId, MemberKind, MemberRecord, OpId, UnixSeconds};
use serde::{Deserialize, Serialize};

use crate::administration::Administration;
use crate::member::Member;
use crate::members::{self, ReconfigurationError, Reconfigured};
use crate::pause;

/// A scheduled switchover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledSwitchover {
    /// The member that is to lead.
    pub to: MemberId,
    /// The earliest time of the switchover, on the clock of the leader at that time.
    pub at: UnixSeconds,
    /// The operator who scheduled it.
    pub by: String,
}

/// The key of the switchover in the target's record.
const NAME: &str = "switchover";

/// The value in a member's record. This member is the target.
#[derive(Serialize, Deserialize)]
struct Mark {
    at: UnixSeconds,
    #[serde(default)]
    by: String,
}

/// How long a switchover is retried after its scheduled time.
pub(crate) const TRIED_FOR: Duration = Duration::from_secs(60);

/// The state of a scheduled switchover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwitchoverPhase {
    /// The scheduled time is in the future.
    ToCome,
    /// The switchover must be executed now.
    Due,
    /// The switchover has expired, or its target leads. It must be removed.
    Over,
}

impl ScheduledSwitchover {
    /// Returns the scheduled switchover of a ring, if any.
    pub fn of(view: &RingView) -> Option<Self> {
        let marked = |id: MemberId, record: &MemberRecord| {
            let mark: Mark = serde_json::from_value(record.extras.get(NAME)?.clone()).ok()?;
            let Mark { at, by } = mark;
            Some(Self { to: id, at, by })
        };
        let mut members = view.members.iter();
        members.find_map(|peer| marked(peer.id, &peer.record))
    }

    /// Returns the state of the switchover, as the leader of this view sees it.
    pub(crate) fn turn(&self, view: &RingView, now: UnixSeconds) -> SwitchoverPhase {
        match () {
            () if now < self.at => SwitchoverPhase::ToCome,
            () if view.own != self.to && self.at.age(now) < TRIED_FOR => SwitchoverPhase::Due,
            () => SwitchoverPhase::Over,
        }
    }
}

fn mark(members: &mut BTreeMap<MemberId, MemberRecord>, scheduled: Option<&ScheduledSwitchover>) {
    for (id, record) in members {
        match scheduled.filter(|scheduled| scheduled.to == *id) {
            Some(ScheduledSwitchover { at, by, .. }) => {
                record
                    .extras
                    .set(NAME, serde_json::json!({ "at": at, "by": by }));
            }
            None if record.extras.get(NAME).is_some() => record.extras.remove(NAME),
            None => {}
        }
    }
}

/// Checks that a switchover to `to` can be scheduled for the time `at`.
fn check(view: &RingView, to: MemberId, at: UnixSeconds, now: UnixSeconds) -> Reconfigured<Named> {
    let target = view
        .member(to)
        .ok_or(ReconfigurationError::NoSuchMember(to))?;
    if target.record.kind == MemberKind::Witness || !target.record.votes {
        return Err(ReconfigurationError::CannotLead(to));
    }
    if at <= now {
        return Err(ReconfigurationError::TimeIsOver);
    }
    Ok(Named::of(to, &target.record))
}

impl Member {
    /// Schedules a switchover to a database member. If another switchover is scheduled, it is replaced. The change is committed when this
    /// returns.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn schedule_switchover(&self, scheduled: &ScheduledSwitchover) -> Reconfigured<OpId> {
        let now = pause::now();
        members::change(self.admin(), &scheduled.by, |view, members| {
            let to = check(view, scheduled.to, scheduled.at, now)?;
            mark(members, Some(scheduled));
            let at = scheduled.at;
            Ok((view.voter_sets.clone(), HistoryEvent::Scheduled { to, at }))
        })
        .await
    }

    /// Cancels the scheduled switchover, and returns it. The change is committed when this returns.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn cancel_switchover(&self, by: &str) -> Reconfigured<(ScheduledSwitchover, OpId)> {
        let mut cancelled = None;
        let entry = members::change(self.admin(), by, |view, members| {
            let scheduled = ScheduledSwitchover::of(view);
            let scheduled = scheduled.ok_or(ReconfigurationError::NothingScheduled)?;
            mark(members, None);
            cancelled = Some(scheduled);
            let event = HistoryEvent::Unscheduled { why: String::new() };
            Ok((view.voter_sets.clone(), event))
        })
        .await?;
        let cancelled = cancelled.ok_or(ReconfigurationError::Busy)?;
        Ok((cancelled, entry))
    }
}

/// Removes a switchover that is complete or was abandoned. `why` is the reason if it was abandoned. The caller holds the reconfiguration
/// lock.
pub(crate) async fn take_out(
    admin: &Administration,
    why: Option<String>,
) -> Result<OpId, MoveError> {
    let event = why.map(|why| HistoryEvent::Unscheduled { why });
    let entries: Vec<_> = event
        .map(|event| admin.entry_now("", event))
        .into_iter()
        .collect();
    admin
        .change_records(&entries, |members| mark(members, None))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ring::Ring;

    const NOON: UnixSeconds = UnixSeconds(43_200);

    fn at(seconds: u64) -> UnixSeconds {
        UnixSeconds(NOON.0 + seconds)
    }

    fn scheduled(to: u64) -> ScheduledSwitchover {
        ScheduledSwitchover {
            to: MemberId(to),
            at: NOON,
            by: "anna".to_owned(),
        }
    }

    fn records(view: &RingView) -> BTreeMap<MemberId, MemberRecord> {
        let members = view.members.iter();
        members.map(|peer| (peer.id, peer.record.clone())).collect()
    }

    #[test]
    fn only_the_targets_record_stores_the_switchover() {
        let ring = Ring::new("a: 1d 2w 3d").with_sets(&[&[1, 2, 3]]);
        let mut members = records(&ring.view());
        mark(&mut members, Some(&scheduled(3)));
        mark(&mut members, Some(&scheduled(1)));
        let json = serde_json::to_string(&members).unwrap();
        let members: BTreeMap<MemberId, MemberRecord> = serde_json::from_str(&json).unwrap();
        let marked = members.iter().fold(ring.clone(), |ring, (id, record)| {
            ring.with(id.0, |peer| peer.record = record.clone())
        });
        assert_eq!(ScheduledSwitchover::of(&marked.view()), Some(scheduled(1)));
        let mut members = members;
        mark(&mut members, None);
        assert!(
            members
                .values()
                .all(|record| record.extras.get(NAME).is_none())
        );
        assert_eq!(ScheduledSwitchover::of(&ring.view()), None);
    }

    #[test]
    fn a_switchover_is_due_for_a_minute_until_the_target_leads() {
        let ring = Ring::new("a: 1d 2w 3d").with_sets(&[&[1, 2, 3]]);
        let (one, three) = (ring.view(), ring.led_by(3).view());
        let table = [
            (&one, UnixSeconds(NOON.0 - 1), SwitchoverPhase::ToCome),
            (&one, NOON, SwitchoverPhase::Due),
            (&one, at(59), SwitchoverPhase::Due),
            (&one, at(60), SwitchoverPhase::Over),
            (&three, UnixSeconds(NOON.0 - 1), SwitchoverPhase::ToCome),
            (&three, NOON, SwitchoverPhase::Over),
        ];
        for (view, now, turn) in table {
            assert_eq!(scheduled(3).turn(view, now), turn, "{now}");
        }
    }

    #[test]
    fn targets_must_be_able_to_lead_and_times_in_the_future() {
        let view = Ring::new("a: 1d 2w 3d").with_sets(&[&[1, 2, 3]]).view();
        let refusal =
            |to, time| check(&view, MemberId(to), time, NOON).map_err(|error| error.to_string());
        assert_eq!(refusal(3, at(1)).unwrap().id, MemberId(3));
        assert!(
            refusal(2, at(1))
                .unwrap_err()
                .contains("cannot be the primary")
        );
        assert!(refusal(7, at(1)).unwrap_err().contains("no member 7"));
        assert!(refusal(3, NOON).unwrap_err().contains("is over"));
    }
}
