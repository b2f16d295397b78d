//! Collects the reports of the ring's members, at most once in 900 ms for all clients together, and answers `GET /cluster` with a report
//! in Patroni's format.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use member::status::{ClientAddresses, MemberView};
use raft_types::{MemberId, MemberKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::operator::{Asker, MemberReport, RingReport};

/// The members are queried again only after this time. Until then, all clients get the last report.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(900);

/// Queries all members of the ring, including this one. Clones share the answers.
#[derive(Clone)]
pub struct RingReports {
    asker: Arc<Asker>,
    /// Locked while the members are queried, so that all clients wait for the same answers.
    asking: Arc<tokio::sync::Mutex<()>>,
    last: Arc<Mutex<Last>>,
}

#[derive(Default)]
struct Last {
    report: Option<(Instant, Arc<RingReport>)>,
    /// The client addresses of all members that have ever answered.
    addresses: BTreeMap<MemberId, ClientAddresses>,
}

impl RingReports {
    /// Starts without a report, for the ring of `asker`.
    pub fn new(asker: Asker) -> Self {
        Self {
            asker: Arc::new(asker),
            asking: Arc::default(),
            last: Arc::default(),
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last report, if it is younger than this duration.
    pub(super) fn not_older(&self, than: Duration) -> Option<Arc<RingReport>> {
        let last = self.last();
        let (at, report) = last.report.as_ref()?;
        (at.elapsed() < than).then(|| report.clone())
    }

    /// Returns a report that is at most 900 ms old. A member that does not answer delays a new report by two seconds.
    pub(super) async fn report(&self) -> Arc<RingReport> {
        let _alone = self.asking.lock().await;
        if let Some(report) = self.not_older(ASKED_AGAIN_AFTER) {
            return report;
        }
        let report = Arc::new(self.asker.report().await);
        let mut last = self.last();
        last.report = Some((Instant::now(), report.clone()));
        last.addresses.extend(addresses(&report));
        report
    }

    /// Returns the client addresses of each member that has ever answered this member.
    pub(super) fn addresses(&self) -> BTreeMap<MemberId, ClientAddresses> {
        self.last().addresses.clone()
    }
}

fn addresses(report: &RingReport) -> impl Iterator<Item = (MemberId, ClientAddresses)> {
    let members = report.members.iter();
    members.filter_map(|member| Some((member.id, member.view.as_ref()?.client_addresses.clone())))
}

// `GET /cluster`.

/// Returns the JSON document of `GET /cluster`. `own` is the view of the member that answers, and `addresses` has the last known addresses,
/// also of members that do not answer now. Later versions may add fields, but not remove any.
pub(super) fn cluster(
    report: &RingReport,
    own: &MemberView,
    addresses: &BTreeMap<MemberId, ClientAddresses>,
) -> Value {
    let nowhere = ClientAddresses::default();
    let members = report.members.iter();
    let mut members: Vec<_> = members
        .filter(|member| member.in_ring != Some(false))
        .collect();
    members.sort_by_key(|member| member.id);
    let reached = |id: MemberId| addresses.get(&id).unwrap_or(&nowhere);
    let members = members.iter().map(|of| member(of, report, reached(of.id)));
    let mut cluster = json!({
        "scope": report.ring,
        // The leader that has a quorum.
        "leader": report.leader,
        "pause": report.pause.is_some(),
        "paused": report.pause,
        "members": members.collect::<Vec<_>>(),
    });
    if let Some(scheduled) = &own.scheduled_switchover {
        cluster["scheduled_switchover"] = json!(scheduled);
    }
    cluster
}

/// Returns one member for the document. `reached` has the addresses at which clients reach it; empty if it has never answered this member.
fn member(of: &MemberReport, report: &RingReport, reached: &ClientAddresses) -> Value {
    let (host, port) = reached.mysql.as_deref().and_then(split).unzip();
    let mysql = of.view.as_ref().and_then(|view| view.mysql.as_ref());
    let role = match of.kind {
        _ if report.leader == Some(of.id) => "leader",
        MemberKind::Witness => "witness",
        MemberKind::Database => "replica",
    };
    json!({
        "name": of.name,
        "id": of.id,
        "region": of.region,
        "role": role,
        "state": if of.view.is_some() { "running" } else { "silent" },
        "api_url": reached.api_url,
        "host": host,
        "port": port,
        // The address at which the other members reach it.
        "address": of.address,
        "lag": of.lag_entries,
        // How far the member's mysqld is behind the ring's commits.
        "lag_ms": mysql.and_then(|mysql| mysql.lag_ms),
    })
}

/// Splits an address into the host, without the brackets of an IPv6 address, and the port.
fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use member::status::sample::{database_leader, witness_follower};

    use super::*;
    use crate::operator::MemberReport;

    #[test]
    fn members_are_told_with_where_clients_reach_them() {
        let silent = Err("connection refused".to_owned());
        let report = RingReport::new(
            "orders",
            vec![
                MemberReport::sample(1, "db-1", Ok(database_leader())),
                MemberReport::sample(2, "witness-1", Ok(witness_follower())),
                MemberReport::sample(3, "witness-2", silent),
                MemberReport::sample(9, "stranger", Err("it is not in the ring".to_owned())),
            ],
        );
        let at = |api: &str, mysql: Option<&str>| ClientAddresses {
            api_url: Some(api.to_owned()),
            mysql: mysql.map(str::to_owned),
        };
        // The second member runs an older version, which does not report addresses.
        let addresses = BTreeMap::from([
            (
                MemberId(1),
                at("https://10.0.0.1:7480", Some("[fd00::1]:3306")),
            ),
            (MemberId(3), at("http://10.0.0.3:7480", None)),
        ]);
        assert_eq!(
            cluster(&report, &database_leader(), &addresses),
            json!({
                "scope": "orders", "leader": 1, "pause": false, "paused": null,
                "members": [
                    {"name": "db-1", "id": 1, "region": "north", "role": "leader", "state": "running",
                     "api_url": "https://10.0.0.1:7480", "host": "fd00::1", "port": 3306,
                     "address": "10.0.0.1:7400", "lag": 0, "lag_ms": null},
                    {"name": "witness-1", "id": 2, "region": "north", "role": "witness", "state": "running",
                     "api_url": null, "host": null, "port": null,
                     "address": "10.0.0.2:7400", "lag": 0, "lag_ms": null},
                    {"name": "witness-2", "id": 3, "region": "north", "role": "witness", "state": "silent",
                     "api_url": "http://10.0.0.3:7480", "host": null, "port": null,
                     "address": "10.0.0.3:7400", "lag": null, "lag_ms": null},
                ],
            })
        );
    }
}
