//! The process's log: lines of text or JSON on standard error, with a replaceable filter.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::config::LoggingSettings;
use crate::terminal::{Exit, Failure};

/// Crates with redundant messages: this program reports the engine's warnings itself. The engine's module `raft` logs an error when a
/// caller has disconnected, as callers with a deadline do, and returns its failures as well. hyper's warnings only report slow HTTP
/// clients. A filter that names these crates overrides this.
const QUIET: &str = "openraft=error,openraft::raft=off,sled=warn,h2=warn,hyper=error,tower=warn";

/// The filter of the started log.
pub(crate) struct LogFilter(Box<dyn Fn(EnvFilter) + Send + Sync>);

impl LogFilter {
    /// Parses a configured filter.
    ///
    /// # Errors
    /// When it cannot be parsed.
    pub(crate) fn parse(level: &str) -> Result<EnvFilter, Failure> {
        let directives = format!("{QUIET},{level}");
        EnvFilter::try_new(directives).map_err(|error| {
            Failure::new(
                Exit::Usage,
                format!("`logging.level` is \"{level}\", which is no filter: {error}"),
                "write a level such as \"info\", or a list such as \"info,transport=debug\"",
            )
        })
    }

    /// Replaces the filter.
    pub(crate) fn renew(&self, filter: EnvFilter) {
        (self.0)(filter);
    }
}

/// Logs all panics from now on, on one line if no backtrace is requested.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        match backtrace.status() {
            BacktraceStatus::Captured => tracing::error!("{panic}\n{backtrace}"),
            _ => tracing::error!("{panic}"),
        }
    }));
}

/// Starts the process's log.
///
/// # Errors
/// When the configured filter cannot be parsed.
pub(crate) fn start_log(settings: &LoggingSettings) -> Result<LogFilter, Failure> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(LogFilter::parse(&settings.level)?)
        .with_writer(stderr);
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    // A second start in one process keeps the first log.
    let renew: Box<dyn Fn(EnvFilter) + Send + Sync> = if settings.json {
        let builder = builder.json().flatten_event(true).with_filter_reloading();
        let filter = builder.reload_handle();
        drop(builder.try_init());
        Box::new(move |newer| drop(filter.reload(newer)))
    } else {
        let colours = stderr().is_terminal() && !no_colour;
        let builder = builder.with_ansi(colours).with_filter_reloading();
        let filter = builder.reload_handle();
        drop(builder.try_init());
        Box::new(move |newer| drop(filter.reload(newer)))
    };
    Ok(LogFilter(renew))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_lists_are_filters_and_nonsense_is_not() {
        for level in ["info", "warn,transport=debug", "openraft=trace,info"] {
            assert!(LogFilter::parse(level).is_ok(), "{level}");
        }
        assert!(LogFilter::parse("info,transport=loudly").is_err());
    }
}
