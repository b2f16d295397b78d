//! Metrics in Prometheus' text form. Gauges and counters are read from the member's view at each
//! scrape, so they are always current; flush times are observed as they happen.

mod process;
mod ring;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use binlog_store::{FlushSample, StoreObserver};
use member::settings::Settings;
use member::status::ViewSource;
use member::{TakeoverObserver, TakeoverPhase};
use mysqld_controller::ingest::CommitObserver;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use raft_types::MemberKind;
use tokio::sync::watch;
use x509_parser::pem::Pem;

use crate::openmetrics::{MetricWriter, register};

/// Durations, observed as they happen.
#[derive(Debug, Clone)]
pub struct Histograms {
    sync: Histogram,
    write: Histogram,
    group: Histogram,
    commit_wait: Histogram,
    takeover: Family<[(&'static str, &'static str); 1], Histogram>,
}

impl Default for Histograms {
    fn default() -> Self {
        // From 20 µs (a disk with a battery-backed cache) to five seconds (a failing one).
        let flush = || Histogram::new(exponential_buckets(20e-6, 2.0, 19));
        // From 100 µs to 26 s: a commit may wait for other regions.
        let commit_wait = Histogram::new(exponential_buckets(100e-6, 2.0, 19));
        // From 10 ms to 82 s.
        let takeover = || Histogram::new(exponential_buckets(0.01, 2.0, 14));
        Self {
            sync: flush(),
            write: flush(),
            group: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            commit_wait,
            takeover: Family::new_with_constructor(takeover),
        }
    }
}

impl StoreObserver for Histograms {
    fn flushed(&self, sample: &FlushSample) {
        self.write.observe(sample.write.as_secs_f64());
        self.sync.observe(sample.sync.as_secs_f64());
        self.group.observe(sample.entries as f64);
    }
}

impl CommitObserver for Histograms {
    fn acknowledged(&self, waited: Duration) {
        self.commit_wait.observe(waited.as_secs_f64());
    }
}

impl TakeoverObserver for Histograms {
    fn took(&self, phase: TakeoverPhase, time: Duration) {
        let phase = match phase {
            TakeoverPhase::Election => "election",
            TakeoverPhase::Commit => "commit",
            TakeoverPhase::Open => "open",
        };
        let histogram = self.takeover.get_or_create(&[("phase", phase)]);
        histogram.observe(time.as_secs_f64());
    }
}

/// Every metric of a member, with the labels `ring`, `member` and `region`.
pub fn registry(
    source: Arc<dyn ViewSource>,
    data_dir: &Path,
    certificates: Expiries,
    histograms: &Histograms,
) -> Registry {
    let view = source.view();
    let labels = [
        ("ring", view.ring.name),
        ("member", view.member.name),
        ("region", view.member.region.0),
    ];
    let labels = labels.map(|(name, value)| (name.into(), value.into()));
    let mut registry = Registry::with_prefix_and_labels("witness", labels.into_iter());
    register! { registry;
        /// How long forcing entries to the disk took
        "fsync_seconds" = histograms.sync.clone();
        /// How long handing entries to the operating system took
        "write_seconds" = histograms.write.clone();
        /// How many entries became durable together
        "flush_entries" = histograms.group.clone();
        /// How long the member took to take the leadership over, by phase
        "takeover_phase_seconds" = histograms.takeover.clone();
    }
    if view.member.kind == MemberKind::Database {
        register! { registry;
            /// How long commits at the primary waited for the ring: from a transaction's arrival at the member to its acknowledgement
            "commit_wait_seconds" = histograms.commit_wait.clone();
        }
    }
    registry.register_collector(Box::new(MemberCollector {
        source,
        data_dir: data_dir.to_owned(),
        certificates,
    }));
    registry
}

struct MemberCollector {
    source: Arc<dyn ViewSource>,
    data_dir: PathBuf,
    certificates: Expiries,
}

impl fmt::Debug for MemberCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberCollector")
    }
}

impl Collector for MemberCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let view = self.source.view();
        let mut writer = MetricWriter::new(encoder);
        process::write_member(&mut writer, &view)?;
        process::write_disk(&mut writer, &self.data_dir)?;
        let expiries = self.certificates.0.borrow();
        let expiries = expiries.iter().map(|(key, at)| ([("key", *key)], *at));
        let help = "When the first certificate of the file that the key names expires, since 1970";
        writer.gauges("certificate_expiry_timestamp_seconds", help, expiries)?;
        ring::write_peers(&mut writer, &view)?;
        process::write_mysqld(&mut writer, &view)?;
        process::write_consumers(&mut writer, &view)?;
        ring::write_routes(&mut writer, &view)
    }
}

// Expiry of the certificates that the member has loaded. Their files are read at a start and at a reload, together with the certificates
// themselves.

/// The key of the configuration that names a file of certificates, and the first expiry in it, in seconds since 1970.
type Expiry = (&'static str, f64);

/// The expiries of the certificates in use. Clones share them.
#[derive(Clone)]
pub struct Expiries(Arc<watch::Sender<Vec<Expiry>>>);

impl Expiries {
    /// For all configured files.
    pub fn of(settings: &Settings) -> Self {
        Self(Arc::new(watch::Sender::new(expiries(settings))))
    }

    /// Replaces them with those of these settings.
    pub fn renew(&self, settings: &Settings) {
        self.0.send_replace(expiries(settings));
    }
}

/// For all configured files. An unreadable file is left out: its user reports it.
fn expiries(settings: &Settings) -> Vec<Expiry> {
    let mut files = Vec::new();
    if let Some(tls) = &settings.tls {
        files.push(("tls.certificate_file", &tls.certificate_file));
        files.push(("tls.ca_file", &tls.ca_file));
    }
    if let Some(mysql) = &settings.mysql {
        let certificate = mysql.tls_certificate.as_ref();
        files.extend(certificate.map(|(file, _)| ("mysql.tls_certificate_file", file)));
        let authority = mysql.tls_ca_file.as_ref();
        files.extend(authority.map(|file| ("mysql.tls_ca_file", file)));
    }
    if let Some(server) = &settings.binlog_server {
        let certificate = server.certificate.as_ref();
        files.extend(certificate.map(|(file, _)| ("binlog_server.tls_certificate_file", file)));
    }
    let known = files.into_iter();
    let known = known.filter_map(|(key, file)| Some((key, first_expiry(file)? as f64)));
    known.collect()
}

/// The first expiry of a file's certificates.
fn first_expiry(file: &Path) -> Option<i64> {
    first_expiry_in(&std::fs::read(file).ok()?)
}

/// The first expiry in a file's content.
pub(crate) fn first_expiry_in(pem: &[u8]) -> Option<i64> {
    let certificates = Pem::iter_from_buffer(pem).filter_map(|block| {
        let block = block.ok()?;
        let certificate = block.parse_x509().ok()?;
        Some(certificate.validity().not_after.timestamp())
    });
    certificates.min()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use consensus::quorum::RegionQuorum;
    use raft_types::OpId;
    use raft_types::Region;

    use super::*;
    use member::status::sample::database_leader;
    use member::status::sample::witness_follower;
    use member::status::{ConsumerView, MemberView};

    struct Fixed(MemberView);

    impl ViewSource for Fixed {
        fn view(&self) -> MemberView {
            self.0.clone()
        }
    }

    fn page(view: MemberView) -> String {
        let histograms = Histograms::default();
        histograms.acknowledged(Duration::from_millis(3));
        histograms.took(TakeoverPhase::Commit, Duration::from_millis(20));
        histograms.flushed(&FlushSample {
            entries: 3,
            bytes: 0,
            write: Duration::from_micros(10),
            sync: Duration::from_millis(2),
        });
        let mut text = String::new();
        let expiries = vec![("tls.ca_file", 1_900_000_000.0)];
        let registry = registry(
            Arc::new(Fixed(view)),
            Path::new("/"),
            Expiries(Arc::new(watch::Sender::new(expiries))),
            &histograms,
        );
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
                "witness_consumer_behind_bytes{{{labels},consumer=\"replica-1:3306\",host=\"10.0.0.9\"}} 96.0"
            ),
            format!("witness_fsync_seconds_count{{{labels}}} 1"),
            format!("witness_commit_wait_seconds_count{{{labels}}} 1"),
            format!("witness_takeover_phase_seconds_count{{{labels},phase=\"commit\"}} 1"),
            format!(
                "witness_certificate_expiry_timestamp_seconds{{{labels},key=\"tls.ca_file\"}} 1900000000.0"
            ),
            format!("witness_quorum_spare_voters{{{labels}}} 1.0"),
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
        assert!(!text.contains("witness_commit_wait"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    /// Names of the metrics in a page, without the prefix, with the suffix of their samples.
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
        assert!(page.contains("of_region=\"north\"} 40"), "{page}");
        assert!(page.contains("region=\"north\"} 0.25"), "{page}");
        let mut made = names(&page);
        let mut documented = documented;
        made.sort();
        documented.sort();
        assert_eq!(documented, made);
    }

    #[test]
    fn consumers_of_one_name_on_one_host_are_one_series() {
        let mut view = database_leader();
        let consumers = view.consumers.as_mut().unwrap();
        let mut another = consumers[0].clone();
        another.address = "10.0.0.9:40001".into();
        another.behind_bytes = 100;
        let nameless = ConsumerView {
            name: "[::1]:40002".into(),
            address: "[::1]:40002".into(),
            ..another.clone()
        };
        consumers.extend([another, nameless]);
        let page = page(view);
        let lines = |metric: &str| -> Vec<String> {
            let lines = page.lines().filter(|line| line.starts_with(metric));
            lines
                .filter_map(|line| Some(line.split_once("consumer=")?.1.to_owned()))
                .collect()
        };
        assert_eq!(
            lines("witness_consumer_behind_bytes"),
            [
                "\"::1\",host=\"::1\"} 100.0",
                "\"replica-1:3306\",host=\"10.0.0.9\"} 100.0"
            ]
        );
        assert_eq!(
            lines("witness_consumer_queued_bytes"),
            [
                "\"::1\",host=\"::1\"} 32.0",
                "\"replica-1:3306\",host=\"10.0.0.9\"} 64.0"
            ]
        );
    }

    #[test]
    fn no_label_stands_twice() {
        for line in page(database_leader()).lines() {
            let labels = line.split_once('{').map_or("", |(_, labels)| labels);
            let names = labels
                .split("\",")
                .filter_map(|label| label.split_once("=\""));
            let mut names: Vec<&str> = names.map(|(name, _)| name).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{line}");
        }
    }
}

#[cfg(test)]
mod certificate_tests {
    use super::*;

    /// A certificate that expires at the start of a year.
    fn certificate(year: i32) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["db-1".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn the_first_to_expire_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chain.pem");
        std::fs::write(&file, certificate(2031) + &certificate(2030)).unwrap();
        let expected = rcgen::date_time_ymd(2030, 1, 1).unix_timestamp();
        assert_eq!(first_expiry(&file), Some(expected));
    }

    #[test]
    fn a_file_without_a_certificate_has_no_expiry() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("none.pem");
        assert_eq!(first_expiry(&file), None);
        std::fs::write(&file, "no certificate").unwrap();
        assert_eq!(first_expiry(&file), None);
    }
}
