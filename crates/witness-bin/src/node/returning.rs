//! A member that comes back to its ring, and cuts its log back if the ring went on without its end: see
//! [`consensus::Returning`].

use std::sync::Arc;

use binlog_store::{BinlogStore, CutBackError, LogHandle};
use consensus::{MemberCalls, Recollection, Rejoin, Returning};
use raft_types::MemberId;

use super::ring_handle::now_in_seconds;

/// Comes back with a log: cuts it back if the ring went on without its end.
///
/// # Errors
/// When the log has to be cut back and cannot be.
pub(crate) async fn come_back(
    store: &mut BinlogStore,
    own: MemberId,
    calls: Arc<dyn MemberCalls>,
) -> Result<Returning, CutBackError> {
    let mut returning = returning(&store.handle(), own, calls.clone());
    let Rejoin::CutBack { to, ring_last } = returning.before_the_start().await else {
        return Ok(returning);
    };
    let reason = format!(
        "the quorum was repaired without this member; the ring goes on to {ring_last} without these entries"
    );
    let at = u64::from(now_in_seconds());
    let tail = store.cut_back(to, &reason, at).await?;
    let gtids = tail.map(|tail| tail.gtids).unwrap_or_default();
    tracing::warn!(?to, %ring_last, %gtids, "the log was cut back: {reason}; what was cut is kept in `trimmed`");
    Ok(self::returning(&store.handle(), own, calls))
}

/// What the log remembers, and whom to ask.
fn returning(log: &LogHandle, own: MemberId, calls: Arc<dyn MemberCalls>) -> Returning {
    let (committed, membership) = log.applied_at_open();
    let recollection = Recollection {
        runs: log.term_runs(),
        committed,
    };
    Returning::new(own, recollection, &membership, calls)
}
