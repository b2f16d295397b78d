//! Pausing and resuming failover. The membership stores a pause in the record of the member with the primary mysqld. During a pause, the
//! ring still elects leaders, so that it can record commits and accept orders. But a leader other than that member only maintains the
//! ring ([`RingView::pins_another_primary_than`]): its mysqld stays closed, and it transfers the leadership back as soon as that member
//! can be the primary. Only the leader ends an expired pause.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consensus::{HistoryEvent, MoveError, Named, RingPause, RingView};
use raft_types::{MemberId, MemberKind, OpId, Pause, UnixSeconds};
use serde::{Deserialize, Serialize};

use crate::administration::Administration;
use crate::member::Member;
use crate::members::{ReconfigurationError, Reconfigured, leading_view};

/// An operator's pause request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseRequest {
    /// Duration in seconds; `None`: until resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
    /// The operator who gave the order, for `witness status`.
    pub by: String,
    /// Free text for other operators, shown by `witness status`; may be empty.
    #[serde(default)]
    pub reason: String,
}

/// Returns the current time on this machine's clock.
pub(crate) fn now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    UnixSeconds(since.unwrap_or_default().as_secs())
}

/// Returns the pause that results from a request and the current pause.
fn pause_to_be(
    view: &RingView,
    request: &PauseRequest,
    now: UnixSeconds,
) -> Reconfigured<RingPause> {
    for (what, text) in [("the reason", &request.reason), ("the name", &request.by)] {
        if text.len() > Pause::MOST_TEXT_BYTES {
            return Err(ReconfigurationError::TooLong {
                what,
                bytes: text.len(),
            });
        }
    }
    let peer = view.pause();
    let leads_as = view.member(view.own).map(|own| own.record.kind);
    let primary = match &peer {
        Some(peer) => peer.primary,
        None if leads_as == Some(MemberKind::Database) => view.own,
        None => return Err(ReconfigurationError::NoPrimary(view.own)),
    };
    let seconds = request.for_seconds.map(Duration::from_secs);
    Ok(RingPause {
        primary,
        pause: Pause {
            since: peer.map_or(now, |peer| peer.pause.since),
            until: seconds.map(|span| now.after(span)),
            by: request.by.clone(),
            reason: request.reason.clone(),
        },
    })
}

impl Member {
    /// Pauses failover, or changes the duration and the reason of the current pause. During a pause, no member becomes the
    /// primary without an order, except the primary at its start. The change is committed when this returns.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn pause(&self, request: &PauseRequest) -> Reconfigured<(RingPause, OpId)> {
        let admin = self.admin();
        let _lock = admin.lock().await.ok_or(ReconfigurationError::Busy)?;
        let view = leading_view(admin)?;
        let paused = pause_to_be(&view, request, now())?;
        let op_id = write(admin, Some(&paused), &paused.pause.by).await?;
        Ok((paused, op_id))
    }

    /// Ends the pause of failover, and returns that pause. The change is committed when this returns.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn resume(&self, by: &str) -> Reconfigured<(RingPause, OpId)> {
        let admin = self.admin();
        let _lock = admin.lock().await.ok_or(ReconfigurationError::Busy)?;
        let view = leading_view(admin)?;
        let paused = view.pause().ok_or(ReconfigurationError::NotPaused)?;
        let op_id = write(admin, None, by).await?;
        Ok((paused, op_id))
    }
}

/// Reserves the primary's place for `primary`. The caller holds the reconfiguration lock.
pub(crate) async fn keep_for(
    admin: &Administration,
    paused: &RingPause,
    primary: MemberId,
) -> Result<OpId, MoveError> {
    let pause = paused.pause.clone();
    write(admin, Some(&RingPause { primary, pause }), "").await
}

/// Replaces the pause in the membership with `paused`, or removes it, as the leader in the current term. `by` is empty without an order.
/// The caller holds the reconfiguration lock.
pub(crate) async fn write(
    admin: &Administration,
    paused: Option<&RingPause>,
    by: &str,
) -> Result<OpId, MoveError> {
    let event = match paused {
        None => HistoryEvent::Resumed,
        Some(RingPause { primary, pause }) => HistoryEvent::Paused {
            primary: {
                let role = admin.node.role();
                let record = role.membership.get_node(primary);
                let name = record.map_or_else(String::new, |record| record.name.clone());
                Named { id: *primary, name }
            },
            until: pause.until,
            reason: pause.reason.clone(),
        },
    };
    let entries = [admin.entry_now(by, event)];
    let change = admin.change_records(&entries, |members| {
        for (id, record) in members {
            let own = paused.filter(|paused| paused.primary == *id);
            record.pause = own.map(|paused| Box::new(paused.pause.clone()));
        }
    });
    let op_id = change.await?;
    match paused {
        Some(paused) => tracing::info!(
            primary = %paused.primary,
            by = %paused.pause.by,
            reason = %paused.pause.reason,
            "failover is paused"
        ),
        None => tracing::info!("failover is no longer paused"),
    }
    Ok(op_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ring::Ring;

    const NOW: UnixSeconds = UnixSeconds(1_000);

    fn request(for_seconds: Option<u64>, reason: &str) -> PauseRequest {
        PauseRequest {
            for_seconds,
            by: "anna".to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn the_place_is_reserved_for_the_leader_at_the_start() {
        let ring = Ring::new("a: 1d 2w 3d").with_sets(&[&[1, 2, 3]]);
        let first = pause_to_be(&ring.view(), &request(Some(60), "work"), NOW).unwrap();
        assert_eq!(first.primary, MemberId(1));
        assert_eq!(first.pause.until, Some(UnixSeconds(1_060)));
        // A second request changes only the end and the reason. The place stays reserved for the same member, whichever member leads.
        let paused = ring.with(1, |peer| {
            peer.record.pause = Some(Box::new(first.pause.clone()))
        });
        let later = UnixSeconds(1_030);
        for leader in [1, 2, 3] {
            let view = paused.clone().led_by(leader).view();
            let again = pause_to_be(&view, &request(None, ""), later).unwrap();
            let (since, until) = (again.pause.since, again.pause.until);
            assert_eq!((again.primary, since, until), (MemberId(1), NOW, None));
            assert_eq!(
                view.pins_another_primary_than(MemberId(leader)),
                leader != 1
            );
        }
        let witness = ring.led_by(2).view();
        assert_eq!(
            pause_to_be(&witness, &request(None, ""), NOW),
            Err(ReconfigurationError::NoPrimary(MemberId(2)))
        );
        assert!(!witness.pins_another_primary_than(MemberId(2)));
    }

    #[test]
    fn texts_are_bounded() {
        let ring = Ring::new("a: 1d 2w 3w").view();
        let longest = "x".repeat(Pause::MOST_TEXT_BYTES);
        assert!(pause_to_be(&ring, &request(None, &longest), NOW).is_ok());
        let error = pause_to_be(&ring, &request(None, &(longest + "x")), NOW).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the reason has 513 bytes; write 512 at most"
        );
    }

    #[test]
    fn only_its_time_ends_it() {
        let pause = |until| Pause {
            since: NOW,
            until,
            by: String::new(),
            reason: String::new(),
        };
        assert!(!pause(None).is_over(UnixSeconds(u64::MAX)));
        assert!(!pause(Some(UnixSeconds(1_001))).is_over(NOW));
        assert!(pause(Some(NOW)).is_over(NOW));
    }
}
