//! Parses statements about a replication channel and its source.

use super::{Parser, Statement, Value};

/// The options of `CHANGE REPLICATION SOURCE`, with names in capitals. Options that are missing here do not change.
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

    /// Parses the options of START REPLICA and STOP REPLICA: true for the receiver alone, and the channel's name.
    pub(super) fn replica_threads(&mut self) -> Option<(bool, Option<String>)> {
        self.phrase("REPLICA")?;
        Some((self.words("IO_THREAD"), self.channel()?))
    }

    /// Parses the name of the channel, if there is one.
    pub(super) fn channel(&mut self) -> Option<Option<String>> {
        match self.words("FOR CHANNEL") {
            true => self.text().map(Some),
            false => Some(None),
        }
    }
}
