//! Proxy sessions, opened from the leader's end.

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use proxy::{LineBroken, ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest};
use raft_types::{MemberId, MemberRecord};
use tokio::sync::mpsc;

use super::network::GrpcNetworkFactory;
use super::peers::Peer;
use super::proxy_line::{Frames, OpenLine, Said, SessionHandle};
use crate::wire::{AnswerReader, RequestWriter};

impl ProxyCalls for GrpcNetworkFactory {
    fn open(
        &self,
        proxy: MemberId,
        record: &MemberRecord,
        onward: Vec<MemberId>,
        mut requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        let peer = self.peer(proxy, record);
        async move {
            // The first request's vote: a session belongs to one leadership.
            let Some(first) = requests.next().await else {
                return Ok(stream::empty().boxed());
            };
            let line = &peer.proxy_line;
            let (handle, said) = line.session(&peer.counters, |frames, line| {
                carry(peer.clone(), frames, line)
            });
            let writer = RequestWriter::new(handle.session, onward);
            let reader = AnswerReader::new(&first.vote);
            let handle = Arc::new(handle);
            let requests = stream::iter([first]).chain(requests).boxed();
            let sending = tokio::spawn(send(writer, requests, handle.clone()));
            let session = Session {
                handle,
                said,
                reader,
                sending,
            };
            Ok(stream::unfold(Some(session), |session| async { session?.next().await }).boxed())
        }
        .boxed()
    }
}

/// Carries a line until it breaks or has no sessions left; returns the reason.
async fn carry(peer: Arc<Peer>, frames: Frames, line: Weak<OpenLine>) -> String {
    let mut client = match peer.bulk() {
        Ok(client) => client,
        Err(error) => return error.to_string(),
    };
    let opened = client.proxy(peer.sealed(frames));
    let mut answers = match tokio::time::timeout(peer.config.call_deadline, opened).await {
        Ok(Ok(answers)) => answers.into_inner(),
        Ok(Err(status)) => return peer.failed(&status),
        Err(_) => return format!("no answer within {:?}", peer.config.call_deadline),
    };
    loop {
        match answers.message().await {
            Ok(Some(frame)) => match line.upgrade() {
                Some(line) => line.hand_out(frame),
                None => return "nobody listens".to_owned(),
            },
            Ok(None) => return "the proxy ended the stream".to_owned(),
            Err(status) => return peer.failed(&status),
        }
    }
}

async fn send(
    mut writer: RequestWriter,
    mut requests: BoxStream<'static, ProxyRequest>,
    handle: Arc<SessionHandle>,
) {
    while let Some(request) = requests.next().await {
        let Some(part) = writer.write(&request) else {
            break;
        };
        if !handle.send(part) {
            return;
        }
    }
    handle.send(writer.end());
}

struct Session {
    handle: Arc<SessionHandle>,
    said: mpsc::UnboundedReceiver<Said>,
    reader: AnswerReader,
    sending: tokio::task::JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

impl Session {
    async fn next(mut self) -> Option<(Result<ProxyAnswer, LineBroken>, Option<Self>)> {
        let part = match self.said.recv().await {
            Some(Ok(part)) => part,
            Some(Err(broken)) => return Some((Err(broken), None)),
            None => {
                let session = self.handle.session;
                let lost = LineBroken(format!("session {session} has lost its line"));
                return Some((Err(lost), None));
            }
        };
        match self.reader.read(part) {
            Ok(Some(answer)) => Some((Ok(answer), Some(self))),
            Ok(None) => None,
            Err(error) => Some((Err(LineBroken(error.to_string())), None)),
        }
    }
}
