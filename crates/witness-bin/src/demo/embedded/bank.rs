//! The data of the embedded writer: a bank whose every transaction moves money between two accounts
//! and writes the transfer down. It makes the row events that a mysqld would write for it, before
//! images included, so that the log can be replayed.

use std::time::{SystemTime, UNIX_EPOCH};

use binlog_format::events::{CommitTimestamp, LogicalClock, ServerVersion, TableId};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use binlog_format::synthesis::{
    Column, ColumnType, RowTransaction, SynthesisError, Table, TransactionHead, Value,
    statement_transaction,
};
use raft_types::TransactionPayload;

/// Accounts in the bank.
const ACCOUNTS: usize = 500;
const OPENING_BALANCE: i64 = 1_000;
/// All the money that there is.
pub(super) const WEALTH: i64 = OPENING_BALANCE * ACCOUNTS as i64;
/// The tables with their columns: accounts, and transfers.
pub(super) const TABLES: [(&str, &[&str]); 2] = [
    ("accounts", &["id", "balance"]),
    ("transfers", &["id", "payer", "payee", "amount", "note"]),
];
/// With it a transfer takes about 500 bytes in the log, as a row of an ordinary application does.
const NOTE_BYTES: u16 = 160;

/// See the module.
#[derive(Debug)]
pub(crate) struct Bank {
    source: SourceId,
    next: u64,
    balances: Vec<i64>,
    accounts: Table,
    transfers: Table,
}

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// From which account; counted around.
    pub(crate) from: usize,
    /// To which one.
    pub(crate) to: usize,
    /// How much.
    pub(crate) amount: i32,
}

/// One transaction, with its name.
#[derive(Debug, Clone)]
pub(crate) struct Transaction {
    pub(crate) gtid: Gtid,
    pub(crate) payload: TransactionPayload,
}

impl Bank {
    /// A bank that does not exist yet in any log; see [`Self::opening`].
    pub(crate) fn new(source: SourceId) -> Self {
        let column = |column_type| Column {
            column_type,
            nullable: false,
        };
        let table = |id, name: &str, columns: Vec<Column>| Table {
            id,
            schema: "bank".to_owned(),
            name: name.to_owned(),
            columns,
        };
        let big = || column(ColumnType::BigInt);
        let note = column(ColumnType::Varchar {
            max_bytes: NOTE_BYTES * 4,
        });
        Self {
            source,
            next: 1,
            balances: vec![OPENING_BALANCE; ACCOUNTS],
            accounts: table(TableId(101), "accounts", vec![big(), big()]),
            transfers: table(
                TableId(102),
                "transfers",
                vec![big(), big(), big(), column(ColumnType::Int), note],
            ),
        }
    }

    /// The transactions that make the bank.
    pub(crate) fn opening(&mut self) -> Result<Vec<Transaction>, SynthesisError> {
        let statements = [
            "CREATE DATABASE bank".to_owned(),
            "CREATE TABLE bank.accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)"
                .to_owned(),
            format!(
                "CREATE TABLE bank.transfers (id BIGINT PRIMARY KEY, payer BIGINT NOT NULL, \
                 payee BIGINT NOT NULL, amount INT NOT NULL, note VARCHAR({NOTE_BYTES}) NOT NULL)"
            ),
        ];
        let mut opening = Vec::new();
        for statement in statements {
            let head = self.head();
            opening.push(seal(&head, statement_transaction(head, "", &statement)));
        }
        let head = self.head();
        let mut accounts = RowTransaction::begin(head);
        let rows: Vec<_> = (0..ACCOUNTS).map(|id| self.account(id)).collect();
        accounts.insert(&self.accounts, &rows)?;
        opening.push(seal(&head, accounts.commit()));
        Ok(opening)
    }

    /// Carries a transfer out.
    pub(crate) fn transfer(&mut self, wish: Transfer) -> Result<Transaction, SynthesisError> {
        let from = wish.from % ACCOUNTS;
        // The two must differ: a row that changes twice in one statement is another matter.
        let to = match wish.to % ACCOUNTS {
            to if to == from => (to + 1) % ACCOUNTS,
            to => to,
        };
        let before = [self.account(from), self.account(to)];
        self.balances[from] -= i64::from(wish.amount);
        self.balances[to] += i64::from(wish.amount);
        let after = [self.account(from), self.account(to)];
        let head = self.head();
        let id = i64::try_from(head.xid).unwrap_or(i64::MAX);
        let mut transaction = RowTransaction::begin(head);
        let changes: Vec<_> = before.into_iter().zip(after).collect();
        transaction.update(&self.accounts, &changes)?;
        let note = format!(
            "{:-^1$}",
            format!(" transfer {id} "),
            usize::from(NOTE_BYTES)
        );
        let row = vec![
            Value::BigInt(id),
            Value::BigInt(number(from)),
            Value::BigInt(number(to)),
            Value::Int(wish.amount),
            Value::Text(note),
        ];
        transaction.insert(&self.transfers, &[row])?;
        Ok(seal(&head, transaction.commit()))
    }

    fn account(&self, id: usize) -> Vec<Value> {
        vec![Value::BigInt(number(id)), Value::BigInt(self.balances[id])]
    }

    fn head(&mut self) -> TransactionHead {
        let number = self.next;
        self.next += 1;
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        TransactionHead {
            gtid: Gtid {
                source: self.source,
                tag: Tag::NONE,
                gno: Gno::new(number).unwrap_or(Gno::MAX),
            },
            server_id: 1,
            thread_id: 1,
            commit: CommitTimestamp(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)),
            version: VERSION,
            clock: LogicalClock {
                last_committed: i64::try_from(number - 1).unwrap_or(i64::MAX),
                sequence_number: i64::try_from(number).unwrap_or(i64::MAX),
            },
            xid: number,
        }
    }
}

/// The version whose form of events is written.
const VERSION: ServerVersion = ServerVersion(90_704);

fn seal(head: &TransactionHead, payload: bytes::Bytes) -> Transaction {
    Transaction {
        gtid: head.gtid,
        payload: TransactionPayload::seal(payload),
    }
}

fn number(account: usize) -> i64 {
    i64::try_from(account).unwrap_or(i64::MAX)
}
