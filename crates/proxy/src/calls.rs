//! The seam to the network: how a session with a proxy is opened.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use raft_types::{MemberId, MemberRecord};
use thiserror::Error;

use crate::request::{ProxyAnswer, ProxyRequest};

/// A proxy that cannot be called, or no longer, in words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LineBroken(pub String);

/// What a session brings: answers in the order of the requests, until it is over.
pub type ProxyAnswers = BoxStream<'static, Result<ProxyAnswer, LineBroken>>;

/// A network over which proxies can be called.
pub trait ProxyCalls: Clone + Send + Sync + 'static {
    /// Opens a session at `proxy`, which is to send on to the first of `onward`; the last of them is who the entries are for.
    /// It ends when `requests` ends and all are answered, or with the first thing that goes wrong.
    fn open(
        &self,
        proxy: MemberId,
        record: &MemberRecord,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>>;
}

/// The receiving end of sessions.
pub trait ProxyService: Send + Sync + 'static {
    /// Serves a session: sends on to the first of `onward`. Dropping the answers ends it.
    fn serve(
        &self,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxStream<'static, ProxyAnswer>;
}
