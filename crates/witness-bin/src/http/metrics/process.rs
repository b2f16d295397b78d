//! Metrics of the member itself: the program, its place in the ring, its log, its archive, its hooks, its mysqld and its consumers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use consensus::quorum::failures_tolerated;
use member::status::{MemberView, MysqldState, Role};
use raft_types::OpId;

use crate::openmetrics::{MetricWriter, metrics};

pub(super) fn write_member(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    ring(writer, view)?;
    log(writer, view)?;
    archive(writer, view)?;
    hooks(writer, view)
}

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
        gauge "put_back_members" = view.put_back.len();
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

/// Size and free space of the data directory's disk; nothing where the disk does not report them.
pub(super) fn write_disk(writer: &mut MetricWriter<'_>, data_dir: &Path) -> fmt::Result {
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

/// Writes them; nothing for a witness.
pub(super) fn write_mysqld(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
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

/// Writes them; nothing for a member without a binlog server.
pub(super) fn write_consumers(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let Some(consumers) = &view.consumers else {
        return Ok(());
    };
    // By name and host: the port changes with each reconnection. Several clients with one name on one host form one series.
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

/// An address without its port.
fn host(address: &str) -> &str {
    let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
    host.trim_start_matches('[').trim_end_matches(']')
}
