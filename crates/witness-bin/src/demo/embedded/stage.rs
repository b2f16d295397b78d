//! The stage of the embedded demonstration: three members over loopback, what is shown of them, and
//! the waiting for what should happen.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use member::settings::Settings;
use member::status::MemberView;

use super::member::EmbeddedMember;
use crate::config::{Sources, read};
use crate::demo::agreement;
use crate::demo::frame::Frame;
use crate::demo::ports::free_addresses;
use crate::demo::scoreboard::Scoreboard;
use crate::demo::screen::Screen;
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

/// See the module.
pub(crate) struct Stage {
    pub(crate) members: Vec<EmbeddedMember>,
    pub(crate) board: Arc<Scoreboard>,
    screen: Mutex<Screen>,
    started: Instant,
}

impl Stage {
    /// Three members with their files below `data_dir`; none runs yet.
    pub(crate) fn set(data_dir: &Path, screen: Screen) -> Result<Self, Failure> {
        let addresses = free_addresses()?;
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

    /// Says something that stays.
    pub(crate) fn say(&self, line: &str) {
        self.lock_screen().say(line);
    }

    /// Takes the table away.
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

    /// Whether any member does.
    pub(crate) fn anybody_serves(&self) -> Option<usize> {
        (0..self.members.len()).find(|at| self.serves(*at))
    }

    /// Whether this member follows and has nearly all that the leader committed.
    pub(crate) fn has_caught_up(&self, at: usize) -> bool {
        let leader = self.anybody_serves().and_then(|leader| self.view(leader));
        match (leader, self.view(at)) {
            (Some(leader), Some(own)) => agreement::has_caught_up(&own, &leader),
            _ => false,
        }
    }

    /// Whether all logs end at the same entry, committed everywhere.
    pub(crate) fn all_equal(&self) -> bool {
        let views: Vec<_> = self.members.iter().map(EmbeddedMember::view).collect();
        agreement::all_equal(views.iter().map(Option::as_ref))
    }

    pub(crate) fn view(&self, at: usize) -> Option<MemberView> {
        self.member(at).view()
    }

    fn lock_screen(&self) -> std::sync::MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn configure(
    own: usize,
    addresses: &[SocketAddr; 3],
    data_dir: &Path,
) -> Result<Settings, Failure> {
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
