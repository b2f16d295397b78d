//! A member's records for the ring's history. Elections, transfers of the leadership, and trims of its mysqld's binlog are recorded in the
//! ring's log. Interruptions are recorded in the member's data directory, with a copy of the history in the log.

pub(crate) mod book;
mod interruptions;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use consensus::{HistoryEntry, HistoryEvent, Term};
use ring_admin::{Member, Promoted};
use spilling_bytes::long_work::on_disk;
use tokio::time::Instant;

use self::book::{HistoryBook, OpenUntil};
use self::interruptions::Interruptions;
use crate::protocol::Refusal;
use crate::ring_handle::now_ms;
use crate::state::MemberState;
use crate::status::ViewSource;

/// Records that this member leads now.
pub(crate) fn note_leadership(member: &Member, writable: bool) {
    let status = member.status();
    let own = status.ring_view.member(member.id());
    let (Some(own), Some(leader)) = (own, member.named(member.id())) else {
        return;
    };
    let silence = member.heard_leader_ago();
    let event = HistoryEvent::Led {
        leader,
        kind: own.record.kind,
        log_end: status.ring_view.last_log,
        leaderless_ms: silence.and_then(|silence| silence.as_millis().try_into().ok()),
        writable,
    };
    member.note("", event);
}

/// Records that this member has transferred the leadership, on a command or for its own reason.
pub(crate) fn note_promotion(member: &Member, promoted: &Promoted, by: &str, why: String) {
    // While failover is paused, a promotion can also make the leader itself the primary.
    if promoted.leader == member.id() {
        return;
    }
    if let (Some(from), Some(to)) = (member.named(member.id()), member.named(promoted.leader)) {
        member.note(by, HistoryEvent::GaveAway { from, to, why });
    }
}

/// Returns the history in the log, and this member's part.
pub(crate) fn whole_history(state: &MemberState, member: &Member) -> Vec<HistoryEntry> {
    let mut entries = state.history.entries();
    for logged in member.history() {
        if !entries.contains(&logged) {
            entries.push(logged);
        }
    }
    entries.sort_by_key(|entry| (entry.term, entry.at_ms));
    entries
}

/// Clears the warning about starts of mysqld that were open for writes.
///
/// # Errors
/// If the history cannot be written.
pub(crate) async fn acknowledge_exposure(
    state: &MemberState,
    member: &Member,
    by: &str,
) -> Result<(), Refusal> {
    let book = state.history.clone();
    let event = HistoryEvent::ExposureAcknowledged {
        member: book.owner(),
    };
    let mut noted = entry(now_ms(), Term(member.status().term.0), event);
    noted.by = by.to_owned();
    let added = on_disk(move || book.add(&[noted])).await;
    added.map_err(|error| {
        let what = format!("the history cannot be written: {error}");
        Refusal::failed(what, "check the disk of the data directory")
    })
}

/// How often the history in the log is copied, and how often the time is recorded until which clients could write.
const COPY: Duration = Duration::from_secs(5);

/// Maintains the history in this member's data directory, while polled. Records trims of its mysqld's binlog in the ring's log.
pub(crate) async fn keep_history(state: Arc<MemberState>, member: Member) {
    let lease_ms = u64::try_from(state.settings.raft.lease.as_millis()).unwrap_or(u64::MAX);
    let mut interruptions = Interruptions::new(lease_ms);
    let mut leadership = member.leadership();
    with_book(&state, "read", |book| {
        let left_open = book.read()?;
        book.open_until(None)?;
        // If the last process ended while clients could write, it could not write this entry.
        let ended = left_open.map(|until| {
            let (member, why) = (book.owner(), "the member's process ended".to_owned());
            let event = HistoryEvent::WritesStopped { member, why };
            entry(until.at_ms, until.term, event)
        });
        book.add(&Vec::from_iter(ended))
    })
    .await;
    let (mut copied, mut logged) = (None::<Instant>, Vec::new());
    let mut trimmed = 0;
    loop {
        leadership.borrow_and_update();
        let next_change = state.next_change();
        let (now_ms, view) = (now_ms(), state.view());
        let trimmed_now = view.mysql.as_ref().map_or(0, |mysql| mysql.trimmed_total);
        if trimmed_now > trimmed
            && let Some(own) = member.named(member.id())
        {
            let event = HistoryEvent::Trimmed {
                member: own,
                transactions: trimmed_now - trimmed,
            };
            member.note("", event);
            trimmed = trimmed_now;
        }
        let was_open = interruptions.open_until;
        let term = Term(view.term);
        let seen = interruptions.see(now_ms, &view).into_iter();
        let seen = seen.map(|(at_ms, event)| entry(at_ms, term, event));
        let mut entries = Vec::from_iter(seen);
        let is_due = copied.is_none_or(|copied| copied.elapsed() >= COPY);
        if is_due || !entries.is_empty() {
            copied = Some(Instant::now());
            let in_log = member.history();
            let newer = in_log.iter().filter(|entry| !logged.contains(*entry));
            entries.extend(newer.cloned());
            logged = in_log;
            let open = interruptions.open_until;
            let open = open.map(|at_ms| OpenUntil { at_ms, term });
            let stamp = was_open.is_some() || open.is_some();
            with_book(&state, "write", move |book| {
                book.add(&entries)?;
                if stamp { book.open_until(open) } else { Ok(()) }
            })
            .await;
        }
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { return },
            () = next_change => {}
        }
    }
}

/// Works on the history. A failure does not stop the member, because a failed disk is handled and logged elsewhere.
async fn with_book(
    state: &MemberState,
    what: &str,
    work: impl FnOnce(&HistoryBook) -> io::Result<()> + Send + 'static,
) {
    let book = state.history.clone();
    if let Err(error) = on_disk(move || work(&book)).await {
        tracing::warn!("cannot {what} the history of the data directory: {error}");
    }
}

fn entry(at_ms: u64, term: Term, event: HistoryEvent) -> HistoryEntry {
    HistoryEntry {
        at_ms,
        term,
        by: String::new(),
        event,
    }
}
