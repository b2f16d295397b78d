//! The clients of the embedded database: each commits one transfer after the other and waits for its
//! answer, for as long as the demonstration lasts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::bank::Transfer;
use super::primary::Client;
use crate::demo::scoreboard::Scoreboard;

/// Between two transfers of one client; the demonstration shows latencies, not a full machine.
const THINK: Duration = Duration::from_millis(1);

/// Clients at work.
pub(crate) struct Clients {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Clients {
    /// Starts that many.
    pub(crate) fn start(count: usize, client: &Client, board: &Arc<Scoreboard>) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let client = client.clone();
            tasks.spawn(work(number, client, board.clone(), stop.clone()));
        }
        Self { tasks, stop }
    }

    /// Lets every client finish the transfer that it is in.
    pub(crate) async fn finish(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn work(number: usize, client: Client, board: Arc<Scoreboard>, stop: CancellationToken) {
    let mut turn = number;
    while !stop.is_cancelled() {
        // Steps that have no common factor with the number of accounts visit all of them.
        turn = turn.wrapping_add(7);
        let transfer = Transfer {
            from: turn.wrapping_mul(13),
            to: turn.wrapping_mul(31) + number,
            amount: 1 + i32::try_from(turn % 100).unwrap_or(0),
        };
        let asked = Instant::now();
        if client.commit(transfer).await.is_none() {
            return;
        }
        board.committed(asked.elapsed());
        tokio::time::sleep(THINK).await;
    }
}
