//! The messages of a session with a proxy.

use proxy::{ProxyAnswer, ProxyRequest};
use raft_types::MemberId;

/// A message of a session.
#[derive(Debug, Clone)]
pub(crate) enum SessionPart {
    /// A request; `number` counts from 0. The first request opens the session. `onward` is the route of all requests.
    Request {
        number: u64,
        onward: Vec<MemberId>,
        request: ProxyRequest,
    },
    /// The total number of requests. None follows.
    End(u64),
    /// The requesting end no longer reads the answers.
    Dropped,
    Answer(ProxyAnswer),
    /// No answer follows.
    Over,
    /// The proxy does not know the session, or has ended it.
    Broken(String),
}

impl SessionPart {
    pub(crate) fn goes_to_the_proxy(&self) -> bool {
        matches!(self, Self::Request { .. } | Self::End(_) | Self::Dropped)
    }

    /// Returns a number for the kind of the part, for the trace's hash.
    pub(crate) fn kind(&self) -> u64 {
        match self {
            Self::Request { .. } => 0,
            Self::End(_) => 1,
            Self::Dropped => 2,
            Self::Answer(_) => 3,
            Self::Over => 4,
            Self::Broken(_) => 5,
        }
    }
}
