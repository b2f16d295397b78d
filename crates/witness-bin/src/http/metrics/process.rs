//! Metrics of the member itself: the program, its place in the ring, its log and its hooks.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::path::Path;
use std::time::Duration;

use consensus::quorum::failures_tolerated;
use member::status::{MemberView, MysqldState, Role, ScrubView};
use raft_types::OpId;

use crate::openmetrics::MetricWriter;

pub(super) fn write_member(
    writer: &mut MetricWriter<'_, '_>,
    view: &MemberView,
) -> Result<(), Error> {
    build(writer, view)?;
    ring(writer, view)?;
    log(writer, view)?;
    archive(writer, view)?;
    hooks(writer, view)
}

fn build(writer: &mut MetricWriter<'_, '_>, view: &MemberView) -> Result<(), Error> {
    let kind = view.member.kind.to_string();
    let labels = [("version", view.version.as_str()), ("kind", kind.as_str())];
    writer.info("build", "The program and the kind of the member", &labels)?;
    writer.gauge("uptime_seconds", "Since the start", view.uptime_seconds)
}

fn ring(writer: &mut MetricWriter<'_, '_>, view: &MemberView) -> Result<(), Error> {
    writer.gauge("term", "Raft term", view.term as f64)?;
    writer.yes("failover_paused", "Maintenance mode", view.pause.is_some())?;
    use Role::{Candidate, Follower, Joining, Leader, Learner};
    let held = [Joining, Learner, Follower, Candidate, Leader].map(|role| {
        let holds = f64::from(u8::from(view.role == role));
        ([("role", role.to_string())], holds)
    });
    writer.gauges("role", "1 for the role that the member has", held)?;
    writer.yes("serving", "It leads with a quorum", view.serving)?;
    writer.yes("quorum", "Enough voters answer", view.quorum.ok)?;
    writer.gauge(
        "quorum_lost_seconds",
        "Time without a quorum",
        view.quorum.lost_for_seconds.unwrap_or(0.0),
    )?;
    // Only the leader knows which members answer.
    if let Some(spare) = failures_tolerated(&view.voter_set_health) {
        writer.gauge(
            "quorum_spare_voters",
            "How many more voters may fail before commits wait, in the voter set that has the fewest to spare",
            spare as f64,
        )?;
    }
    writer.yes("leader_known", "It knows the leader", view.leader.is_some())?;
    writer.counter(
        "elections_won",
        "Elections won",
        view.activity.elections_won_total,
    )?;
    writer.counter(
        "leader_changes",
        "Observed changes of the leader",
        view.activity.leader_changes_total,
    )?;
    writer.yes("fault", "It has stopped working", view.fault.is_some())
}

fn scrub(writer: &mut MetricWriter<'_, '_>, scrub: &ScrubView) -> Result<(), Error> {
    writer.gauge(
        "log_closed_bytes",
        "Closed files of the log",
        scrub.closed_bytes as f64,
    )?;
    writer.gauge(
        "log_unverified_bytes",
        "Closed files of the log that were never read back since they were written",
        scrub.unverified_bytes as f64,
    )?;
    writer.gauge(
        "scrub_pass_bytes",
        "Closed files of the log that the present pass of reading all of them back has read",
        scrub.turn_bytes as f64,
    )?;
    writer.gauge(
        "scrub_completed_timestamp_seconds",
        "End of the last pass, since 1970; 0 before the first",
        scrub.completed_at.unwrap_or_default() as f64,
    )?;
    writer.counter(
        "scrub_read_bytes",
        "Bytes of closed files that were read back",
        scrub.read_bytes_total,
    )?;
    writer.counter(
        "scrub_damaged_files",
        "How often a closed file was found damaged",
        scrub.damaged_total,
    )?;
    writer.counter(
        "scrub_repaired_files",
        "Damaged files that were replaced by another member's",
        scrub.repaired_total,
    )
}

fn log(writer: &mut MetricWriter<'_, '_>, view: &MemberView) -> Result<(), Error> {
    let index = |op_id: Option<OpId>| op_id.map_or(-1.0, |op_id| op_id.index as f64);
    writer.gauge(
        "log_end_index",
        "Index of the last entry of its log; -1 without one",
        index(view.log_end),
    )?;
    writer.gauge(
        "committed_index",
        "Index of the last entry that it knows to be committed; -1 without one",
        index(view.committed),
    )?;
    let (log, activity) = (&view.log, &view.activity);
    writer.gauge("log_bytes", "All files of the log", log.log_bytes as f64)?;
    writer.gauge("log_file_bytes", "The current file", log.file_bytes as f64)?;
    writer.gauge(
        "disk_left_bytes",
        "What the log's disk budget leaves for transactions",
        log.disk_left_bytes as f64,
    )?;
    writer.gauge(
        "log_unreadable_files",
        "Files of the log that cannot be read, so that another member waits for what is in them",
        log.unreadable.len() as f64,
    )?;
    scrub(writer, &log.scrub)?;
    writer.yes("disk_alarm", "Little disk budget is left", log.disk_alarm)?;
    writer.yes(
        "disk_full",
        "Whether the log's disk is full, so that a write was refused and the log waits for space",
        log.disk_full,
    )?;
    writer.gauge(
        "log_disk_busy_seconds",
        "For how long the log's disk has been at the write or fsync that is under way; 0 while none is",
        Duration::from_millis(log.disk_busy_ms).as_secs_f64(),
    )?;
    writer.gauge(
        "put_back_members",
        "Members with data directories restored to an earlier state, as far as this one knows, until their restart",
        view.put_back.len() as f64,
    )?;
    writer.gauge(
        "queued_bytes",
        "Entries that wait to be written",
        activity.queued_bytes as f64,
    )?;
    writer.gauge(
        "proposals_bytes",
        "Entries that are proposed and not committed",
        activity.proposals_bytes as f64,
    )?;
    writer.counter(
        "appended_entries",
        "Entries appended",
        activity.appended_entries_total,
    )?;
    writer.counter(
        "appended_bytes",
        "Bytes appended",
        activity.appended_bytes_total,
    )?;
    writer.counter("flushes", "Durable writes", activity.flushes_total)
}

/// Size and free space of the data directory's disk; nothing where the disk does not report them.
pub(super) fn write_disk(writer: &mut MetricWriter<'_, '_>, data_dir: &Path) -> Result<(), Error> {
    let Ok(disk) = rustix::fs::statvfs(data_dir) else {
        return Ok(());
    };
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize) as f64;
    writer.gauge(
        "disk_size_bytes",
        "Size of the disk of the member's data directory",
        bytes(disk.f_blocks),
    )?;
    writer.gauge(
        "disk_free_bytes",
        "Free space there, for accounts other than root",
        bytes(disk.f_bavail),
    )
}

fn archive(writer: &mut MetricWriter<'_, '_>, view: &MemberView) -> Result<(), Error> {
    let Some(archive) = &view.archive else {
        return Ok(());
    };
    writer.yes("archives", "This member archives", archive.archives)?;
    writer.gauge(
        "archive_lag_seconds",
        "How long something has been committed that the archive lacks, as far as this member has looked",
        archive.lag_seconds,
    )?;
    writer.counter(
        "archived_bytes",
        "Bytes that it put into the archive",
        archive.bytes_total,
    )?;
    writer.counter(
        "archive_served_bytes",
        "Bytes of files that it fetched from the archive for consumers of the binlog server",
        archive.served_bytes_total,
    )?;
    writer.gauge(
        "archive_serve_disk_bytes",
        "What such files take of its disk at present",
        archive.serve_disk_bytes as f64,
    )?;
    for (name, help, value) in [
        (
            "archive_served_files",
            "Files of the log that it fetched from the archive for consumers of the binlog server",
            archive.served_files_total,
        ),
        (
            "archive_serve_failures",
            "How often it could not check the archive, or fetch a file, for consumers",
            archive.serve_failures_total,
        ),
        (
            "archived_pieces",
            "Pieces of the log that it put into the archive",
            archive.pieces_total,
        ),
        (
            "archive_gaps",
            "How often the archive continued after a gap, because the log was purged before it was archived",
            archive.gaps_total,
        ),
        (
            "archive_failures",
            "How often archiving failed and restarted",
            archive.failures_total,
        ),
        (
            "archive_pruned_objects",
            "Objects that it deleted from the archive, as they were replaced or too old",
            archive.pruned_objects_total,
        ),
        (
            "archive_prune_failures",
            "How often it could not determine or delete prunable objects",
            archive.prune_failures_total,
        ),
    ] {
        writer.counter(name, help, value)?;
    }
    Ok(())
}

fn hooks(writer: &mut MetricWriter<'_, '_>, view: &MemberView) -> Result<(), Error> {
    let Some(hooks) = &view.hooks else {
        return Ok(());
    };
    writer.counter("hook_runs", "Runs of hooks", hooks.runs_total)?;
    writer.counter("hook_failures", "Failed hook runs", hooks.failures_total)?;
    writer.gauge(
        "hooks_failing",
        "Hooks whose last run failed, and that are retried",
        hooks.failing.len() as f64,
    )
}

// Metrics of a database member's mysqld.

/// Writes them; nothing for a witness.
pub(super) fn write_mysqld(
    writer: &mut MetricWriter<'_, '_>,
    view: &MemberView,
) -> Result<(), Error> {
    let Some(mysql) = &view.mysql else {
        return Ok(());
    };
    writer.yes("protected", "Commits wait for the ring", mysql.protected)?;
    writer.yes("ingesting", "Transactions are received", mysql.ingesting)?;
    writer.yes("writable", "Clients may write", mysql.writable)?;
    let answers = mysql.state == MysqldState::Running;
    writer.yes("mysql_up", "mysqld answers", answers)?;
    writer.yes("mysql_following", "It applies the log", mysql.follows())?;
    writer.yes(
        "mysql_offline",
        "Whether offline_mode excludes ordinary accounts",
        mysql.offline.is_some(),
    )?;
    writer.yes(
        "mysql_trouble",
        "Whether mysqld cannot have its role; status names the reason",
        mysql.trouble.is_some(),
    )?;
    writer.yes(
        "mysql_warning",
        "Whether mysqld has a warning, which status names",
        !mysql.warnings.is_empty(),
    )?;
    if let Some(lag) = mysql.lag_ms {
        writer.gauge(
            "replica_lag_seconds",
            "How far what is applied to mysqld is behind what the ring committed, while it follows",
            lag as f64 / 1e3,
        )?;
    }
    writer.counter(
        "applied_transactions",
        "Transactions of the ring's log that were applied to mysqld",
        mysql.applied_total,
    )?;
    let errant = mysql.errant.as_ref();
    writer.gauge(
        "errant_transactions",
        "Transactions that mysqld has executed and the ring has not committed",
        errant.map_or(0, |errant| errant.transactions) as f64,
    )?;
    writer.counter(
        "trimmed_transactions",
        "Transactions that were cut off mysqld's binlog before a start, because the ring had not committed them",
        mysql.trimmed_total,
    )?;
    writer.gauge(
        "oldest_unacked_seconds",
        "Age of the oldest transaction that is not acknowledged",
        mysql.oldest_unacked_seconds.unwrap_or(0.0),
    )?;
    writer.counter(
        "acked_transactions",
        "Transactions of mysqld that the ring committed",
        mysql.acknowledged_total,
    )?;
    writer.counter("acks", "ACKs sent to mysqld", mysql.acks_total)
}

// Metrics of the clients of a member's binlog server.

/// Writes them; nothing for a member without a binlog server.
pub(super) fn write_consumers(
    writer: &mut MetricWriter<'_, '_>,
    view: &MemberView,
) -> Result<(), Error> {
    let Some(consumers) = &view.consumers else {
        return Ok(());
    };
    writer.gauge(
        "consumers",
        "Consumers that are attached to the binlog server",
        consumers.len() as f64,
    )?;
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
    let labels = |(consumer, host): &(&str, &str)| {
        [
            ("consumer", consumer.to_string()),
            ("host", host.to_string()),
        ]
    };
    let unread = by_name
        .iter()
        .map(|(of, (unread, _))| (labels(of), *unread as f64));
    writer.gauges(
        "consumer_behind_bytes",
        "Committed bytes of the log that were not read for the consumer of the binlog server",
        unread,
    )?;
    let queued = by_name
        .iter()
        .map(|(of, (_, queued))| (labels(of), *queued as f64));
    writer.gauges(
        "consumer_queued_bytes",
        "Bytes that wait to be taken by it",
        queued,
    )
}

/// An address without its port.
fn host(address: &str) -> &str {
    let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
    host.trim_start_matches('[').trim_end_matches(']')
}
