//! The member's mysqld during a leadership transfer. It stops accepting writes before a planned transfer, so that the next leader loses
//! none. It also reports the cost of a promotion here.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;

use crate::calls::DatabaseState;

/// The part of a member that writes to its log.
pub trait Writer: Send + Sync + 'static {
    /// Stops accepting writes, and waits until the accepted ones are committed or refused. Called in a leadership that serves clients.
    ///
    /// # Errors
    /// Writes are still in progress after a while, as text; the leadership is kept then.
    fn pause(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Accepts writes again, if this member leads.
    fn resume(&self);
}

/// Holds the writer once it is registered.
#[derive(Default)]
pub(crate) struct WriterSlot(OnceLock<Arc<dyn Writer>>);

impl std::fmt::Debug for WriterSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WriterSlot")
            .field(&self.0.get().is_some())
            .finish()
    }
}

/// A pause that ends when it is dropped, whatever the state of the leadership.
pub(crate) struct Paused<'a>(&'a WriterSlot);

impl WriterSlot {
    pub(crate) fn set(&self, writer: Arc<dyn Writer>) {
        // A member has one writer for its lifetime.
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

/// The mysqld of a member.
pub trait Database: Send + Sync + 'static {
    /// The cost of a promotion now, after a primary of this version, if known. Bounded: the caller waits a few hundred milliseconds.
    fn state(&self, primary: Option<String>) -> BoxFuture<'_, DatabaseState>;

    /// Its version, if known.
    fn version(&self) -> Option<String>;
}

/// Holds the mysqld once it is registered.
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
        // A member has one mysqld for its lifetime.
        let _ = self.0.set(database);
    }

    /// The cost of a promotion; `None` without a mysqld.
    pub(crate) async fn state(&self, primary: Option<String>) -> Option<DatabaseState> {
        match self.0.get() {
            Some(database) => Some(database.state(primary).await),
            None => None,
        }
    }

    /// Its version, if known.
    pub(crate) fn version(&self) -> Option<String> {
        self.0.get().and_then(|database| database.version())
    }
}
