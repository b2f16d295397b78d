//! The stage of the embedded demonstration: three members over loopback, what is shown of them, and
//! the waiting for what should happen.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use binlog_store::SledMeta;
use member::settings::Settings;
use member::status::{MemberView, ViewSource};
use member::{MemberError, Opened, RingHandle, Surroundings};
use testkit::ports::free_addresses;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Sources, read};
use crate::demo::failed;
use crate::demo::proof;
use crate::demo::screen::{Frame, Scoreboard, Screen};
use crate::terminal::{Exit, Failure};

/// The member beside the embedded database.
pub(crate) const DATABASE: usize = 0;
/// Names of the members, the database member first.
const NAMES: [&str; 3] = ["db-1", "witness-1", "witness-2"];
/// Ten elections a second at most, so that a demonstration is short.
const HEARTBEAT: &str = "100ms";
/// Large enough that the log rotates when the script says so, and only then.
const MAX_FILE_BYTES: &str = "256MiB";

/// How often the table is drawn.
const FRAME: Duration = Duration::from_millis(250);
/// How often the members are looked at while something is waited for.
const LOOK: Duration = Duration::from_millis(5);
/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) members: Vec<EmbeddedMember>,
    pub(crate) board: Arc<Scoreboard>,
    screen: Mutex<Screen>,
    started: Instant,
}

impl Stage {
    /// Three members with their files below `data_dir`; none runs yet.
    pub(crate) fn set(data_dir: &Path, screen: Screen) -> Result<Self, Failure> {
        let addresses = free_addresses(NAMES.len()).map_err(failed)?;
        let configs = (0..NAMES.len()).map(|own| configure(own, &addresses, data_dir));
        let members = configs.map(|config| config.map(EmbeddedMember::new));
        Ok(Self {
            members: members.collect::<Result<_, _>>()?,
            board: Arc::new(Scoreboard::new()),
            screen: Mutex::new(screen),
            started: Instant::now(),
        })
    }

    /// The member with that number, counted from 0.
    pub(crate) fn member(&self, at: usize) -> &EmbeddedMember {
        &self.members[at]
    }

    /// Draws the table for as long as it is polled.
    pub(crate) async fn draw(&self) {
        let mut frames = tokio::time::interval(FRAME);
        loop {
            frames.tick().await;
            let window = self.board.window();
            let members: Vec<_> = self
                .members
                .iter()
                .map(|member| (member.name().to_owned(), member.view()))
                .collect();
            let frame = Frame::new(self.started.elapsed(), &window, &members);
            self.lock_screen().show(&frame.lines, &frame.brief);
        }
    }

    /// Prints a line that stays above the table.
    pub(crate) fn say(&self, line: &str) {
        self.lock_screen().say(line);
    }

    pub(crate) fn close_screen(&self) {
        self.lock_screen().close();
    }

    /// Waits until the members are as `reached` wants them, and answers how long that took.
    pub(crate) async fn wait_until(
        &self,
        what: &str,
        reached: impl Fn(&Self) -> bool,
    ) -> Result<Duration, Failure> {
        let begun = Instant::now();
        while !reached(self) {
            if let Some(fault) = self.fault() {
                return Err(Failure::error(fault));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new(
                    Exit::Error,
                    format!("not within {} s: {what}", PATIENCE.as_secs()),
                    "the members' files say more; keep them with --data-dir, and look at the log with RUST_BACKTRACE=1",
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(begun.elapsed())
    }

    fn fault(&self) -> Option<String> {
        let views = self.members.iter().filter_map(EmbeddedMember::view);
        let mut faults = views.filter_map(|view| {
            let fault = view.fault?;
            Some(format!("member `{}` stopped: {fault}", view.member.name))
        });
        faults.next()
    }

    /// Whether this member serves as the leader.
    pub(crate) fn serves(&self, at: usize) -> bool {
        self.view(at).is_some_and(|view| view.serving)
    }

    /// The member that serves as the leader, if one does.
    pub(crate) fn anybody_serves(&self) -> Option<usize> {
        (0..self.members.len()).find(|at| self.serves(*at))
    }

    /// Whether this member follows and has nearly all that the leader committed.
    pub(crate) fn has_caught_up(&self, at: usize) -> bool {
        let leader = self.anybody_serves().and_then(|leader| self.view(leader));
        match (leader, self.view(at)) {
            (Some(leader), Some(own)) => proof::has_caught_up(&own, &leader),
            _ => false,
        }
    }

    /// Whether all logs end at the same entry, committed everywhere.
    pub(crate) fn all_equal(&self) -> bool {
        let views: Vec<_> = self.members.iter().map(EmbeddedMember::view).collect();
        proof::all_equal(views.iter().map(Option::as_ref))
    }

    pub(crate) fn view(&self, at: usize) -> Option<MemberView> {
        self.member(at).view()
    }

    fn lock_screen(&self) -> std::sync::MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn configure(own: usize, addresses: &[SocketAddr], data_dir: &Path) -> Result<Settings, Failure> {
    let member = |at: usize| {
        let kind = if at == DATABASE {
            "database"
        } else {
            "witness"
        };
        let (id, name, address) = (at + 1, NAMES[at], &addresses[at]);
        format!(
            "{{ id = {id}, name = \"{name}\", region = \"here\", kind = \"{kind}\", address = \"{address}\" }}"
        )
    };
    let members: Vec<_> = (0..NAMES.len()).map(member).collect();
    let flags = [
        ("data_dir", data_dir.join(NAMES[own]).display().to_string()),
        ("ring.name", "demo".into()),
        ("member.id", (own + 1).to_string()),
        ("raft.heartbeat", HEARTBEAT.into()),
        ("log.max_file_bytes", MAX_FILE_BYTES.into()),
        ("log.disk_reserve_bytes", "16MiB".into()),
        ("members", format!("[{}]", members.join(", "))),
        // The embedded database stands in for the mysqld of this section.
        ("mysql.mode", "attach".into()),
        ("mysql.apply", "off".into()),
    ];
    let sources = Sources {
        flags: flags.map(|(key, value)| (key.to_owned(), value)).into(),
        ..Sources::default()
    };
    let (config, problems) = read(&sources);
    let config = config.ok_or_else(|| Failure::error(problems.to_string()))?;
    Ok(Settings {
        mysql: None,
        ..config.member
    })
}

/// How long the last threads of a crashed member may take to let go of its files.
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);
/// Two for each member, so that one long write does not hold up its heartbeats.
const WORKER_THREADS: usize = 2;

/// One member of the embedded ring, on a runtime of its own: dropping that runtime is a crash, since
/// nothing of the member gets a chance to say or write anything more.
pub(crate) struct EmbeddedMember {
    settings: Settings,
    alive: Mutex<Option<Alive>>,
    ring: watch::Sender<Option<RingHandle>>,
}

struct Alive {
    view: Arc<dyn ViewSource>,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), MemberError>>,
    runtime: Runtime,
}

impl EmbeddedMember {
    /// A member that does not run yet.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            alive: Mutex::new(None),
            ring: watch::Sender::new(None),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.own.name
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.settings.data_dir.clone()
    }

    /// The member's ring while it takes part in it.
    pub(crate) fn ring(&self) -> watch::Receiver<Option<RingHandle>> {
        self.ring.subscribe()
    }

    /// What it says of itself; none while it does not run.
    pub(crate) fn view(&self) -> Option<MemberView> {
        let view = self.lock().as_ref().map(|alive| alive.view.clone());
        view.map(|view| view.view())
    }

    /// Starts it; it comes to its ring by itself.
    pub(crate) async fn start(&self, bootstrap: bool) -> Result<(), Failure> {
        self.wait_until_released().await?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .thread_name(self.name())
            .enable_all()
            .build()?;
        let opening = Opened::open(self.settings.clone(), Surroundings::default());
        let opened = match runtime.spawn(opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(self.failure(&error)),
            Err(error) => return Err(Failure::error(error.to_string())),
        };
        let (view, stop) = (opened.view(), CancellationToken::new());
        let living = live(opened, bootstrap, self.ring.clone(), stop.clone());
        let ended = runtime.spawn(living);
        *self.lock() = Some(Alive {
            view,
            stop,
            ended,
            runtime,
        });
        Ok(())
    }

    /// Drops it with everything it was doing.
    pub(crate) async fn crash(&self) {
        self.ring.send_replace(None);
        let Some(Alive { runtime, .. }) = self.lock().take() else {
            return;
        };
        let ended = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(RELEASE_PATIENCE));
        drop(ended.await);
    }

    /// Stops it in good order, without making another member the leader.
    pub(crate) async fn stop(&self) -> Result<(), Failure> {
        self.ring.send_replace(None);
        let Some(alive) = self.lock().take() else {
            return Ok(());
        };
        alive.stop.cancel();
        let stopped = alive.ended.await;
        alive.runtime.shutdown_background();
        match stopped {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.failure(&error)),
            Err(error) => Err(Failure::error(error.to_string())),
        }
    }

    /// The writer thread of a crashed member finishes the write that it is in; until then the hard
    /// state beside the log is locked.
    async fn wait_until_released(&self) -> Result<(), Failure> {
        let meta = self.settings.data_dir.join("meta");
        let until = Instant::now() + RELEASE_PATIENCE;
        while meta.is_dir() {
            match SledMeta::open(&meta) {
                Ok(_) => break,
                Err(error) if Instant::now() > until => {
                    return Err(Failure::error(format!("{}: {error}", meta.display())));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        Ok(())
    }

    fn failure(&self, error: &MemberError) -> Failure {
        Failure::new(
            Exit::Error,
            format!("member `{}`: {error}", self.name()),
            "",
        )
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Alive>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From the way to the ring to `stop`.
async fn live(
    mut opened: Opened,
    bootstrap: bool,
    ring: watch::Sender<Option<RingHandle>>,
    stop: CancellationToken,
) -> Result<(), MemberError> {
    let joined = tokio::select! {
        joined = opened.join(bootstrap) => joined,
        () = stop.cancelled() => return opened.close().await,
    };
    // Why it does not join, if so, stands in its view.
    let Ok(joined) = joined else {
        stop.cancelled().await;
        return opened.close().await;
    };
    let Ok(running) = opened.take_part(joined).await else {
        return Ok(());
    };
    ring.send_replace(Some(running.ring().clone()));
    stop.cancelled().await;
    // Without a hand-over: another one is made the leader by the others.
    running.end_failed().await
}
