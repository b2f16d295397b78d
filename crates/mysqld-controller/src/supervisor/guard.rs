//! Who owns the moment before a start.

use futures::future::BoxFuture;

/// Asked before each start of mysqld, the first one too, while none runs on the data directory.
pub trait StartGuard: Send + Sync + 'static {
    /// What it does or waits for, for people to read meanwhile.
    fn what(&self) -> &str;

    /// Makes ready for a start. Bounded, and cancel safe: dropped, it may be asked again at once. It is
    /// asked again, too, after it has refused.
    ///
    /// # Errors
    /// In words, why mysqld must not start now.
    fn before_start(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Told before mysqld, which runs, is asked to stop. Bounded.
    fn before_stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
