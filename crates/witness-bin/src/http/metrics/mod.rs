//! Metrics in Prometheus' text form. Gauges and counters are read from the member's view at each
//! scrape, so they cannot fall behind it; how long flushes take is observed as it happens.

mod process;
mod ring;

use std::fmt::Error;
use std::sync::Arc;

use binlog_store::{FlushSample, StoreObserver};
use member::status::ViewSource;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::openmetrics::MetricWriter;

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

impl StoreObserver for FlushMetrics {
    fn flushed(&self, sample: &FlushSample) {
        self.write.observe(sample.write.as_secs_f64());
        self.sync.observe(sample.sync.as_secs_f64());
        self.group.observe(sample.entries as f64);
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
        let mut writer = MetricWriter::new(&mut encoder);
        process::write_member(&mut writer, &view)?;
        ring::write_peers(&mut writer, &view)?;
        process::write_mysqld(&mut writer, &view)?;
        process::write_consumers(&mut writer, &view)?;
        ring::write_routes(&mut writer, &view)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use consensus::quorum::RegionQuorum;
    use raft_types::OpId;
    use raft_types::Region;

    use super::*;
    use member::status::MemberView;
    use member::status::sample::database_leader;
    use member::status::sample::witness_follower;

    struct Fixed(MemberView);

    impl ViewSource for Fixed {
        fn view(&self) -> MemberView {
            self.0.clone()
        }
    }

    fn page(view: MemberView) -> String {
        let flushes = FlushMetrics::default();
        flushes.flushed(&FlushSample {
            entries: 3,
            bytes: 0,
            write: Duration::from_micros(10),
            sync: Duration::from_millis(2),
        });
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
        if let Some(mysql) = &mut leader.mysql {
            mysql.lag_ms = Some(250);
        }
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
        assert!(page.contains("region=\"north\"} 0.25"), "{page}");
        // Former names have a table of their own above.
        let is_former = |name: &str| {
            page.contains(&format!(
                "# HELP witness_{} Former name",
                name.trim_end_matches("_total")
            ))
        };
        let mut made = names(&page);
        made.retain(|name| !is_former(name));
        let mut documented = documented;
        made.sort();
        documented.sort();
        assert_eq!(documented, made);
    }

    #[test]
    fn a_renamed_metric_has_its_former_name_as_well() {
        let mut view = database_leader();
        view.log.disk_full = true;
        view.log.scrub.turn_bytes = 5;
        let page = page(view);
        for (now, former, value) in [
            ("disk_full", "disk_refuses", "1.0"),
            ("scrub_pass_bytes", "scrub_turn_bytes", "5.0"),
            (
                "proxied_payload_bytes_total",
                "spared_payload_bytes_total",
                "200",
            ),
        ] {
            for name in [now, former] {
                let line = page
                    .lines()
                    .find(|line| line.starts_with(&format!("witness_{name}{{")));
                assert!(
                    line.is_some_and(|line| line.ends_with(&format!(" {value}"))),
                    "{name}: {page}"
                );
            }
        }
    }
}
