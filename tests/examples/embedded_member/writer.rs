//! Acts in place of a database: commits transactions at an even rate while the member serves. They
//! are answered in order.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use binlog_format::events::{CommitTimestamp, LogicalClock, ServerVersion, TableId};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use binlog_format::synthesis::{Column, ColumnType, RowTransaction, Table, TransactionHead, Value};
use consensus::{Outcome, ProposalTicket, Term};
use member::RingHandle;
use raft_types::{AppEntry, TransactionPayload};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::account::Account;

/// The most transactions that may wait for the ring, like the sessions of a database.
const OPEN_TRANSACTIONS: usize = 1024;

/// Writes until `stop` is cancelled.
pub(crate) async fn write(
    ring: RingHandle,
    mut account: Account,
    interval: Duration,
    text_bytes: u16,
    stop: CancellationToken,
) -> Result<()> {
    let mut transactions = Transactions::new(text_bytes);
    let mut leadership = ring.member.leadership();
    loop {
        let serving = async {
            let now = leadership
                .wait_for(|now| now.serving_term().is_some())
                .await;
            now.map(|now| now.serving_term())
        };
        let term = tokio::select! {
            term = serving => term,
            () = stop.cancelled() => return Ok(()),
        };
        let Ok(term) = term else { return Ok(()) }; // the member has stopped
        if let Some(term) = term {
            serve(
                &ring,
                term,
                &mut transactions,
                &mut account,
                interval,
                &stop,
            )
            .await?;
        }
    }
}

/// Writes during one leadership. The outcome of its last transactions is unknown.
async fn serve(
    ring: &RingHandle,
    term: Term,
    transactions: &mut Transactions,
    account: &mut Account,
    interval: Duration,
    stop: &CancellationToken,
) -> Result<()> {
    let mut open: VecDeque<(Gtid, ProposalTicket)> = VecDeque::new();
    let mut pace = tokio::time::interval(interval);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let may_write = open.len() < OPEN_TRANSACTIONS && !stop.is_cancelled();
        if open.is_empty() && !may_write {
            return Ok(());
        }
        let outcome = async {
            match open.front_mut() {
                Some((_, ticket)) => ticket.outcome().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = outcome => match outcome {
                Outcome::Committed(op_id) => {
                    if let Some((gtid, _)) = open.pop_front() {
                        account.add(op_id, gtid)?;
                    }
                }
                Outcome::Refused(_) | Outcome::Unknown(_) => return Ok(()),
            },
            _ = pace.tick(), if may_write => {
                let (gtid, payload) = transactions.next()?;
                let entry = AppEntry::Transaction(payload);
                match ring.member.propose(entry, term).await {
                    Ok(ticket) => open.push_back((gtid, ticket)),
                    Err(_) => return Ok(()), // the member stops
                }
            }
        }
    }
}

/// Creates transactions with a source UUID of their own, so that two processes never use the same
/// GTID.
struct Transactions {
    source: SourceId,
    next: u64,
    text: String,
    table: Table,
}

impl Transactions {
    fn new(text_bytes: u16) -> Self {
        let column = |column_type| Column {
            column_type,
            nullable: false,
        };
        let text = ColumnType::Varchar {
            max_bytes: text_bytes,
        };
        Self {
            source: SourceId(Uuid::new_v4()),
            next: 1,
            text: "n".repeat(usize::from(text_bytes)),
            table: Table {
                id: TableId(1),
                schema: "load".to_owned(),
                name: "notes".to_owned(),
                columns: vec![column(ColumnType::BigInt), column(text)],
            },
        }
    }

    fn next(&mut self) -> Result<(Gtid, TransactionPayload)> {
        let number = self.next;
        self.next += 1;
        let gtid = Gtid {
            source: self.source,
            tag: Tag::NONE,
            gno: Gno::new(number).context("a number of a GTID begins with 1")?,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let sequence_number = i64::try_from(number)?;
        let mut transaction = RowTransaction::begin(TransactionHead {
            gtid,
            server_id: 1,
            thread_id: 1,
            commit: CommitTimestamp(u64::try_from(now)?),
            version: ServerVersion(90_704),
            clock: LogicalClock {
                last_committed: sequence_number - 1,
                sequence_number,
            },
            xid: number,
        });
        let text = Value::Text(self.text.clone());
        let row = vec![Value::BigInt(sequence_number), text];
        transaction.insert(&self.table, &[row])?;
        Ok((gtid, TransactionPayload::seal(transaction.commit())))
    }
}
