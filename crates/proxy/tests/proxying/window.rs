//! The limit of the bytes in flight over a proxy.

use std::time::Duration;

use raft_types::{MemberId, REPLICATION_WINDOW_BYTES};

use crate::support::lines::Behaviour;
use crate::support::log::sized_entry;
use crate::support::ring::{Ring, TERM};

const PROXY: MemberId = MemberId(2);
const ENTRY_BYTES: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_leader_sends_one_window_ahead_of_the_answers() {
    let mut ring = Ring::with_proxy(1, 0).await;
    let payload = bytes::Bytes::from(vec![7; ENTRY_BYTES]);
    let count = 3 * (REPLICATION_WINDOW_BYTES / ENTRY_BYTES) as u64;
    let large = (0..count).map(|index| sized_entry(TERM, index, payload.clone()));
    ring.log(1).push_entries(large);
    ring.lines.set(PROXY, Behaviour::Silent);
    let mut stream = ring.stream(3).await;
    for index in 0..count {
        stream.send(index..index + 1);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let window = REPLICATION_WINDOW_BYTES / ENTRY_BYTES;
    assert_eq!(ring.lines.requests(PROXY).len(), window);

    // The answers make room for the remaining entries.
    stream.answer().await.unwrap().unwrap_err();
    ring.lines.set(PROXY, Behaviour::Serves);
    ring.bring_up(2).await;
    let mut stream = ring.stream(3).await;
    for index in 0..count {
        stream.send(index..index + 1);
    }
    for index in 0..count {
        assert_eq!(stream.matching().await, Some(index));
    }
    assert_eq!(ring.lines.requests(PROXY).len() as u64, count);
    assert_eq!(ring.route(3), [2]);
}
