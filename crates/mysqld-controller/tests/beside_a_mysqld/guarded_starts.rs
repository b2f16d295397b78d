//! mysqld starts only after its guard has agreed. A primary that is killed because its commits get no ACK restarts without these commits.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use mysqld_controller::TailTrim;
use mysqld_controller::ingest::IngestOptions;
use mysqld_server::supervisor::{GuardError, StartGuard, SupervisorState};
use mysqld_server::tail_trim::{TailTrimOptions, TrimmedTail};
use raft_types::Term;

use crate::primary::{A_WHILE, LIMIT, Running, eventually, requirements};
use crate::ring_in_memory::{Leadership, MemoryRing};
use rustix::process::Signal;

use crate::supervised::{Home, Supervised, signal};

#[derive(Default)]
pub(crate) struct Door {
    pub(crate) open: AtomicBool,
    asked: AtomicU64,
}

impl StartGuard for Door {
    fn what(&self) -> &str {
        "the port is probed"
    }

    fn before_start(&self) -> BoxFuture<'_, Result<(), GuardError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let open = self.open.load(Ordering::Relaxed);
        async move {
            open.then_some(())
                .ok_or_else(|| GuardError::from("the door is shut"))
        }
        .boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_asked_before_every_start_and_keeps_mysqld_down() -> Result<()> {
    let home = Home::with_data()?;
    let door = Arc::new(Door::default());
    let supervised = Supervised::start_guarded(home.options(&[]), door.clone());
    let shut = SupervisorState::Held {
        cause: "the door is shut".to_owned(),
    };
    supervised.reaches(|state| *state == shut).await?;
    let since = supervised.handle.status().borrow().since;
    eventually("it is asked again", || {
        Ok(door.asked.load(Ordering::Relaxed) > 2)
    })
    .await?;
    let status = supervised.handle.status();
    ensure!(status.borrow().starts == 0 && status.borrow().since == since);
    door.open.store(true, Ordering::Relaxed);
    let (first, _) = supervised.runs().await?;
    home.connect().await?;

    door.open.store(false, Ordering::Relaxed);
    supervised.handle.kill_and_restart();
    supervised.reaches(|state| *state == shut).await?;
    door.open.store(true, Ordering::Relaxed);
    let (second, adopted) = supervised.runs().await?;
    ensure!(second != first && !adopted);
    home.connect().await?;
    supervised.stop().await
}

/// After a crash, the wrapper would start another mysqld, whose recovery commits transactions without an ACK.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrapper_that_starts_mysqld_again_is_killed_and_signals_go_to_mysqld() -> Result<()> {
    let home = Home::with_data()?;
    let mut options = home.options(&[]);
    let script = "case \"$*\" in *--version*) exec \"$@\";; esac; while :; do \"$@\"; done";
    let wrapper = ["/bin/sh", "-c", script, "sh"].map(str::to_owned);
    options.server.command = wrapper.into_iter().chain(options.server.command).collect();
    let door = Arc::new(Door::default());
    door.open.store(true, Ordering::Relaxed);
    let supervised = Supervised::start_guarded(options, door.clone());
    supervised.runs().await?;
    home.connect().await?;
    let (mysqld, _) = supervised.runs().await?;
    let program = fs::read(format!("/proc/{}/cmdline", mysqld.0))?;
    ensure!(!program.starts_with(b"/bin/sh"));
    let times = |words: &str| -> Result<usize> {
        Ok(fs::read_to_string(home.path("log.err"))?
            .matches(words)
            .count())
    };
    let begun = times("ready for connections")?;

    door.open.store(false, Ordering::Relaxed);
    signal(mysqld, Signal::KILL)?;
    let shut = SupervisorState::Held {
        cause: "the door is shut".to_owned(),
    };
    supervised.reaches(|state| *state == shut).await?;
    tokio::time::sleep(5 * A_WHILE).await;
    ensure!(times("ready for connections")? == begun);
    door.open.store(true, Ordering::Relaxed);
    supervised
        .reaches(|state| matches!(state, SupervisorState::Running { .. }))
        .await?;
    home.connect().await?;
    let ended = times("Shutdown complete")?;
    supervised.stop().await?;
    ensure!(
        times("Shutdown complete")? == ended + 1,
        "mysqld was not asked to stop"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_may_stop_while_its_mysqld_is_held() -> Result<()> {
    let home = Home::with_data()?;
    let supervised = Supervised::start_guarded(home.options(&[]), Arc::new(Door::default()));
    let held = |state: &SupervisorState| matches!(state, SupervisorState::Held { .. });
    supervised.reaches(held).await?;
    supervised.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_whose_commits_wait_in_vain_is_killed_and_comes_back_without_them() -> Result<()>
{
    let home = Home::with_data()?;
    let member_dir = tempfile::tempdir()?;
    let ring = MemoryRing::new();
    let options = home.options(&[]);
    let trim = TailTrimOptions::new(member_dir.path().to_owned(), options.server.clone());
    let mut ingesting = IngestOptions::new(home.account(), requirements());
    ingesting.retry = (Duration::from_millis(20), Duration::from_millis(100));
    let mut ingest = Running::start(&ring, ingesting);
    let guard = TailTrim::new(Arc::clone(&ring), Some(ingest.status.clone()), trim);
    let trimmed = Arc::clone(&guard.trimmed);
    let supervised = Supervised::start_guarded(options, Arc::new(guard));
    supervised.runs().await?;
    let mut primary = home.connect().await?;
    primary.execute("SET GLOBAL read_only = OFF").await?;
    ring.set_leadership(Leadership::Serving(Term(1)));
    ingest.attached().await?;
    primary.execute("CREATE DATABASE d").await?;
    primary
        .execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        .await?;
    let committed = ring.gtids();

    ring.set_commits_at_once(false);
    let waits = tokio::spawn(async move { primary.execute("INSERT INTO d.t VALUES (1)").await });
    eventually("it is proposed", || Ok(ring.gtids() != committed)).await?;
    tokio::time::sleep(A_WHILE).await;
    ensure!(!waits.is_finished());
    ring.lose_uncommitted();
    supervised.handle.kill_and_restart();
    ensure!(tokio::time::timeout(LIMIT, waits).await??.is_err());
    supervised
        .reaches(|state| matches!(state, SupervisorState::Held { .. }))
        .await?;
    supervised.runs().await?;
    ensure!(trimmed.load(Ordering::Relaxed) == 1);
    let mut again = home.connect().await?;
    let row = again
        .query("SELECT COUNT(*), @@GLOBAL.gtid_executed, @@super_read_only FROM d.t")
        .await?;
    let row = row.first().map(|row| {
        (0..3)
            .map(|at| row.text_at(at).unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    });
    ensure!(
        row == Some(vec!["0".to_owned(), committed, "1".to_owned()]),
        "{row:?}"
    );
    ensure!(TrimmedTail::list(member_dir.path())?.len() == 1);
    supervised.stop().await?;
    ingest.stop().await
}
