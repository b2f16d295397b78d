//! Proxy sessions in memory: a leader's requests are passed to the proxy's relay, depending on the proxy's behaviour.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use proxy::{LineBroken, ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest, ProxyService};
use raft_types::{MemberId, MemberRecord};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// A proxy's behaviour towards its callers.
#[derive(Debug, Clone, Default)]
pub(crate) enum Behaviour {
    #[default]
    Serves,
    /// The network is cut: open sessions break, and no session can be opened.
    Dead,
    /// Requests are accepted, but not answered.
    Silent,
    /// Opening a session never ends.
    Hangs,
    /// Requests are accepted, and these answers are returned.
    Lies(Vec<ProxyAnswer>),
}

/// The lines to all proxies. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<BTreeMap<MemberId, Line>>>);

#[derive(Default)]
struct Line {
    relay: Option<Arc<dyn ProxyService>>,
    behaviour: watch::Sender<Behaviour>,
    /// The requests of the leaders.
    requests: Vec<ProxyRequest>,
    sessions: usize,
    /// Each open session holds a reference to this value.
    open: Arc<()>,
}

impl Lines {
    pub(crate) fn lead_to(&self, id: MemberId, relay: Arc<dyn ProxyService>) {
        self.lines().entry(id).or_default().relay = Some(relay);
    }

    pub(crate) fn relay(&self, id: MemberId) -> Arc<dyn ProxyService> {
        self.lines()[&id].relay.clone().unwrap()
    }

    pub(crate) fn set(&self, id: MemberId, behaviour: Behaviour) {
        let mut lines = self.lines();
        lines
            .entry(id)
            .or_default()
            .behaviour
            .send_replace(behaviour);
    }

    /// Returns the requests to a proxy since the last call.
    pub(crate) fn requests(&self, id: MemberId) -> Vec<ProxyRequest> {
        let mut lines = self.lines();
        std::mem::take(&mut lines.entry(id).or_default().requests)
    }

    /// Returns how many sessions were requested from a proxy.
    pub(crate) fn sessions(&self, id: MemberId) -> usize {
        self.lines().get(&id).map_or(0, |line| line.sessions)
    }

    /// Returns how many sessions with a proxy are open.
    pub(crate) fn open_sessions(&self, id: MemberId) -> usize {
        let lines = self.lines();
        lines
            .get(&id)
            .map_or(0, |line| Arc::strong_count(&line.open) - 1)
    }

    /// Records and passes on requests while they arrive, whether or not they are answered.
    fn carry(
        &self,
        proxy: MemberId,
        mut requests: BoxStream<'static, ProxyRequest>,
    ) -> (Carrying, mpsc::UnboundedReceiver<ProxyRequest>) {
        let (carried, arriving) = mpsc::unbounded_channel();
        let lines = self.clone();
        let open = self.lines().entry(proxy).or_default().open.clone();
        let carrying = tokio::spawn(async move {
            let _open = open;
            while let Some(request) = requests.next().await {
                let mut lines = lines.lines();
                let seen = &mut lines.entry(proxy).or_default().requests;
                seen.push(request.clone());
                let _ = carried.send(request);
            }
        });
        (Carrying(carrying.abort_handle()), arriving)
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<MemberId, Line>> {
        self.0.lock().unwrap()
    }
}

/// The task that passes on requests. It is aborted when the session is dropped.
struct Carrying(AbortHandle);

impl Drop for Carrying {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ProxyCalls for Lines {
    fn open(
        &self,
        proxy: MemberId,
        _: &MemberRecord,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        let lines = self.clone();
        async move {
            let (relay, mut behaviour) = {
                let mut lines = lines.lines();
                let line = lines.entry(proxy).or_default();
                line.sessions += 1;
                (line.relay.clone(), line.behaviour.subscribe())
            };
            let now = behaviour.borrow_and_update().clone();
            let answers = match (now, relay) {
                (Behaviour::Serves, Some(relay)) => {
                    let (carrying, arriving) = lines.carry(proxy, requests);
                    let said = relay.serve(onward, queue(arriving).boxed());
                    lively(said, carrying, behaviour)
                }
                (Behaviour::Silent, _) => {
                    let (carrying, _) = lines.carry(proxy, requests);
                    lively(stream::pending().boxed(), carrying, behaviour)
                }
                (Behaviour::Lies(answers), _) => {
                    let (carrying, mut arriving) = lines.carry(proxy, requests);
                    let asked = async move { arriving.recv().await };
                    let lies = stream::once(asked).flat_map(move |_| stream::iter(answers.clone()));
                    lively(lies.chain(stream::pending()).boxed(), carrying, behaviour)
                }
                (Behaviour::Hangs, _) => std::future::pending().await,
                (Behaviour::Dead | Behaviour::Serves, _) => return Err(broken()),
            };
            Ok(answers)
        }
        .boxed()
    }
}

fn queue(
    arriving: mpsc::UnboundedReceiver<ProxyRequest>,
) -> impl futures::Stream<Item = ProxyRequest> + Send {
    stream::unfold(arriving, |mut arriving| async move {
        let request = arriving.recv().await?;
        Some((request, arriving))
    })
}

fn broken() -> LineBroken {
    LineBroken("the line is cut".to_owned())
}

/// Returns the answers while the proxy behaves as it did when the session was opened.
fn lively(
    said: BoxStream<'static, ProxyAnswer>,
    carrying: Carrying,
    behaviour: watch::Receiver<Behaviour>,
) -> ProxyAnswers {
    let mut changes = behaviour.clone();
    let changed = async move {
        let _ = changes.changed().await;
    };
    let last_word = async move {
        let now = behaviour.borrow().clone();
        match now {
            Behaviour::Dead => Some(Err(broken())),
            Behaviour::Silent => std::future::pending().await,
            _ => None,
        }
    };
    let said = said.take_until(changed.boxed()).map(Ok);
    let last_word = stream::once(last_word).filter_map(futures::future::ready);
    let all = said.chain(last_word);
    all.inspect(move |_| {
        let _until_the_end = &carrying;
    })
    .boxed()
}
