//! Commands of the operator's that the member runs when the primary changes: to tell a proxy, a name service, a person. They
//! come after the change and cannot hold it up: `event.rs` finds the changes in what the member says of itself, the watch puts
//! them into a short queue, and one task runs the commands one after the other, each with its time.

mod event;

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::hooks::event::{Changes, Event, EventKind, OwnMysqld};
use crate::settings::HookSettings;
use crate::state::MemberState;
use crate::status::{HooksView, ViewSource};

// One run of a hook's command: in a process group of its own, with a time, and with a bound on what is kept of its output.

/// What is kept of the output of each stream; the rest is read and dropped.
const KEPT_OUTPUT: usize = 4 << 10;
/// How long output is waited for after the command has ended: what it left running may hold the stream.
const LAST_WORDS: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookRun {
    /// Why it counts as failed; nothing when it did not.
    pub(crate) failure: Option<String>,
    /// The first kilobytes of what the command wrote to standard output, then to standard error.
    pub(crate) output: String,
}

/// Kills what is left of a process group when it is dropped.
struct Group(Option<Pid>);

impl Group {
    fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // It may be gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `command` for an event, for `timeout` at most; then it is killed with everything that it started. So it is when this
/// call is dropped.
pub(crate) async fn run_hook(command: &[String], event: &Event, timeout: Duration) -> HookRun {
    let failed = |why: String| HookRun {
        failure: Some(why),
        output: String::new(),
    };
    let Some((program, arguments)) = command.split_first() else {
        return failed("the command is empty".to_owned());
    };
    let spawned = Command::new(program)
        .args(arguments)
        .envs(event.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return failed(format!("{program} cannot be run: {error}")),
    };
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let mut group = Group(pid.and_then(Pid::from_raw));
    let outputs = (child.stdout.take(), child.stderr.take());
    let reading = tokio::spawn(async move { tokio::join!(kept(outputs.0), kept(outputs.1)) });
    let reader = reading.abort_handle();
    let ended = tokio::time::timeout(timeout, child.wait()).await;
    let failure = match ended {
        Ok(Ok(status)) => {
            // What it left running on purpose goes on.
            group.0 = None;
            (!status.success()).then(|| format!("{program} ended with {status}"))
        }
        Ok(Err(error)) => Some(format!("{program} cannot be waited for: {error}")),
        Err(_) => {
            group.kill();
            let _ = child.wait().await;
            Some(format!("{program} was killed after {timeout:?}"))
        }
    };
    let output = match tokio::time::timeout(LAST_WORDS, reading).await {
        Ok(Ok((out, err))) => format!("{out}{err}"),
        _ => {
            reader.abort();
            String::new()
        }
    };
    HookRun { failure, output }
}

/// The beginning of a stream, which is read to its end.
async fn kept(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else {
        return String::new();
    };
    let (mut kept, mut piece) = (Vec::new(), [0_u8; 1024]);
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        let room = KEPT_OUTPUT - kept.len();
        kept.extend_from_slice(&piece[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

// The task that looks for changes, and the one that runs the commands.

/// How often the tasks look whether something happened.
const TICK: Duration = Duration::from_millis(200);
/// Events that wait for a command that takes its time; further ones are dropped.
const WAITING_EVENTS: usize = 16;

/// What [`HooksView`] tells, while it is counted.
#[derive(Debug, Default)]
pub(crate) struct HookFigures {
    runs: AtomicU64,
    failures: AtomicU64,
    dropped: AtomicU64,
}

impl HookFigures {
    pub(crate) fn view(&self) -> HooksView {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HooksView {
            runs_total: read(&self.runs),
            failures_total: read(&self.failures),
            dropped_total: read(&self.dropped),
        }
    }
}

fn command(settings: &HookSettings, kind: EventKind) -> &[String] {
    match kind {
        EventKind::Primary => &settings.on_primary,
        EventKind::Demoted => &settings.on_demoted,
        EventKind::PrimaryChanged => &settings.on_primary_changed,
    }
}

/// Looks and runs until it is dropped; a command that is under way then is killed. Commands are those that are configured at the
/// moment. While there is none, nobody looks: the first one is told who the primary is, as after a start.
pub(crate) async fn run(state: Arc<MemberState>) {
    let mysqld = state.settings.mysql.as_ref().map(|mysqld| OwnMysqld {
        host: mysqld.host.clone(),
        port: mysqld.port,
    });
    let (events, waiting) = mpsc::channel(WAITING_EVENTS);
    let watching = async {
        let mut settings = state.hook_settings.subscribe();
        let mut changes = Changes::default();
        loop {
            if settings.wait_for(HookSettings::any).await.is_err() {
                return;
            }
            for event in changes.see(&state.view(), mysqld.as_ref()) {
                let wanted = !command(&settings.borrow(), event.kind).is_empty();
                if wanted && events.try_send(event).is_err() {
                    state.hooks.dropped.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!("a hook's event is dropped: {WAITING_EVENTS} wait already");
                }
            }
            tokio::time::sleep(TICK).await;
        }
    };
    tokio::join!(watching, carry_out(&state, waiting));
}

async fn carry_out(state: &MemberState, mut waiting: mpsc::Receiver<Event>) {
    let figures = &state.hooks;
    while let Some(event) = waiting.recv().await {
        let name = event.kind.name();
        let settings = state.hook_settings.borrow().clone();
        let command = command(&settings, event.kind);
        if command.is_empty() {
            // It was taken away while the event waited.
            continue;
        }
        let ran = run_hook(command, &event, settings.timeout).await;
        figures.runs.fetch_add(1, Ordering::Relaxed);
        let output = ran.output.trim_end();
        match ran.failure {
            None => tracing::info!(event = name, output, "a hook was run"),
            Some(why) => {
                figures.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(event = name, output, "a hook failed: {why}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::hooks::event::EventKind;

    fn event() -> Event {
        Event {
            kind: EventKind::Primary,
            environment: vec![("WITNESS_EVENT", "primary".to_owned())],
        }
    }

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).into()
    }

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn it_gets_the_environment_and_its_words_are_kept() {
        let run = run_hook(
            &shell("echo \"it is $WITNESS_EVENT\"; echo no >&2"),
            &event(),
            LIMIT,
        )
        .await;
        assert_eq!(run.failure, None);
        assert_eq!(run.output, "it is primary\nno\n");
    }

    #[tokio::test]
    async fn a_failure_says_how() {
        let run = run_hook(&shell("exit 3"), &event(), LIMIT).await;
        assert!(run.failure.unwrap().contains("exit status: 3"));
        let nothing = run_hook(&["/no/such/program".to_owned()], &event(), LIMIT).await;
        assert!(nothing.failure.unwrap().contains("cannot be run"));
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("child");
        let script = format!("(sleep 3; touch {}) & sleep 1000", mark.display());
        let began = Instant::now();
        let run = run_hook(&shell(&script), &event(), Duration::from_millis(300)).await;
        assert!(run.failure.unwrap().contains("was killed after 300ms"));
        assert!(began.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!mark.exists(), "what it started went on");
    }

    #[tokio::test]
    async fn much_output_is_bounded_and_what_stays_behind_holds_nothing_up() {
        let much = run_hook(&shell("yes | head -c 10000000"), &event(), LIMIT).await;
        assert_eq!((much.failure, much.output.len()), (None, KEPT_OUTPUT));
        let began = Instant::now();
        let left = run_hook(&shell("sleep 20 &"), &event(), LIMIT).await;
        assert_eq!(left.failure, None);
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}
