//! Workloads for appliers: sysbench's writes, C5's insert-only and adversarial workloads, updates of one row, a reduced version of TPC-C's
//! two most frequent transactions, and inserts with schema changes. Each workload creates its tables, then runs transactions from a few
//! concurrent clients. The same seed results in the same statements.

use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use crate::mysqld::sysbench::Sysbench;
use crate::mysqld::{MysqlClient, Mysqld};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// sysbench's `oltp_write_only`: five statements per transaction, on uniformly chosen rows.
    OltpWriteOnly,
    /// Unique inserts only: no transactions conflict.
    InsertOnly,
    /// Only updates of one row: no two transactions can run in parallel.
    HotRow,
    /// Unique inserts, then an update of one row: all transactions conflict, but only in their last row.
    Adversarial,
    /// NewOrder and Payment in equal parts, on few warehouses. Contended rows are written as late as possible.
    NewOrderPayment,
    /// Inserts into eight tables. After every hundred inserts, a schema change of another table, and an XA transaction.
    SchemaChanges,
}

/// Limit for one client's statements.
const LIMIT: Duration = Duration::from_secs(600);
/// The number of sysbench's tables, and of rows in each.
const SYSBENCH_TABLES: (u32, u32) = (4, 10_000);
/// The number of tables that receive inserts while other tables are changed.
const CHANGES_BESIDE: u64 = 8;

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 6] = [
        Self::OltpWriteOnly,
        Self::InsertOnly,
        Self::HotRow,
        Self::Adversarial,
        Self::NewOrderPayment,
        Self::SchemaChanges,
    ];

    /// Returns the workload's name in figures and on command lines.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::OltpWriteOnly => "oltp_write_only",
            Self::InsertOnly => "insert_only",
            Self::HotRow => "hot_row",
            Self::Adversarial => "adversarial",
            Self::NewOrderPayment => "new_order_payment",
            Self::SchemaChanges => "schema_changes",
        }
    }

    /// Returns the schema of the workload's tables.
    #[must_use]
    pub fn schema(self) -> &'static str {
        match self {
            Self::OltpWriteOnly => Sysbench::schema(),
            other => other.key(),
        }
    }

    /// Creates the workload's tables with their initial rows.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn prepare(self, server: &Mysqld) -> Result<()> {
        let (client, schema) = (server.client(), self.schema());
        let statements = match self {
            Self::OltpWriteOnly => {
                let (tables, rows) = SYSBENCH_TABLES;
                return Sysbench::on(server).tables(tables, rows).prepare(server);
            }
            Self::InsertOnly => {
                "CREATE TABLE t (id BIGINT PRIMARY KEY, value INT NOT NULL)".to_owned()
            }
            Self::HotRow | Self::Adversarial => {
                "CREATE TABLE t (id BIGINT PRIMARY KEY, value INT NOT NULL); INSERT INTO t VALUES (0, 0)"
                    .to_owned()
            }
            Self::NewOrderPayment => tables(),
            Self::SchemaChanges => (0..CHANGES_BESIDE)
                .map(|table| {
                    format!("CREATE TABLE t{table} (id BIGINT PRIMARY KEY, value INT NOT NULL, UNIQUE (value, id));")
                })
                .chain([
                    "CREATE TABLE x (id BIGINT PRIMARY KEY, value INT NOT NULL)".to_owned(),
                ])
                .collect(),
        };
        let all = format!("CREATE DATABASE {schema}; USE {schema}; {statements}");
        client.sql_within(&all, LIMIT)?;
        Ok(())
    }

    /// Runs the workload to its end.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn run(self, server: &Mysqld, load: Load) -> Result<()> {
        if self == Self::OltpWriteOnly {
            let (tables, rows) = SYSBENCH_TABLES;
            let sysbench = Sysbench::on(server).tables(tables, rows);
            let sysbench = sysbench.threads(load.clients).duration(LIMIT);
            sysbench.events(load.transactions).run()?;
            return Ok(());
        }
        let client = server.client();
        let clients = (0..load.clients).map(|number| {
            let script = self.script(load, number);
            let client: MysqlClient = client.clone();
            std::thread::spawn(move || client.sql_within(&script, LIMIT).map(|_| ()))
        });
        let running: Vec<_> = clients.collect();
        for client in running {
            client
                .join()
                .map_err(|_| anyhow::anyhow!("a client of the load panicked"))??;
        }
        Ok(())
    }

    /// Returns one transaction of the workload, as statements. Each number must be used once.
    #[must_use]
    pub fn transaction(self, number: u64, dice: &mut Rng) -> String {
        match self {
            Self::OltpWriteOnly => oltp_write_only(dice),
            Self::InsertOnly => insert(number, 4),
            Self::HotRow => format!("UPDATE t SET value = {} WHERE id = 0;\n", dice.i32(..)),
            Self::Adversarial => {
                let (inserts, value) = (insert(number, 16), dice.i32(..));
                format!("BEGIN; {inserts} UPDATE t SET value = {value} WHERE id = 0; COMMIT;\n")
            }
            Self::NewOrderPayment => new_order_or_payment(dice),
            Self::SchemaChanges => among_changes(number),
        }
    }

    /// Returns the statements of one client.
    fn script(self, load: Load, client: u32) -> String {
        let (numbers, mut dice) = load.part(client);
        let body: String = numbers.map(|at| self.transaction(at, &mut dice)).collect();
        format!("USE {};\n{body}", self.schema())
    }
}

/// Returns the statements of sysbench's script of this name, on one of its tables.
fn oltp_write_only(dice: &mut Rng) -> String {
    let (tables, rows) = SYSBENCH_TABLES;
    let table = format!("sbtest{}", dice.u32(1..=tables));
    let [k, c, again] = [(); 3].map(|()| dice.u32(1..=rows));
    let mut digits = |groups: usize| {
        let group = || format!("{:011}", dice.u64(..100_000_000_000));
        std::iter::repeat_with(group)
            .take(groups)
            .collect::<Vec<_>>()
            .join("-")
    };
    let (text, other, pad) = (digits(10), digits(10), digits(5));
    format!(
        "BEGIN; UPDATE {table} SET k = k + 1 WHERE id = {k}; UPDATE {table} SET c = '{text}' WHERE id = {c}; \
         DELETE FROM {table} WHERE id = {again}; INSERT INTO {table} (id, k, c, pad) VALUES ({again}, {k}, '{other}', '{pad}'); \
         COMMIT;\n"
    )
}

/// Returns one statement that inserts `rows` rows, which no other transaction inserts.
fn insert(transaction: u64, rows: u64) -> String {
    let first = 1 + transaction * rows;
    let values: Vec<String> = (first..first + rows)
        .map(|id| format!("({id}, {})", id % 1000))
        .collect();
    format!("INSERT INTO t VALUES {};\n", values.join(", "))
}

/// Returns an insert and, at intervals, a statement that is applied alone.
fn among_changes(transaction: u64) -> String {
    let insert = |table: &str| {
        format!(
            "INSERT INTO {table} VALUES ({transaction}, {});\n",
            transaction % 1000
        )
    };
    let own = insert(&format!("t{}", transaction % CHANGES_BESIDE));
    let other = match transaction % 100 {
        0 => format!(
            "CREATE TABLE made{transaction} (id INT PRIMARY KEY); ALTER TABLE made{transaction} ADD COLUMN more INT, ADD KEY (more); \
             DROP TABLE made{transaction};\n"
        ),
        50 => format!(
            "XA START '{transaction}'; {} \
             XA END '{transaction}'; XA PREPARE '{transaction}'; XA COMMIT '{transaction}';\n",
            insert("x")
        ),
        _ => String::new(),
    };
    own + &other
}

// Reduced versions of TPC-C's NewOrder and Payment: two warehouses of ten districts. As in C5's optimised transactions, contended rows are
// written as late as the data allows. A Payment writes its district and warehouse last. A NewOrder must update its district first, because
// the order's number comes from there.

const WAREHOUSES: u32 = 2;
const DISTRICTS: u32 = 10;
const CUSTOMERS: u32 = 300;
const ITEMS: u32 = 1_000;
/// The number of different items in an order.
const LINES: usize = 10;

/// Returns the statements that create the tables and their initial rows.
pub(super) fn tables() -> String {
    let numbers = |count: u32| {
        format!(
            "(WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n)"
        )
    };
    let (warehouses, districts) = (numbers(WAREHOUSES), numbers(DISTRICTS));
    let (customers, items) = (numbers(CUSTOMERS), numbers(ITEMS));
    format!(
        "SET cte_max_recursion_depth = 100000;
         CREATE TABLE warehouse (w INT PRIMARY KEY, ytd DECIMAL(14,2) NOT NULL);
         CREATE TABLE district (w INT, d INT, ytd DECIMAL(14,2) NOT NULL, next_order INT NOT NULL, PRIMARY KEY (w, d));
         CREATE TABLE customer (w INT, d INT, c INT, balance DECIMAL(14,2) NOT NULL, payments INT NOT NULL,
           data VARCHAR(250) NOT NULL, PRIMARY KEY (w, d, c));
         CREATE TABLE history (id BIGINT PRIMARY KEY AUTO_INCREMENT, w INT, d INT, c INT, amount DECIMAL(8,2));
         CREATE TABLE orders (w INT, d INT, o INT, c INT NOT NULL, line_count INT NOT NULL, PRIMARY KEY (w, d, o),
           KEY by_customer (w, d, c));
         CREATE TABLE new_order (w INT, d INT, o INT, PRIMARY KEY (w, d, o));
         CREATE TABLE order_line (w INT, d INT, o INT, line INT, item INT NOT NULL, quantity INT NOT NULL,
           info CHAR(24) NOT NULL, PRIMARY KEY (w, d, o, line));
         CREATE TABLE stock (w INT, item INT, quantity INT NOT NULL, ytd INT NOT NULL, PRIMARY KEY (w, item));
         INSERT INTO warehouse SELECT i, 0 FROM {warehouses} a;
         INSERT INTO district SELECT a.i, b.i, 0, 1 FROM {warehouses} a, {districts} b;
         INSERT INTO customer SELECT a.i, b.i, c.i, 0, 0, REPEAT('x', 200) FROM {warehouses} a, {districts} b, {customers} c;
         INSERT INTO stock SELECT a.i, b.i, 100, 0 FROM {warehouses} a, {items} b"
    )
}

fn new_order_or_payment(dice: &mut Rng) -> String {
    let (w, d) = (dice.u32(1..=WAREHOUSES), dice.u32(1..=DISTRICTS));
    let c = dice.u32(1..=CUSTOMERS);
    match dice.bool() {
        true => new_order(w, d, c, dice),
        false => payment(w, d, c, dice.u32(1..500_000)),
    }
}

fn new_order(w: u32, d: u32, c: u32, dice: &mut Rng) -> String {
    // Items are sorted, so that transactions do not wait for each other in a cycle.
    let mut items: Vec<u32> = dice.choose_multiple(1..=ITEMS, LINES);
    items.sort_unstable();
    let wanted: Vec<String> = items.iter().map(ToString::to_string).collect();
    let lines: Vec<String> = (1..)
        .zip(&items)
        .map(|(line, item)| format!("({w}, {d}, @o, {line}, {item}, 5, 'an item of the order')"))
        .collect();
    format!(
        "BEGIN;
         UPDATE district SET next_order = LAST_INSERT_ID(next_order) + 1 WHERE w = {w} AND d = {d};
         SET @o = LAST_INSERT_ID();
         INSERT INTO orders VALUES ({w}, {d}, @o, {c}, {LINES});
         INSERT INTO new_order VALUES ({w}, {d}, @o);
         UPDATE stock SET quantity = IF(quantity > 15, quantity - 5, quantity + 86), ytd = ytd + 5
           WHERE w = {w} AND item IN ({});
         INSERT INTO order_line VALUES {};
         COMMIT;\n",
        wanted.join(","),
        lines.join(",")
    )
}

fn payment(w: u32, d: u32, c: u32, cents: u32) -> String {
    let amount = format!("{}.{:02}", cents / 100, cents % 100);
    format!(
        "BEGIN;
         UPDATE customer SET balance = balance - {amount}, payments = payments + 1 WHERE w = {w} AND d = {d} AND c = {c};
         INSERT INTO history (w, d, c, amount) VALUES ({w}, {d}, {c}, {amount});
         UPDATE district SET ytd = ytd + {amount} WHERE w = {w} AND d = {d};
         UPDATE warehouse SET ytd = ytd + {amount} WHERE w = {w};
         COMMIT;\n"
    )
}

// The distribution of transactions among the clients.

/// The size of a load, and its number of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The number of transactions of all clients together.
    pub transactions: u64,
    /// The number of concurrent clients.
    pub clients: u32,
    /// The random seed.
    pub seed: u64,
}

impl Load {
    /// Returns the numbers of one client's transactions, and the client's random generator.
    fn part(self, client: u32) -> (Range<u64>, Rng) {
        let clients = u64::from(self.clients.max(1));
        let at = |client: u64| self.transactions * client / clients;
        let client = u64::from(client);
        let dice = Rng::with_seed(self.seed ^ (client << 32));
        (at(client)..at(client + 1), dice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transaction_is_one_clients() {
        let load = Load {
            transactions: 10,
            clients: 3,
            seed: 1,
        };
        let parts: Vec<u64> = (0..3).flat_map(|client| load.part(client).0).collect();
        assert_eq!(parts, (0..10).collect::<Vec<_>>());
    }
}
