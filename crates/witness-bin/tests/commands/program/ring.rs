//! A ring of real processes on loopback. Its database members attach to a mysqld that is not there, which
//! is enough for everything that the ring decides.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Duration;

use testkit::wait::{Patience, eventually};

use super::{Run, Scratch, witness};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One member: its line of `[[members]]`, and its process while it runs.
struct Place {
    id: u64,
    name: String,
    line: String,
    listen: SocketAddr,
    process: Option<Child>,
}

/// See the module.
pub(crate) struct Ring {
    scratch: Scratch,
    places: Vec<Place>,
    /// More lines for every configuration.
    settings: &'static str,
}

impl Drop for Ring {
    fn drop(&mut self) {
        for place in &mut self.places {
            kill(place);
        }
    }
}

fn kill(place: &mut Place) {
    if let Some(mut process) = place.process.take() {
        let _ = process.kill();
        let _ = process.wait();
    }
}

fn signal(place: &Place, signal: &str) {
    let process = place.process.as_ref().expect("a running process");
    let sent = Command::new("kill")
        .args([signal, &process.id().to_string()])
        .status();
    assert!(sent.expect("the program kill").success());
}

impl Ring {
    /// A ring whose members run, and of which the first one leads. `members` are `name region kind`, and `novote`
    /// for one that only receives the log.
    pub(crate) fn launch(members: &[&str], settings: &'static str) -> Self {
        let mut ring = Self {
            scratch: Scratch::new(),
            places: Vec::new(),
            settings,
        };
        for member in members {
            ring.prepare(member);
        }
        ring.configure();
        for at in 1..members.len() {
            ring.start(at, &[]);
        }
        ring.start(0, &["--bootstrap"]);
        ring.wait_for_leader(1);
        ring
    }

    /// Another member, which is not started and not in the others' configuration.
    pub(crate) fn prepare(&mut self, member: &str) -> usize {
        let words: Vec<_> = member.split(' ').collect();
        let (name, region, kind, votes) = match words[..] {
            [name, region, kind] => (name, region, kind, true),
            [name, region, kind, "novote"] => (name, region, kind, false),
            _ => panic!("{member}"),
        };
        let id = self.places.len() as u64 + 1;
        let listen = testkit::ports::free_address().expect("a port");
        let line = format!(
            "{{ id = {id}, name = \"{name}\", region = \"{region}\", kind = \"{kind}\", votes = {votes}, address = \"{listen}\" }}"
        );
        self.places.push(Place {
            id,
            name: name.to_owned(),
            line,
            listen,
            process: None,
        });
        self.places.len() - 1
    }

    /// Writes the configuration of every member with all of them, and the operator's.
    pub(crate) fn configure(&self) {
        let lines: Vec<_> = self
            .places
            .iter()
            .map(|place| place.line.as_str())
            .collect();
        let text = |id: u64| {
            format!(
                "data_dir = \"{id}\"\nring.name = \"orders\"\nmember.id = {id}\nraft.heartbeat = \"100ms\"\n\
                 raft.lease = \"600ms\"\nlog.disk_reserve_bytes = 0\nmysql.mode = \"attach\"\nmysql.port = 1\nmysql.apply = \"off\"\n{}\n\
                 members = [\n  {}\n]\n",
                self.settings,
                lines.join(",\n  ")
            )
        };
        for place in &self.places {
            self.scratch
                .write(&format!("{}.toml", place.id), &text(place.id));
        }
        self.scratch.write("witness.toml", &text(1));
    }

    /// Where a member is reached.
    pub(crate) fn address(&self, at: usize) -> String {
        self.places[at].listen.to_string()
    }

    /// Starts a member.
    pub(crate) fn start(&mut self, at: usize, arguments: &[&str]) {
        let place = &mut self.places[at];
        let config = format!("{}.toml", place.id);
        let program = witness(&self.scratch)
            .args(["run", "--config", &config])
            .args(arguments);
        let log = std::fs::File::create(self.scratch.join(&format!("{}.log", place.id)));
        place.process = Some(program.spawn_into(log.expect("a file for its log")));
    }

    /// Kills a member.
    pub(crate) fn kill(&mut self, at: usize) {
        kill(&mut self.places[at]);
    }

    /// Stops a member's process where it stands.
    pub(crate) fn freeze(&self, at: usize) {
        signal(&self.places[at], "-STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self, at: usize) {
        signal(&self.places[at], "-CONT");
    }

    /// What a member logged.
    pub(crate) fn log(&self, at: usize) -> String {
        let file = format!("{}.log", self.places[at].id);
        std::fs::read_to_string(self.scratch.join(&file)).unwrap_or_default()
    }

    /// Runs a command as an operator.
    pub(crate) fn run(&self, line: &str) -> Run {
        witness(&self.scratch).args(line.split_whitespace()).run()
    }

    /// The same with JSON as its output; panics when it fails.
    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        let run = self.run(&format!("{line} --output json"));
        assert_eq!(run.code, 0, "{line}: {run}");
        run.json()
    }

    /// Waits until a member leads with a quorum behind it.
    pub(crate) fn wait_for_leader(&self, id: u64) {
        self.wait("the leader", || {
            let run = self.run("status --output json");
            run.code == 0 && run.json()["leader"] == id
        });
    }

    /// Waits until something is so.
    pub(crate) fn wait(&self, what: &str, so: impl Fn() -> bool) {
        let patience = Patience::every(Duration::from_millis(100), PATIENCE);
        let waited = eventually(what, patience, so);
        waited.unwrap_or_else(|error| panic!("{error}\n{}", self.run("status")));
    }

    /// The name of a member.
    pub(crate) fn name(&self, at: usize) -> &str {
        &self.places[at].name
    }
}
