//! The files of a demonstration, which runs once for all tests. Each test gets a copy.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Run, Scratch, witness};

/// The output of the demonstration, and its files.
pub(crate) struct Played {
    scratch: Scratch,
    /// The result of the command.
    pub(crate) run: Run,
}

/// Returns the demonstration of this test process. The first call runs it.
pub(crate) fn played() -> &'static Played {
    static PLAYED: OnceLock<Played> = OnceLock::new();
    PLAYED.get_or_init(|| {
        let scratch = Scratch::new();
        let demo = [
            "demo",
            "--pause",
            "0.3",
            "--data-dir",
            "files",
            "--output",
            "json",
        ];
        let run = witness(&scratch).args(demo).run();
        Played { scratch, run }
    })
}

impl Played {
    /// Returns a member's original data directory, which no test may change.
    pub(crate) fn member(&self, name: &str) -> PathBuf {
        self.scratch.join("files").join(name)
    }

    /// Copies a member's data directory to `scratch`, where the test may damage it.
    pub(crate) fn copy(&self, name: &str, scratch: &Scratch) -> PathBuf {
        let copy = scratch.join(name);
        copy_tree(&self.member(name), &copy);
        copy
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Writes a configuration of the demonstration's ring, for the member with this id.
pub(crate) fn configure(scratch: &Scratch, id: u64, data_dir: &Path) {
    // No process listens on these ports, so the other members are unreachable.
    let listen = testkit::ports::free_address().expect("a port");
    let text = format!(
        r#"
data_dir = {data_dir:?}
ring.name = "demo"
member.id = {id}
member.listen = "{listen}"
raft.heartbeat = "100ms"
log.disk_reserve_bytes = 0
members = [
  {{ id = 1, name = "db-1", region = "here", kind = "witness", address = "127.0.0.1:1" }},
  {{ id = 2, name = "witness-1", region = "here", kind = "witness", address = "127.0.0.1:2" }},
  {{ id = 3, name = "witness-2", region = "here", kind = "witness", address = "127.0.0.1:3" }},
]
"#
    );
    scratch.write("witness.toml", &text);
}
