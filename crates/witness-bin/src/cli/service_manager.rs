//! Notifies the service manager (systemd, `Type=notify`) of start, liveness and stop. A hung member cannot exclude readers from its mysqld;
//! the service manager kills both after `WatchdogSec` of silence.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use member::status::ViewSource;

/// Socket of the service manager, if it wants notifications.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Silence in microseconds after which it considers the process hung, if set.
const WATCHDOG: &str = "WATCHDOG_USEC";
/// Its directories for files that a reboot removes, if any.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";

pub(super) struct ServiceManager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The service manager in the environment, if any.
    ///
    /// # Errors
    /// When its socket cannot be used: it would consider the start failed.
    pub(super) fn of_environment() -> io::Result<Self> {
        let named = std::env::var_os(SOCKET).filter(|name| !name.is_empty());
        let Some(name) = named else {
            return Ok(Self {
                socket: None,
                watchdog: None,
            });
        };
        let socket = UnixDatagram::unbound()?;
        // Does not wait for a manager that does not read.
        socket.set_nonblocking(true)?;
        connect(&socket, &name)?;
        let micros = std::env::var(WATCHDOG).ok();
        Ok(Self {
            socket: Some(socket),
            watchdog: micros.and_then(|micros| watchdog_of(&micros)),
        })
    }

    /// The first of its directories for files that a reboot removes.
    pub(super) fn runtime_dir(&self) -> Option<PathBuf> {
        self.socket.as_ref()?;
        let named = std::env::var_os(RUNTIME_DIRECTORY)?;
        let first = named.as_bytes().split(|byte| *byte == b':').next()?;
        (!first.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(first)))
    }

    /// The process answers the other members. It may have to wait for them before it takes part.
    pub(super) fn ready(&self) {
        self.say("READY=1");
    }

    /// The process was ordered to stop, or has failed.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Reports liveness as long as tasks are scheduled and the member's state can be read.
    pub(super) async fn keep_alive(&self, member: Arc<dyn ViewSource>) -> std::convert::Infallible {
        let Some(interval) = self.watchdog else {
            return std::future::pending().await;
        };
        loop {
            // A member with a permanently held lock never returns its view.
            let _ = member.view();
            self.say("WATCHDOG=1");
            tokio::time::sleep(interval / 3).await;
        }
    }

    fn say(&self, words: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(words.as_bytes()) {
            tracing::warn!(%error, "the service manager could not be told {words}");
        }
    }
}

#[cfg(target_os = "linux")]
fn connect(socket: &UnixDatagram, name: &std::ffi::OsStr) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::SocketAddr;

    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?),
        None => socket.connect(name),
    }
}

#[cfg(not(target_os = "linux"))]
fn connect(socket: &UnixDatagram, name: &std::ffi::OsStr) -> io::Result<()> {
    socket.connect(name)
}

fn watchdog_of(micros: &str) -> Option<Duration> {
    let micros: u64 = micros.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdogs_time_is_read() {
        assert_eq!(watchdog_of("2000000"), Some(Duration::from_secs(2)));
        assert_eq!(watchdog_of("0"), None);
        assert_eq!(watchdog_of("soon"), None);
    }

    #[test]
    fn it_is_told_on_a_socket_with_a_path_or_an_abstract_name() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::SocketAddr;

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
            let told = ServiceManager {
                socket: Some(socket),
                watchdog: None,
            };
            told.ready();
            let mut heard = [0; 64];
            let length = manager.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"READY=1");
        }
    }
}
