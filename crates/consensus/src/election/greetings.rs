//! Greetings: messages in which members report their own state (vote and log) and their records of each other's state
//! ([`super::restored_directory`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{join, join_all};
use futures::stream::FuturesUnordered;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use raft_types::{ElectionNotes, LogId, MemberId, OpId, Standing};

use crate::calls::{Answer, Greeting, Question};
use crate::election::elections::Elections;
use crate::election::restored_directory::{Remembered, given_up, judge};
use crate::election::vote_gate::ElectionGate;
use crate::engine;
use crate::lease::promise::PromisedLease;

/// Heartbeats between two rounds of greetings. A member's recorded state is from the last round before it stopped. A restored state is
/// usually older.
const ROUND: u32 = 10;

/// Greets all other members periodically from the start on. Between the rounds, exchanges leases with a member if its lease is missing.
pub(crate) async fn go_round(elections: Arc<Elections>) {
    let rounds = async {
        loop {
            let (patience, all) = (elections.engine.timers.lease, |_: MemberId| true);
            greet(&elections, patience, all, greeting).await;
            tokio::time::sleep(elections.engine.timers.heartbeat * ROUND).await;
        }
    };
    let exchanges = async {
        // A member that does not answer must not delay the next exchange with other members.
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = elections.contacts.unpromised.notified() => {}
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
            let say = |elections: &Elections, _| promise_alone(elections);
            under_way.push(greet(&elections, patience, lacks, say));
        }
    };
    join(rounds, exchanges).await;
}

/// Greets concurrently the other members that `whom` selects.
async fn greet(
    elections: &Elections,
    patience: Duration,
    whom: impl Fn(MemberId) -> bool,
    say: impl Fn(&Elections, MemberId) -> Greeting,
) {
    let role = elections.engine.role();
    let others = role.others(elections.engine.id);
    let greeted = others
        .filter(|(id, _)| whom(*id))
        .map(async |(id, record)| {
            let said = say(elections, id);
            let calls = &elections.engine.calls;
            let asked = calls.ask(id, record, Question::Greeting(said), patience);
            let Ok(Answer::Greeting { greeting, .. }) = asked.await else {
                return;
            };
            if let Some(promised) = said.promised {
                elections.campaigning.promise.received(id, promised);
            }
            // A member of an earlier version does not report its lease. It is assumed to be the same as this member's.
            let unsaid = PromisedLease {
                term: role.term,
                lease: Duration::MAX,
            };
            let promised = Some(greeting.promised.unwrap_or(unsaid));
            let greeting = Greeting {
                promised,
                ..greeting
            };
            take_in(elections, id, &greeting).await;
        });
    join_all(greeted).await;
    let role = elections.engine.role();
    let promise = &elections.campaigning.promise;
    if let Some(lease) = promise.lowered_to(role.leader, role.term) {
        let lower = |notes: &mut ElectionNotes| notes.promised = Some(lease);
        if let Err(error) = note(elections, lower).await {
            tracing::error!(%error, "the shorter lease of this member cannot be stored");
        }
    }
}

/// Changes the stored notes for the next election.
pub(crate) async fn note(
    elections: &Elections,
    change: impl FnOnce(&mut ElectionNotes),
) -> io::Result<()> {
    let starts = &elections.engine.starts;
    let _alone = elections.noting.lock().await;
    let before = starts.election_notes();
    let mut notes = before;
    change(&mut notes);
    match notes == before {
        true => Ok(()),
        false => starts.note_elections(notes).await,
    }
}

/// Returns a greeting with only this member's lease. It is ready without a wait.
fn promise_alone(elections: &Elections) -> Greeting {
    let term = engine::role(&elections.engine.raft).term;
    Greeting {
        promised: Some(elections.campaigning.promise.of(term)),
        ..Greeting::default()
    }
}

/// Returns the report of this member to another member.
pub(crate) fn greeting(elections: &Elections, to: MemberId) -> Greeting {
    Greeting {
        report: elections.past.report(&*elections.engine.starts),
        remembered: remembered(elections, to),
        ..promise_alone(elections)
    }
}

/// Returns this member's record of another member.
pub(crate) fn remembered(elections: &Elections, of: MemberId) -> Option<Remembered> {
    // Reads role and progress from one snapshot.
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
        let standing = Standing { term, end };
        elections.memory.acknowledged(of, whose, standing);
    }
    elections.memory.to_tell(of, whose, term)
}

/// Processes the report of another member.
pub(crate) async fn take_in(elections: &Elections, from: MemberId, greeting: &Greeting) {
    let role = elections.engine.role();
    let record = role.membership.membership().get_node(&from);
    let whose = record.map(|record| record.incarnation);
    if let (Some(promised), Some(whose)) = (greeting.promised, whose) {
        elections.contacts.promised(from, whose, promised);
        elections.transfer_started.notify_one();
    }
    if let (Some(report), Some(whose)) = (&greeting.report, whose)
        && let Some(restored) = elections.memory.heard(from, whose, report)
    {
        tracing::error!(member = %from, "of another member: {restored}");
    }
    if let Some(remembered) = greeting.remembered {
        heed(elections, from, remembered).await;
    }
}

/// Checks whether this member has all entries and votes that another member has recorded of it. If not, it votes for no candidate from now
/// on.
async fn heed(elections: &Elections, from: MemberId, told: Remembered) {
    let (raft, starts) = (&elections.engine.raft, &elections.engine.starts);
    let _alone = elections.doubting.lock().await;
    let Some(own) = starts.standing() else {
        return;
    };
    let given_up = given_up(elections.campaigning.gate.committed());
    let explained = elections.past.doubted().max(given_up);
    let Some((found, doubt)) = judge(own, explained, &[(from, told)]) else {
        return;
    };
    let in_doubt = |gate: &ElectionGate| gate.doubt(&doubt);
    elections.campaigning.change_gate(raft, in_doubt);
    if let Err(error) = starts.note_doubt(doubt).await {
        // The log's writer has stopped, and the engine stops with it.
        tracing::error!(%error, "the doubt about the restored data directory cannot be stored");
    }
    tracing::error!("of this member: {found}");
    elections.past.found(found, doubt);
    elections.doubted.notify_one();
}
