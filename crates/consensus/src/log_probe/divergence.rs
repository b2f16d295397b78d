//! Detects a leader that names another entry where this member's log is committed: up to its commit mark, and up to a membership with
//! a later membership, which proves the same, perhaps before the mark does. Only one cause is possible: an operator
//! repaired a lost quorum without this member. The engine would silently keep both, because it never compares
//! committed entries. So the member stops and reports it. When it is restarted, it truncates its log (`rejoin`).

use openraft::raft::AppendEntriesRequest;
use raft_types::{OpId, TypeConfig};

use crate::engine::handle::EngineHandle;
use crate::engine::{Fault, RoleSnapshot};

/// Two entries of one index, both committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contradiction {
    ours: OpId,
    theirs: OpId,
}

/// The entries up to this index that a request names.
fn named(request: &AppendEntriesRequest<TypeConfig>, up_to: u64) -> Vec<OpId> {
    let previous = request.prev_log_id.into_iter();
    let entries = request.entries.iter().map(|entry| entry.log_id);
    let op_ids = previous.chain(entries).map(OpId::from);
    op_ids.take_while(|op_id| op_id.index <= up_to).collect()
}

fn find(named: &[OpId], op_id_at: impl Fn(u64) -> Option<OpId>) -> Option<Contradiction> {
    named.iter().find_map(|theirs| {
        // Purged entries can no longer be compared.
        let ours = op_id_at(theirs.index)?;
        (ours != *theirs).then_some(Contradiction {
            ours,
            theirs: *theirs,
        })
    })
}

/// Accepts a leader's request that agrees with what is committed here; `role` is the current one. Free for nearly every request:
/// one that continues at the log's end.
///
/// # Errors
/// [`Fault::Contradicted`]; the engine is stopped then.
pub(crate) async fn refuse_divergence(
    engine: &EngineHandle,
    role: &RoleSnapshot,
    request: &AppendEntriesRequest<TypeConfig>,
) -> Result<(), Fault> {
    let mark = engine.mark.get().map(|committed| committed.index);
    // The membership before this one is committed, because this one follows it.
    let membership = role.membership.log_id().map(|last| last.index);
    let Some(up_to) = mark.max(membership) else {
        return Ok(());
    };
    let goes_on = request
        .prev_log_id
        .is_some_and(|previous| previous.index > up_to);
    if goes_on {
        return Ok(());
    }
    let (vote, mut named) = (request.vote, named(request, up_to));
    let found = engine.raft.with_raft_state(move |state| {
        // A deposed leader may name anything; the engine rejects it.
        let is_leader = vote >= *state.vote_ref();
        let settled = state
            .membership_state
            .committed()
            .log_id()
            .map(|last| last.index);
        named.retain(|op_id| Some(op_id.index) <= mark.max(settled));
        let found = find(&named, |index| state.log_ids.get(index).map(OpId::from));
        found.filter(|_| is_leader)
    });
    let Some(Contradiction { ours, theirs }) = found.await? else {
        return Ok(());
    };
    let fault = Fault::Contradicted { ours, theirs };
    tracing::error!(%fault, "the log contradicts the ring's");
    // The first reason stays.
    let _ = engine.failed.set(fault.clone());
    // Its task ends, which `fault` reports.
    let _ = engine.raft.shutdown().await;
    Err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_entry_at_the_same_index_contradicts() {
        let own = |index| match index {
            0..=4 => None,
            5..=10 => Some(OpId::new(1, index)),
            11..=20 => Some(OpId::new(3, index)),
            _ => None,
        };
        let find = |named: &[(u64, u64)]| {
            let named: Vec<OpId> = named
                .iter()
                .map(|(term, index)| OpId::new(*term, *index))
                .collect();
            find(&named, own)
        };
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[(1, 8), (1, 9), (1, 10), (3, 11)]), None);
        assert_eq!(find(&[(7, 3)]), None);
        let contradiction = Contradiction {
            ours: OpId::new(3, 12),
            theirs: OpId::new(1003, 12),
        };
        assert_eq!(
            find(&[(3, 11), (1003, 12), (1003, 13)]),
            Some(contradiction)
        );
    }
}
