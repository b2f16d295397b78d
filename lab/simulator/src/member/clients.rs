//! The clients of one member, which end with its process. Pipelined writers propose at a serving database member, like mysqld's commits.
//! Readers read at any member that claims to serve.

use std::time::Duration;

use binlog_format::event::EventFlags;
use binlog_format::events::{EncodeEvent, EventOrigin, FormatDescription};
use consensus::{Outcome, Term};
use raft_types::{
    AppEntry, Entry, EntryPayload, LogId, MemberKind, OpId, Rotate, TransactionPayload,
};
use ring_admin::Member;
use testkit::log_entries::transaction_events;

use crate::event::{Content, Event, Seen};
use crate::member::process_setup::ProcessSetup;
use crate::record::Record;

/// Maximum number of a member's transactions that wait for their commit.
const PIPELINE: usize = 32;

/// Runs the clients until the process ends.
pub(super) async fn serve(setup: ProcessSetup, member: Member, record: Record) {
    let reading = read(setup.clone(), member.clone(), record.clone());
    let writing = write(setup, member, record);
    futures::join!(reading, writing);
}

async fn read(setup: ProcessSetup, member: Member, record: Record) {
    loop {
        tokio::time::sleep(below(setup.workload.read_pause)).await;
        let serving = member.leadership_now().serving_term().is_some();
        if serving && !setup.disk.is_off() {
            record.saw(&Event::Read {
                member: setup.id,
                mark: *member.committed().borrow(),
            });
        }
    }
}

async fn write(setup: ProcessSetup, member: Member, record: Record) {
    if setup.record.kind != MemberKind::Database || setup.host.is_some() {
        return;
    }
    let room = std::sync::Arc::new(tokio::sync::Semaphore::new(PIPELINE));
    loop {
        tokio::time::sleep(below(setup.workload.write_pause)).await;
        let Some(term) = member.leadership_now().serving_term() else {
            continue;
        };
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        let proposal = propose(setup.clone(), member.clone(), record.clone(), term);
        tokio::spawn(async move {
            proposal.await;
            drop(place);
        });
    }
}

async fn propose(setup: ProcessSetup, member: Member, record: Record, term: Term) {
    let number = setup.workload.next();
    let entry = match number.is_multiple_of(u64::from(setup.workload.rotate_one_in)) {
        true => rotate(number),
        false => {
            let is_large = fastrand_below(setup.workload.large_one_in) == 0;
            let largest = match is_large {
                true => setup.workload.largest_of_all,
                false => setup.workload.largest,
            };
            transaction(number, fastrand_below(largest))
        }
    };
    let content = content_of(&entry);
    let Ok(mut ticket) = member.propose(entry, term).await else {
        return;
    };
    let outcome = ticket.outcome().await;
    if setup.disk.is_off() {
        return;
    }
    let member = setup.id;
    match outcome {
        Outcome::Committed(op_id) => record.saw(&Event::Acknowledged {
            member,
            op_id,
            content,
        }),
        Outcome::Refused(_) => record.saw(&Event::Refused { member, content }),
        Outcome::Unknown(_) => {}
    }
}

fn content_of(entry: &AppEntry) -> Content {
    let entry = Entry {
        log_id: LogId::from(OpId::default()),
        payload: EntryPayload::Normal(entry.clone()),
    };
    Seen::of(&entry).content
}

fn transaction(number: u64, bytes: usize) -> AppEntry {
    AppEntry::Transaction(TransactionPayload::seal(transaction_events(number, bytes)))
}

fn rotate(number: u64) -> AppEntry {
    let origin = EventOrigin {
        timestamp: 0,
        server_id: 11,
        flags: EventFlags::NONE,
    };
    AppEntry::Rotate(Rotate {
        format_description: FormatDescription::built_in("8.4.3").encode(origin).into(),
        timestamp: u32::try_from(1_700_000_000 + number).unwrap_or(u32::MAX),
    })
}

/// Returns a random duration of at least a millisecond and less than `longest`.
fn below(longest: Duration) -> Duration {
    Duration::from_millis(1 + fastrand_below(longest.as_millis() as usize) as u64)
}

/// Returns a random number below `bound`, from the seeded randomness of the whole process.
fn fastrand_below(bound: usize) -> usize {
    fastrand::usize(0..bound.max(1))
}
