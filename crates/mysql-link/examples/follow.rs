//! Follows the binlog of a running mysqld from now on, as a replica does, and prints its events:
//! `MYSQL_PASSWORD=… cargo run -p mysql-link --example follow -- 127.0.0.1:3306 USER`.
//!
//! The account needs `REPLICATION SLAVE`. Ctrl-C ends it.

use std::env;

use anyhow::{Context, Result};
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, DumpOptions, Endpoint, ReplicationStream};
use uuid::Uuid;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let endpoint: Endpoint = arguments.next().context("name HOST:PORT")?.parse()?;
    let user = arguments.next().context("name an account")?;
    let password = env::var("MYSQL_PASSWORD").unwrap_or_default();
    let mut connection =
        Connection::open(&ConnectOptions::new(endpoint, user, password.as_str())).await?;
    println!("connected to MySQL {}", connection.version_text());
    let rows = connection.query("SELECT @@GLOBAL.gtid_executed").await?;
    let executed = rows
        .first()
        .and_then(|row| row.text_at(0))
        .unwrap_or_default();
    let have: GtidSet = executed.parse()?;
    // Any number that no other server around has.
    let options = DumpOptions {
        semi_sync: false,
        ..DumpOptions::new(4_242, Uuid::new_v4(), have)
    };
    let mut stream = ReplicationStream::start(connection, &options).await?;
    loop {
        let next = tokio::select! {
            next = stream.next() => next?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let header = next.event.header();
        println!("{:?}, {} bytes", next.event.event_type(), header.event_size);
    }
}
