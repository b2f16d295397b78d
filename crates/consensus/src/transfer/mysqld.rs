//! The mysqld beside this member, as a transfer of the leadership sees it: it takes no more writes before the leadership is
//! given away on purpose, so that none of them is lost to the next leader; and it says what a promotion here would cost.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;

use crate::calls::DatabaseState;

/// The part of a member that writes to its log.
pub trait Writer: Send + Sync + 'static {
    /// Takes no more writes, and waits until those that were taken are committed or refused. Called in a leadership that
    /// serves.
    ///
    /// # Errors
    /// In words, when writes are still under way after a while; the leadership is kept then.
    fn pause(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Takes writes again, if this member leads.
    fn resume(&self);
}

/// Where the writer is told, once there is one.
#[derive(Default)]
pub(crate) struct WriterSlot(OnceLock<Arc<dyn Writer>>);

impl std::fmt::Debug for WriterSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WriterSlot")
            .field(&self.0.get().is_some())
            .finish()
    }
}

/// A pause that ends when it is dropped, whatever became of the leadership.
pub(crate) struct Paused<'a>(&'a WriterSlot);

impl WriterSlot {
    pub(crate) fn set(&self, writer: Arc<dyn Writer>) {
        // A member has one writer for its life.
        let _ = self.0.set(writer);
    }

    /// Pauses the writer, if there is one.
    pub(crate) async fn pause(&self) -> Result<Paused<'_>, String> {
        let paused = Paused(self);
        if let Some(writer) = self.0.get() {
            writer.pause().await?;
        }
        Ok(paused)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.0.0.get() {
            writer.resume();
        }
    }
}

/// The mysqld beside a member.
pub trait Database: Send + Sync + 'static {
    /// What a promotion would cost now, behind a primary of this version, if it is known. Bounded: who asks waits for a few hundred
    /// milliseconds.
    fn state(&self, primary: Option<String>) -> BoxFuture<'_, DatabaseState>;

    /// Its version, as far as it was seen.
    fn version(&self) -> Option<String>;
}

/// Where the mysqld is told, once there is one.
#[derive(Default)]
pub(crate) struct DatabaseSlot(OnceLock<Arc<dyn Database>>);

impl std::fmt::Debug for DatabaseSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DatabaseSlot")
            .field(&self.0.get().is_some())
            .finish()
    }
}

impl DatabaseSlot {
    pub(crate) fn set(&self, database: Arc<dyn Database>) {
        // A member has one mysqld for its life.
        let _ = self.0.set(database);
    }

    /// What a promotion would cost; nothing where there is no mysqld.
    pub(crate) async fn state(&self, primary: Option<String>) -> Option<DatabaseState> {
        match self.0.get() {
            Some(database) => Some(database.state(primary).await),
            None => None,
        }
    }

    /// Its version, as far as it was seen.
    pub(crate) fn version(&self) -> Option<String> {
        self.0.get().and_then(|database| database.version())
    }
}
