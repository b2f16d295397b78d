//! The seam below the hard state: a small ordered key-value store. Production uses sled
//! ([`crate::SledMeta`]); tests use one that loses and tears what was not flushed.

use std::io;

/// A store of small values. A `put` or `remove` is durable after the next [`MetaStore::flush`], and
/// the effects of calls become durable in the order of the calls: after a crash, what is there is
/// the result of a prefix of them.
pub trait MetaStore: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// What the store reports, damage included.
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>>;

    /// Makes sure that the next few calls find room on the disk. It may be asked again where there is none, which a call that
    /// finds none may not be.
    ///
    /// # Errors
    /// `StorageFull` or `QuotaExceeded` where there is no room; nothing was changed then. What the store reports.
    fn reserve(&self) -> io::Result<()>;

    /// Sets a key's value.
    ///
    /// # Errors
    /// What the store reports.
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()>;

    /// Removes a key; nothing happens when it has no value.
    ///
    /// # Errors
    /// What the store reports.
    fn remove(&self, key: &str) -> io::Result<()>;

    /// Makes every earlier call durable.
    ///
    /// # Errors
    /// What the store reports; whether the earlier calls are durable is then unknown.
    fn flush(&self) -> io::Result<()>;
}
