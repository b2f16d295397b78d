//! Statements about a channel and its source.

use super::{Parser, Statement, Value};

/// Options of `CHANGE REPLICATION SOURCE`, their names in capitals; missing ones stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceChange {
    pub(crate) channel: String,
    pub(crate) options: Vec<(String, Value)>,
}

impl Parser<'_> {
    pub(super) fn change_source(&mut self) -> Option<Statement> {
        self.phrase("REPLICATION SOURCE TO")?;
        let options = self.listed(|this| {
            let name = this.word()?.to_ascii_uppercase();
            this.phrase("=")?;
            Some((name, this.value()?))
        })?;
        let channel = self.channel()?.unwrap_or_default();
        Some(Statement::ChangeSource(SourceChange { channel, options }))
    }

    /// The options of START and STOP.
    pub(super) fn replica_threads(&mut self) -> Option<(bool, Option<String>)> {
        self.phrase("REPLICA")?;
        Some((self.words("IO_THREAD"), self.channel()?))
    }

    /// The named channel, if any.
    pub(super) fn channel(&mut self) -> Option<Option<String>> {
        match self.words("FOR CHANNEL") {
            true => self.text().map(Some),
            false => Some(None),
        }
    }
}
