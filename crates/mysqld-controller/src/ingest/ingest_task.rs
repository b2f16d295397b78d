//! The ingest task: waits for the leadership, attaches to the primary, and attaches again after each failure while the leadership lasts.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use mysqld_server::supervisor::Backoff;
use raft_types::{Term, Ticket};
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::ingest::attachment::EarlierLooks;
use crate::ingest::reading::IngestOptions;
use crate::ingest::reserve::Reserve;
use crate::ingest::session::{LOOK_LASTS, Prospect, Session, raise_acks};
use crate::ingest::status::{IngestError, IngestFigures, IngestState, IngestStatus};
use crate::ring::Ring;
use crate::status::Readiness;

/// Reads the primary's transactions into the ring.
#[derive(Debug)]
pub struct Ingest<R: Ring> {
    ring: Arc<R>,
    options: IngestOptions,
    readiness: watch::Receiver<Readiness>,
    status: watch::Sender<IngestStatus>,
    figures: Arc<IngestFigures>,
}

impl<R: Ring> Ingest<R> {
    /// Creates a task that does not run yet. It attaches once the server is ready to be the primary.
    pub fn new(
        ring: Arc<R>,
        options: IngestOptions,
        readiness: watch::Receiver<Readiness>,
    ) -> Self {
        let (status, _) = watch::channel(IngestStatus::new(Instant::now()));
        Self {
            ring,
            options,
            readiness,
            status,
            figures: Arc::new(IngestFigures::default()),
        }
    }

    /// Returns a receiver for the state of the attachment.
    pub fn status(&self) -> watch::Receiver<IngestStatus> {
        self.status.subscribe()
    }

    /// Counters and levels of ingest, for status and metrics.
    pub fn figures(&self) -> Arc<IngestFigures> {
        Arc::clone(&self.figures)
    }

    /// Runs until `stop` is cancelled. Then the connection to the primary is closed, and commits on the primary wait for the next
    /// attachment.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.serve() => {}
        }
        self.detach().await;
    }

    /// After an attachment, raises the number of required ACKs above the number that other replicas send.
    async fn detach(&self) {
        self.figures.oldest(None);
        let was_idle = self.status.borrow().state == IngestState::Idle;
        self.go(IngestState::Idle);
        if !was_idle {
            raise_acks(&self.options.connect).await;
        }
    }

    async fn serve(&self) {
        loop {
            let term = self.ring.serves().await;
            let prospect = tokio::select! {
                () = self.ring.leadership_over(term) => continue,
                ready = self.ready(term) => match ready {
                    Ok(prospect) => prospect,
                    Err(_) => return,
                },
            };
            let mut reserve = Reserve::default();
            self.status.send_modify(|status| status.term = Some(term));
            self.lead(term, prospect, &mut reserve).await;
            self.detach().await;
            reserve.end().await;
        }
    }

    /// Waits until the server may be the primary of this leadership. Inspects the server in the meantime, to save clients that time. If the
    /// wait is longer than [`LOOK_LASTS`], closes the inspecting session, so that other tasks can use the connection.
    async fn ready(&self, term: Term) -> Result<Option<Prospect>, RecvError> {
        let mut readiness = self.readiness.clone();
        let ready = async { readiness.wait_for(|now| now.allows(term)).await.map(drop) };
        let look = async { Prospect::look(&self.options.connect).await.ok() };
        tokio::pin!(ready, look);
        let prospect = tokio::select! {
            ready = &mut ready => {
                ready?;
                self.go(IngestState::Attaching);
                return Ok(look.await);
            }
            prospect = &mut look => prospect,
        };
        match tokio::time::timeout(LOOK_LASTS, &mut ready).await {
            Ok(ready) => ready.map(|()| prospect),
            Err(_) => {
                if let Some(prospect) = prospect {
                    prospect.connection.close().await;
                }
                ready.await.map(|()| None)
            }
        }
    }

    /// Attaches repeatedly until the leadership is over.
    async fn lead(&self, term: Term, mut prospect: Option<Prospect>, reserve: &mut Reserve) {
        let mut backoff = Backoff::new(self.options.retry.0, self.options.retry.1);
        let mut undecided = Vec::new();
        let mut earlier = EarlierLooks::default();
        loop {
            let acks = self.figures.acks();
            let attempt = tokio::select! {
                biased;
                () = self.ring.leadership_over(term) => return,
                attempt = self.attach(std::mem::take(&mut undecided), reserve, prospect.take(), &mut earlier) => attempt,
            };
            let error = match attempt {
                Err(error) => error,
                Ok(session) => {
                    let compared = &session.attachment;
                    let unproposed = compared.unproposed.count();
                    let again = compared.expected_again.count();
                    info!(term = term.0, %unproposed, %again, "attached to the primary");
                    self.figures.attached(unproposed);
                    self.go(IngestState::CatchingUp);
                    let began = Instant::now();
                    let caught_up = || self.go(IngestState::Attached);
                    let run = session.run(
                        &*self.ring,
                        term,
                        &self.options,
                        &self.figures,
                        caught_up,
                        reserve,
                    );
                    let (error, tickets) = tokio::select! {
                        biased;
                        ended = run => ended,
                        never = self.note_first_ack(acks) => match never {},
                    };
                    undecided = tickets;
                    // A full log refuses each proposal immediately, even after the next attachment.
                    backoff.ended_after(began.elapsed());
                    error
                }
            };
            if matches!(error, IngestError::LeadershipOver) {
                return;
            }
            let wait = backoff.fail();
            self.fail(&error, self.figures.acks() > acks, wait);
            tokio::select! {
                () = self.ring.leadership_over(term) => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Waits until all pending proposals have an outcome, then attaches. A pending proposal may still enter the log, and comparing earlier
    /// could propose its transaction twice.
    async fn attach(
        &self,
        undecided: Vec<R::Ticket>,
        reserve: &mut Reserve,
        prospect: Option<Prospect>,
        earlier: &mut EarlierLooks,
    ) -> Result<Session, IngestError> {
        let count = undecided.len();
        for mut ticket in undecided {
            if ticket.resolved_now().is_none() {
                self.go(IngestState::Settling { proposals: count });
                ticket.outcome().await;
            }
        }
        self.go(IngestState::Attaching);
        Session::open(&*self.ring, &self.options, reserve, prospect, earlier).await
    }

    fn fail(&self, error: &IngestError, acknowledged: bool, wait: Duration) {
        // A repeated cause is logged as a warning only once.
        let cause = error.to_string();
        if self.status.borrow().last_failure.as_ref() == Some(&cause) {
            debug!(retry_in = ?wait, "still not attached to the primary: {cause}");
        } else {
            warn!(retry_in = ?wait, "not attached to the primary: {cause}");
        }
        let now = Instant::now();
        self.status
            .send_modify(|status| status.fail(error, acknowledged, now));
    }

    /// Clears a reported failure at the first ACK, instead of at the end of this attempt.
    async fn note_first_ack(&self, acks: u64) -> Infallible {
        let fails = self.status.borrow().failing.is_some();
        if fails {
            loop {
                let progress = self.figures.progress.notified();
                if self.figures.acks() != acks {
                    break;
                }
                progress.await;
            }
            self.status.send_if_modified(IngestStatus::acknowledges);
        }
        std::future::pending().await
    }

    fn go(&self, state: IngestState) {
        self.status
            .send_modify(|status| status.go(state, Instant::now()));
    }
}
