//! The process's own log: lines of text or of JSON on standard error, filtered as configured. The filter can be replaced.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::config::LoggingSettings;
use crate::terminal::{Exit, Failure};

/// Crates whose chatter helps nobody: what the engine warns of, this program says in its own words.
/// Its module `raft` calls it an error when somebody who asked it has gone away, as callers with a deadline do; what fails there it
/// returns as well. What hyper warns of is that a caller of HTTP is slow. A filter that names them wins.
const QUIET: &str = "openraft=error,openraft::raft=off,sled=warn,h2=warn,hyper=error,tower=warn";

/// The filter of the log that was started.
pub(crate) struct LogFilter(Box<dyn Fn(EnvFilter) + Send + Sync>);

impl LogFilter {
    /// Reads a filter as it is configured.
    ///
    /// # Errors
    /// When it cannot be read.
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

    /// Filters by this one from now on.
    pub(crate) fn renew(&self, filter: EnvFilter) {
        (self.0)(filter);
    }
}

/// Has whatever panics from now on in the process's log, as one line where no backtrace is asked for.
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
/// When the configured filter cannot be read.
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
