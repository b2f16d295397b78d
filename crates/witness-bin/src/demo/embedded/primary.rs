//! The database of the embedded demonstration: takes transactions of many clients in, gives each its
//! place and its GTID, and answers a client when the ring has committed. What a change of leaders left
//! open is looked up in the ring's log and proposed again if it is not there, in the same order: none
//! twice, none lost. This is what the ingest does beside a real mysqld.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use binlog_format::gtid::{Gtid, GtidSet, SourceId};
use binlog_format::synthesis::SynthesisError;
use consensus::{Leadership, Outcome, ProposalTicket, Term};
use member::RingHandle;
use raft_types::AppEntry;
use tokio::sync::{mpsc, oneshot, watch};

use super::bank::{Bank, Transaction, Transfer};

/// How many transactions may wait for the ring.
const IN_FLIGHT: usize = 256;

/// Every GTID whose client was answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledged(Arc<Mutex<GtidSet>>);

impl Acknowledged {
    /// The set now.
    pub(crate) fn set(&self) -> GtidSet {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn add(&self, gtid: Gtid) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(gtid);
    }
}

/// A client's way to the database.
#[derive(Debug, Clone)]
pub(crate) struct Client(mpsc::Sender<Request>);

#[derive(Debug)]
struct Request {
    transfer: Transfer,
    done: oneshot::Sender<()>,
}

impl Client {
    /// Commits a transfer; `None` when the database is closed.
    pub(crate) async fn commit(&self, transfer: Transfer) -> Option<()> {
        let (done, answered) = oneshot::channel();
        self.0.send(Request { transfer, done }).await.ok()?;
        answered.await.ok()
    }
}

/// The database itself.
pub(crate) struct Primary {
    bank: Bank,
    requests: mpsc::Receiver<Request>,
    ring: watch::Receiver<Option<RingHandle>>,
    acknowledged: Acknowledged,
    /// Not answered yet, in the order of the log.
    open: VecDeque<Open>,
}

struct Open {
    transaction: Transaction,
    done: Option<oneshot::Sender<()>>,
    ticket: Option<ProposalTicket>,
}

/// Why one leadership's work ended.
enum End {
    LeadershipLost,
    ClientsGone,
}

impl Primary {
    /// A database over the ring as `ring` shows it, and the way to it.
    pub(crate) fn new(
        source: SourceId,
        ring: watch::Receiver<Option<RingHandle>>,
    ) -> (Self, Client, Acknowledged) {
        let (sender, requests) = mpsc::channel(IN_FLIGHT);
        let acknowledged = Acknowledged::default();
        let primary = Self {
            bank: Bank::new(source),
            requests,
            ring,
            acknowledged: acknowledged.clone(),
            open: VecDeque::new(),
        };
        (primary, Client(sender), acknowledged)
    }

    /// Works until every client has gone and everything is answered.
    pub(crate) async fn run(mut self) -> Result<(), SynthesisError> {
        for transaction in self.bank.opening()? {
            self.open.push_back(Open {
                transaction,
                done: None,
                ticket: None,
            });
        }
        while let Some((ring, term)) = self.leadership().await {
            self.forget_what_is_logged(&ring);
            match self.serve(&ring, term).await? {
                End::LeadershipLost => {}
                End::ClientsGone => return Ok(()),
            }
        }
        Ok(())
    }

    /// Waits until the member beside this database serves as the leader.
    async fn leadership(&mut self) -> Option<(RingHandle, Term)> {
        loop {
            let ring = self.ring.wait_for(Option::is_some).await.ok()?.clone()?;
            let mut leadership = ring.member.leadership();
            let serves = |now: &Leadership| now.serving_term().is_some();
            tokio::select! {
                serving = leadership.wait_for(serves) => {
                    if let Ok(now) = serving && let Some(term) = now.serving_term() {
                        return Some((ring.clone(), term));
                    }
                }
                changed = self.ring.changed() => changed.ok()?,
            }
        }
    }

    /// A serving leader has committed an entry of its own term, and with it all that its log holds:
    /// what stands there is committed, what does not stand there never will be by itself.
    fn forget_what_is_logged(&mut self, ring: &RingHandle) {
        let logged = ring.log.gtid_set();
        while let Some(first) = self.open.front() {
            if !logged.contains(&first.transaction.gtid) {
                break;
            }
            self.answer_first();
        }
        for open in &mut self.open {
            open.ticket = None;
        }
    }

    async fn serve(&mut self, ring: &RingHandle, term: Term) -> Result<End, SynthesisError> {
        for at in 0..self.open.len() {
            if !self.propose(ring, term, at).await {
                return Ok(End::LeadershipLost);
            }
        }
        let mut clients_gone = false;
        loop {
            let room = self.open.len() < IN_FLIGHT;
            let Some(first) = self.open.front_mut() else {
                if clients_gone {
                    return Ok(End::ClientsGone);
                }
                tokio::select! {
                    request = self.requests.recv() => {
                        clients_gone = request.is_none();
                        if !self.take_in(request, ring, term).await? {
                            return Ok(End::LeadershipLost);
                        }
                    }
                    _ = self.ring.changed() => return Ok(End::LeadershipLost),
                }
                continue;
            };
            let Some(ticket) = &mut first.ticket else {
                return Ok(End::LeadershipLost);
            };
            tokio::select! {
                biased;
                outcome = ticket.outcome() => match outcome {
                    Outcome::Committed(_) => self.answer_first(),
                    Outcome::Refused(_) | Outcome::Unknown(_) => return Ok(End::LeadershipLost),
                },
                request = self.requests.recv(), if !clients_gone && room => {
                    clients_gone = request.is_none();
                    if !self.take_in(request, ring, term).await? {
                        return Ok(End::LeadershipLost);
                    }
                }
                _ = self.ring.changed() => return Ok(End::LeadershipLost),
            }
        }
    }

    /// Gives a request its place and proposes it; false when the leadership is over.
    async fn take_in(
        &mut self,
        request: Option<Request>,
        ring: &RingHandle,
        term: Term,
    ) -> Result<bool, SynthesisError> {
        let Some(request) = request else {
            return Ok(true);
        };
        self.open.push_back(Open {
            transaction: self.bank.transfer(request.transfer)?,
            done: Some(request.done),
            ticket: None,
        });
        Ok(self.propose(ring, term, self.open.len() - 1).await)
    }

    async fn propose(&mut self, ring: &RingHandle, term: Term, at: usize) -> bool {
        let Some(open) = self.open.get_mut(at) else {
            return true;
        };
        let entry = AppEntry::Transaction(open.transaction.payload.clone());
        match ring.member.propose(entry, term).await {
            Ok(ticket) => {
                open.ticket = Some(ticket);
                true
            }
            Err(_) => false,
        }
    }

    fn answer_first(&mut self) {
        let Some(open) = self.open.pop_front() else {
            return;
        };
        self.acknowledged.add(open.transaction.gtid);
        if let Some(done) = open.done {
            // A client that went away does not need its answer.
            let _ = done.send(());
        }
    }
}
