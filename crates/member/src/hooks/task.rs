//! The task that looks for changes, and the one that runs the commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use super::event::{Changes, Event, EventKind, OwnMysqld};
use super::process::run_hook;
use crate::settings::{HookSettings, MysqlSettings};
use crate::status::{HooksView, ViewSource};

/// Between two looks.
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
    /// As they are now.
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

/// Looks and runs until it is dropped; a command that is under way then is killed.
pub(crate) async fn run(
    settings: HookSettings,
    mysqld: Option<&MysqlSettings>,
    source: Arc<dyn ViewSource>,
    figures: Arc<HookFigures>,
) {
    let mysqld = mysqld.map(|mysqld| OwnMysqld {
        host: mysqld.host.clone(),
        port: mysqld.port,
    });
    let (events, waiting) = mpsc::channel(WAITING_EVENTS);
    let watching = async {
        let mut changes = Changes::default();
        loop {
            for event in changes.see(&source.view(), mysqld.as_ref()) {
                let wanted = !command(&settings, event.kind).is_empty();
                if wanted && events.try_send(event).is_err() {
                    figures.dropped.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!("a hook's event is dropped: {WAITING_EVENTS} wait already");
                }
            }
            tokio::time::sleep(TICK).await;
        }
    };
    tokio::join!(watching, carry_out(&settings, waiting, &figures));
}

async fn carry_out(
    settings: &HookSettings,
    mut waiting: mpsc::Receiver<Event>,
    figures: &HookFigures,
) {
    while let Some(event) = waiting.recv().await {
        let name = event.kind.name();
        let ran = run_hook(command(settings, event.kind), &event, settings.timeout).await;
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
