//! The state shared by the store, its handles and its readers, and the access to the writer.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::sync::{oneshot, watch};

use crate::error::StoreError;
use crate::log::OpenLog;
use crate::options::{Durability, WriterMode};
use crate::scrub::record::Scrub;
use crate::writer::{Command, CommandQueue, LogWriter, lock};

/// The most bytes that an append writes in the caller's thread.
const IN_PLACE_BYTES: u64 = 256 << 10;
/// If less space is free than this, no caller writes in its own thread, because it might have to wait for room.
const IN_PLACE_FREE: u64 = 256 << 20;

/// The state shared by the store, its handles and its readers.
pub(crate) struct Shared {
    pub(crate) log: Arc<OpenLog>,
    pub(crate) scrub: Scrub,
    pub(crate) queue: Arc<CommandQueue>,
    pub(crate) writer: Arc<Mutex<LogWriter>>,
    /// The writer's thread; `None` in the other writer modes and after the log was closed.
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    /// The index after the newest entry, updated at each append.
    pub(crate) appended: watch::Sender<u64>,
}

impl Deref for Shared {
    type Target = OpenLog;

    fn deref(&self) -> &OpenLog {
        &self.log
    }
}

impl Shared {
    /// Passes a command to the writer; returns it if the log is closed.
    pub(crate) fn submit(&self, command: Command) -> Result<(), Box<Command>> {
        if self.queue.is_closed() {
            return Err(Box::new(command));
        }
        match self.options.writer {
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

    /// Passes a command to the writer and waits until it is done.
    pub(crate) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, StoreError> {
        let (done, answer) = oneshot::channel();
        self.submit(command(done)).map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or_else(|_| {
            let failure = self.view.lock().failure.clone();
            Err(failure.unwrap_or(StoreError::Closed))
        })
    }

    /// Performs a command in the caller's thread if it is small and the writer is idle; otherwise returns it, and the caller queues it.
    /// Without syncs, writing a few bytes takes less time than waking the writer's thread.
    fn try_in_place(&self, command: Command) -> Option<Command> {
        let suits = self.options.durability == Durability::Os
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
        match self.options.writer {
            WriterMode::Thread | WriterMode::Stepped => self.queue.nudge(),
            WriterMode::Inline => lock(&self.writer).nudged_inline(),
        }
    }

    /// Stops the writer after the pending requests, without waiting.
    pub(crate) fn stop(&self) {
        self.queue.close();
        match self.options.writer {
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
            writer.nudged_inline();
        }
        drop(writer);
        self.queue.release(bytes);
    }
}
