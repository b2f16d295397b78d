//! A ring with one log in memory, which commits when the test requests it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use applier::source::{Drained, Source, SourceError};
use binlog_format::canonical::CanonicalEvents;
use binlog_format::event::EventType;
use binlog_format::events::{FormatDescription, GtidEvent};
use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::{Gtid, GtidSet};
use mysqld_controller::{CommittedLog, CurrentFile, Ring, RingChanges, RingError, RingLog};
use raft_types::{AppEntry, MemberId, OpId, Outcome, ProposalSequence, Term, Ticket, Unknown};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

pub(crate) struct MemoryRing {
    state: Mutex<State>,
    committed: watch::Sender<Option<OpId>>,
    leadership: watch::Sender<Leadership>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Leadership {
    Serving(Term),
    /// The member leads, but no quorum answers.
    Silent(Term),
    Over,
    /// Another database member leads.
    Elsewhere(MemberId),
}

struct State {
    log: RingLog,
    entries: Vec<AppEntry>,
    file: CurrentFile,
    /// Tickets of entries that are not committed, by index.
    waiting: BTreeMap<u64, oneshot::Sender<Outcome>>,
    /// If true, each entry is committed as soon as it is proposed.
    commits_at_once: bool,
}

pub(crate) struct MemoryTicket {
    answer: oneshot::Receiver<Outcome>,
    known: Option<Outcome>,
}

impl Ticket for MemoryTicket {
    fn resolved_now(&mut self) -> Option<Outcome> {
        if self.known.is_none() {
            self.known = self.answer.try_recv().ok();
        }
        self.known
    }

    async fn outcome(&mut self) -> Outcome {
        if let Some(outcome) = self.resolved_now() {
            return outcome;
        }
        let outcome = (&mut self.answer)
            .await
            .unwrap_or(Outcome::Unknown(Unknown::EngineStopped));
        self.known = Some(outcome);
        outcome
    }
}

const SIZE_OF_AN_ENTRY: u64 = 100;

impl MemoryRing {
    pub(crate) fn new() -> Arc<Self> {
        let file = CurrentFile {
            size: 0,
            begun: 0,
            format_description: FormatDescription::built_in_event().into(),
        };
        Arc::new(Self {
            state: Mutex::new(State {
                log: RingLog::default(),
                entries: Vec::new(),
                file,
                waiting: BTreeMap::new(),
                commits_at_once: true,
            }),
            committed: watch::channel(None).0,
            leadership: watch::channel(Leadership::Over).0,
        })
    }

    pub(crate) fn set_leadership(&self, leadership: Leadership) {
        self.leadership.send_replace(leadership);
        if matches!(leadership, Leadership::Over | Leadership::Elsewhere(_)) {
            let waiting = std::mem::take(&mut self.state.lock().unwrap().waiting);
            for (_, waiting) in waiting {
                let _ = waiting.send(Outcome::Unknown(Unknown::LeadershipLost));
            }
        }
    }

    /// Sets whether entries commit immediately, including those that wait now, or wait for [`Self::commit_up_to`].
    pub(crate) fn set_commits_at_once(&self, at_once: bool) {
        self.state.lock().unwrap().commits_at_once = at_once;
        if at_once {
            self.commit_up_to(u64::MAX);
        }
    }

    /// Commits everything up to an index.
    pub(crate) fn commit_up_to(&self, index: u64) {
        let mut state = self.state.lock().unwrap();
        let Some(end) = state.log.end else { return };
        let up_to = OpId::new(end.term, end.index.min(index));
        let still_waiting = state.waiting.split_off(&(up_to.index + 1));
        let released = std::mem::replace(&mut state.waiting, still_waiting);
        self.committed.send_replace(Some(up_to));
        for (index, waiting) in released {
            let _ = waiting.send(Outcome::Committed(OpId::new(end.term, index)));
        }
    }

    /// Removes an entry from the log, so that a test can create a gap.
    pub(crate) fn forget(&self, gtid: &Gtid) {
        let mut state = self.state.lock().unwrap();
        assert!(state.log.gtids.remove(gtid));
        state
            .entries
            .retain(|entry| gtid_of(entry).as_ref() != Some(gtid));
    }

    /// Makes another member lead, whose log ends with the committed part.
    pub(crate) fn lose_uncommitted(&self) {
        self.set_leadership(Leadership::Elsewhere(MemberId(9)));
        let mut state = self.state.lock().unwrap();
        let kept = self.committed.borrow().map_or(0, |mark| mark.index + 1);
        let kept = usize::try_from(kept).unwrap();
        for gtid in state.entries.split_off(kept).iter().filter_map(gtid_of) {
            state.log.gtids.remove(&gtid);
        }
        state.log.end = *self.committed.borrow();
    }

    /// Adds transactions to the log that came from no primary.
    pub(crate) fn invent(&self, gtids: &str) {
        let mut state = self.state.lock().unwrap();
        let more = gtids.parse().unwrap();
        state.log.gtids.union_with(&more);
    }

    pub(crate) fn gtids(&self) -> String {
        self.state.lock().unwrap().log.gtids.to_string()
    }

    pub(crate) fn last_index(&self) -> Option<u64> {
        self.state.lock().unwrap().log.end.map(|end| end.index)
    }

    pub(crate) fn entries(&self) -> Vec<AppEntry> {
        self.state.lock().unwrap().entries.clone()
    }

    /// Returns the GTIDs in the log, in its order.
    pub(crate) fn sequence(&self) -> Vec<Gtid> {
        self.entries().iter().filter_map(gtid_of).collect()
    }

    pub(crate) fn rotations(&self) -> usize {
        self.entries()
            .iter()
            .filter(|entry| matches!(entry, AppEntry::Rotate(_)))
            .count()
    }

    /// The sequence numbers of the transactions in each file of the log.
    pub(crate) fn sequence_numbers(&self) -> Vec<Vec<i64>> {
        sequence_numbers(&self.entries())
    }
}

pub(crate) fn gtid_of(entry: &AppEntry) -> Option<Gtid> {
    identified(entry).map(|(gtid, _)| gtid)
}

fn sequence_numbers(entries: &[AppEntry]) -> Vec<Vec<i64>> {
    let files = entries.split(|entry| matches!(entry, AppEntry::Rotate(_)));
    let numbers = |file: &[AppEntry]| {
        file.iter()
            .filter_map(identified)
            .map(|(_, number)| number)
            .collect()
    };
    files.map(numbers).collect()
}

/// GTID and sequence number of a transaction.
fn identified(entry: &AppEntry) -> Option<(Gtid, i64)> {
    let AppEntry::Transaction(payload) = entry else {
        return None;
    };
    let first = CanonicalEvents::new(payload.bytes().clone())
        .next()
        .unwrap()
        .unwrap();
    assert!(matches!(
        first.event_type(),
        EventType::Gtid | EventType::GtidTagged
    ));
    let event = GtidEvent::decode(first.canonical()).unwrap();
    Some((event.gtid, event.clock.sequence_number))
}

/// The log of a ring that no server follows: it has no transactions.
pub(crate) struct NoLog;

impl Source for NoLog {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        std::future::pending().await
    }

    fn drained(&self) -> Drained {
        let drained = Drained::default();
        drained.set(true);
        drained
    }
}

impl CommittedLog for MemoryRing {
    type Source = NoLog;

    fn committed_log(&self, _have: GtidSet, _max_transaction_bytes: u64) -> NoLog {
        NoLog
    }
}

impl Ring for MemoryRing {
    type Ticket = MemoryTicket;

    fn serving_term(&self) -> Option<Term> {
        match *self.leadership.borrow() {
            Leadership::Serving(term) => Some(term),
            Leadership::Silent(_) | Leadership::Over | Leadership::Elsewhere(_) => None,
        }
    }

    fn lease_end(&self) -> Option<Instant> {
        None
    }

    async fn serves(&self) -> Term {
        let mut leadership = self.leadership.subscribe();
        let serving = leadership
            .wait_for(|now| matches!(now, Leadership::Serving(_)))
            .await;
        match serving.map(|now| *now) {
            Ok(Leadership::Serving(term)) => term,
            _ => std::future::pending().await,
        }
    }

    async fn leadership_over(&self, term: Term) {
        let mut leadership = self.leadership.subscribe();
        let leads = |now: &Leadership| matches!(now, Leadership::Serving(now) | Leadership::Silent(now) if *now == term);
        let _ = leadership.wait_for(|now| !leads(now)).await;
    }

    fn primary_elsewhere(&self) -> Option<MemberId> {
        match *self.leadership.borrow() {
            Leadership::Elsewhere(member) => Some(member),
            _ => None,
        }
    }

    fn others_may_be_primary(&self) -> bool {
        true
    }

    fn changes(&self) -> RingChanges {
        RingChanges::of(self.leadership.subscribe())
    }

    async fn log(&self) -> Result<RingLog, RingError> {
        let state = self.state.lock().unwrap();
        let last_file = sequence_numbers(&state.entries).pop();
        Ok(RingLog {
            sequence_number: last_file.and_then(|file| file.last().copied()).unwrap_or(0),
            ..state.log.clone()
        })
    }

    fn current_file(&self) -> CurrentFile {
        self.state.lock().unwrap().file.clone()
    }

    fn committed(&self) -> watch::Receiver<Option<OpId>> {
        self.committed.subscribe()
    }

    async fn settled(&self) -> Result<GtidSet, RingError> {
        let mut leadership = self.leadership.subscribe();
        let decided =
            |now: &Leadership| matches!(now, Leadership::Serving(_) | Leadership::Elsewhere(_));
        let _ = leadership.wait_for(decided).await;
        let state = self.state.lock().unwrap();
        let committed = *self.committed.borrow();
        let mut gtids = state.log.gtids.clone();
        for (index, entry) in state.entries.iter().enumerate() {
            let uncommitted = committed.is_none_or(|mark| index as u64 > mark.index);
            if let Some(gtid) = gtid_of(entry).filter(|_| uncommitted) {
                gtids.remove(&gtid);
            }
        }
        Ok(gtids)
    }

    async fn propose(
        &self,
        entry: AppEntry,
        term: Term,
        _: &ProposalSequence,
    ) -> Result<MemoryTicket, RingError> {
        let (send, answer) = oneshot::channel();
        let at_once = {
            let mut state = self.state.lock().unwrap();
            let index = state.log.end.map_or(0, |end| end.index + 1);
            if let Some(gtid) = gtid_of(&entry) {
                assert!(state.log.gtids.add(gtid), "{gtid} was proposed twice");
                state.file.size += SIZE_OF_AN_ENTRY;
            }
            if let AppEntry::Rotate(rotate) = &entry {
                state.file = CurrentFile {
                    size: 0,
                    begun: rotate.timestamp,
                    format_description: rotate.format_description.clone(),
                };
            }
            state.log.end = Some(OpId::new(term.0, index));
            state.entries.push(entry);
            state.waiting.insert(index, send);
            state.commits_at_once
        };
        if at_once {
            self.commit_up_to(u64::MAX);
        }
        Ok(MemoryTicket {
            answer,
            known: None,
        })
    }
}
