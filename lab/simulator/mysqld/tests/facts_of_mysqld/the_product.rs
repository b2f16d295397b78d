//! Runs a member's own code on the model: ingest, and the trim of transactions that the ring lacks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mysql_link::{ConnectOptions, Endpoint};
use mysqld_controller::TailTrim;
use mysqld_controller::ingest::{Ingest, IngestOptions, IngestState};
use mysqld_controller::status::Readiness;
use mysqld_model::{ClientSession, Mysqld, Transaction};
use mysqld_server::settings::Requirements;
use mysqld_server::supervisor::{ServerCommand, StartGuard};
use mysqld_server::tail_trim::{TailTrimOptions, TrimmedTail};
use raft_types::Term;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::ring_in_memory::{Leadership, MemoryRing};
use crate::stage::{OwnModel, WAITING};

const LIMIT: Duration = Duration::from_secs(10);

fn guard(ring: &Arc<MemoryRing>, own: &OwnModel) -> TailTrim<MemoryRing> {
    let server = ServerCommand {
        command: vec!["mysqld".to_owned()],
        data_dir: own.data_dir(),
        socket: "sock".into(),
        port: None,
        pid_file: "pid".into(),
        error_log: "log.err".into(),
        extra_args: vec!["--no-defaults".to_owned(), "--log-bin=binlog".to_owned()],
    };
    let options = TailTrimOptions::new(member_dir(own), server);
    TailTrim::new(Arc::clone(ring), None, options)
}

fn member_dir(own: &OwnModel) -> PathBuf {
    own.data_dir().with_file_name("member")
}

async fn start(ring: &Arc<MemoryRing>, own: &OwnModel) -> Result<()> {
    let guarded = guard(ring, own).before_start().await;
    guarded.map_err(anyhow::Error::msg)?;
    let words: Vec<String> = WAITING.iter().map(|word| (*word).to_owned()).collect();
    own.model.start(&words).map_err(anyhow::Error::msg)
}

fn append(model: &Mysqld, value: u64) -> Result<ClientSession> {
    let mut client = model.log_in("client")?;
    client.begin(Transaction {
        appends: vec![(1, value)],
        reads: vec![],
    });
    Ok(client)
}

async fn until(what: &str, mut is: impl FnMut() -> bool) -> Result<()> {
    let waited = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LIMIT, waited)
        .await
        .with_context(|| what.to_owned())
}

#[tokio::test]
async fn the_mysqld_model_is_taken_in_and_trimmed_by_a_member() -> Result<()> {
    let own = OwnModel::new()?;
    std::fs::create_dir(member_dir(&own))?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(Term(1)));
    ring.set_commits_at_once(true);
    start(&ring, &own).await?;

    let connect = ConnectOptions::new(Endpoint::unix(own.socket()), "witness", "secret");
    let requirements = Requirements::new(4001, Uuid::from_u128(0x4001));
    let (_readiness, always) = watch::channel(Readiness::Always);
    let ingest = Ingest::new(
        Arc::clone(&ring),
        IngestOptions::new(connect, requirements),
        always,
    );
    let mut status = ingest.status();
    let taking_in = tokio::spawn(ingest.run(CancellationToken::new()));
    let attached = status.wait_for(|status| status.state == IngestState::Attached);
    tokio::time::timeout(LIMIT, attached)
        .await
        .context("not attached")??;

    for value in 1..=3 {
        let mut client = append(&own.model, value)?;
        until("it is acknowledged", || {
            client.poll().is_some_and(|told| told.is_ok())
        })
        .await?;
    }
    ensure!(ring.gtids() == own.model.gtid_executed().to_string());
    let committed = ring.last_index();

    ring.set_commits_at_once(false);
    let mut waiting = append(&own.model, 4)?;
    until("it is proposed", || ring.last_index() > committed).await?;
    ensure!(waiting.poll().is_none());
    own.model.kill();
    ensure!(waiting.poll().is_some_and(|told| told.is_err()));
    taking_in.abort();
    drop(taking_in.await);
    ring.lose_uncommitted();

    start(&ring, &own).await?;
    ensure!(own.model.lists() == [(1, vec![1, 2, 3])].into());
    ensure!(ring.gtids() == own.model.gtid_executed().to_string());
    ensure!(TrimmedTail::list(&member_dir(&own))?.len() == 1);
    ensure!(
        own.model.unknown_statements().is_empty(),
        "{:?}",
        own.model.unknown_statements()
    );
    Ok(())
}
