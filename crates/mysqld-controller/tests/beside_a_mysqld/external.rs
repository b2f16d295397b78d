//! A mysqld that another program owns. The member starts, stops and kills it with commands, identifies it by its working directory, and
//! guards its starts like those of a child.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use mysql_link::ServerVersion;
use mysqld_server::supervisor::{
    ExternalCommands, GuardError, StartGuard, SupervisorOptions, SupervisorState,
};
use tokio::process::Command;

use crate::guarded_starts::Door;
use crate::primary::{LIMIT, eventually};
use crate::supervised::{Home, Supervised, boots_closed, persist};

#[derive(Default)]
struct Counted(AtomicU64);

impl StartGuard for Counted {
    fn what(&self) -> &str {
        "it is counted"
    }

    fn before_start(&self) -> BoxFuture<'_, Result<(), GuardError>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        futures::future::ready(Ok(())).boxed()
    }
}

/// Only mysqld's configuration file names its data directory, and a shell takes the place of systemd.
fn external(home: &Home, super_read_only: &str) -> Result<SupervisorOptions> {
    let (mut options, commands) = with_commands(home, super_read_only)?;
    options.external = Some(Arc::new(commands));
    Ok(options)
}

fn with_commands(
    home: &Home,
    super_read_only: &str,
) -> Result<(SupervisorOptions, ExternalCommands)> {
    let options = home.options(&[]);
    let words = options.server.words(ServerVersion::new(9, 7, 4));
    let program = options.server.command.join(" ");
    let mut file = "[mysqld]\n".to_owned();
    for word in &words[options.server.command.len()..] {
        let option = word.trim_start_matches("--");
        let left_out = ["no-defaults", "super-read-only", "read-only"];
        if !left_out.iter().any(|name| option.starts_with(name)) {
            file += &format!("{option}\n");
        }
    }
    file += super_read_only;
    fs::write(home.path("my.cnf"), file)?;
    let pid = home.path("pid");
    let pid = pid.display();
    let shell = |script: String| vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
    let start = format!(
        "rm -f {pid}; setsid {program} --defaults-file={} >/dev/null 2>&1 & \
         while ! [ -s {pid} ]; do sleep 0.1; done",
        home.path("my.cnf").display()
    );
    let commands = ExternalCommands {
        start: shell(start),
        stop: shell(format!(
            "kill $(cat {pid}); while [ -e {pid} ]; do sleep 0.1; done"
        )),
        kill: shell(format!("kill -9 $(cat {pid})")),
        limit: Duration::from_secs(30),
    };
    Ok((options, commands))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_something_else_owns_is_started_killed_adopted_and_stopped() -> Result<()> {
    let home = Home::with_data()?;
    let guard = Arc::new(Counted::default());
    let options = external(&home, "super_read_only=ON\n")?;
    let supervised = Supervised::start_guarded(options.clone(), guard.clone());
    let (first, adopted) = supervised.runs().await?;
    ensure!(!adopted && guard.0.load(Ordering::Relaxed) == 1);
    let mut connection = home.connect().await?;
    let row = connection.query("SELECT @@super_read_only").await?;
    ensure!(row.first().context("a row")?.text_at(0) == Some("1"));

    supervised.handle.kill_and_restart();
    supervised
        .reaches(|state| matches!(state, SupervisorState::Running { pid, .. } if *pid != first))
        .await?;
    // On a busy machine, the start after a kill may fail once, for an unknown reason. It is retried, and the guard is called each time.
    let asked = guard.0.load(Ordering::Relaxed);
    ensure!(asked >= 2);
    home.connect().await?;
    let status = supervised.handle.status();
    ensure!(status.borrow().warning.is_none() && status.borrow().starts >= 2);

    // A clean stop, and a start after the guard was called.
    let ended = || {
        Ok::<_, anyhow::Error>(
            fs::read_to_string(home.path("log.err"))?
                .matches("Shutdown complete")
                .count(),
        )
    };
    let (killed, ended_before) = (supervised.runs().await?, ended()?);
    let restarted = supervised.handle.restart().await;
    ensure!(restarted.is_ok(), "{restarted:?}");
    ensure!(supervised.runs().await? != killed && ended()? == ended_before + 1);
    ensure!(guard.0.load(Ordering::Relaxed) > asked);
    let asked = guard.0.load(Ordering::Relaxed);
    home.connect().await?;

    supervised.handle.leave().await;
    let again = Supervised::start_guarded(options, guard.clone());
    let (_, adopted) = again.runs().await?;
    ensure!(adopted && guard.0.load(Ordering::Relaxed) == asked);
    again.stop().await?;
    ensure!(!home.path("pid").exists());
    let log = fs::read_to_string(home.path("log.err"))?;
    ensure!(
        log.contains("Shutdown complete"),
        "it was not asked to stop"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_boots_open_for_writes_is_told_of() -> Result<()> {
    let home = Home::with_data()?;
    let supervised = Supervised::start(external(&home, "")?);
    supervised.runs().await?;
    let status = supervised.handle.status();
    eventually("it is noticed", || {
        let warning = status.borrow().warning.clone();
        Ok(warning.is_some_and(|warning| warning.contains("started open for writes")))
    })
    .await?;
    supervised.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_command_that_fails_is_told_of() -> Result<()> {
    let home = Home::with_data()?;
    let (mut options, mut commands) = with_commands(&home, "")?;
    commands.start = vec![
        "/bin/sh".into(),
        "-c".into(),
        "echo unit not found >&2; exit 5".into(),
    ];
    options.external = Some(Arc::new(commands));
    let supervised = Supervised::start(options);
    let failed = supervised
        .reaches(|state| matches!(state, SupervisorState::Failed { .. }))
        .await?;
    let SupervisorState::Failed { cause } = failed else {
        anyhow::bail!("{failed:?}");
    };
    ensure!(
        cause.contains("exit status: 5") && cause.contains("unit not found"),
        "{cause}"
    );
    supervised.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_would_boot_open_by_what_is_persisted_is_not_started_so() -> Result<()> {
    let home = Home::with_data()?;
    let mut options = external(&home, "super_read_only=ON\n")?;
    let supervised = Supervised::start(options.clone());
    let (first, _) = supervised.runs().await?;
    persist(&home).await?;
    supervised.handle.kill_and_restart();
    supervised
        .reaches(|state| matches!(state, SupervisorState::Running { pid, .. } if *pid != first))
        .await?;
    boots_closed(&home).await?;

    persist(&home).await?;
    supervised.stop().await?;
    // The operator's values are kept and reported.
    options.may_take_out_persisted = false;
    let supervised = Supervised::start(options);
    let failed = supervised
        .reaches(|state| matches!(state, SupervisorState::Failed { .. }))
        .await?;
    let SupervisorState::Failed { cause } = failed else {
        anyhow::bail!("{failed:?}");
    };
    ensure!(
        cause.contains("super_read_only = OFF") && cause.contains("RESET PERSIST"),
        "{cause}"
    );
    supervised.stop().await
}

/// systemd restarts mysqld with `Restart=`, and the recovery of that mysqld commits unacknowledged transactions.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_something_else_starts_again_is_killed_and_restarted_through_the_guard()
-> Result<()> {
    let home = Home::with_data()?;
    let door = Arc::new(Door::default());
    door.open.store(true, Ordering::Relaxed);
    let (mut options, commands) = with_commands(&home, "super_read_only=ON\n")?;
    options.external = Some(Arc::new(commands.clone()));
    let supervised = Supervised::start_guarded(options, door.clone());
    supervised.runs().await?;
    home.connect().await?;
    door.open.store(false, Ordering::Relaxed);
    let command = |words: &[String]| {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).kill_on_drop(true);
        command
    };
    ensure!(command(&commands.kill).status().await?.success());
    let started = command(&commands.start).spawn()?;
    let mut status = supervised.handle.status();
    let warned = status.wait_for(|status| {
        let warning = status.warning.as_ref();
        warning.is_some_and(|words| words.contains("Restart=no"))
    });
    tokio::time::timeout(LIMIT, warned).await??;
    supervised
        .reaches(|state| matches!(state, SupervisorState::Held { .. }))
        .await?;
    drop(started);
    door.open.store(true, Ordering::Relaxed);
    supervised.runs().await?;
    home.connect().await?;
    supervised.stop().await
}
