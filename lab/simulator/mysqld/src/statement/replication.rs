//! Statements about a channel and its source.

use super::{Parser, Statement, Value};

/// Selected threads of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    Both,
    /// `IO_THREAD`.
    Receiver,
}

/// Options of `CHANGE REPLICATION SOURCE`; missing ones stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceChange {
    pub(crate) channel: String,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u64>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl Parser<'_> {
    /// Options other than those for the login are ignored: a channel follows by GTIDs, and retries every second.
    pub(super) fn change_source(&mut self) -> Option<Statement> {
        self.words("REPLICATION SOURCE TO").then_some(())?;
        let mut change = SourceChange::default();
        loop {
            let option = self.word()?.to_ascii_uppercase();
            self.take_sign('=').then_some(())?;
            match (&option[..], self.value()?) {
                ("SOURCE_HOST", Value::Text(host)) => change.host = Some(host),
                ("SOURCE_PORT", Value::Number(port)) => change.port = Some(port),
                ("SOURCE_USER", Value::Text(user)) => change.user = Some(user),
                ("SOURCE_PASSWORD", Value::Text(password)) => change.password = Some(password),
                _ => {}
            }
            if !self.take_sign(',') {
                change.channel = self.channel()?.unwrap_or_default();
                return Some(Statement::ChangeSource(change));
            }
        }
    }

    /// The options of START and STOP.
    pub(super) fn replica_threads(&mut self) -> Option<(Threads, Option<String>)> {
        self.words("REPLICA").then_some(())?;
        let threads = match self.words("IO_THREAD") {
            true => Threads::Receiver,
            false => Threads::Both,
        };
        Some((threads, self.channel()?))
    }

    /// The named channel, if any.
    pub(super) fn channel(&mut self) -> Option<Option<String>> {
        match self.words("FOR CHANNEL") {
            true => self.text().map(Some),
            false => Some(None),
        }
    }
}
