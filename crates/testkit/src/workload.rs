//! Loads whose logs appliers are compared and tested with: sysbench's writes, C5's insert-only and adversarial workloads, the
//! two hot transactions of TPC-C in small, and inserts beside changes of the schema. Each makes its tables, and then a number
//! of transactions from a few clients at once; the same seed gives the same statements.

mod new_order_payment;
mod script;

use std::time::Duration;

use anyhow::Result;

use crate::mysqld::{MysqlClient, Mysqld};
use crate::sysbench::Sysbench;

pub use script::Load;

/// One of the loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// sysbench's `oltp_write_only`: five statements on uniformly chosen rows.
    OltpWriteOnly,
    /// Unique inserts and nothing else: no transaction conflicts with any other.
    InsertOnly,
    /// Unique inserts, and then one update of the same row: all transactions conflict, in their last row only.
    Adversarial,
    /// NewOrder and Payment, half and half, on few warehouses; rows that are hot are written last, as far as they can be.
    NewOrderPayment,
    /// Inserts into eight tables; beside every hundred of them a change of the schema on another table, and an XA transaction.
    SchemaChanges,
}

/// How long one client's statements may take.
const LIMIT: Duration = Duration::from_secs(600);
/// sysbench's tables and their rows.
const SYSBENCH_TABLES: (u32, u32) = (4, 10_000);
/// Tables that are written to while others change.
const CHANGES_BESIDE: u64 = 8;

impl Workload {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::OltpWriteOnly,
        Self::InsertOnly,
        Self::Adversarial,
        Self::NewOrderPayment,
        Self::SchemaChanges,
    ];

    /// Its name in figures and on command lines.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::OltpWriteOnly => "oltp_write_only",
            Self::InsertOnly => "insert_only",
            Self::Adversarial => "adversarial",
            Self::NewOrderPayment => "new_order_payment",
            Self::SchemaChanges => "schema_changes",
        }
    }

    /// The schema of its tables.
    #[must_use]
    pub fn schema(self) -> &'static str {
        match self {
            Self::OltpWriteOnly => Sysbench::schema(),
            Self::InsertOnly => "insert_only",
            Self::Adversarial => "adversarial",
            Self::NewOrderPayment => "new_order_payment",
            Self::SchemaChanges => "schema_changes",
        }
    }

    /// Makes its tables, with what stands in them before the load.
    ///
    /// # Errors
    /// With the server's message.
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
            Self::Adversarial => {
                "CREATE TABLE t (id BIGINT PRIMARY KEY, value INT NOT NULL); INSERT INTO t VALUES (0, 0)"
                    .to_owned()
            }
            Self::NewOrderPayment => new_order_payment::tables(),
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

    /// Plays it to its end.
    ///
    /// # Errors
    /// With the server's message.
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

    /// What one client does.
    fn script(self, load: Load, client: u32) -> String {
        let own = load.of(client);
        let body = match self {
            Self::InsertOnly => own.transactions(|at, _| insert(at, 4)),
            Self::Adversarial => own.transactions(|at, dice| {
                let (inserts, value) = (insert(at, 16), dice.i32(..));
                format!("BEGIN; {inserts} UPDATE t SET value = {value} WHERE id = 0; COMMIT;\n")
            }),
            Self::NewOrderPayment => own.transactions(new_order_payment::transaction),
            Self::SchemaChanges => own.transactions(|at, _| beside_changes(at)),
            Self::OltpWriteOnly => String::new(),
        };
        format!("USE {};\n{body}", self.schema())
    }
}

/// One statement with so many rows that no other transaction inserts.
fn insert(transaction: u64, rows: u64) -> String {
    let first = 1 + transaction * rows;
    let values: Vec<String> = (first..first + rows)
        .map(|id| format!("({id}, {})", id % 1000))
        .collect();
    format!("INSERT INTO t VALUES {};\n", values.join(", "))
}

/// An insert, and now and then something that is applied alone.
fn beside_changes(transaction: u64) -> String {
    let insert = |table: &str| {
        format!(
            "INSERT INTO {table} VALUES ({transaction}, {});\n",
            transaction % 1000
        )
    };
    let own = insert(&format!("t{}", transaction % CHANGES_BESIDE));
    let beside = match transaction % 100 {
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
    own + &beside
}
