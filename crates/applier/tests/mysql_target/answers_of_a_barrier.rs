//! Counts the answers of the target for which a barrier waits. Nothing else is applied in the meantime.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use anyhow::{Result, ensure};
use applier::backend::Backend;
use applier::mysql::{MysqlBackend, MysqlOptions};
use mysql_link::{ConnectOptions, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::pair::{Pair, Way};

/// Counts how often a client sends after its server has sent.
#[derive(Debug, Default)]
struct Turns {
    count: AtomicUsize,
    server_spoke: AtomicBool,
}

/// Forwards all bytes between the clients of one socket and the server's socket.
fn pass_on(listener: UnixListener, server: PathBuf, turns: Arc<Turns>) {
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = UnixStream::connect(&server).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let (asked, answered) = (Arc::clone(&turns), Arc::clone(&turns));
            tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
                    if asked.server_spoke.swap(false, SeqCst) {
                        asked.count.fetch_add(1, SeqCst);
                    }
                    if to_server.write_all(&bytes[..length]).await.is_err() {
                        break;
                    }
                }
            });
            tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
                    answered.server_spoke.store(true, SeqCst);
                    if to_client.write_all(&bytes[..length]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
}

async fn through(socket: &Path, server: PathBuf, turns: &Arc<Turns>) -> Result<MysqlBackend> {
    pass_on(UnixListener::bind(socket)?, server, Arc::clone(turns));
    let connect = ConnectOptions::new(Endpoint::unix(socket), "root", "");
    Ok(MysqlBackend::connect(MysqlOptions::new(connect)).await?)
}

#[tokio::test]
async fn a_barrier_waits_for_few_answers() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)")?;
    pair.equal_after(Way::Batches(1), &["d"]).await?;
    let folder = tempfile::tempdir()?;
    let turns = Arc::new(Turns::default());
    let socket = folder.path().join("counted");
    let backend = through(&socket, pair.target.socket().to_owned(), &turns).await?;
    let mut session = backend.open().await?;
    for (statements, answers) in [
        ("USE d; CREATE TABLE u (id INT PRIMARY KEY)", 3),
        (
            "USE d; SET binlog_format = STATEMENT; SET @a = 1; INSERT INTO t VALUES (@a); SET binlog_format = ROW",
            // COMMIT; the first time a query for the name of the variable's collation, and every 10 s, with three answers,
            // one for tables without transactions.
            9,
        ),
        (
            "USE d; SET binlog_format = STATEMENT; SET @a = 3; INSERT INTO t VALUES (@a); SET binlog_format = ROW",
            4,
        ),
        (
            "XA START 'x'; INSERT INTO d.t VALUES (2); XA END 'x'; XA PREPARE 'x'",
            7,
        ),
        ("XA COMMIT 'x'", 3),
    ] {
        pair.write(statements)?;
        let mut missing = pair.missing().await?;
        let before = turns.count.load(SeqCst);
        if let Err(stop) = pair
            .lead(&mut session, &mut missing, Way::Batches(1))
            .await?
        {
            anyhow::bail!("{statements}: {}", stop.error);
        }
        let count = turns.count.load(SeqCst) - before;
        println!("{statements}: {count} answers");
        ensure!(count <= answers, "{statements}: {count} answers");
    }
    pair.compare(&["d"]).await
}
