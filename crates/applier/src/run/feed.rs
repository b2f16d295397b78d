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
use crate::schema::TableShape;
use crate::source::Source;
use crate::transaction::{SchemaChange, Transaction};

/// Where a run gets its transactions from.
pub trait Feed: Send {
    /// The next transaction that is not in `seen`, and puts it there; `None` at the end. A call that is dropped loses nothing.
    ///
    /// # Errors
    /// Nothing more comes then; everything before is applied all the same.
    fn next(
        &mut self,
        seen: &mut GtidSet,
    ) -> impl Future<Output = Result<Option<Transaction>, ApplyError>> + Send;

    /// Tables look different from now on.
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

    /// The next transaction that is not in `seen` goes to `parsed`; false at the end.
    async fn parse_next(&mut self, seen: &GtidSet) -> Result<bool, ApplyError> {
        while self.parsed.is_none() {
            let Some(framed) = self.source.next().await? else {
                return Ok(false);
            };
            if seen.contains(&framed.gtid) {
                self.progress.skip();
            } else {
                self.parsed = Some(self.decoder.parse(&framed)?);
            }
        }
        Ok(true)
    }

    /// Asks for the tables that are not known, with one question.
    async fn look_up(&mut self) -> Result<(), ApplyError> {
        let missing = self
            .shapes
            .missing(self.parsed.iter().flat_map(Parsed::tables));
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
    async fn next(&mut self, seen: &mut GtidSet) -> Result<Option<Transaction>, ApplyError> {
        if !self.parse_next(seen).await? {
            return Ok(None);
        }
        // It stays in `parsed` while the database is asked, so that a call that is dropped loses nothing.
        self.look_up().await?;
        let Some(parsed) = self.parsed.take() else {
            return Ok(None);
        };
        seen.add(parsed.gtid());
        let transaction = parsed.finish(|name| self.shapes.get(name))?;
        Ok(Some(transaction))
    }

    fn schema_changed(&mut self, change: &SchemaChange) {
        self.shapes.forget(change);
    }

    fn is_drained(&self) -> bool {
        self.source.is_drained() && self.parsed.is_none()
    }
}
