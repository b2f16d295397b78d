//! Tells the service manager that started this process (systemd, `Type=notify`) that it is up, that it goes on, and that it stops.
//! A member that hangs cannot keep readers off its mysqld; a service manager that hears nothing for `WatchdogSec` kills both.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use member::status::ViewSource;

/// Where the service manager listens, if one asked to be told.
const SOCKET: &str = "NOTIFY_SOCKET";
/// After how many microseconds of silence it takes the process for hung, if it does.
const WATCHDOG: &str = "WATCHDOG_USEC";
/// The directories that it made for what is not to outlive a reboot, if it made some.
const RUNTIME_DIRECTORY: &str = "RUNTIME_DIRECTORY";

pub(super) struct ServiceManager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names, if it names one.
    ///
    /// # Errors
    /// When its socket cannot be used: it would take this process for one that does not start.
    pub(super) fn of_environment() -> io::Result<Self> {
        let named = std::env::var_os(SOCKET).filter(|name| !name.is_empty());
        let Some(name) = named else {
            return Ok(Self {
                socket: None,
                watchdog: None,
            });
        };
        let socket = UnixDatagram::unbound()?;
        // It does not wait for a manager that does not read.
        socket.set_nonblocking(true)?;
        connect(&socket, &name)?;
        let micros = std::env::var(WATCHDOG).ok();
        Ok(Self {
            socket: Some(socket),
            watchdog: micros.and_then(|micros| watchdog_of(&micros)),
        })
    }

    /// The first of its directories for what is not to outlive a reboot.
    pub(super) fn runtime_dir(&self) -> Option<PathBuf> {
        self.socket.as_ref()?;
        let named = std::env::var_os(RUNTIME_DIRECTORY)?;
        let first = named.as_bytes().split(|byte| *byte == b':').next()?;
        (!first.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(first)))
    }

    /// The process is up: it answers the other members. It may have to wait for them before it takes part.
    pub(super) fn ready(&self) {
        self.say("READY=1");
    }

    /// It was told to stop, or cannot go on.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Says that the process goes on, as long as it does, which means that its tasks get their turn and its state can be read.
    pub(super) async fn keep_alive(&self, member: Arc<dyn ViewSource>) -> std::convert::Infallible {
        let Some(interval) = self.watchdog else {
            return std::future::pending().await;
        };
        loop {
            // Asked for its view, a member in which somebody holds a lock for ever does not come back here.
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
