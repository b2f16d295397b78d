//! A fuzzed connection to the HTTP port. The product does not call this.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use member::protocol::{CommandResult, OperatorCommand, Refusal, RefusalKind};
use member::status::{MemberView, ViewSource};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_util::sync::CancellationToken;

use crate::http::access::{Access, Credentials, token_in};
use crate::http::listener::answer;
pub(crate) use crate::http::metrics::first_expiry_in;
use crate::http::orders::{
    OrderApi, OrderTaker, PauseBody, ReinitializeBody, RestartBody, SwitchoverBody, read,
};
use crate::http::page::RingPage;
use crate::http::questions::Endpoints;
use crate::http::reports::RingReports;
use crate::operator::{Asker, RingSource};
use crate::text::times::{milliseconds, moment};

/// The token of clients that may send orders.
const ORDERS: &str = "orders";
/// The token of clients that may only read.
const READS: &str = "reads";
/// Time limit for all answers. The requests depend on no other process.
const LIMIT: Duration = Duration::from_secs(5);
/// Only this many bytes of the answers are checked.
const LOOKED_AT: usize = 64 << 10;

/// Returns whether the body of an order or a query value is valid; `kind` selects the type.
pub(crate) fn order_is_read(kind: u8, body: &[u8]) -> bool {
    match kind % 5 {
        0 => read::<PauseBody>(body).is_ok(),
        1 => read::<SwitchoverBody>(body).is_ok_and(|body| {
            let at = body.scheduled_at.as_deref();
            at.map(moment).transpose().is_ok()
        }),
        2 => read::<ReinitializeBody>(body).is_ok(),
        3 => read::<RestartBody>(body).is_ok(),
        _ => std::str::from_utf8(body).is_ok_and(|lag| milliseconds(lag).is_some()),
    }
}

/// Sends a client's bytes to a member with this view, and then closes the client's half of the connection. Returns whether the first
/// request succeeded.
pub(crate) fn connection(view: MemberView, says: &[u8]) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let carried_out = Arc::new(AtomicUsize::new(0));
    let pages = endpoints(view, Arc::clone(&carried_out)).router();
    let answers = runtime.expect("a runtime").block_on(async {
        let (ours, theirs) = tokio::io::duplex(16 << 10);
        let served = answer(theirs, pages, CancellationToken::new());
        let both = async { tokio::join!(talk(ours, says), served) };
        let (answers, _served) = tokio::time::timeout(LIMIT, both)
            .await
            .expect("what was said is answered");
        answers
    });
    let has_token = says.windows(ORDERS.len()).any(|at| at == ORDERS.as_bytes());
    assert!(has_token || carried_out.load(Ordering::Relaxed) == 0);
    let Some(code) = answers.strip_prefix(b"HTTP/1.1 ") else {
        assert!(answers.is_empty() || answers.starts_with(b"HTTP/1.0 "));
        return false;
    };
    code.starts_with(b"2")
}

/// Writes and reads concurrently. If a client did not read, the server's writes would block.
async fn talk(stream: DuplexStream, says: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let said = async {
        // The server may close a connection before all bytes are sent.
        let _ = writer.write_all(says).await;
        let _ = writer.shutdown().await;
    };
    let heard = async {
        let (mut answers, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = reader.read(&mut piece).await {
            let room = LOOKED_AT - answers.len();
            answers.extend_from_slice(&piece[..read.min(room)]);
        }
        answers
    };
    let ((), answers) = tokio::join!(said, heard);
    answers
}

fn endpoints(view: MemberView, carried_out: Arc<AtomicUsize>) -> Endpoints {
    let view: Arc<dyn ViewSource> = Arc::new(Always(view));
    let access = Access::new(Credentials {
        operators: Some(ORDERS.to_owned()),
        readers: Some(READS.to_owned()),
        ..Credentials::default()
    });
    let orders = OrderApi {
        taker: Arc::new(Counting(carried_out)),
        access,
        view: Arc::clone(&view),
    };
    let own = view.view();
    let ring = RingSource::Configured {
        ring: own.ring.name,
        members: Vec::new(),
    };
    let mut asker = Asker::of(ring, None);
    asker.own = Some((own.member.id, Arc::clone(&view)));
    let reports = RingReports::new(asker);
    let page = RingPage {
        view,
        reports,
        events: Arc::default(),
    };
    Endpoints {
        registry: Arc::default(),
        orders,
        page,
        throttle_threshold: Duration::from_secs(1),
    }
}

/// A member whose state never changes.
struct Always(MemberView);

impl ViewSource for Always {
    fn view(&self) -> MemberView {
        self.0.clone()
    }
}

/// Counts orders that would change the member, and refuses them.
struct Counting(Arc<AtomicUsize>);

impl OrderTaker for Counting {
    fn order(
        &self,
        command: OperatorCommand,
    ) -> BoxFuture<'static, Result<CommandResult, Refusal>> {
        let answer = match command {
            OperatorCommand::History => Ok(CommandResult::History(Vec::new())),
            _ => {
                self.0.fetch_add(1, Ordering::Relaxed);
                Err(Refusal::new(RefusalKind::Refused, "it is an example", ""))
            }
        };
        async { answer }.boxed()
    }
}

/// Returns the token in a file's first line. Asserts that a file written with that token contains the same token.
pub(crate) fn token(line: &str) -> Option<String> {
    let token = token_in(line)?;
    assert_eq!(token_in(&token).as_deref(), Some(token.as_str()));
    Some(token)
}
