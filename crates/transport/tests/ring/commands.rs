//! An operator's command streams its events, and continues after the receiver disconnects.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raft_types::MemberId;
use tokio::sync::{Notify, mpsc};
use transport::{
    AdminClient, AdminError, CommandCaller, CommandSource, LocalMember, Right, RunningServer,
    TransportConfig, serve,
};

use crate::support::grpc_ring::{TIMERS, fresh_member, listener, within};

/// Echoes the command, waits until it may end, and ends.
struct Parrot {
    may_end: Arc<Notify>,
    ended: Arc<Notify>,
}

impl CommandSource for Parrot {
    fn right(&self, _: &[u8]) -> Right {
        Right::Operate
    }

    fn command(&self, caller: CommandCaller, json: Bytes) -> mpsc::Receiver<Bytes> {
        let (events, receiver) = mpsc::channel(4);
        let (may_end, ended) = (self.may_end.clone(), self.ended.clone());
        tokio::spawn(async move {
            assert!(
                caller
                    .address
                    .is_some_and(|address| address.ip().is_loopback())
            );
            assert_eq!(caller.certificate_name, None);
            let _ = events.send(json).await;
            may_end.notified().await;
            let _ = events.send(Bytes::from_static(b"\"done\"")).await;
            ended.notify_one();
        });
        receiver
    }
}

struct Served {
    local: Arc<LocalMember>,
    client: AdminClient,
    _server: RunningServer,
}

async fn served() -> Served {
    let (listener, address) = listener().await;
    let local = fresh_member(MemberId(1));
    let config = TransportConfig::for_timers(&TIMERS);
    let server = serve(listener, local.clone(), None, &config).unwrap();
    Served {
        local,
        client: AdminClient::new(&address.to_string(), None, config).unwrap(),
        _server: server,
    }
}

#[tokio::test]
async fn events_are_streamed_and_a_disconnect_does_not_end_the_command() {
    let served = served().await;
    let early = served.client.command(Bytes::new()).await.unwrap_err();
    assert!(matches!(early, AdminError::Unreachable { .. }), "{early}");
    assert!(early.to_string().contains("still starting"), "{early}");

    let (may_end, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let _ = served.local.commands.set(Arc::new(Parrot {
        may_end: may_end.clone(),
        ended: ended.clone(),
    }));
    let asked = Bytes::from_static(b"{\"promote\":2}");
    let mut events = served.client.command(asked.clone()).await.unwrap();
    assert_eq!(
        within("it begins", events.next()).await,
        Ok(Some(asked.clone()))
    );
    let pending = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
    assert!(pending.is_err(), "it has not ended: {pending:?}");
    may_end.notify_one();
    let end = within("it ends", events.next()).await;
    assert_eq!(end, Ok(Some(Bytes::from_static(b"\"done\""))));
    assert_eq!(within("nothing more", events.next()).await, Ok(None));
    within("it ended", ended.notified()).await;

    let mut events = served.client.command(asked.clone()).await.unwrap();
    assert_eq!(within("it begins", events.next()).await, Ok(Some(asked)));
    drop(events);
    may_end.notify_one();
    within("it ends without a listener", ended.notified()).await;
}
