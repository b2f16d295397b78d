//! Dump and semi-sync ACKs against a real mysqld.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::EventType;
use binlog_format::events::{GtidEvent, Rotate};
use binlog_format::framing::SourcePosition;
use binlog_format::gtid::{Gtid, GtidSet};
use mysql_link::{
    ConnectOptions, Connection, DumpError, DumpOptions, DumpRefusal, Endpoint, ReplicationStream,
    TlsMode,
};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions, PendingSql};
use uuid::Uuid;

const SEMI_SYNC: [&str; 3] = [
    "--plugin-load-add=semisync_source.so",
    "--loose-rpl-semi-sync-source-enabled=ON",
    "--loose-rpl-semi-sync-source-timeout=1000000000000000000",
];
const LIMIT: Duration = Duration::from_secs(20);
/// Long enough for a commit that needs no ACK to finish.
const A_WHILE: Duration = Duration::from_millis(300);

fn semi_sync_source(arguments: &[&str]) -> Result<Mysqld> {
    let options =
        MysqldOptions::default().with_arguments(SEMI_SYNC.iter().chain(arguments).copied());
    Mysqld::launch_with(&MysqlTree::require(), options)
}

fn who(server: &Mysqld, mode: TlsMode) -> ConnectOptions {
    let mut options = ConnectOptions::new(
        Endpoint::tcp("127.0.0.1", server.address().port()),
        "root",
        "",
    );
    options.tls.mode = mode;
    options
}

fn dump_options(have: &str) -> Result<DumpOptions> {
    Ok(DumpOptions::new(
        4001,
        Uuid::from_u128(0x4001),
        have.parse::<GtidSet>()?,
    ))
}

async fn dump(server: &Mysqld, options: &DumpOptions) -> Result<ReplicationStream, DumpError> {
    let connection = Connection::open(&ConnectOptions::new(
        Endpoint::unix(server.socket()),
        "root",
        "",
    ))
    .await?;
    ReplicationStream::start(connection, options).await
}

fn at(file: &str, offset: u64) -> SourcePosition {
    SourcePosition {
        file: file.as_bytes().to_vec().into(),
        offset,
    }
}

/// Follows a stream. Records its position and the received transactions.
struct Follower {
    stream: ReplicationStream,
    file: String,
    gtids: Vec<Gtid>,
}

impl Follower {
    fn new(stream: ReplicationStream) -> Self {
        Self {
            stream,
            file: String::new(),
            gtids: Vec::new(),
        }
    }

    /// Reads up to the end of the next transaction. Returns the end position, and whether an ACK was requested.
    async fn transaction(&mut self) -> Result<(SourcePosition, bool)> {
        tokio::time::timeout(LIMIT, self.read_transaction())
            .await
            .context("no transaction came")?
    }

    async fn read_transaction(&mut self) -> Result<(SourcePosition, bool)> {
        loop {
            let next = self.stream.next().await?;
            let event = next.event.verified(ChecksumAlgorithm::Crc32)?;
            match next.event.event_type() {
                EventType::Rotate => {
                    self.file = String::from_utf8(Rotate::decode(event)?.next_file.into_owned())?;
                }
                EventType::Gtid | EventType::GtidTagged => {
                    self.gtids.push(GtidEvent::decode(event)?.gtid)
                }
                EventType::Xid => {
                    let offset = u64::from(next.event.header().log_pos);
                    return Ok((at(&self.file, offset), next.ack_wanted));
                }
                _ => {}
            }
        }
    }
}

fn finish(pending: PendingSql) -> Result<()> {
    pending.finish(LIMIT).map(|_| ())
}

async fn still_waits(pending: &mut PendingSql) -> Result<()> {
    tokio::time::sleep(A_WHILE).await;
    anyhow::ensure!(!pending.is_finished()?, "the commit did not wait");
    Ok(())
}

/// Creates tables before any replica has to acknowledge.
fn prepare(server: &Mysqld) -> Result<GtidSet> {
    let client = server.client();
    client.sql(
        "SET GLOBAL rpl_semi_sync_source_enabled = OFF; CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, \
         v LONGBLOB); SET GLOBAL rpl_semi_sync_source_enabled = ON",
    )?;
    Ok(client.gtid_executed()?.parse()?)
}

#[tokio::test]
async fn a_commit_in_mysqld_waits_for_its_ack() -> Result<()> {
    let server = semi_sync_source(&[])?;
    let have = prepare(&server)?;
    for mode in [TlsMode::Disabled, TlsMode::Required] {
        let have: GtidSet = server
            .client()
            .gtid_executed()?
            .parse::<GtidSet>()?
            .union(&have);
        let options = DumpOptions {
            have,
            ..dump_options("")?
        };
        let connection = Connection::open(&who(&server, mode)).await?;
        let mut follower = Follower::new(ReplicationStream::start(connection, &options).await?);

        let mut first = server
            .client()
            .start_sql(&format!("REPLACE INTO d.t VALUES (1, '{mode} a')"))?;
        let (first_end, asked) = follower.transaction().await?;
        assert!(asked, "mysqld asks for no ACK");
        let mut second = server
            .client()
            .start_sql(&format!("REPLACE INTO d.t VALUES (2, '{mode} b')"))?;
        let (second_end, _) = follower.transaction().await?;
        still_waits(&mut first).await?;
        let rows = server
            .client()
            .value(&format!("SELECT COUNT(*) FROM d.t WHERE v LIKE '{mode}%'"))?;
        assert_eq!(rows, "0", "an unacknowledged row is visible");

        follower.stream.ack(&first_end).await?;
        finish(first)?;
        still_waits(&mut second).await?;
        follower.stream.ack(&second_end).await?;
        finish(second)?;

        // One ACK for the later of two releases both.
        let third = server
            .client()
            .start_sql(&format!("REPLACE INTO d.t VALUES (3, '{mode} c')"))?;
        follower.transaction().await?;
        let fourth = server
            .client()
            .start_sql(&format!("REPLACE INTO d.t VALUES (4, '{mode} d')"))?;
        let (end, _) = follower.transaction().await?;
        follower.stream.ack(&end).await?;
        finish(third)?;
        finish(fourth)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_halves_work_at_the_same_time_with_mysqld() -> Result<()> {
    const COMMITS: u32 = 200;
    let server = semi_sync_source(&[])?;
    let options = DumpOptions {
        have: prepare(&server)?,
        ..dump_options("")?
    };
    let (mut reader, mut acker) = dump(&server, &options).await?.split();
    let inserts: String = (0..COMMITS)
        .map(|id| format!("INSERT INTO d.t VALUES ({id}, '');"))
        .collect();
    let work = server.client().start_sql(&inserts)?;
    let (send, mut receive) = tokio::sync::mpsc::channel::<u64>(16);
    let acking = tokio::spawn(async move {
        while let Some(offset) = receive.recv().await {
            acker.ack(&at("binlog.000001", offset)).await?;
        }
        Ok::<_, mysql_link::LinkError>(acker)
    });
    let mut seen = 0;
    while seen < COMMITS {
        let next = tokio::time::timeout(LIMIT, reader.next()).await??;
        if next.event.event_type() == EventType::Xid {
            seen += 1;
            send.send(u64::from(next.event.header().log_pos)).await?;
        }
    }
    finish(work)?;
    drop(send);
    acking.await??;
    assert_eq!(
        server.client().value("SELECT COUNT(*) FROM d.t")?,
        COMMITS.to_string()
    );
    Ok(())
}

#[tokio::test]
async fn only_what_is_lacking_comes_tags_included_from_mysqld() -> Result<()> {
    let server = Mysqld::launch(&MysqlTree::require())?;
    server.client().sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1); \
         SET gtid_next = 'AUTOMATIC:blue'; INSERT INTO d.t VALUES (2); INSERT INTO d.t VALUES (3); \
         SET gtid_next = 'AUTOMATIC'; INSERT INTO d.t VALUES (4)",
    )?;
    let uuid = server.client().variable("server_uuid")?;
    let all: GtidSet = server.client().gtid_executed()?.parse()?;
    for have in [
        String::new(),
        format!("{uuid}:1-3:blue:1"),
        format!("{uuid}:blue:2"),
        format!("{uuid}:1-3"),
    ] {
        let lacking = all.difference(&have.parse()?);
        let options = DumpOptions {
            semi_sync: false,
            ..dump_options(&have)?
        };
        let mut follower = Follower::new(dump(&server, &options).await?);
        while GtidSet::from_iter(follower.gtids.iter().copied()) != lacking {
            follower
                .transaction()
                .await
                .with_context(|| format!("{lacking} lacking from {have}"))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_event_over_16_mib_from_mysqld() -> Result<()> {
    const LENGTH: usize = 33 << 20;
    let server = semi_sync_source(&["--max-allowed-packet=128M"])?;
    let options = DumpOptions {
        have: prepare(&server)?,
        ..dump_options("")?
    };
    let mut follower = Follower::new(dump(&server, &options).await?);
    let work = server.client().start_sql(&format!(
        "INSERT INTO d.t VALUES (1, REPEAT('x', {LENGTH}))"
    ))?;
    let mut rows_bytes = 0;
    let end = loop {
        let next = tokio::time::timeout(LIMIT, follower.stream.next()).await??;
        next.event.verified(ChecksumAlgorithm::Crc32)?;
        match next.event.event_type() {
            EventType::WriteRows => rows_bytes += next.event.bytes().len(),
            EventType::Xid => break u64::from(next.event.header().log_pos),
            _ => {}
        }
    };
    assert!(rows_bytes > LENGTH, "{rows_bytes}");
    follower.stream.ack(&at("binlog.000001", end)).await?;
    finish(work)
}

fn refusal(outcome: Result<ReplicationStream, DumpError>) -> Result<(DumpRefusal, String)> {
    match outcome {
        Err(error @ DumpError::Refused { refusal, .. }) => Ok((refusal, error.to_string())),
        other => anyhow::bail!("{other:?}"),
    }
}

#[tokio::test]
async fn refusals_of_mysqld_say_what_to_do() -> Result<()> {
    let server = Mysqld::launch(&MysqlTree::require())?;
    let client = server.client();
    client.sql("CREATE DATABASE d; FLUSH BINARY LOGS; CREATE DATABASE e; PURGE BINARY LOGS TO 'binlog.000002'")?;
    let uuid = client.variable("server_uuid")?;

    let plain = |have: &str| {
        dump_options(have).map(|options| DumpOptions {
            semi_sync: false,
            ..options
        })
    };
    let (kind, told) = refusal(dump(&server, &plain("")?).await)?;
    assert_eq!(kind, DumpRefusal::PurgedGtids, "{told}");
    let (kind, told) = refusal(dump(&server, &plain(&format!("{uuid}:1-100"))?).await)?;
    assert_eq!(kind, DumpRefusal::SourceBehind, "{told}");
    let error = dump(&server, &dump_options(&format!("{uuid}:1"))?).await;
    assert!(
        matches!(error, Err(DumpError::NotSemiSync { .. })),
        "{error:?}"
    );
    dump(&server, &plain(&format!("{uuid}:1"))?).await?;
    Ok(())
}

#[tokio::test]
async fn silence_shutdown_and_twins_are_told_apart_with_mysqld() -> Result<()> {
    let mut server = semi_sync_source(&[])?;
    let mut options = DumpOptions {
        have: prepare(&server)?,
        ..dump_options("")?
    };
    options.heartbeat = Duration::from_millis(100);
    options.silence_limit = Duration::from_millis(600);

    let mut stream = dump(&server, &options).await?;
    let until = Instant::now() + 3 * options.silence_limit;
    let mut heartbeats = 0;
    while Instant::now() < until {
        if stream.next().await?.event.event_type() == EventType::Heartbeat {
            heartbeats += 1;
        }
    }
    assert!(heartbeats >= 5, "{heartbeats}");

    // Another dump with the same UUID ends this one at the next heartbeat.
    let mut twin = dump(&server, &options).await?;
    let ended = loop {
        if let Err(error) = tokio::time::timeout(LIMIT, stream.next()).await? {
            break error;
        }
    };
    assert!(
        matches!(
            ended,
            DumpError::Refused {
                refusal: DumpRefusal::DuplicateUuid,
                ..
            } | DumpError::Link(_)
        ),
        "{ended}"
    );

    server.pause()?;
    let began = Instant::now();
    let silent = loop {
        if let Err(error) = twin.next().await {
            break error;
        }
    };
    assert!(matches!(silent, DumpError::Silent { .. }), "{silent}");
    assert!(began.elapsed() < Duration::from_secs(5));
    server.resume()?;

    // A server that stops on a busy machine may be silent for some seconds before it closes the connection.
    options.silence_limit = LIMIT;
    let mut last = dump(&server, &options).await?;
    let ending = std::thread::spawn(move || server.stop());
    let ended = loop {
        if let Err(error) = tokio::time::timeout(LIMIT, last.next()).await? {
            break error;
        }
    };
    assert!(
        matches!(
            ended,
            DumpError::Ended { .. } | DumpError::Link(_) | DumpError::Refused { .. }
        ),
        "{ended}"
    );
    ending.join().expect("the stopping thread")?;
    Ok(())
}
