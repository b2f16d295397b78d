//! The read fence on a real mysqld. Tests which sessions it closes, that waiting commits do not delay it, and which values of
//! `offline_mode` it reverts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use mysql_link::{ConnectOptions, Connection, Endpoint};
use mysqld_controller::ControllerOptions;
use mysqld_controller::status::{ReadFenceReason, ReadFenceStatus};
use mysqld_controller::watch::{WatchOptions, WatchReport, Watcher};
use raft_types::{MemberId, Term};
use testkit::mysqld::Mysqld;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::primary::{
    Controlled, LIMIT, Running, connect, controller_options, eventually, ingest_options, launch,
    requirements, still_waits,
};
use crate::ring_in_memory::{Leadership, MemoryRing};

const TERM: Term = Term(2);
const GRACE: Duration = Duration::from_millis(500);

/// The watcher and the controller of one run of a member.
struct Life {
    status: watch::Receiver<ReadFenceStatus>,
    _handing_over: watch::Sender<bool>,
    stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Life {
    fn begin(server: &Mysqld, ring: &Arc<MemoryRing>, ingest: &Running) -> Self {
        let mut watching = WatchOptions::new(connect(&server.socket()), requirements());
        watching.interval = Duration::from_millis(100);
        let (watcher, reports): (_, watch::Receiver<WatchReport>) =
            Watcher::new(watching, ingest.status.clone(), ingest.readiness());
        // The member's account has only the documented privileges.
        let options = ControllerOptions {
            fence_after: GRACE,
            ..controller_options(account(server, "member"))
        };
        let Controlled {
            controller,
            status,
            transferring,
        } = Controlled::new(ring, options, &reports, ingest);
        let stop = CancellationToken::new();
        let tasks = vec![
            tokio::spawn(watcher.run(stop.clone())),
            tokio::spawn(controller.run(stop.clone())),
        ];
        Self {
            status: status.read_fence,
            _handing_over: transferring,
            stop,
            tasks,
        }
    }

    async fn fenced(&mut self, because: Option<ReadFenceReason>) -> Result<()> {
        let reached = self.status.wait_for(|status| status.because == because);
        tokio::time::timeout(LIMIT, reached).await??;
        Ok(())
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        for task in self.tasks {
            tokio::time::timeout(LIMIT, task).await??;
        }
        Ok(())
    }
}

fn account(server: &Mysqld, name: &str) -> ConnectOptions {
    ConnectOptions::new(Endpoint::unix(server.socket()), name, name)
}

fn reader(server: &Mysqld) -> ConnectOptions {
    account(server, "reader")
}

fn offline(server: &Mysqld) -> Result<bool> {
    Ok(server.client().variable("offline_mode")? == "1")
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_mysqld_that_is_cut_off_are_kept_off_although_commits_wait() -> Result<()> {
    let server = launch(&[])?;
    server.client().sql(
        "CREATE USER reader IDENTIFIED BY 'reader'; GRANT ALL ON *.* TO reader; \
         REVOKE SUPER, CONNECTION_ADMIN, SYSTEM_USER ON *.* FROM reader; \
         CREATE USER member IDENTIFIED BY 'member'; \
         GRANT REPLICATION SLAVE, REPLICATION CLIENT, SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN ON *.* TO member",
    )?;
    let ring = MemoryRing::new();
    let mut ingest = Running::start(&ring, ingest_options(&server));
    ring.set_leadership(Leadership::Serving(TERM));
    ingest.attached().await?;
    let mut life = Life::begin(&server, &ring, &ingest);
    let mut session = Connection::open(&reader(&server)).await?;
    session.query("SELECT 1").await?;

    ring.set_commits_at_once(false);
    let mut waiting = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    let waits = || server.client().status("Rpl_semi_sync_source_wait_sessions");
    eventually("it waits", || Ok(waits()? == "1")).await?;
    ring.set_leadership(Leadership::Silent(TERM));
    life.fenced(Some(ReadFenceReason::QuorumSilent)).await?;
    assert!(session.query("SELECT 1").await.is_err());
    let refused = Connection::open(&reader(&server)).await.unwrap_err();
    assert!(refused.to_string().contains("offline mode"), "{refused}");
    // Administrators and the member can log in, and waiting commits keep waiting.
    assert!(offline(&server)?);
    still_waits(&mut waiting).await?;

    // The quorum answers again in the same leadership, so the primary serves again.
    ring.set_leadership(Leadership::Serving(TERM));
    ring.set_commits_at_once(true);
    life.fenced(None).await?;
    assert!(!offline(&server)?);
    let mut session = Connection::open(&reader(&server)).await?;
    session.query("SELECT 1").await?;

    // A member that ends leaves `offline_mode` on. Its next run reverts it, because mysqld has recorded who set it.
    ring.set_leadership(Leadership::Elsewhere(MemberId(4)));
    life.fenced(Some(ReadFenceReason::AnotherLeads(MemberId(4))))
        .await?;
    life.end().await?;
    assert!(offline(&server)?);
    ring.set_leadership(Leadership::Serving(Term(3)));
    let life = Life::begin(&server, &ring, &ingest);
    eventually("it is let in again", || Ok(!offline(&server)?)).await?;

    // An operator's setting is kept, whatever member leads.
    server.client().sql("SET GLOBAL offline_mode = ON")?;
    tokio::time::sleep(2 * GRACE).await;
    ring.set_leadership(Leadership::Silent(Term(3)));
    tokio::time::sleep(2 * GRACE).await;
    ring.set_leadership(Leadership::Serving(Term(3)));
    tokio::time::sleep(2 * GRACE).await;
    assert!(offline(&server)?, "an operator's own was taken back");
    life.end().await?;
    ingest.stop().await
}
