//! Parts of a session with a proxy.

use proxy::{ProxyAnswer, ProxyRequest};
use raft_types::MemberId;

/// One message of a session.
#[derive(Debug, Clone)]
pub(crate) enum SessionPart {
    /// The `number`-th request, from 0 on. The first one opens the session; `onward` is the route of all of them.
    Request {
        number: u64,
        onward: Vec<MemberId>,
        request: ProxyRequest,
    },
    /// The total number of requests, after which none follows.
    End(u64),
    /// The answers are no longer read.
    Dropped,
    Answer(ProxyAnswer),
    /// No more answers follow.
    Over,
    /// The proxy does not have the session, or abandoned it.
    Broken(String),
}

impl SessionPart {
    pub(crate) fn goes_to_the_proxy(&self) -> bool {
        matches!(self, Self::Request { .. } | Self::End(_) | Self::Dropped)
    }

    /// A number for the kind of part, for the trace's hash.
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
