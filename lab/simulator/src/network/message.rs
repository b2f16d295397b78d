//! Messages between members.

use consensus::log_probe::{Answered, Asked};
use raft_types::MemberId;
use testkit::network::{Call, Reply};

use super::session_part::SessionPart;

/// The id of a call or a stream, which is unique in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CallId(pub(crate) u64);

/// A message in flight.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) from: MemberId,
    pub(crate) to: MemberId,
    pub(crate) body: Body,
}

/// The contents of a message.
#[derive(Clone)]
pub(crate) enum Body {
    Call(CallId, Call),
    Reply(CallId, Reply),
    /// A request of a stream; `number` counts from 0.
    Request {
        stream: CallId,
        number: u64,
        asked: Asked,
    },
    /// The answer to the request with this number.
    Answer {
        stream: CallId,
        number: u64,
        answered: Answered,
    },
    /// The requesting end closed the stream.
    Closed(CallId),
    /// The receiver does not know the stream, or has ended it.
    Broken(CallId, String),
    /// A part of a session with a proxy. Its order and its failures are those of a stream.
    Session(CallId, SessionPart),
    /// The sender's process has ended, and its host has closed all its connections.
    HungUp,
}

impl Body {
    /// Returns the stream or session of the message, and whether the message goes in the direction of the requests.
    pub(crate) fn stream(&self) -> Option<(CallId, bool)> {
        match self {
            Self::Request { stream, .. } | Self::Closed(stream) => Some((*stream, true)),
            Self::Answer { stream, .. } | Self::Broken(stream, _) => Some((*stream, false)),
            Self::Session(session, part) => Some((*session, part.goes_to_the_proxy())),
            Self::Call(..) | Self::Reply(..) | Self::HungUp => None,
        }
    }

    /// Returns whether the message has entries, and is therefore delayed by a busy link.
    pub(crate) fn carries_entries(&self) -> bool {
        matches!(self, Self::Request { asked, .. } if !asked.request.entries.is_empty())
    }

    /// Returns whether only leaders send such a message, to their followers.
    pub(crate) fn leads(&self) -> bool {
        matches!(
            self,
            Self::Request { .. } | Self::Closed(_) | Self::Call(_, Call::Heartbeat(_))
        )
    }

    /// Returns a number for the kind of the message, for the trace's hash.
    pub(crate) fn kind(&self) -> u64 {
        match self {
            Self::Call(_, Call::Vote(_)) => 1,
            Self::Call(_, Call::PreVote(_)) => 2,
            Self::Call(_, Call::Heartbeat(_)) => 3,
            Self::Call(_, Call::Transfer(_)) => 4,
            Self::Call(_, Call::Ask(_)) => 5,
            Self::Reply(..) => 6,
            Self::Request { .. } => 7,
            Self::Answer { .. } => 8,
            Self::Closed(_) => 9,
            Self::Broken(..) => 10,
            Self::Call(_, Call::Begin(..)) => 11,
            Self::HungUp => 12,
            Self::Call(_, Call::Knock) => 13,
            Self::Session(_, part) => 14 + part.kind(),
        }
    }

    /// Returns the message as text for the full trace.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Call(_, Call::Vote(request)) => format!("vote? {request}"),
            Self::Call(_, Call::PreVote(request)) => format!("pre-vote? {request}"),
            Self::Call(_, Call::Heartbeat(request)) => format!("heartbeat {request}"),
            Self::Call(_, Call::Transfer(request)) => format!("transfer {request}"),
            Self::Call(_, Call::Begin(vote, start)) => format!("begin {vote} {}", start.before),
            Self::Call(_, Call::Ask(question)) => format!("asks {question:?}"),
            Self::Call(_, Call::Knock) => "knocks".to_owned(),
            Self::Reply(_, Reply::Answers) => "answers".to_owned(),
            Self::Reply(_, Reply::Refused) => "refuses".to_owned(),
            Self::HungUp => "hung up".to_owned(),
            Self::Reply(_, Reply::Vote(response)) => format!("vote: {response}"),
            Self::Reply(_, Reply::Heartbeat(answer)) => format!("heartbeat: {answer:?}"),
            Self::Reply(_, Reply::Transfer(response)) => format!("transfer: {response:?}"),
            Self::Reply(_, Reply::Begin(response)) => format!("begin: {response:?}"),
            Self::Reply(_, Reply::Ask(answer)) => format!("answers {answer:?}"),
            Self::Reply(_, Reply::Unreachable(why)) => format!("unreachable: {why}"),
            Self::Request {
                stream,
                number,
                asked,
            } => format!("stream {} #{number} {}", stream.0, asked.request),
            Self::Answer {
                stream,
                number,
                answered,
            } => format!("stream {} #{number}: {answered:?}", stream.0),
            Self::Closed(stream) => format!("stream {} closed", stream.0),
            Self::Broken(stream, why) => format!("stream {} broken: {why}", stream.0),
            Self::Session(session, part) => format!("session {} {part:?}", session.0),
        }
    }
}
