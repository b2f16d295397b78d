//! Whether the file system under a server's data directory has room.

use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::statvfs;
use tokio::task::JoinHandle;

/// With less than this a table's file may not be able to grow: InnoDB asks for 4 MiB at once, and for more where a row is larger.
const ROOM: u64 = 64 << 20;
/// A file system that does not answer by then is asked no second time until it has.
const PATIENCE: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub(super) struct Room {
    folder: Option<PathBuf>,
    asked: Option<JoinHandle<bool>>,
}

impl Room {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            asked: None,
        }
    }

    /// Whether too little is left for everybody but root. One that says nothing, or that is on another machine, is taken to have room.
    pub(super) async fn is_gone(&mut self) -> bool {
        let Some(folder) = &self.folder else {
            return false;
        };
        let folder = folder.clone();
        let asked = self.asked.get_or_insert_with(|| {
            tokio::task::spawn_blocking(move || {
                statvfs(&folder).is_ok_and(|space| space.f_bavail * space.f_frsize < ROOM)
            })
        });
        let Ok(gone) = tokio::time::timeout(PATIENCE, asked).await else {
            return false;
        };
        self.asked = None;
        gone.unwrap_or(false)
    }
}
