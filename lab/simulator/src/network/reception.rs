//! Delivers messages to a member's process: calls and requests to openraft, and answers to the tasks that wait for them.

use std::collections::VecDeque;

use consensus::Inbound;
use consensus::log_probe::{Answered, Asked};
use futures::StreamExt;
use futures::stream;
use openraft::errors::RaftError;
use openraft::raft::VoteRequest;
use proxy::ProxyRequest;
use raft_types::{MemberId, OpId, TypeConfig};
use ring_admin::Member;
use testkit::network::{Call, Reply, receive};
use tokio::sync::mpsc;

use crate::mutation::Mutation;
use crate::shared::Shared;

use super::message::{Body, CallId, Message};
use super::pending_calls::{PendingCalls, StreamNews};
use super::relaying::Relaying;
use super::session_part::SessionPart;

/// The receiving end of a process.
#[derive(Clone)]
pub(crate) struct Reception {
    pub(crate) pending: PendingCalls,
    pub(crate) member: Member,
    pub(crate) inbound: Inbound,
    pub(crate) relaying: Relaying,
}

impl Reception {
    /// Delivers a message. Must be called within the process's runtime. Longer work runs in a task.
    pub(crate) fn deliver(&self, message: Message) {
        let Message { from, body, .. } = message;
        match body {
            Body::Call(id, call) => {
                tokio::spawn(self.clone().answer(from, id, call));
            }
            Body::Reply(id, reply) => self.pending.replied(id, reply),
            Body::Request {
                stream,
                number,
                asked,
            } => match self.pending.request(stream, number, asked) {
                Ok(Some(requests)) => {
                    tokio::spawn(self.clone().append(from, stream, requests));
                }
                Ok(None) => {}
                Err(why) => self.pending.send(from, Body::Broken(stream, why)),
            },
            Body::Answer {
                stream, answered, ..
            } => {
                self.pending.news(stream, StreamNews::Answer(answered));
            }
            Body::Closed(stream) => self.pending.closed(stream),
            Body::Broken(stream, why) => self.pending.news(stream, StreamNews::Broken(why)),
            Body::Session(session, part) => self.session(from, session, part),
            Body::HungUp => self.inbound.hung_up(from),
        }
    }

    fn session(&self, from: MemberId, session: CallId, part: SessionPart) {
        let mut sessions = self.pending.sessions.lock();
        let reply = match part {
            SessionPart::Request {
                number,
                onward,
                request,
            } => match sessions.request(session, (from, &onward), number, request) {
                Ok(Some(requests)) => {
                    let serving = self.clone().relay(from, session, onward, requests);
                    sessions.served_by(session, tokio::spawn(serving).abort_handle());
                    None
                }
                Ok(None) => None,
                Err(why) => Some(SessionPart::Broken(why)),
            },
            SessionPart::End(all) => sessions.end(session, all).err().map(SessionPart::Broken),
            SessionPart::Dropped => {
                sessions.forget(session);
                None
            }
            // The session was ended, or its receiver ended with the process.
            SessionPart::Answer(_) => {
                (!sessions.news(session, part)).then_some(SessionPart::Dropped)
            }
            SessionPart::Over | SessionPart::Broken(_) => {
                sessions.news(session, part);
                None
            }
        };
        drop(sessions);
        if let Some(reply) = reply {
            self.pending.send(from, Body::Session(session, reply));
        }
    }

    async fn relay(
        self,
        from: MemberId,
        session: CallId,
        onward: Vec<MemberId>,
        mut requests: mpsc::UnboundedReceiver<ProxyRequest>,
    ) {
        let requests = stream::poll_fn(move |context| requests.poll_recv(context));
        let mut answers = self.relaying.serve(onward, requests.boxed());
        while let Some(answer) = answers.next().await {
            let answer = SessionPart::Answer(answer);
            self.pending.send(from, Body::Session(session, answer));
        }
        self.pending
            .send(from, Body::Session(session, SessionPart::Over));
        self.pending.sessions.lock().forget(session);
    }

    async fn answer(self, from: MemberId, id: CallId, call: Call) {
        let call = match call {
            Call::Vote(request) => Call::Vote(self.taken_in(request)),
            Call::PreVote(request) => Call::PreVote(self.taken_in(request)),
            other => other,
        };
        let engine = self.member.engine();
        let stopped = |error: RaftError<TypeConfig>| Reply::Unreachable(error.to_string());
        let forgets = self.relaying.mutation == Some(Mutation::ForgetTheLease);
        let answer = match call {
            Call::Vote(request) if forgets => engine.vote(request).await,
            Call::PreVote(request) if forgets => engine.pre_vote(request).await,
            call => {
                let reply = receive(&self.inbound, from, call).await;
                return self.pending.send(from, Body::Reply(id, reply));
            }
        };
        let reply = answer.map_or_else(stopped, Reply::Vote);
        self.pending.send(from, Body::Reply(id, reply));
    }

    /// Prepares a vote request for openraft.
    fn taken_in(&self, request: VoteRequest<TypeConfig>) -> VoteRequest<TypeConfig> {
        match self.relaying.mutation {
            Some(Mutation::VoteWithoutTheLogCheck) => VoteRequest {
                last_log_id: Some(OpId::new(u64::MAX, u64::MAX).into()),
                ..request
            },
            _ => request,
        }
    }

    async fn append(self, from: MemberId, stream: CallId, mut requests: mpsc::Receiver<Asked>) {
        let wishes = Wishes::default();
        let asked = wishes.clone();
        let requests = stream::poll_fn(move |context| {
            requests.poll_recv(context).map(|next| {
                next.map(|next| {
                    asked.lock().push_back(next.wants_report);
                    next.request
                })
            })
        });
        self.inbound.leads(from);
        let mut answers = self.inbound.append(requests);
        let mut number = 0;
        while let Some(answer) = answers.next().await {
            let wanted = wishes.lock().pop_front().unwrap_or(false);
            match answer {
                Ok(result) => {
                    let over = result.is_err();
                    let report = wanted.then(|| self.relaying.log.report());
                    let answered = Answered { result, report };
                    let body = Body::Answer {
                        stream,
                        number,
                        answered,
                    };
                    self.pending.send(from, body);
                    number += 1;
                    if over {
                        break;
                    }
                }
                Err(fault) => {
                    self.pending
                        .send(from, Body::Broken(stream, fault.to_string()));
                    break;
                }
            }
        }
        self.pending.closed(stream);
    }
}

/// For each unanswered request at openraft, whether the sender wants a report.
type Wishes = Shared<VecDeque<bool>>;
