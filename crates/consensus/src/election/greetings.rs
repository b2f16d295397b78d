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
use crate::election::elections::Elections;
use crate::election::put_back::{PutBack, Remembered, given_up, judge};
use crate::engine;
use crate::lease::promise::PromisedLease;

/// Heartbeats between two rounds. A member's state is recorded up to the last round before it stopped; a
/// restored state is mostly older than that.
const ROUND: u32 = 10;

/// Greets all others periodically from the start on, and in between the members with which leases are to be exchanged.
pub(crate) async fn go_round(
    elections: Arc<Elections>,
    calls: Arc<dyn MemberCalls>,
    starts: Arc<dyn FileStarts>,
) {
    let rounds = async {
        loop {
            let (patience, all) = (elections.engine.timers.lease, |_: MemberId| true);
            greet(&elections, &*calls, &*starts, patience, all, greeting).await;
            tokio::time::sleep(elections.engine.timers.heartbeat * ROUND).await;
        }
    };
    let exchanges = async {
        // A member that does not answer does not delay the next exchange with the others.
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = elections.contacts.promises_lack() => {}
                Some(()) = under_way.next() => continue,
            }
            let role = elections.engine.role();
            let lacks = {
                let elections = &elections;
                move |id: MemberId| match role.state {
                    ServerState::Leader => elections.contacts.lacks_promise(id, role.term),
                    _ => {
                        role.leader == Some(id)
                            && !elections.campaigning.promise.may_answer(id, role.term)
                    }
                }
            };
            let patience = elections.engine.timers.heartbeat;
            under_way.push(greet(
                &elections,
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
    elections: &Elections,
    calls: &dyn MemberCalls,
    starts: &dyn FileStarts,
    patience: Duration,
    whom: impl Fn(MemberId) -> bool,
    say: impl Fn(&Elections, &dyn FileStarts, MemberId) -> Greeting,
) {
    let role = elections.engine.role();
    let others = role.others(elections.engine.id);
    let greeted = others
        .filter(|(id, _)| whom(*id))
        .map(async |(id, record)| {
            let said = say(elections, starts, id);
            let question = Question::Greeting(said);
            let answer = calls.ask(id, record, question, patience).await;
            let Ok(Answer::Greeting { greeting, .. }) = answer else {
                return;
            };
            if let Some(promised) = said.promised {
                elections.campaigning.promise.received(id, promised);
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
            take_in(elections, starts, id, &greeting).await;
        });
    join_all(greeted).await;
    let role = elections.engine.role();
    if let Some(lease) = elections
        .campaigning
        .promise
        .lowered_to(role.leader, role.term)
    {
        let lower = |notes: &mut ElectionNotes| notes.promised = Some(lease);
        if let Err(error) = note(elections, starts, lower).await {
            tracing::error!(%error, "the shorter lease of this member cannot be stored");
        }
    }
}

/// Changes the stored notes for the next election.
pub(crate) async fn note(
    elections: &Elections,
    starts: &dyn FileStarts,
    change: impl FnOnce(&mut ElectionNotes),
) -> io::Result<()> {
    let _one_at_a_time = elections.noting.lock().await;
    let before = starts.election_notes();
    let mut notes = before;
    change(&mut notes);
    match notes == before {
        true => Ok(()),
        false => starts.note_elections(notes).await,
    }
}

/// Only what this member promises: this answer never waits.
fn promise_alone(elections: &Elections, _: &dyn FileStarts, _: MemberId) -> Greeting {
    Greeting {
        promised: Some(
            elections
                .campaigning
                .promise
                .of(engine::role(&elections.engine.raft).term),
        ),
        ..Greeting::default()
    }
}

/// What this member reports to another one.
pub(crate) fn greeting(elections: &Elections, starts: &dyn FileStarts, to: MemberId) -> Greeting {
    Greeting {
        report: elections.past.report(starts),
        remembered: remembered(elections, to),
        ..promise_alone(elections, starts, to)
    }
}

/// This member's record of another one.
pub(crate) fn remembered(elections: &Elections, of: MemberId) -> Option<Remembered> {
    // Role and progress from one snapshot.
    let metrics = elections.engine.raft.metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let whose = membership.get_node(&of)?.incarnation;
    let term = metrics.vote.leader_id.term;
    let progress = metrics.replication.as_ref();
    let progress = progress.filter(|_| metrics.state == ServerState::Leader);
    let matched: Option<LogId> = progress.and_then(|progress| *progress.get(&of)?);
    if let Some(matched) = matched {
        let end = Some(OpId::from(matched));
        elections
            .memory
            .acknowledged(of, whose, Standing { term, end });
    }
    elections.memory.to_tell(of, whose, term)
}

/// Processes another member's report.
pub(crate) async fn take_in(
    elections: &Elections,
    starts: &dyn FileStarts,
    from: MemberId,
    greeting: &Greeting,
) {
    let role = elections.engine.role();
    let record = role.membership.membership().get_node(&from);
    if let (Some(promised), Some(record)) = (greeting.promised, record) {
        elections
            .contacts
            .promised(from, record.incarnation, promised);
        elections.transfer_started.notify_one();
    }
    if let (Some(report), Some(record)) = (&greeting.report, record)
        && let Some(put_back) = elections.memory.heard(from, record.incarnation, report)
    {
        tracing::error!(member = %from, "of another member: {put_back}");
    }
    if let Some(remembered) = greeting.remembered {
        heed(elections, starts, from, remembered).await;
    }
}

/// Checks whether this member has all that another one has recorded of it. If not, it votes for no candidate from now on.
async fn heed(elections: &Elections, starts: &dyn FileStarts, from: MemberId, told: Remembered) {
    let _one_at_a_time = elections.doubting.lock().await;
    let Some(own) = starts.standing() else {
        return;
    };
    let given_up = given_up(elections.campaigning.gate.committed());
    let explained = elections.past.doubted().max(given_up);
    let Some((found, doubt)) = judge(own, explained, &[(from, told)]) else {
        return;
    };
    elections.campaigning.doubt(&doubt, &elections.engine.raft);
    if let Err(error) = starts.note_doubt(doubt).await {
        // The log does nothing more, and the engine stops with it.
        tracing::error!(%error, "the doubt about the restored data directory cannot be stored");
    }
    say(&found);
    elections.past.found(found, doubt);
    elections.doubted.notify_one();
}

/// Logs it for the operator.
pub(crate) fn say(found: &PutBack) {
    tracing::error!("of this member: {found}");
}
