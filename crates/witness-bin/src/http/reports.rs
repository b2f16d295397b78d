//! Reports of the ring's members: collected at most once a second, for all clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use member::status::ClientAddresses;
use raft_types::MemberId;
use tokio::time::Instant;

use crate::operator::{Asker, RingReport};

/// The members are asked again only after this time, for any number of clients.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(900);

/// Asks the members of the ring, this one included. Clones share the answers.
#[derive(Clone)]
pub struct RingReports(Arc<Shared>);

struct Shared {
    asker: Asker,
    /// Held while the members are asked, so that all clients wait for the same answers.
    asking: tokio::sync::Mutex<()>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    report: Option<(Instant, Arc<RingReport>)>,
    /// Includes members that do not answer now.
    addresses: BTreeMap<MemberId, ClientAddresses>,
}

impl RingReports {
    /// For the ring of `asker`.
    pub fn new(asker: Asker) -> Self {
        Self(Arc::new(Shared {
            asker,
            asking: tokio::sync::Mutex::new(()),
            last: Mutex::default(),
        }))
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last report, if it is younger.
    pub(super) fn not_older(&self, than: Duration) -> Option<Arc<RingReport>> {
        let last = self.last();
        let (at, report) = last.report.as_ref()?;
        (at.elapsed() < than).then(|| report.clone())
    }

    /// The current report. A member that does not answer delays it by two seconds.
    pub(super) async fn report(&self) -> Arc<RingReport> {
        let _one_at_a_time = self.0.asking.lock().await;
        if let Some(report) = self.not_older(ASKED_AGAIN_AFTER) {
            return report;
        }
        let report = Arc::new(self.0.asker.report().await);
        let mut last = self.last();
        last.report = Some((Instant::now(), report.clone()));
        last.addresses.extend(addresses(&report));
        report
    }

    /// Where clients reach each member that has ever answered this one.
    pub(super) fn addresses(&self) -> BTreeMap<MemberId, ClientAddresses> {
        self.last().addresses.clone()
    }
}

fn addresses(report: &RingReport) -> impl Iterator<Item = (MemberId, ClientAddresses)> {
    let members = report.members.iter();
    members.filter_map(|member| Some((member.id, member.view.as_ref()?.client_addresses.clone())))
}
