//! The process of a long-running command: its log, the signals that stop it, and the messages to the service manager.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsStr;
use std::io::{self, IsTerminal, stderr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use member::status::ViewSource;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::config::LoggingSettings;
use crate::terminal::{Attempt, Exit};

/// The log levels of libraries with redundant messages. A configured filter that names these crates overrides this filter. This program
/// itself reports openraft's warnings. openraft's module `raft` logs an error when a caller disconnects, which callers with a deadline
/// normally do; it also returns its failures. hyper's warnings only report slow HTTP clients.
const QUIET: &str = "openraft=error,openraft::raft=off,sled=warn,h2=warn,hyper=error,tower=warn";

/// A handle with which the filter of the started log can be replaced.
pub(crate) type LogFilter = reload::Handle<EnvFilter, Registry>;

/// Parses a configured filter.
///
/// # Errors
/// When it cannot be parsed.
pub(crate) fn filter_of(level: &str) -> Attempt<EnvFilter> {
    let directives = format!("{QUIET},{level}");
    EnvFilter::try_new(directives).map_err(|error| {
        Exit::Usage.because(
            format!("`logging.level` is \"{level}\", which is no filter: {error}"),
            "write a level such as \"info\", or a list such as \"info,transport=debug\"",
        )
    })
}

/// Installs a hook that logs all panics, on one line if no backtrace is requested.
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
pub(crate) fn start_log(settings: &LoggingSettings) -> Attempt<LogFilter> {
    let (filter, handle) = reload::Layer::new(filter_of(&settings.level)?);
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = stderr().is_terminal() && !no_colour;
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr);
    let lines = match settings.json {
        true => lines.json().flatten_event(true).boxed(),
        false => lines.with_ansi(colours).boxed(),
    };
    let log = tracing_subscriber::registry().with(filter).with(lines);
    // If this process has started a log before, that log remains.
    drop(log.try_init());
    Ok(handle)
}

/// The signals that stop a command: SIGTERM and SIGINT.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal, and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// On the first signal, passes its name to `tell` and cancels the work. The second signal ends the program immediately. So this is
    /// only for work that may end at any time.
    pub(crate) async fn cancel(mut self, what: CancellationToken, tell: impl FnOnce(&str)) {
        tell(self.next().await);
        what.cancel();
        self.next().await;
        std::process::exit(i32::from(Exit::Error as u8));
    }
}

/// The variable with the path of the service manager's socket for notifications.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The variable with the watchdog's time: after this silence, in microseconds, the service manager considers the process hung.
const WATCHDOG: &str = "WATCHDOG_USEC";
/// The variable with the service's directories for files that a reboot removes.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";

/// The service manager (systemd, `Type=notify`), which is notified of the start, liveness and stop of this process. A hung member cannot
/// close its mysqld to readers, so the service manager kills both after `WatchdogSec` without a message.
#[derive(Default)]
pub(super) struct ServiceManager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Connects to the service manager that the environment names. Without one, messages are dropped.
    ///
    /// # Errors
    /// When the socket cannot be used: without a message, the service manager would consider the start failed.
    pub(super) fn of_environment() -> io::Result<Self> {
        let named = std::env::var_os(SOCKET).filter(|name| !name.is_empty());
        let Some(name) = named else {
            return Ok(Self::default());
        };
        let socket = UnixDatagram::unbound()?;
        // A send must not block if the service manager does not read.
        socket.set_nonblocking(true)?;
        connect(&socket, &name)?;
        let micros = std::env::var(WATCHDOG).ok();
        Ok(Self {
            socket: Some(socket),
            watchdog: micros.and_then(|micros| watchdog_of(&micros)),
        })
    }

    /// Returns the service's first directory for files that a reboot removes, if the service manager provides one.
    pub(super) fn runtime_dir(&self) -> Option<PathBuf> {
        self.socket.as_ref()?;
        let named = std::env::var_os(RUNTIME_DIRECTORY)?;
        let first = named.as_bytes().split(|byte| *byte == b':').next()?;
        (!first.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(first)))
    }

    /// Reports liveness to the service manager. The messages end if tasks are not scheduled, or the member's view cannot be read.
    pub(super) async fn keep_alive(&self, member: Arc<dyn ViewSource>) -> std::convert::Infallible {
        let Some(interval) = self.watchdog else {
            return std::future::pending().await;
        };
        loop {
            // If a lock of the member is held forever, this call blocks, and the watchdog acts.
            let _ = member.view();
            self.notify("WATCHDOG=1");
            tokio::time::sleep(interval / 3).await;
        }
    }

    /// Sends a message to the service manager, if there is one.
    pub(super) fn notify(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::warn!(%error, "cannot send {message} to the service manager");
        }
    }
}

fn connect(socket: &UnixDatagram, name: &OsStr) -> io::Result<()> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?),
        None => socket.connect(name),
    }
}

fn watchdog_of(micros: &str) -> Option<Duration> {
    let micros: u64 = micros.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_lists_are_filters() {
        for level in ["info", "warn,transport=debug", "openraft=trace,info"] {
            assert!(filter_of(level).is_ok(), "{level}");
        }
        assert!(filter_of("info,transport=loudly").is_err());
    }

    #[test]
    fn the_watchdog_interval_is_parsed() {
        assert_eq!(watchdog_of("2000000"), Some(Duration::from_secs(2)));
        assert_eq!(watchdog_of("0"), None);
        assert_eq!(watchdog_of("soon"), None);
    }

    #[test]
    fn notifications_are_sent_to_a_path_or_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("witness-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let managers = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
                format!("@{name}").into(),
            ),
        ];
        for (manager, named) in managers {
            let socket = UnixDatagram::unbound().unwrap();
            connect(&socket, &named).unwrap();
            let notifying = ServiceManager {
                socket: Some(socket),
                watchdog: None,
            };
            notifying.notify("READY=1");
            let mut received = [0; 64];
            let length = manager.recv(&mut received).unwrap();
            assert_eq!(&received[..length], b"READY=1");
        }
    }
}
