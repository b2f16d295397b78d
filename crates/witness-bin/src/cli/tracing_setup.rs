//! The process's own log: lines of text or of JSON on standard error, filtered as configured.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::config::LoggingSettings;
use crate::terminal::{Exit, Failure};

/// Crates whose chatter helps nobody: what the engine warns of, this program says in its own words.
/// A filter that names them wins.
const QUIET: &str = "openraft=error,sled=warn,h2=warn,hyper=warn,tower=warn";

/// Starts the process's log.
///
/// # Errors
/// When the configured filter cannot be read.
pub(crate) fn start_log(settings: &LoggingSettings) -> Result<(), Failure> {
    let filter = filter(&settings.level)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr);
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let started = if settings.json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder
            .with_ansi(stderr().is_terminal() && !no_colour)
            .try_init()
    };
    // A second start in one process keeps the first log.
    drop(started);
    Ok(())
}

fn filter(level: &str) -> Result<EnvFilter, Failure> {
    let directives = format!("{QUIET},{level}");
    EnvFilter::try_new(directives).map_err(|error| {
        Failure::new(
            Exit::Usage,
            format!("`logging.level` is \"{level}\", which is no filter: {error}"),
            "write a level such as \"info\", or a list such as \"info,transport=debug\"",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_lists_are_filters_and_nonsense_is_not() {
        for level in ["info", "warn,transport=debug", "openraft=trace,info"] {
            assert!(filter(level).is_ok(), "{level}");
        }
        assert!(filter("info,transport=loudly").is_err());
    }
}
