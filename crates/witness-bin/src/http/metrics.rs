//! Metrics in Prometheus' text form. Gauges and counters are read from the member's view at each
//! scrape, so they cannot fall behind it; how long flushes take is observed as it happens.

use std::fmt::Error;
use std::sync::Arc;
use std::time::Duration;

use consensus::quorum::RegionQuorum;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use raft_types::OpId;

use super::{consumer_metrics, travel_metrics};
use crate::status::{MemberView, Role, ViewSource};

/// OpenMetrics, which Prometheus asks for and reads.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long making entries durable takes.
#[derive(Debug, Clone)]
pub struct FlushMetrics {
    sync: Histogram,
    write: Histogram,
    group: Histogram,
}

impl Default for FlushMetrics {
    fn default() -> Self {
        // From 20 µs (a disk with its own battery) to five seconds (a sick one).
        let seconds = || exponential_buckets(20e-6, 2.0, 19);
        Self {
            sync: Histogram::new(seconds()),
            write: Histogram::new(seconds()),
            group: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
        }
    }
}

impl FlushMetrics {
    /// Takes one group of entries in that became durable together.
    pub fn observe(&self, entries: u64, write: Duration, sync: Duration) {
        self.write.observe(write.as_secs_f64());
        self.sync.observe(sync.as_secs_f64());
        self.group.observe(entries as f64);
    }
}

/// Every metric of a member, with the labels `ring`, `member` and `region`.
pub fn registry(source: Arc<dyn ViewSource>, flushes: &FlushMetrics) -> Registry {
    let view = source.view();
    let labels = [
        ("ring", view.ring.name),
        ("member", view.member.name),
        ("region", view.member.region.0),
    ];
    let labels = labels.map(|(name, value)| (name.into(), value.into()));
    let mut registry = Registry::with_prefix_and_labels("witness", labels.into_iter());
    registry.register_with_unit(
        "fsync",
        "How long forcing entries to the disk took",
        Unit::Seconds,
        flushes.sync.clone(),
    );
    registry.register_with_unit(
        "write",
        "How long handing entries to the operating system took",
        Unit::Seconds,
        flushes.write.clone(),
    );
    registry.register(
        "flush_entries",
        "How many entries became durable together",
        flushes.group.clone(),
    );
    registry.register_collector(Box::new(ViewCollector(source)));
    registry
}

struct ViewCollector(Arc<dyn ViewSource>);

impl std::fmt::Debug for ViewCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ViewCollector")
    }
}

impl Collector for ViewCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let view = self.0.view();
        let mut page = Page(&mut encoder);
        page.build(&view)?;
        page.ring(&view)?;
        page.log(&view)?;
        page.peers(&view)?;
        page.regions(&view)?;
        page.mysql(&view)?;
        page.hooks(&view)?;
        consumer_metrics::encode(page.0, &view)?;
        travel_metrics::encode(page.0, &view)
    }
}

struct Page<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl Page<'_, '_> {
    fn gauge(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        value: f64,
    ) -> Result<(), Error> {
        self.0
            .encode_descriptor(name, help, unit, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    fn yes(&mut self, name: &str, help: &str, value: bool) -> Result<(), Error> {
        self.gauge(name, None, help, f64::from(u8::from(value)))
    }

    fn counter(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        value: u64,
    ) -> Result<(), Error> {
        let mut metric = self
            .0
            .encode_descriptor(name, help, unit, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    fn build(&mut self, view: &MemberView) -> Result<(), Error> {
        let kind = view.member.kind.to_string();
        let labels = [("version", view.version.as_str()), ("kind", kind.as_str())];
        self.0
            .encode_descriptor(
                "build",
                "The program and the kind of the member",
                None,
                MetricType::Info,
            )?
            .encode_info(&labels)?;
        self.gauge(
            "uptime",
            Some(&Unit::Seconds),
            "Since the process started",
            view.uptime_seconds,
        )
    }

    fn ring(&mut self, view: &MemberView) -> Result<(), Error> {
        self.gauge(
            "term",
            None,
            "The term in which the member is",
            view.term as f64,
        )?;
        self.yes(
            "failover_paused",
            "1 while nobody but the present primary becomes the primary by itself",
            view.pause.is_some(),
        )?;
        let roles = [
            Role::Joining,
            Role::Learner,
            Role::Follower,
            Role::Candidate,
            Role::Leader,
        ];
        let mut metric = self.0.encode_descriptor(
            "role",
            "1 for the role that the member has",
            None,
            MetricType::Gauge,
        )?;
        for role in roles {
            let name = role.to_string();
            let holds = f64::from(u8::from(view.role == role));
            metric
                .encode_family(&[("role", name.as_str())])?
                .encode_gauge(&holds)?;
        }
        self.yes(
            "serving",
            "Whether it leads with a quorum behind it",
            view.serving,
        )?;
        self.yes(
            "quorum",
            "Whether enough voters answer, as far as it can tell",
            view.quorum.ok,
        )?;
        self.gauge(
            "quorum_lost",
            Some(&Unit::Seconds),
            "For how long they have not",
            view.quorum.lost_for_seconds.unwrap_or(0.0),
        )?;
        self.yes(
            "leader_known",
            "Whether it knows who leads",
            view.leader.is_some(),
        )?;
        self.counter(
            "elections_won",
            None,
            "Elections that it won",
            view.activity.elections_won_total,
        )?;
        self.counter(
            "leader_changes",
            None,
            "How often it saw the leader change",
            view.activity.leader_changes_total,
        )?;
        self.yes(
            "fault",
            "Whether it has stopped working",
            view.fault.is_some(),
        )
    }

    fn log(&mut self, view: &MemberView) -> Result<(), Error> {
        let index = |op_id: Option<OpId>| op_id.map_or(-1.0, |op_id| op_id.index as f64);
        self.gauge(
            "log_end_index",
            None,
            "Index of the last entry of its log; -1 without one",
            index(view.log_end),
        )?;
        self.gauge(
            "committed_index",
            None,
            "Index of the last entry that it knows to be committed; -1 without one",
            index(view.committed),
        )?;
        let bytes = Some(&Unit::Bytes);
        let (log, activity) = (&view.log, &view.activity);
        self.gauge(
            "log",
            bytes,
            "Size of all files of the log",
            log.log_bytes as f64,
        )?;
        self.gauge(
            "log_file",
            bytes,
            "Size of the file that is written",
            log.file_bytes as f64,
        )?;
        self.gauge(
            "disk_free",
            bytes,
            "Free space of the log's disk",
            log.disk_free_bytes as f64,
        )?;
        self.yes(
            "disk_alarm",
            "Whether the disk budget is nearly used up",
            log.disk_alarm,
        )?;
        self.gauge(
            "queued",
            bytes,
            "Entries that wait to be written",
            activity.queued_bytes as f64,
        )?;
        self.gauge(
            "proposals",
            bytes,
            "Entries that are proposed and not committed",
            activity.proposals_bytes as f64,
        )?;
        self.counter(
            "appended_entries",
            None,
            "Entries appended",
            activity.appended_entries_total,
        )?;
        self.counter(
            "appended",
            bytes,
            "Bytes appended",
            activity.appended_bytes_total,
        )?;
        self.counter(
            "flushes",
            None,
            "How often entries were made durable",
            activity.flushes_total,
        )
    }

    fn peers(&mut self, view: &MemberView) -> Result<(), Error> {
        if view.peers.iter().any(|peer| peer.behind_entries.is_some()) {
            let help = "Entries that the peer is behind this leader";
            let mut metric =
                self.0
                    .encode_descriptor("peer_behind_entries", help, None, MetricType::Gauge)?;
            for peer in &view.peers {
                if let Some(behind) = peer.behind_entries {
                    let labels = [("peer", peer.name.as_str())];
                    metric
                        .encode_family(&labels)?
                        .encode_gauge(&(behind as f64))?;
                }
            }
        }
        if view
            .peers
            .iter()
            .any(|peer| peer.answered_seconds.is_some())
        {
            let help = "Since the peer's last answer to this leader";
            let seconds = Some(&Unit::Seconds);
            let mut metric =
                self.0
                    .encode_descriptor("peer_answered", help, seconds, MetricType::Gauge)?;
            for peer in &view.peers {
                if let Some(age) = peer.answered_seconds {
                    metric
                        .encode_family(&[("peer", peer.name.as_str())])?
                        .encode_gauge(&age)?;
                }
            }
        }
        Ok(())
    }

    /// How far each region holds the log, on the leader.
    fn regions(&mut self, view: &MemberView) -> Result<(), Error> {
        type Held = fn(&RegionQuorum) -> Option<OpId>;
        let watermarks: [(&str, &str, Held); 2] = [
            (
                "region_majority_index",
                "Index of the last entry that a majority of the region's voting members holds durably",
                |region| region.held_by_majority,
            ),
            (
                "region_any_index",
                "Index of the last entry that any member of the region holds durably",
                |region| region.held_by_any,
            ),
        ];
        for (name, help, held) in watermarks {
            let known = view.regions.iter().filter_map(|region| {
                let held = held(region)?;
                Some((region.region.0.as_str(), held.index as f64))
            });
            let known: Vec<(&str, f64)> = known.collect();
            if known.is_empty() {
                continue;
            }
            let mut metric = self
                .0
                .encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (region, index) in known {
                metric
                    .encode_family(&[("region", region)])?
                    .encode_gauge(&index)?;
            }
        }
        Ok(())
    }

    fn hooks(&mut self, view: &MemberView) -> Result<(), Error> {
        let Some(hooks) = view.hooks else {
            return Ok(());
        };
        for (name, help, value) in [
            (
                "hook_runs",
                "Commands of hooks that were run",
                hooks.runs_total,
            ),
            (
                "hook_failures",
                "Commands of hooks that failed or were killed",
                hooks.failures_total,
            ),
            (
                "hook_events_dropped",
                "Events without a command, because too many waited",
                hooks.dropped_total,
            ),
        ] {
            self.counter(name, None, help, value)?;
        }
        Ok(())
    }

    fn mysql(&mut self, view: &MemberView) -> Result<(), Error> {
        let Some(mysql) = &view.mysql else {
            return Ok(());
        };
        self.yes(
            "protected",
            "Whether a commit in mysqld waits for the ring, whatever happens",
            mysql.protected,
        )?;
        self.yes(
            "ingesting",
            "Whether mysqld's transactions are taken in",
            mysql.ingesting,
        )?;
        self.yes(
            "writable",
            "Whether mysqld takes writes of clients",
            mysql.writable,
        )?;
        self.gauge(
            "oldest_unacked",
            Some(&Unit::Seconds),
            "Age of the oldest transaction that is not acknowledged",
            mysql.oldest_unacked_seconds.unwrap_or(0.0),
        )?;
        self.counter(
            "acked_transactions",
            None,
            "Transactions of mysqld that the ring committed",
            mysql.acknowledged_total,
        )?;
        self.counter(
            "acks",
            None,
            "Acknowledgements sent to mysqld; one may stand for many transactions",
            mysql.acks_total,
        )
    }
}

#[cfg(test)]
mod tests {
    use raft_types::Region;

    use super::*;
    use crate::status::sample::{database_leader, witness_follower};

    struct Fixed(MemberView);

    impl ViewSource for Fixed {
        fn view(&self) -> MemberView {
            self.0.clone()
        }
    }

    fn page(view: MemberView) -> String {
        let flushes = FlushMetrics::default();
        flushes.observe(3, Duration::from_micros(10), Duration::from_millis(2));
        let mut text = String::new();
        let registry = registry(Arc::new(Fixed(view)), &flushes);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn a_leader_shows_everything_with_units_and_labels() {
        let text = page(database_leader());
        let labels = "ring=\"orders\",member=\"db-1\",region=\"north\"";
        for line in [
            format!("witness_term{{{labels}}} 3.0"),
            format!("witness_role{{{labels},role=\"leader\"}} 1.0"),
            format!("witness_role{{{labels},role=\"follower\"}} 0.0"),
            format!("witness_committed_index{{{labels}}} 42.0"),
            format!("witness_protected{{{labels}}} 1.0"),
            format!("witness_oldest_unacked_seconds{{{labels}}} 0.002"),
            format!("witness_acked_transactions_total{{{labels}}} 7"),
            format!("witness_peer_behind_entries{{{labels},peer=\"witness-1\"}} 2.0"),
            format!(
                "witness_consumer_behind_bytes{{{labels},consumer=\"replica-1:3306\",address=\"10.0.0.9:40000\"}} 96.0"
            ),
            format!("witness_fsync_seconds_count{{{labels}}} 1"),
            format!("witness_disk_free_bytes{{{labels}}} 1073741824.0"),
            format!("witness_build_info{{{labels},version=\"0.1.0\",kind=\"database\"}} 1"),
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn a_witness_has_no_metrics_of_a_mysqld() {
        let text = page(witness_follower());
        assert!(!text.contains("witness_protected"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    /// Names of the metrics of a page, without the prefix, with the suffix of their samples.
    fn names(page: &str) -> Vec<String> {
        let types = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE witness_"));
        let name = |line: &str| {
            let (name, kind) = line.split_once(' ')?;
            Some(match kind {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            })
        };
        types.filter_map(name).collect()
    }

    #[test]
    fn every_metric_is_documented_and_nothing_else_is() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let documentation = std::fs::read_to_string(path).unwrap();
        let (_, section) = documentation.split_once("### `/metrics`").unwrap();
        let first_cells = section.lines().filter_map(|line| line.split('|').nth(1));
        let documented: Vec<String> = first_cells
            .flat_map(|cell| cell.split(", "))
            .filter_map(|name| name.trim().strip_prefix('`')?.strip_suffix('`'))
            .map(|name| name.split('{').next().unwrap_or(name).to_owned())
            .collect();
        let mut leader = database_leader();
        leader.regions = vec![RegionQuorum {
            region: Region("north".into()),
            voters: Vec::new(),
            healthy: Vec::new(),
            required: 2,
            in_force: true,
            held_by_majority: Some(OpId::new(3, 40)),
            held_by_any: Some(OpId::new(3, 41)),
            held_back_by: None,
        }];
        let page = page(leader);
        assert!(page.contains("region=\"north\"} 40"), "{page}");
        let mut made = names(&page);
        let mut documented = documented;
        made.sort();
        documented.sort();
        assert_eq!(documented, made);
    }
}
