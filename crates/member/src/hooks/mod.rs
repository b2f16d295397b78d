//! Hooks: an operator's commands that the member runs when the primary changes, for example to notify a proxy, a name service or a person.
//! They run after the change, and cannot delay it. `reports.rs` decides which hook is due. One task runs the commands in turn, each with a
//! time limit.

mod reports;

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::Instant;

use crate::hooks::reports::{Environment, EventKind, PrimaryState, Reports};
use crate::settings::HookSettings;
use crate::state::MemberState;
use crate::status::ViewSource;

// Runs a hook's command once: in its own process group, with a time limit and a limit for its output.

/// Number of bytes of each output stream that are kept. The rest is read and dropped.
const KEPT_OUTPUT: usize = 4 << 10;
/// How long to wait for output after the command has ended, because its remaining children may keep the stream open.
const LAST_WORDS: Duration = Duration::from_millis(200);

struct HookRun {
    /// Why the run failed; `None` after success.
    failure: Option<String>,
    /// The first kilobytes of the command's standard output, then of its standard error.
    output: String,
}

/// Kills the rest of a process group when dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The process group may have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs `command` for an event, at most for `timeout`. After that, or if this future is dropped, kills the command and all of its children.
async fn run_hook(command: &[String], event: Environment, timeout: Duration) -> HookRun {
    let failed = |why: String| HookRun {
        failure: Some(why),
        output: String::new(),
    };
    let Some((program, arguments)) = command.split_first() else {
        return failed("the command is empty".to_owned());
    };
    let spawned = Command::new(program)
        .args(arguments)
        .envs(event)
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
            // After a normal end, processes that the command started deliberately may continue.
            group.0 = None;
            (!status.success()).then(|| format!("{program} ended with {status}"))
        }
        Ok(Err(error)) => Some(format!("{program} cannot be waited for: {error}")),
        Err(_) => {
            drop(group);
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

/// Reads a stream to its end, and returns its beginning.
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

// The task that runs due hooks.

fn command(settings: &HookSettings, kind: EventKind) -> &[String] {
    match kind {
        EventKind::Primary => &settings.on_primary,
        EventKind::Demoted => &settings.on_demoted,
        EventKind::PrimaryChanged => &settings.on_primary_changed,
    }
}

/// Runs hooks until it is dropped, which kills a running command. The current configuration is used. While no command is configured,
/// nothing is reported. When the first command is configured, it reports the primary of that moment, as after a start.
pub(crate) async fn run(state: Arc<MemberState>) {
    let mysqld = state.settings.mysql.as_ref();
    let mysqld = mysqld.map(|mysqld| (mysqld.host.as_str(), mysqld.port));
    let mut settings = state.hook_settings.subscribe();
    let (mut seen, mut reports) = (PrimaryState::default(), Reports::default());
    loop {
        let settings = match settings.wait_for(HookSettings::any).await {
            Ok(settings) => settings.clone(),
            Err(_) => return,
        };
        let next_change = state.next_change();
        let view = state.view();
        seen = seen.observe(&view);
        let Some(kind) = reports.due(&seen, Instant::now()) else {
            next_change.await;
            continue;
        };
        let command = command(&settings, kind);
        if command.is_empty() {
            reports.ended(kind, &seen, None, Instant::now());
            let failing = reports.failing();
            state.hooks.send_modify(|view| view.failing = failing);
            continue;
        }
        let event = seen.event(kind, &view, mysqld);
        let ran = run_hook(command, event, settings.timeout).await;
        let (name, output) = (kind.name(), ran.output.trim_end());
        match &ran.failure {
            None => tracing::info!(event = name, output, "a hook was run"),
            Some(why) => tracing::warn!(
                event = name,
                output,
                "a hook failed: {why}; it is run again until it succeeds"
            ),
        }
        let failures = u64::from(ran.failure.is_some());
        reports.ended(kind, &seen, ran.failure, Instant::now());
        state.hooks.send_modify(|view| {
            view.runs_total += 1;
            view.failures_total += failures;
            view.failing = reports.failing();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Environment {
        vec![("WITNESS_EVENT", "primary".to_owned())]
    }

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).into()
    }

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn it_gets_the_environment_and_its_words_are_kept() {
        let run = run_hook(
            &shell("echo \"it is $WITNESS_EVENT\"; echo no >&2"),
            event(),
            LIMIT,
        )
        .await;
        assert_eq!(run.failure, None);
        assert_eq!(run.output, "it is primary\nno\n");
    }

    #[tokio::test]
    async fn a_failure_says_how() {
        let run = run_hook(&shell("exit 3"), event(), LIMIT).await;
        assert!(run.failure.unwrap().contains("exit status: 3"));
        let nothing = run_hook(&["/no/such/program".to_owned()], event(), LIMIT).await;
        assert!(nothing.failure.unwrap().contains("cannot be run"));
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("child");
        let script = format!("(sleep 3; touch {}) & sleep 1000", mark.display());
        let began = Instant::now();
        let run = run_hook(&shell(&script), event(), Duration::from_millis(300)).await;
        assert!(run.failure.unwrap().contains("was killed after 300ms"));
        assert!(began.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!mark.exists(), "its child continued");
    }

    #[tokio::test]
    async fn much_output_is_bounded_and_what_stays_behind_holds_nothing_up() {
        let much = run_hook(&shell("yes | head -c 10000000"), event(), LIMIT).await;
        assert_eq!((much.failure, much.output.len()), (None, KEPT_OUTPUT));
        let began = Instant::now();
        let left = run_hook(&shell("sleep 20 &"), event(), LIMIT).await;
        assert_eq!(left.failure, None);
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}
