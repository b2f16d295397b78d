//! Runs the product's code on the model, and tests behaviour of the model that has no scenario on a real server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use mysql_link::{ConnectOptions, Connection, Endpoint};
use mysqld_model::{LostTail, Mysqld, MysqldOptions, ReplicaSource, Transaction, appends_of};
use mysqld_server::settings::{Check, Depth, Requirements, observe, observe_again, preflight};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::client::verified_sql;
use uuid::Uuid;

use crate::stage::{OwnModel, WAITING};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Creates a model with a clock that the test sets.
fn clocked(home: &tempfile::TempDir) -> Result<(Mysqld, Arc<Mutex<Duration>>)> {
    let time = Arc::new(Mutex::new(Duration::ZERO));
    let shown = Arc::clone(&time);
    let clock = Arc::new(move || *shown.lock().unwrap());
    let options = MysqldOptions::new(home.path().join("data"), Uuid::from_u128(0xaaaa), 1, clock);
    let model = Mysqld::new(options).map_err(anyhow::Error::msg)?;
    Ok((model, time))
}

fn append(list: u64, value: u64) -> Transaction {
    Transaction {
        appends: vec![(list, value)],
        reads: vec![],
    }
}

#[tokio::test]
async fn the_model_of_mysqld_passes_the_preflight() -> Result<()> {
    let own = OwnModel::new()?;
    own.model
        .start(&words(&WAITING))
        .map_err(anyhow::Error::msg)?;
    let options = ConnectOptions::new(Endpoint::unix(own.socket()), "witness", "secret");
    let mut connection = Connection::open_with_own_settings(&options).await?;
    let observed = observe(&mut connection, Depth::Preflight).await?;
    let requirements = Requirements {
        native: true,
        ..Requirements::new(4001, Uuid::from_u128(0x4001))
    };
    let found = preflight(&observed, &requirements);
    // The member sets the cache limits and the number of ACKs itself. The account `root` may shut the server down.
    let expected = [
        Check::TransactionCache,
        Check::StatementCache,
        Check::SemiSyncReplicaCount,
        Check::ShutdownPrivilege,
    ];
    ensure!(
        found
            .iter()
            .all(|finding| expected.contains(&finding.check)),
        "{found:?}"
    );
    let again = observe_again(&mut connection, Some(&observed)).await?;
    ensure!(again.variables == observed.variables);
    ensure!(own.model.unknown_statements().is_empty());
    ensure!(
        connection
            .query("SELECT nonsense FROM nowhere")
            .await
            .is_err()
    );
    ensure!(own.model.unknown_statements() == ["SELECT nonsense FROM nowhere"]);
    Ok(())
}

#[test]
fn clients_of_the_mysqld_model_need_no_runtime() -> Result<()> {
    let home = tempfile::tempdir()?;
    let (model, time) = clocked(&home)?;
    model.start(&words(&[])).map_err(anyhow::Error::msg)?;
    let mut one = model.log_in("client")?;
    let mut other = model.log_in("client")?;
    one.begin(Transaction {
        appends: vec![(1, 10), (2, 20), (1, 11)],
        reads: vec![1],
    });
    ensure!(one.poll() == Some(Ok([(1, vec![])].into())));
    ensure!(one.poll().is_none());
    other.begin(Transaction {
        appends: vec![],
        reads: vec![1, 2],
    });
    ensure!(other.poll() == Some(Ok([(1, vec![10, 11]), (2, vec![20])].into())));
    // A paused process handles requests after it has resumed.
    model.pause();
    one.begin(append(1, 12));
    ensure!(one.poll().is_none());
    model.resume();
    ensure!(one.poll() == Some(Ok([].into())));
    model.freeze_disk(true);
    one.begin(append(1, 13));
    other.begin(append(1, 14));
    ensure!(one.poll().is_none() && other.poll().is_none());
    // The wait for a row lock has a timeout.
    *time.lock().unwrap() = Duration::from_secs(51);
    ensure!(other.poll().unwrap().unwrap_err().code == 1205);
    model.freeze_disk(false);
    ensure!(one.poll() == Some(Ok([].into())));
    model.kill();
    one.begin(append(1, 15));
    ensure!(one.poll().unwrap().unwrap_err().code == 2013);
    ensure!(model.log_in("client").unwrap_err().code == 2002);
    ensure!(model.lists() == [(1, vec![10, 11, 12, 13]), (2, vec![20])].into());
    Ok(())
}

#[test]
fn a_loss_of_power_takes_what_the_mysqld_model_has_not_forced() -> Result<()> {
    let home = tempfile::tempdir()?;
    let (model, _) = clocked(&home)?;
    let start = |option: &str| model.start(&words(&[option])).map_err(anyhow::Error::msg);
    start("--sync-binlog=0")?;
    let commit = |value| {
        let mut client = model.log_in("client").unwrap();
        client.begin(append(1, value));
        client.poll().unwrap().unwrap();
    };
    let all = LostTail {
        binlog_bytes: u64::MAX,
        engine_commits: usize::MAX,
    };
    commit(1);
    commit(2);
    model.cut_power(all).map_err(anyhow::Error::msg)?;
    start("--sync-binlog=1")?;
    // The second transaction is lost: its prepare synced only the first one's commit, and the binlog was not synced.
    ensure!(
        model.lists() == [(1, vec![1])].into(),
        "{:?}",
        model.lists()
    );
    commit(3);
    model.cut_power(all).map_err(anyhow::Error::msg)?;
    start("--sync-binlog=1")?;
    ensure!(
        model.lists() == [(1, vec![1, 3])].into(),
        "{:?}",
        model.lists()
    );
    Ok(())
}

/// Recovery does not read a closed binlog file, so the engine must have all of the file's transactions.
#[test]
fn a_mysqld_model_that_was_stopped_in_good_order_loses_nothing_with_the_power() -> Result<()> {
    let home = tempfile::tempdir()?;
    let (model, _) = clocked(&home)?;
    let start = || model.start(&words(&[])).map_err(anyhow::Error::msg);
    start()?;
    let mut client = model.log_in("client")?;
    for value in 1..=3 {
        client.begin(append(1, value));
        client.poll().unwrap()?;
    }
    model.terminate();
    drop(client);
    ensure!(!model.is_running());
    let all = LostTail {
        binlog_bytes: u64::MAX,
        engine_commits: usize::MAX,
    };
    model.cut_power(all).map_err(anyhow::Error::msg)?;
    start()?;
    ensure!(model.lists() == [(1, vec![1, 2, 3])].into());
    Ok(())
}

/// The log of another server, as a source.
struct Log(Vec<Bytes>);

impl ReplicaSource for Log {
    fn open(&self, _: GtidSet) -> BoxStream<'static, Result<Bytes, String>> {
        let all: Vec<_> = self.0.iter().cloned().map(Ok).collect();
        stream::iter(all).chain(stream::pending()).boxed()
    }
}

#[tokio::test]
async fn replica_threads_of_the_mysqld_model_follow() -> Result<()> {
    let source = OwnModel::new()?;
    source
        .model
        .start(&words(&[]))
        .map_err(anyhow::Error::msg)?;
    let mut client = source.model.log_in("client")?;
    for value in 1..=3 {
        client.begin(append(value % 2, value));
        client.poll().unwrap()?;
    }
    let reader = crate::stage::log_of(&source, 3).await?;
    let appends: Vec<_> = reader
        .iter()
        .map(|payload| appends_of(payload).unwrap())
        .collect();
    ensure!(appends == [vec![(1, 1)], vec![(0, 2)], vec![(1, 3)]]);

    let follower = OwnModel::new()?;
    follower
        .model
        .start(&words(&["--super-read-only=ON"]))
        .map_err(anyhow::Error::msg)?;
    let options = ConnectOptions::new(Endpoint::unix(follower.socket()), "witness", "secret");
    let mut member = Connection::open(&options).await?;
    let model = follower.model.clone();
    let threads =
        tokio::spawn(async move { model.run_replica_threads(Arc::new(Log(reader))).await });
    for statement in [
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'h' FOR CHANNEL 'witness'",
        "START REPLICA FOR CHANNEL 'witness'",
    ] {
        member.execute(statement).await?;
    }
    let began = std::time::Instant::now();
    while follower.model.lists() != source.model.lists() {
        ensure!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            follower.model.lists()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ensure!(follower.model.gtid_executed() == source.model.gtid_executed());
    // The transaction is also in the follower's own binlog.
    ensure!(crate::stage::log_of(&follower, 3).await?.len() == 3);
    let state = "SELECT service_state FROM performance_schema.replication_applier_status_by_worker";
    let threads_seen = member.query(state).await?;
    ensure!(threads_seen.rows[0].text_at(1) == Some("ON"));
    threads.abort();
    ensure!(threads.await.is_err());
    let threads_seen = member.query(state).await?;
    ensure!(threads_seen.rows[0].text_at(1) == Some("CONNECTING"));
    member.execute("STOP REPLICA FOR CHANNEL 'witness'").await?;
    member
        .execute("RESET REPLICA ALL FOR CHANNEL 'witness'")
        .await?;
    ensure!(follower.model.unknown_statements().is_empty());
    Ok(())
}

#[tokio::test]
async fn mysqlbinlog_reads_the_files_of_the_mysqld_model() -> Result<()> {
    let own = OwnModel::new()?;
    own.model.start(&words(&[])).map_err(anyhow::Error::msg)?;
    let mut client = own.model.log_in("client")?;
    for value in 1..=5 {
        client.begin(append(1, value));
        client.poll().unwrap()?;
    }
    own.model.terminate();
    drop(client);
    ensure!(!own.model.is_running());
    let file = own.data_dir().join("binlog.000001");
    let sql = verified_sql(&MysqlTree::require(), &[file])?;
    ensure!(sql.matches("SET @@SESSION.GTID_NEXT= 'AUTOMATIC'").count() == 1);
    ensure!(sql.matches("COMMIT/*!*/").count() == 5, "{sql}");
    Ok(())
}
