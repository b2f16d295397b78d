//! Members report to each other how far they have come, and what they have recorded of each other ([`super::put_back`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{join, join_all};
use futures::stream::FuturesUnordered;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use raft_types::{ElectionNotes, FileStarts, LogId, MemberId, OpId, Standing};

use crate::calls::{Answer, Greeting, MemberCalls, Question};
use crate::election::put_back::{PutBack, Remembered, given_up, judge};
use crate::engine;
use crate::lease::promise::PromisedLease;
use crate::member::core::MemberCore;

/// Heartbeats between two rounds. A member's state is recorded up to the last round before it stopped; a
/// restored state is mostly older than that.
const ROUND: u32 = 10;

/// Greets all others periodically from the start on, and in between the members with which leases are to be exchanged.
pub(crate) async fn go_round(
    core: Arc<MemberCore>,
    calls: Arc<dyn MemberCalls>,
    starts: Arc<dyn FileStarts>,
) {
    let rounds = async {
        loop {
            let (patience, all) = (core.timers.lease, |_: MemberId| true);
            greet(&core, &*calls, &*starts, patience, all, greeting).await;
            tokio::time::sleep(core.timers.heartbeat * ROUND).await;
        }
    };
    let exchanges = async {
        // A member that does not answer does not delay the next exchange with the others.
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = core.contacts.promises_lack() => {}
                Some(()) = under_way.next() => continue,
            }
            let role = core.role();
            let lacks = {
                let core = &core;
                move |id: MemberId| match role.state {
                    ServerState::Leader => core.contacts.lacks_promise(id, role.term),
                    _ => {
                        role.leader == Some(id)
                            && !core.campaigning.promise.may_answer(id, role.term)
                    }
                }
            };
            let patience = core.timers.heartbeat;
            under_way.push(greet(
                &core,
                &*calls,
                &*starts,
                patience,
                lacks,
                promise_alone,
            ));
        }
    };
    join(rounds, exchanges).await;
}

/// Greets some of the others concurrently.
async fn greet(
    core: &MemberCore,
    calls: &dyn MemberCalls,
    starts: &dyn FileStarts,
    patience: Duration,
    whom: impl Fn(MemberId) -> bool,
    say: impl Fn(&MemberCore, &dyn FileStarts, MemberId) -> Greeting,
) {
    let role = core.role();
    let others = role.membership.nodes();
    let others = others.filter(|(id, _)| **id != core.id && whom(**id));
    let greeted = others.map(async |(id, record)| {
        let said = say(core, starts, *id);
        let question = Question::Greeting(said);
        let answer = calls.ask(*id, record, question, patience).await;
        let Ok(Answer::Greeting { greeting, .. }) = answer else {
            return;
        };
        if let Some(promised) = said.promised {
            core.campaigning.promise.received(*id, promised);
        }
        // An earlier version omits it. Its lease is assumed to be the ring's.
        let unsaid = PromisedLease {
            term: role.term,
            lease: Duration::MAX,
        };
        let promised = Some(greeting.promised.unwrap_or(unsaid));
        let greeting = Greeting {
            promised,
            ..greeting
        };
        take_in(core, starts, *id, &greeting).await;
    });
    join_all(greeted).await;
    let role = core.role();
    if let Some(lease) = core.campaigning.promise.lowered_to(role.leader, role.term) {
        let lower = |notes: &mut ElectionNotes| notes.promised = Some(lease);
        if let Err(error) = note(core, starts, lower).await {
            tracing::error!(%error, "the shorter lease of this member cannot be stored");
        }
    }
}

/// Changes the stored notes for the next election.
pub(crate) async fn note(
    core: &MemberCore,
    starts: &dyn FileStarts,
    change: impl FnOnce(&mut ElectionNotes),
) -> io::Result<()> {
    let _one_at_a_time = core.noting.lock().await;
    let before = starts.election_notes();
    let mut notes = before;
    change(&mut notes);
    match notes == before {
        true => Ok(()),
        false => starts.note_elections(notes).await,
    }
}

/// Only what this member promises: this answer never waits.
fn promise_alone(core: &MemberCore, _: &dyn FileStarts, _: MemberId) -> Greeting {
    Greeting {
        promised: Some(core.campaigning.promise.of(engine::role(&core.raft).term)),
        ..Greeting::default()
    }
}

/// What this member reports to another one.
pub(crate) fn greeting(core: &MemberCore, starts: &dyn FileStarts, to: MemberId) -> Greeting {
    Greeting {
        report: core.past.report(starts),
        remembered: remembered(core, to),
        ..promise_alone(core, starts, to)
    }
}

/// What this member has recorded of another one.
pub(crate) fn remembered(core: &MemberCore, of: MemberId) -> Option<Remembered> {
    // Role and progress from one snapshot.
    let metrics = core.raft.metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let whose = membership.get_node(&of)?.incarnation;
    let term = metrics.vote.leader_id.term;
    let progress = metrics.replication.as_ref();
    let progress = progress.filter(|_| metrics.state == ServerState::Leader);
    let matched: Option<LogId> = progress.and_then(|progress| *progress.get(&of)?);
    if let Some(matched) = matched {
        let end = Some(OpId::from(matched));
        core.memory.acknowledged(of, whose, Standing { term, end });
    }
    core.memory.to_tell(of, whose, term)
}

/// Processes another member's report.
pub(crate) async fn take_in(
    core: &MemberCore,
    starts: &dyn FileStarts,
    from: MemberId,
    greeting: &Greeting,
) {
    let role = core.role();
    let record = role.membership.membership().get_node(&from);
    if let (Some(promised), Some(record)) = (greeting.promised, record) {
        core.contacts.promised(from, record.incarnation, promised);
        core.transfer_started.notify_one();
    }
    if let (Some(report), Some(record)) = (&greeting.report, record)
        && let Some(put_back) = core.memory.heard(from, record.incarnation, report)
    {
        tracing::error!(member = %from, "of another member: {put_back}");
    }
    if let Some(remembered) = greeting.remembered {
        heed(core, starts, from, remembered).await;
    }
}

/// Checks whether this member has all that another one has recorded of it. If not, it votes for no candidate from now on.
async fn heed(core: &MemberCore, starts: &dyn FileStarts, from: MemberId, told: Remembered) {
    let _one_at_a_time = core.doubting.lock().await;
    let Some(own) = starts.standing() else {
        return;
    };
    let given_up = given_up(core.campaigning.gate.committed());
    let explained = core.past.doubted().max(given_up);
    let Some((found, doubt)) = judge(own, explained, &[(from, told)]) else {
        return;
    };
    core.campaigning.doubt(&doubt, &core.raft);
    if let Err(error) = starts.note_doubt(doubt).await {
        // The log does nothing more, and the engine stops with it.
        tracing::error!(%error, "that the data directory was put back cannot be noted");
    }
    say(&found);
    core.past.found(found, doubt);
    core.doubted.notify_one();
}

/// Logs it for the operator.
pub(crate) fn say(found: &PutBack) {
    tracing::error!("of this member: {found}");
}
