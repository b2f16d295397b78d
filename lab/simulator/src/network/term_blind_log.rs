//! The log of a proxy with [`Mutation::ProxyIgnoresTheTerm`]. For a requested op id it returns its own entry at that index, whatever the
//! entry's term.
//!
//! [`Mutation::ProxyIgnoresTheTerm`]: crate::mutation::Mutation::ProxyIgnoresTheTerm

use std::ops::Range;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use proxy::ProxyRequest;
use raft_types::{LogReport, OpId, OwnLog, ReadingEntries};
use tokio::sync::watch;

use crate::shared::Shared;

/// The request of the session that the proxy is handling.
type Asked = Shared<Option<ProxyRequest>>;

struct TermBlindLog {
    log: Arc<dyn OwnLog>,
    asked: Asked,
}

/// Returns the log for one session, and the session's requests. A relay handles one request after the other.
pub(super) fn term_blind(
    log: Arc<dyn OwnLog>,
    requests: BoxStream<'static, ProxyRequest>,
) -> (Arc<dyn OwnLog>, BoxStream<'static, ProxyRequest>) {
    let asked = Asked::default();
    let noted = asked.clone();
    let requests = requests.inspect(move |request| *noted.lock() = Some(request.clone()));
    (Arc::new(TermBlindLog { log, asked }), requests.boxed())
}

impl OwnLog for TermBlindLog {
    fn report(&self) -> LogReport {
        self.log.report()
    }

    fn entries(&self, range: Range<u64>) -> ReadingEntries<'_> {
        Box::pin(async move {
            let mut entries = self.log.entries(range).await?;
            if let Some(request) = &*self.asked.lock() {
                for entry in &mut entries {
                    let index = entry.log_id.index;
                    if let Some(term) = request.term_at(index) {
                        entry.log_id = OpId::new(term, index).into();
                    }
                }
            }
            Ok(entries)
        })
    }

    fn appended(&self) -> watch::Receiver<u64> {
        self.log.appended()
    }
}
