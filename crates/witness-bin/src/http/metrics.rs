//! Metrics in Prometheus' text form. Gauges and counters are read from the member's view at each
//! scrape. Histograms record each duration when it is measured.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use binlog_store::{FlushSample, StoreObserver};
use consensus::quorum::failures_tolerated;
use member::settings::Settings;
use member::status::{MemberView, MysqldState, ReplicationRoutesView, Role, SentView, ViewSource};
use member::{TakeoverObserver, TakeoverPhase};
use mysqld_controller::ingest::CommitObserver;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use raft_types::{MemberId, MemberKind, OpId};
use tokio::sync::watch;
use x509_parser::pem::Pem;

use crate::openmetrics::{MetricWriter, metrics, register};

/// Histograms of durations and flush sizes, each recorded when it is measured.
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
        // From 10 ms to 82 s, for each phase of a takeover.
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

/// Returns every metric of a member, with the labels `ring`, `member` and `region`.
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
        ring(&mut writer, &view)?;
        log(&mut writer, &view)?;
        archive(&mut writer, &view)?;
        hooks(&mut writer, &view)?;
        write_disk(&mut writer, &self.data_dir)?;
        let expiries = self.certificates.0.borrow();
        let expiries = expiries.iter().map(|(key, at)| ([("key", *key)], *at));
        let help = "When the first certificate of the file that the key names expires, since 1970";
        writer.gauges("certificate_expiry_timestamp_seconds", help, expiries)?;
        write_peers(&mut writer, &view)?;
        write_mysqld(&mut writer, &view)?;
        write_consumers(&mut writer, &view)?;
        write_routes(&mut writer, &view)
    }
}

// Expiry of the certificates that the member has loaded. The member reads it from the certificates' files at the same times as the
// certificates: at its start and at a reload.

/// The configuration key for a file of certificates, and the earliest expiry of the certificates in that file, in seconds since 1970.
type Expiry = (&'static str, f64);

/// The expiries of the certificates in use. Clones share them.
#[derive(Clone)]
pub struct Expiries(Arc<watch::Sender<Vec<Expiry>>>);

impl Expiries {
    /// Reads the expiries of all configured certificates.
    pub fn of(settings: &Settings) -> Self {
        Self(Arc::new(watch::Sender::new(expiries(settings))))
    }

    /// Reads the expiries again, for the certificates in these settings.
    pub fn renew(&self, settings: &Settings) {
        self.0.send_replace(expiries(settings));
    }
}

/// Reads the expiries of all configured certificates. Unreadable files are omitted: the code that uses the certificate reports the error.
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

/// Returns the earliest expiry of the certificates in a file, in seconds since 1970.
fn first_expiry(file: &Path) -> Option<i64> {
    first_expiry_in(&std::fs::read(file).ok()?)
}

/// Returns the earliest expiry of the certificates in a PEM text, in seconds since 1970.
pub(crate) fn first_expiry_in(pem: &[u8]) -> Option<i64> {
    let certificates = Pem::iter_from_buffer(pem).filter_map(|block| {
        let block = block.ok()?;
        let certificate = block.parse_x509().ok()?;
        Some(certificate.validity().not_after.timestamp())
    });
    certificates.min()
}

// Metrics of the member itself: the program, its place in the ring, its log, its archive, its hooks, its mysqld and its consumers.

fn ring(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let kind = view.member.kind.to_string();
    let labels = [("version", view.version.as_str()), ("kind", kind.as_str())];
    writer.info("build", "The program and the kind of the member", &labels)?;
    use Role::{Candidate, Follower, Joining, Leader, Learner};
    let held = [Joining, Learner, Follower, Candidate, Leader].map(|role| {
        let holds = f64::from(u8::from(view.role == role));
        ([("role", role.to_string())], holds)
    });
    writer.gauges("role", "1 for the role that the member has", held)?;
    metrics! { writer;
        /// Since the start
        gauge "uptime_seconds" = view.uptime_seconds;
        /// Raft term
        gauge "term" = view.term;
        /// Maintenance mode
        gauge "failover_paused" = view.pause.is_some();
        /// It leads with a quorum
        gauge "serving" = view.serving;
        /// Enough voters answer
        gauge "quorum" = view.quorum.ok;
        /// Time without a quorum
        gauge "quorum_lost_seconds" = view.quorum.lost_for_seconds.unwrap_or(0.0);
        // Only the leader knows which members answer.
        /// How many more voters may fail before commits wait, in the voter set that has the fewest to spare
        gauge "quorum_spare_voters" = failures_tolerated(&view.voter_set_health);
        /// It knows the leader
        gauge "leader_known" = view.leader.is_some();
        /// Elections won
        counter "elections_won" = view.activity.elections_won_total;
        /// Observed changes of the leader
        counter "leader_changes" = view.activity.leader_changes_total;
        /// It has stopped working
        gauge "fault" = view.fault.is_some();
    }
}

fn log(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let index = |op_id: Option<OpId>| op_id.map_or(-1.0, |op_id| op_id.index as f64);
    let (log, scrub, activity) = (&view.log, &view.log.scrub, &view.activity);
    metrics! { writer;
        /// Index of the last entry of its log; -1 without one
        gauge "log_end_index" = index(view.log_end);
        /// Index of the last entry that it knows to be committed; -1 without one
        gauge "committed_index" = index(view.committed);
        /// All files of the log
        gauge "log_bytes" = log.log_bytes;
        /// The current file
        gauge "log_file_bytes" = log.file_bytes;
        /// What the log's disk budget leaves for transactions
        gauge "disk_left_bytes" = log.disk_left_bytes;
        /// Files of the log that cannot be read, so that another member waits for what is in them
        gauge "log_unreadable_files" = log.unreadable.len();
        /// Closed files of the log
        gauge "log_closed_bytes" = scrub.closed_bytes;
        /// Closed files of the log that were never read back since they were written
        gauge "log_unverified_bytes" = scrub.unverified_bytes;
        /// Closed files of the log that the present pass of reading all of them back has read
        gauge "scrub_pass_bytes" = scrub.turn_bytes;
        /// End of the last pass, since 1970; 0 before the first
        gauge "scrub_completed_timestamp_seconds" = scrub.completed_at.unwrap_or_default();
        /// Bytes of closed files that were read back
        counter "scrub_read_bytes" = scrub.read_bytes_total;
        /// How often a closed file was found damaged
        counter "scrub_damaged_files" = scrub.damaged_total;
        /// Damaged files that were replaced by another member's
        counter "scrub_repaired_files" = scrub.repaired_total;
        /// Little disk budget is left
        gauge "disk_alarm" = log.disk_alarm;
        /// Whether the log's disk is full, so that a write was refused and the log waits for space
        gauge "disk_full" = log.disk_full;
        /// For how long the log's disk has been at the write or fsync that is under way; 0 while none is
        gauge "log_disk_busy_seconds" = Duration::from_millis(log.disk_busy_ms).as_secs_f64();
        /// Members with data directories restored to an earlier state, as far as this one knows, until their restart
        gauge "put_back_members" = view.restored.len();
        /// Entries that wait to be written
        gauge "queued_bytes" = activity.queued_bytes;
        /// Entries that are proposed and not committed
        gauge "proposals_bytes" = activity.proposals_bytes;
        /// Entries appended
        counter "appended_entries" = activity.appended_entries_total;
        /// Bytes appended
        counter "appended_bytes" = activity.appended_bytes_total;
        /// Durable writes
        counter "flushes" = activity.flushes_total;
    }
}

/// Writes the size and the free space of the data directory's disk; nothing if the file system does not report them.
fn write_disk(writer: &mut MetricWriter<'_>, data_dir: &Path) -> fmt::Result {
    let Ok(disk) = rustix::fs::statvfs(data_dir) else {
        return Ok(());
    };
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    metrics! { writer;
        /// Size of the disk of the member's data directory
        gauge "disk_size_bytes" = bytes(disk.f_blocks);
        /// Free space there, for accounts other than root
        gauge "disk_free_bytes" = bytes(disk.f_bavail);
    }
}

fn archive(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let Some(archive) = &view.archive else {
        return Ok(());
    };
    metrics! { writer;
        /// This member archives
        gauge "archives" = archive.archives;
        /// How long something has been committed that the archive lacks, as far as this member has looked
        gauge "archive_lag_seconds" = archive.lag_seconds;
        /// Bytes that it put into the archive
        counter "archived_bytes" = archive.bytes_total;
        /// Bytes of files that it fetched from the archive for consumers of the binlog server
        counter "archive_served_bytes" = archive.served_bytes_total;
        /// What such files take of its disk at present
        gauge "archive_serve_disk_bytes" = archive.serve_disk_bytes;
        /// Files of the log that it fetched from the archive for consumers of the binlog server
        counter "archive_served_files" = archive.served_files_total;
        /// How often it could not check the archive, or fetch a file, for consumers
        counter "archive_serve_failures" = archive.serve_failures_total;
        /// Pieces of the log that it put into the archive
        counter "archived_pieces" = archive.pieces_total;
        /// How often the archive continued after a gap, because the log was purged before it was archived
        counter "archive_gaps" = archive.gaps_total;
        /// How often archiving failed and restarted
        counter "archive_failures" = archive.failures_total;
        /// Objects that it deleted from the archive, as they were replaced or too old
        counter "archive_pruned_objects" = archive.pruned_objects_total;
        /// How often it could not determine or delete prunable objects
        counter "archive_prune_failures" = archive.prune_failures_total;
    }
}

fn hooks(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let Some(hooks) = &view.hooks else {
        return Ok(());
    };
    metrics! { writer;
        /// Runs of hooks
        counter "hook_runs" = hooks.runs_total;
        /// Failed hook runs
        counter "hook_failures" = hooks.failures_total;
        /// Hooks whose last run failed, and that are retried
        gauge "hooks_failing" = hooks.failing.len();
    }
}

// Metrics of a database member's mysqld.

/// Writes the metrics of the mysqld; nothing for a witness.
fn write_mysqld(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let Some(mysql) = &view.mysql else {
        return Ok(());
    };
    let errant = mysql.errant.as_ref();
    metrics! { writer;
        /// Commits wait for the ring
        gauge "protected" = mysql.protected;
        /// Transactions are received
        gauge "ingesting" = mysql.ingesting;
        /// Clients may write
        gauge "writable" = mysql.writable;
        /// mysqld answers
        gauge "mysql_up" = mysql.state == MysqldState::Running;
        /// It applies the log
        gauge "mysql_following" = mysql.follows();
        /// Whether offline_mode excludes ordinary accounts
        gauge "mysql_offline" = mysql.offline.is_some();
        /// Whether mysqld cannot have its role; status names the reason
        gauge "mysql_trouble" = mysql.trouble.is_some();
        /// Whether mysqld has a warning, which status names
        gauge "mysql_warning" = !mysql.warnings.is_empty();
        /// How far what is applied to mysqld is behind what the ring committed, while it follows
        gauge "replica_lag_seconds" = mysql.lag_ms.map(|lag| lag as f64 / 1e3);
        /// Transactions of the ring's log that were applied to mysqld
        counter "applied_transactions" = mysql.applied_total;
        /// Transactions that mysqld has executed and the ring has not committed
        gauge "errant_transactions" = errant.map_or(0, |errant| errant.transactions);
        /// Transactions that were cut off mysqld's binlog before a start, because the ring had not committed them
        counter "trimmed_transactions" = mysql.trimmed_total;
        /// Age of the oldest transaction that is not acknowledged
        gauge "oldest_unacked_seconds" = mysql.oldest_unacked_seconds.unwrap_or(0.0);
        /// Transactions of mysqld that the ring committed
        counter "acked_transactions" = mysql.acknowledged_total;
        /// ACKs sent to mysqld
        counter "acks" = mysql.acks_total;
    }
}

// Metrics of the clients of a member's binlog server.

/// Writes the metrics of the binlog server's clients; nothing for a member without a binlog server.
fn write_consumers(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let Some(consumers) = &view.consumers else {
        return Ok(());
    };
    // A series is identified by name and host, because the port changes with each reconnection. Clients with the same name on one host
    // share a series.
    let mut by_name = BTreeMap::new();
    for consumer in consumers {
        let host = host(&consumer.address);
        let name = match consumer.name == consumer.address {
            true => host,
            false => &consumer.name,
        };
        let (unread, queued) = by_name.entry((name, host)).or_insert((0, 0));
        *unread = consumer.behind_bytes.max(*unread);
        *queued += consumer.queued_bytes;
    }
    let series = by_name.iter().map(|((consumer, host), (unread, queued))| {
        let labels = [("consumer", *consumer), ("host", *host)];
        ((labels, *unread as f64), (labels, *queued as f64))
    });
    let (unread, queued): (Vec<_>, Vec<_>) = series.unzip();
    metrics! { writer;
        /// Consumers that are attached to the binlog server
        gauge "consumers" = consumers.len();
        /// Committed bytes of the log that were not read for the consumer of the binlog server
        gauges "consumer_behind_bytes" = unread;
        /// Bytes that wait to be taken by it
        gauges "consumer_queued_bytes" = queued;
    }
}

/// Returns the host of an address, without the port.
fn host(address: &str) -> &str {
    let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
    host.trim_start_matches('[').trim_end_matches(']')
}

// Metrics of replication routes by member, and the leader's view of the other members.

/// Writes the metrics of the routes: entries that were sent, saved and relayed. Writes nothing before the member joins the ring.
fn write_routes(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let Some(routes) = &view.replication_routes else {
        return Ok(());
    };
    sent(writer, view, routes)?;
    let relayed = &routes.relayed;
    metrics! { writer;
        /// Streams that leaders opened to this member as a proxy
        counter "proxy_streams" = relayed.streams_total;
        /// Entries that this member sent on as a proxy
        counter "proxy_entries" = relayed.entries_total;
        /// Bytes of their payloads
        counter "proxy_payload_bytes" = relayed.bytes_total;
        /// Streams that ended because an entry was not in this member's log in time
        counter "proxy_missing" = relayed.missing_total;
        /// Streams that ended because the next member could not be called
        counter "proxy_cannot_call" = relayed.cannot_call_total;
        /// Bytes of payloads that were compressed for another region
        counter "compressed_bytes" = routes.compressed_bytes_total;
        /// Bytes that they were compressed to
        counter "compressed_to_bytes" = routes.compressed_to_bytes_total;
    }
}

fn sent(
    writer: &mut MetricWriter<'_>,
    view: &MemberView,
    routes: &ReplicationRoutesView,
) -> fmt::Result {
    let name_of = |id: MemberId| {
        let member = view.members.iter().find(|member| member.id == id);
        member.map_or_else(|| id.to_string(), |member| member.record.name.clone())
    };
    let links = routes.links.iter().flat_map(|link| {
        let by_kind = [
            ("entries", link.entries_bytes_total),
            ("op_ids", link.op_ids_bytes_total),
            ("heartbeats", link.heartbeats_bytes_total),
        ];
        by_kind.map(|(kind, sent)| {
            let labels = [("to", name_of(link.member)), ("kind", kind.to_owned())];
            (labels, sent)
        })
    });
    let fallbacks = routes.fallbacks.iter().map(|fallback| {
        let labels = [
            ("proxy", name_of(fallback.proxy)),
            ("reason", fallback.reason.clone()),
        ];
        (labels, fallback.times_total)
    });
    let to = |sent: &SentView| [("to", name_of(sent.member))];
    let sent = routes.sent.iter();
    metrics! { writer;
        /// Entries that were sent to the member from here
        counters "sent_entries" = sent.clone().map(|sent| (to(sent), sent.direct_entries_total));
        /// Bytes of their payloads
        counters "sent_payload_bytes" = sent.clone().map(|sent| (to(sent), sent.direct_bytes_total));
        /// Entries of which only the op ids were sent, to the proxy of the member
        counters "proxied_entries" = sent.clone().map(|sent| (to(sent), sent.proxied_entries_total));
        /// Bytes of their payloads, which did not travel from here
        counters "proxied_payload_bytes" = sent.map(|sent| (to(sent), sent.spared_bytes_total));
        /// Bytes of messages that were sent to a member, as they travelled, by kind
        counters "link_bytes" = links;
        /// How often a proxy was left for a while, by reason
        counters "proxy_fallbacks" = fallbacks;
    }
}

/// Writes the progress of each peer and each region, if this member leads.
fn write_peers(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let (peers, regions) = (view.peers.iter(), view.regions.iter());
    metrics! { writer;
        /// Entries that the peer is behind this leader
        gauges "peer_behind_entries" = peers.clone().filter_map(|peer| Some(([("peer", peer.name.as_str())], peer.behind_entries? as f64)));
        /// Since the peer's last answer to this leader
        gauges "peer_answered_seconds" = peers.filter_map(|peer| Some(([("peer", peer.name.as_str())], peer.answered_seconds?)));
        // The label here is `of_region`: on every metric, `region` is the region of the member that exports it.
        /// Index of the last entry that a majority of the region's voting members holds durably
        gauges "region_majority_index" =
            regions.clone().filter_map(|of| Some(([("of_region", of.region.0.as_str())], of.held_by_majority?.index as f64)));
        /// Index of the last entry that any member of the region holds durably
        gauges "region_any_index" = regions.filter_map(|of| Some(([("of_region", of.region.0.as_str())], of.held_by_any?.index as f64)));
    }
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

    /// Returns the names of the metrics in a page, without the registry's prefix, but with suffixes such as `_total`.
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
