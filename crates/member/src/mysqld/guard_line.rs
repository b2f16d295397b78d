//! The line to the guard, a process of the same program. The guard excludes readers from mysqld while this process hangs or stays dead
//! (`mysqld_controller::read_fence::guard`). It is started with the member, and again if it dies.
//!
//! The line is a socket, which is the guard's standard input. The operating system closes it when this process ends, even if it crashes.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The command that starts a guard.
pub const GUARD: &str = "guard";
/// Byte on the line: this process is alive, and clients use its mysqld as the primary.
pub const GUARDS: u8 = b'1';
/// Byte on the line: this process is alive, and there is nothing to guard.
const GUARDS_NOTHING: u8 = b'0';

/// Byte on the line: the guard must reload the configuration, because the password of the account may have changed.
pub const RELOAD: u8 = b'r';

/// How often the state is sent again if it does not change.
const EVERY: Duration = Duration::from_millis(200);
/// Delay before a dead guard is restarted.
const RETRY: Duration = Duration::from_secs(1);
/// How long a guard that is no longer needed may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The command line of a guard.
#[derive(Debug, Clone)]
pub struct GuardCommand {
    /// Path of this program.
    pub program: PathBuf,
    /// Arguments that make it read the same configuration.
    pub arguments: Vec<OsString>,
}

impl GuardCommand {
    /// Starts a guard in its own process group, so that it does not receive signals of the member's terminal.
    fn start(&self) -> io::Result<Guard> {
        let (line, its) = UnixStream::pair()?;
        // The line must not block this process if the guard does not read.
        line.set_nonblocking(true)?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Guard { line, child })
    }
}

struct Guard {
    line: UnixStream,
    child: Child,
}

pub(crate) struct GuardLine {
    command: GuardCommand,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    guard: Option<Guard>,
    told: Option<(Instant, bool)>,
    retry_at: Option<Instant>,
    /// True if the guard must still receive a request to reload the configuration.
    reload: bool,
    ended: bool,
}

impl GuardLine {
    pub(crate) fn new(command: GuardCommand) -> Self {
        Self {
            command,
            state: Mutex::default(),
        }
    }

    /// Makes the guard reload the configuration, with the next message.
    pub(crate) fn reload(&self) {
        self.lock().reload = true;
    }

    /// Reports to the guard that this process is alive, and whether there is something to guard.
    pub(crate) fn says(&self, guards: bool) {
        let now = Instant::now();
        let mut state = self.lock();
        let is_old_news = |(at, told)| told == guards && now.duration_since(at) < EVERY;
        if state.ended
            || state.told.is_some_and(is_old_news) && !state.reload
            || state.retry_at.is_some_and(|at| now < at)
        {
            return;
        }
        state.told = Some((now, guards));
        match self.say(&mut state, guards) {
            Ok(()) => state.retry_at = None,
            // The guard has enough unread messages, which all have the same content.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "no process would block readers of mysqld if this member hung: its guard is started again");
                state.retry_at = Some(now + RETRY);
                if let Some(mut guard) = state.guard.take() {
                    // The guard has closed its line, so it is ending.
                    let _ = guard.child.kill();
                    let _ = guard.child.wait();
                }
            }
        }
    }

    fn say(&self, state: &mut State, guards: bool) -> io::Result<()> {
        let guard = match &mut state.guard {
            Some(guard) => guard,
            none => none.insert(self.command.start()?),
        };
        if state.reload {
            guard.line.write_all(&[RELOAD])?;
            state.reload = false;
        }
        let word = if guards { GUARDS } else { GUARDS_NOTHING };
        guard.line.write_all(&[word])
    }

    /// Ends the line together with the read fence. If `released` is true, the guard has ended on return. Otherwise the guard continues for
    /// the time for which its member may be absent, and then acts on the last message.
    pub(crate) async fn end(&self, released: bool) {
        let guard = {
            let mut state = self.lock();
            state.ended = true;
            state.guard.take()
        };
        let Some(mut guard) = guard.filter(|_| released) else {
            return;
        };
        let told = guard.line.write_all(&[GUARDS_NOTHING]);
        drop(guard.line);
        let until = Instant::now() + ENDS_WITHIN;
        while let Ok(None) = guard.child.try_wait() {
            if told.is_err() || Instant::now() > until {
                let _ = guard.child.kill();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]
mod tests {
    use super::*;

    fn shell(script: String) -> GuardLine {
        GuardLine::new(GuardCommand {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
        })
    }

    fn wait_for(file: &std::path::Path, words: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while std::fs::read_to_string(file).ok().as_deref() != Some(words) {
            assert!(
                Instant::now() < until,
                "{:?}",
                std::fs::read_to_string(file)
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[tokio::test]
    async fn the_same_is_said_now_and_then_and_news_at_once_and_a_release_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let heard = folder.path().join("heard");
        let line = shell(format!("cat > {}; echo -n . >> {0}", heard.display()));
        for guards in [true, true, true, false, false, true] {
            line.says(guards);
        }
        wait_for(&heard, "101");
        line.end(true).await;
        assert_eq!(std::fs::read_to_string(&heard).unwrap(), "1010.");
        line.says(true);
        assert_eq!(std::fs::read_to_string(&heard).unwrap(), "1010.");
    }

    #[tokio::test]
    async fn a_guard_is_told_once_to_read_its_configuration_again() {
        let folder = tempfile::tempdir().unwrap();
        let heard = folder.path().join("heard");
        let line = shell(format!("cat > {}", heard.display()));
        line.says(true);
        line.reload();
        for guards in [true, true, false] {
            line.says(guards);
        }
        line.end(true).await;
        assert_eq!(std::fs::read_to_string(&heard).unwrap(), "1r100");
    }

    #[tokio::test]
    async fn a_guard_that_died_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let heard = folder.path().join("heard");
        let line = shell(format!("head -c 1 >> {}", heard.display()));
        let until = Instant::now() + Duration::from_secs(20);
        while std::fs::read_to_string(&heard).unwrap_or_default().len() < 2 {
            assert!(Instant::now() < until);
            line.says(true);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        line.end(true).await;
    }
}
