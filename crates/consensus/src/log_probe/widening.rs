//! A request that begins where the logs part goes out with the rest of the own log: the engine would send
//! eight entries and wait. Its answer is cut back to what the engine asked.

use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use raft_types::{AppEntry, Entry, EntryPayload, LogId, MAX_MESSAGE_BYTES, OwnLog, TypeConfig};

/// How much entries that were not asked for may take in one request: what a follower lacks after a round
/// trip of 60 ms at 15,000 entries of 500 bytes a second.
pub(super) const UNASKED_BYTES: usize = MAX_MESSAGE_BYTES / 2;

/// The engine's own bound on the entries of a step of its search; more means that the search is over.
const ENTRIES_PER_STEP: usize = 8;

/// Up to where the engine asked, of a request that goes further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Widened {
    asked: LogId,
    sent: LogId,
}

impl Widened {
    /// The answer that the engine gets. `None` in the second place once the whole request is answered:
    /// it may have been cut into several, and the last answer is the one to its last entry.
    pub(super) fn cut_back(
        self,
        result: StreamAppendResult<TypeConfig>,
    ) -> (StreamAppendResult<TypeConfig>, Option<Self>) {
        match result {
            Ok(matching) => {
                let goes_on = matching < Some(self.sent);
                (Ok(matching.min(Some(self.asked))), goes_on.then_some(self))
            }
            Err(refused) => (Err(refused), None),
        }
    }
}

/// Adds to the request what the own log has behind it, within the bound.
pub(super) async fn widen(
    request: &mut AppendEntriesRequest<TypeConfig>,
    own: &dyn OwnLog,
) -> Option<Widened> {
    let asked = request.entries.last()?.log_id;
    let used: usize = request.entries.iter().map(bytes_of).sum();
    if request.entries.len() > ENTRIES_PER_STEP || used >= UNASKED_BYTES {
        return None;
    }
    // What cannot be read now is sent when the engine asks for it.
    let rest = own.entries(asked.index + 1..u64::MAX).await.ok()?;
    // Read first, then asked: a later leader's entries come after its vote.
    let still_ours = own.report().vote?.leader_id == request.vote.leader_id;
    let follows = rest
        .first()
        .is_some_and(|next| next.log_id.index == asked.index + 1);
    if !still_ours || !follows {
        return None;
    }
    request.entries.extend(within(rest, UNASKED_BYTES - used));
    let sent = request.entries.last()?.log_id;
    (sent > asked).then_some(Widened { asked, sent })
}

/// The first of the entries, as many as fit.
fn within(entries: Vec<Entry>, budget: usize) -> impl Iterator<Item = Entry> {
    let mut used = 0;
    entries.into_iter().take_while(move |entry| {
        used += bytes_of(entry);
        used <= budget
    })
}

/// About what an entry takes on the wire.
pub(super) fn bytes_of(entry: &Entry) -> usize {
    const OVERHEAD: usize = 64;
    let body = match &entry.payload {
        EntryPayload::Blank => 0,
        EntryPayload::Normal(AppEntry::Transaction(payload)) => payload.bytes().len(),
        EntryPayload::Normal(AppEntry::Rotate(rotate)) => rotate.format_description.len(),
        EntryPayload::Membership(payload) => payload.json().len(),
    };
    OVERHEAD + body
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openraft::raft::StreamAppendError;
    use raft_types::{OpId, TransactionPayload};

    use super::*;

    fn id(index: u64) -> LogId {
        OpId::new(1, index).into()
    }

    #[test]
    fn the_engine_gets_no_more_than_it_asked_in_however_many_answers() {
        let widened = Widened {
            asked: id(10),
            sent: id(20),
        };
        for (answered, handed_on, goes_on) in [
            (5, 5, true),
            (10, 10, true),
            (15, 10, true),
            (20, 10, false),
        ] {
            let (result, rest) = widened.cut_back(Ok(Some(id(answered))));
            assert_eq!(result, Ok(Some(id(handed_on))));
            assert_eq!(rest, goes_on.then_some(widened), "{answered}");
        }
        let refused = Err(StreamAppendError::Conflict(id(9)));
        assert_eq!(widened.cut_back(refused.clone()), (refused, None));
    }

    #[test]
    fn what_was_not_asked_for_stays_below_a_message() {
        let payload = |bytes| TransactionPayload::seal(Bytes::from(vec![0; bytes]));
        let entry = |index| Entry {
            log_id: id(index),
            payload: EntryPayload::Normal(AppEntry::Transaction(payload(100 << 10))),
        };
        let fitting: Vec<_> = within((0..20).map(entry).collect(), UNASKED_BYTES).collect();
        assert_eq!(fitting.len(), 5);
        assert_eq!(within(vec![entry(0)], 100 << 10).count(), 0);
    }
}
