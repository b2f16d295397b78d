//! What a member's process does with a message that arrives: calls and requests go to the engine, answers to those who
//! wait for them.

use consensus::Inbound;
use futures::StreamExt;
use futures::stream;
use raft_types::MemberId;

use super::desk::{Desk, StreamNews};
use super::message::{Body, Call, CallId, Message, Reply};

/// The receiving end of one process.
#[derive(Clone)]
pub(crate) struct Reception {
    pub(crate) desk: Desk,
    pub(crate) inbound: Inbound,
}

impl Reception {
    /// Takes a message in. Called within the process's runtime; what takes time is a task of it.
    pub(crate) fn deliver(&self, message: Message) {
        let Message { from, body, .. } = message;
        match body {
            Body::Call(id, call) => {
                tokio::spawn(self.clone().answer(from, id, call));
            }
            Body::Reply(id, reply) => self.desk.replied(id, reply),
            Body::Request {
                stream,
                number,
                request,
            } => match self.desk.request(stream, number, request) {
                Ok(Some(requests)) => {
                    tokio::spawn(self.clone().append(from, stream, requests));
                }
                Ok(None) => {}
                Err(why) => self.desk.send(from, Body::Broken(stream, why)),
            },
            Body::Answer { stream, answer, .. } => {
                self.desk.news(stream, StreamNews::Answer(answer));
            }
            Body::Closed(stream) => self.desk.closed(stream),
            Body::Broken(stream, why) => self.desk.news(stream, StreamNews::Broken(why)),
        }
    }

    async fn answer(self, from: MemberId, id: CallId, call: Call) {
        let stopped = |fault: consensus::Fault| Reply::Unreachable(fault.to_string());
        let reply = match call {
            Call::Vote(request) => {
                let answer = self.inbound.vote(request).await;
                answer.map_or_else(stopped, Reply::Vote)
            }
            Call::PreVote(request) => {
                let answer = self.inbound.pre_vote(request).await;
                answer.map_or_else(stopped, Reply::Vote)
            }
            Call::Heartbeat(request) => {
                let answer = self.inbound.heartbeat(request).await;
                answer.map_or_else(stopped, Reply::Heartbeat)
            }
            Call::Transfer(request) => {
                let answer = self.inbound.transfer_leader(request).await;
                answer.map_or_else(stopped, Reply::Transfer)
            }
            Call::Ask(question) => Reply::Ask(self.inbound.answer(from, question).await),
        };
        self.desk.send(from, Body::Reply(id, reply));
    }

    async fn append(
        self,
        from: MemberId,
        stream: CallId,
        mut requests: tokio::sync::mpsc::Receiver<
            openraft::raft::AppendEntriesRequest<raft_types::TypeConfig>,
        >,
    ) {
        let requests = stream::poll_fn(move |context| requests.poll_recv(context));
        let mut answers = self.inbound.append(requests);
        let mut number = 0;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(answer) => {
                    let over = answer.is_err();
                    let body = Body::Answer {
                        stream,
                        number,
                        answer,
                    };
                    self.desk.send(from, body);
                    number += 1;
                    if over {
                        break;
                    }
                }
                Err(fault) => {
                    self.desk
                        .send(from, Body::Broken(stream, fault.to_string()));
                    break;
                }
            }
        }
        self.desk.closed(stream);
    }
}
