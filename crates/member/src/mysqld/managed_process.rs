//! The record of the mysqld that this member manages: its pid and start time, in the runtime directory of the member's unit. After the
//! member has failed, the unit's `ExecStopPost` kills the recorded process (`packaging/external-mysqld/kill-managed-mysqld`). systemd runs
//! it after a failed start, too; without a record, it kills nothing.
//!
//! The record is written when the member manages mysqld, which means that a takeover is complete. It is removed when the member releases
//! mysqld or has stopped it. It stays after a crash of the member, but not after a reboot.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mysqld_server::durable_file;
use mysqld_server::supervisor::{ProcessId, SupervisorState, SupervisorStatus};
use tokio::sync::watch;

use crate::data_directory::UnmanagedNote;

const FILE: &str = "managed-mysqld";
/// Interval between two checks whether a takeover is complete, and before a failed write is repeated.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(super) struct ManagedProcess {
    file: PathBuf,
    note: UnmanagedNote,
}

impl ManagedProcess {
    pub(super) fn new(runtime_dir: &Path, data_dir: &Path) -> Self {
        Self {
            file: runtime_dir.join(FILE),
            note: UnmanagedNote::of(data_dir),
        }
    }

    /// Records each mysqld that the supervisor starts or takes over. Ends when the supervisor's handle is dropped.
    pub(super) async fn keep(self, mut status: watch::Receiver<SupervisorStatus>) {
        let mut recorded = None;
        loop {
            let running = match status.borrow_and_update().state {
                SupervisorState::Running { pid, .. } => Some(pid),
                _ => recorded,
            };
            if let Some(pid) = running.filter(|_| running != recorded) {
                match self.record(pid) {
                    Ok(true) => recorded = running,
                    Ok(false) => {}
                    Err(error) => {
                        let file = self.file.display();
                        tracing::warn!(
                            "cannot write {file}: {error}; without it, systemd does not kill mysqld when this member hangs; tried again"
                        );
                    }
                }
            }
            tokio::select! {
                changed = status.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(RETRY), if running != recorded => {}
            }
        }
    }

    /// Writes the record, and returns true. Returns false while a takeover is not complete, or if the process has ended.
    fn record(&self, pid: ProcessId) -> io::Result<bool> {
        let Some(started) = pid.started() else {
            return Ok(false);
        };
        if self.note.is_set()? {
            return Ok(false);
        }
        let content = format!("{} {started}\n", pid.0);
        durable_file::replace(&self.file, content.as_bytes())?;
        Ok(true)
    }

    pub(super) fn remove(&self) {
        if let Err(error) = durable_file::remove(&self.file) {
            let file = self.file.display();
            tracing::warn!(
                "cannot remove {file}: {error}; remove it before this member fails, or systemd kills mysqld"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn running(pid: ProcessId) -> SupervisorStatus {
        SupervisorStatus {
            state: SupervisorState::Running { pid, adopted: true },
            since: Instant::now(),
            starts: 0,
            warning: None,
        }
    }

    async fn until(holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < deadline, "it does not come about");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn mysqld_is_recorded_once_its_takeover_is_complete_until_it_is_released() {
        let (runtime, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = ProcessId(i32::try_from(std::process::id()).unwrap());
        let (file, note) = (runtime.path().join(FILE), UnmanagedNote::of(data.path()));
        note.set_at_the_primary().unwrap();
        let record = ManagedProcess::new(runtime.path(), data.path());
        let (status, seen) = watch::channel(running(own));
        let keeping = tokio::spawn(record.clone().keep(seen));
        tokio::time::sleep(RETRY * 2).await;
        assert!(
            !file.exists(),
            "recorded although its takeover is incomplete"
        );
        note.clear().unwrap();
        until(|| file.exists()).await;
        let expected = format!("{} {}\n", own.0, own.started().unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);

        // Another process is started, and the record must change.
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let other = ProcessId(i32::try_from(child.id()).unwrap());
        status.send_replace(running(other));
        let expected = format!("{} {}\n", other.0, other.started().unwrap());
        until(|| std::fs::read_to_string(&file).unwrap() == expected).await;
        child.kill().unwrap();
        child.wait().unwrap();
        drop(status);
        keeping.await.unwrap();
        assert!(file.exists(), "the record outlives the member");
        record.remove();
        assert!(!file.exists());
    }
}
