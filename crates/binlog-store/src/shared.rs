//! The state shared by the store, its handles and its readers, and the access to the writer.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use raft_types::{OpId, RingId, StoredMembership};
use spilling_bytes::SpillFolder;
use tokio::sync::watch;

use crate::disk_space::DiskSpace;
use crate::error::StoreError;
use crate::file_handles::{FileHandles, ReadFaults};
use crate::log::SharedView;
use crate::options::{Durability, WriterMode};
use crate::scrub::record::Scrub;
use crate::stats::Counters;
use crate::writer::{Command, CommandQueue, LogWriter, lock};

/// The most bytes that an append writes in the caller's thread.
const IN_PLACE_BYTES: u64 = 256 << 10;
/// With less free space than this, no caller writes in its own thread, which would have to wait for room.
const IN_PLACE_FREE: u64 = 256 << 20;

/// The state shared by the store, its handles and its readers.
pub(crate) struct Shared {
    pub(crate) view: Arc<SharedView>,
    pub(crate) handles: Arc<FileHandles>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) space: Arc<DiskSpace>,
    pub(crate) read_faults: Arc<ReadFaults>,
    pub(crate) scrub: Scrub,
    pub(crate) queue: Arc<CommandQueue>,
    pub(crate) writer_mode: WriterMode,
    pub(crate) durability: Durability,
    pub(crate) read_batch_bytes: u64,
    /// For large payloads that are read.
    pub(crate) spill: SpillFolder,
    pub(crate) writer: Arc<Mutex<LogWriter>>,
    /// The writer's thread; `None` in the other writer modes and after the log was closed.
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    /// The committed op id and its membership when the log was opened.
    pub(crate) at_open: Mutex<(Option<OpId>, StoredMembership)>,
    pub(crate) ring: RingId,
    /// The index after the newest entry, updated at each append.
    pub(crate) appended: watch::Sender<u64>,
}

impl Shared {
    /// Passes a command to the writer.
    pub(crate) fn submit(&self, command: Command) -> Result<(), Box<(Command, StoreError)>> {
        if self.queue.is_closed() {
            return Err(Box::new((command, StoreError::Closed)));
        }
        match self.writer_mode {
            WriterMode::Inline => {
                let mut writer = lock(&self.writer);
                writer.run(vec![command]);
                writer.catch_up();
                Ok(())
            }
            WriterMode::Stepped => self.queue.push(command),
            WriterMode::Thread => match self.try_in_place(command) {
                Some(command) => self.queue.push(command),
                None => Ok(()),
            },
        }
    }

    /// Without syncs, writing a few bytes takes less time than waking the writer's thread: if that is idle, the caller writes. Returns the
    /// command if it must be queued.
    fn try_in_place(&self, command: Command) -> Option<Command> {
        let suits = self.durability == Durability::Os
            && matches!(command, Command::Append { .. })
            && command.memory() <= IN_PLACE_BYTES
            && self.space.has_free(IN_PLACE_FREE);
        // Do not write after the log's final sync, which is made under this lock.
        if suits
            && let Ok(mut writer) = self.writer.try_lock()
            && self.queue.is_idle()
            && !self.queue.is_closed()
        {
            writer.run(vec![command]);
            return None;
        }
        Some(command)
    }

    /// Notifies the writer that the committed op id or the holds have changed.
    pub(crate) fn nudge(&self) {
        match self.writer_mode {
            WriterMode::Thread | WriterMode::Stepped => self.queue.nudge(),
            WriterMode::Inline => {
                let mut writer = lock(&self.writer);
                writer.committed_inline();
                writer.catch_up();
            }
        }
    }

    /// Stops the writer after the pending requests, without waiting.
    pub(crate) fn stop(&self) {
        self.queue.close();
        match self.writer_mode {
            WriterMode::Thread => {}
            WriterMode::Inline => lock(&self.writer).close(),
            WriterMode::Stepped => {
                self.step();
                lock(&self.writer).close();
            }
        }
    }

    /// Processes pending requests, as the writer's thread would on waking.
    pub(crate) fn step(&self) {
        let (commands, nudged) = self.queue.take_now();
        let bytes = commands.iter().map(Command::memory).sum();
        let mut writer = lock(&self.writer);
        writer.run(commands);
        if nudged {
            writer.committed_inline();
            writer.catch_up();
        }
        drop(writer);
        self.queue.release(bytes);
    }
}
