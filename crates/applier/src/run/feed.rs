//! Transactions as the run takes them in: decoded, without those that the target has.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;

use crate::backend::Backend;
use crate::decode::{Decoder, Parsed};
use crate::run::error::ApplyError;
use crate::run::progress::Progress;
use crate::run::reach::reach;
use crate::run::shapes::Shapes;
use crate::schema::{TableName, TableShape};
use crate::source::Source;
use crate::transaction::{SchemaChange, Transaction};

/// Where a run gets its transactions from.
pub trait Feed: Send {
    /// Waits for the next transaction that is not in `seen`; false at the end. A call that is dropped loses nothing.
    ///
    /// # Errors
    /// Nothing more comes then; everything before is applied all the same.
    fn wait(&mut self, seen: &GtidSet) -> impl Future<Output = Result<bool, ApplyError>> + Send;

    /// Whether the target has to be asked about tables before what was waited for can be read.
    fn has_to_ask(&self) -> bool;

    /// What was waited for. The target is asked for what has to be known, so that every barrier before it must be committed
    /// when [`Self::has_to_ask`]. Not to be dropped: a question that is asked anew whenever it takes long is never answered.
    ///
    /// # Errors
    /// As for [`Self::wait`].
    fn take(&mut self) -> impl Future<Output = Result<Option<Transaction>, ApplyError>> + Send;

    /// Tables look different behind the transaction that was taken last.
    fn schema_changed(&mut self, change: &SchemaChange);

    /// Whether nothing more is there to be read at the moment.
    fn is_drained(&self) -> bool;
}

/// A source with a decoder, and the target's tables as far as they were asked for.
pub(super) struct DecodedSource<S, B> {
    source: S,
    backend: Arc<B>,
    decoder: Decoder,
    shapes: Shapes,
    /// Parsed, and waiting for its tables.
    parsed: Option<Parsed>,
    reopen_for: Duration,
    progress: Arc<Progress>,
}

impl<S: Source, B: Backend> DecodedSource<S, B> {
    pub(super) fn new(
        source: S,
        backend: Arc<B>,
        max_transaction_bytes: usize,
        reopen_for: Duration,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            source,
            backend,
            decoder: Decoder::new(max_transaction_bytes as u64),
            shapes: Shapes::default(),
            parsed: None,
            reopen_for,
            progress,
        }
    }

    /// What to ask the target for before the next transaction can be read.
    fn missing(&self) -> Vec<TableName> {
        let wanted = self.parsed.iter().flat_map(Parsed::tables);
        self.shapes.missing(wanted)
    }

    /// Asks for the tables that are not known, with one question.
    async fn look_up(&mut self) -> Result<(), ApplyError> {
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let shapes = reach(self.reopen_for, || self.backend.tables(&missing)).await?;
        // Decoding says it when there is none.
        for (name, shape) in missing.into_iter().zip(shapes) {
            let keyless = |shape: &TableShape| shape.primary_key.is_none();
            if shape.as_ref().is_some_and(keyless) && self.progress.note_without_primary_key(&name)
            {
                tracing::warn!(
                    table = %name,
                    "a table without a primary key: its writes are applied one after the other"
                );
            }
            self.shapes.put(name, shape);
        }
        Ok(())
    }
}

impl<S: Source, B: Backend> Feed for DecodedSource<S, B> {
    async fn wait(&mut self, seen: &GtidSet) -> Result<bool, ApplyError> {
        while self.parsed.is_none() {
            let Some(framed) = self.source.next().await? else {
                return Ok(false);
            };
            if seen.contains(&framed.gtid) {
                self.progress.skip();
            } else {
                let parsed = long_work::run(framed.payload.len(), || self.decoder.parse(&framed));
                self.parsed = Some(parsed?);
            }
        }
        Ok(true)
    }

    fn has_to_ask(&self) -> bool {
        !self.missing().is_empty()
    }

    async fn take(&mut self) -> Result<Option<Transaction>, ApplyError> {
        self.look_up().await?;
        let Some(parsed) = self.parsed.take() else {
            return Ok(None);
        };
        let bytes = parsed.bytes();
        let transaction = long_work::run(bytes, || parsed.finish(|name| self.shapes.get(name)))?;
        Ok(Some(transaction))
    }

    fn schema_changed(&mut self, change: &SchemaChange) {
        self.shapes.forget(change);
    }

    fn is_drained(&self) -> bool {
        self.source.is_drained() && self.parsed.is_none()
    }
}
