//! What else stops and starts when the leadership is given away on purpose: the database beside the leader takes no more
//! writes before, so that none of them is lost to the next leader.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;

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
