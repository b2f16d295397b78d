//! Applies binlog files to a mysqld, with what does not conflict beside each other, and commits in the log's order:
//! `MYSQL_PASSWORD=… cargo run -p applier --example apply_files -- 127.0.0.1:3306 USER FILE…`.
//!
//! What the server has executed already is skipped, so that it may be ended and run again at any time.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use applier::backend::Backend;
use applier::run::StageName;
use applier::{FileSource, MysqlBackend, MysqlOptions, Options, RunHandle, apply};
use mysql_link::{ConnectOptions, Endpoint};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let endpoint: Endpoint = arguments.next().context("name HOST:PORT")?.parse()?;
    let user = arguments.next().context("name an account")?;
    let files: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let password = env::var("MYSQL_PASSWORD").unwrap_or_default();
    let connect = ConnectOptions::new(endpoint, user, password.as_str());
    let backend = Arc::new(MysqlBackend::connect(MysqlOptions::new(connect)).await?);
    let executed = backend.executed().await?;
    let options = Options::default();
    let source = FileSource::open(files, executed, options.max_transaction_bytes as u64).await?;
    let handle = RunHandle::unattended();
    let progress = handle.progress.clone();
    let ended = apply(source, backend, &options, handle).await?;
    let committed = progress.passed(StageName::Committed).transactions;
    println!("{ended:?}: {committed} transactions committed");
    Ok(())
}
