//! A ring of one witness, which runs as a process.

use std::net::SocketAddr;
use std::process::Child;
use std::time::Duration;

use testkit::wait::eventually;

use super::{Scratch, witness};

/// Time limit of each wait, long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The member's process, which is killed at the end of the test.
pub(crate) struct Alone {
    pub(crate) child: Child,
    pub(crate) listen: SocketAddr,
    pub(crate) http: SocketAddr,
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Alone {
    /// Starts the member in this directory, with further lines of configuration. The commands in `before` run first.
    pub(crate) fn start(
        scratch: &Scratch,
        further: &str,
        before: &[&str],
        arguments: &[&str],
    ) -> Self {
        let [listen, http] = [(), ()].map(|()| testkit::ports::free_address().expect("a port"));
        scratch.write(
            "witness.toml",
            &format!(
                r#"
data_dir = "d"
ring.name = "alone"
member.id = 1
raft.heartbeat = "50ms"
log.disk_reserve_bytes = 0
http.listen = "{http}"
members = [{{ id = 1, name = "only", region = "here", kind = "witness", address = "{listen}" }}]
{further}
"#
            ),
        );
        for command in before {
            let run = witness(scratch).args(command.split_whitespace()).run();
            assert_eq!(run.code, 0, "{command}: {run}");
        }
        let mut child = witness(scratch).args(["run"]).args(arguments).spawn();
        // The output must be read, because a full pipe would block the member.
        let said = child.stderr.take();
        std::thread::spawn(move || std::io::copy(&mut said.expect("a pipe"), &mut std::io::sink()));
        Self {
            child,
            listen,
            http,
        }
    }

    /// Waits until the member takes part in its ring.
    pub(crate) fn wait_until_ready(&self, scratch: &Scratch) {
        let ready = eventually("the member is ready", PATIENCE, || {
            let run = witness(scratch).args(["health", "readiness"]).run();
            match run.code {
                0 => Ok(()),
                _ => Err(run.to_string()),
            }
        });
        ready.expect("it is");
    }
}
