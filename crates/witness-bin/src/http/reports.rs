//! Reports of the ring's members: collected at most once a second, for all clients; and `GET /cluster`, a report in Patroni's format.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use member::status::{ClientAddresses, MemberView};
use raft_types::{MemberId, MemberKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::operator::{Asker, MemberReport, RingReport};

/// The members are asked again only after this time, for any number of clients.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(900);

/// Asks the members of the ring, this one included. Clones share the answers.
#[derive(Clone)]
pub struct RingReports {
    asker: Arc<Asker>,
    /// Held while the members are asked, so that all clients wait for the same answers.
    asking: Arc<tokio::sync::Mutex<()>>,
    last: Arc<Mutex<Last>>,
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
        Self {
            asker: Arc::new(asker),
            asking: Arc::default(),
            last: Arc::default(),
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last report, if it is younger.
    pub(super) fn not_older(&self, than: Duration) -> Option<Arc<RingReport>> {
        let last = self.last();
        let (at, report) = last.report.as_ref()?;
        (at.elapsed() < than).then(|| report.clone())
    }

    /// The current report. A member that does not answer delays it by two seconds.
    pub(super) async fn report(&self) -> Arc<RingReport> {
        let _one_at_a_time = self.asking.lock().await;
        if let Some(report) = self.not_older(ASKED_AGAIN_AFTER) {
            return report;
        }
        let report = Arc::new(self.asker.report().await);
        let mut last = self.last();
        last.report = Some((Instant::now(), report.clone()));
        last.addresses.extend(addresses(&report));
        report
    }

    /// Client addresses of each member that has ever answered this one.
    pub(super) fn addresses(&self) -> BTreeMap<MemberId, ClientAddresses> {
        self.last().addresses.clone()
    }
}

fn addresses(report: &RingReport) -> impl Iterator<Item = (MemberId, ClientAddresses)> {
    let members = report.members.iter();
    members.filter_map(|member| Some((member.id, member.view.as_ref()?.client_addresses.clone())))
}

// `GET /cluster`.

/// The ring at one moment, from the members' answers, the log of the member that was asked, and the addresses of members that do not
/// answer now. Fields are only ever added.
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

/// `reached`: where clients reach it; empty if it has never reported that here.
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
        // Where the other members reach it.
        "address": of.address,
        "lag": of.lag_entries,
        // Its mysqld's lag behind the ring's commits.
        "lag_ms": mysql.and_then(|mysql| mysql.lag_ms),
    })
}

/// The host, without the brackets of an IPv6 address, and the port.
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
