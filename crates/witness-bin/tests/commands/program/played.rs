//! The files that one demonstration left, played once and copied for each test.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Run, Scratch, witness};

/// What the demonstration said and left.
pub(crate) struct Played {
    scratch: Scratch,
    /// Its run.
    pub(crate) run: Run,
}

/// The demonstration of this test process.
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
    /// A member's data directory, not to be changed.
    pub(crate) fn member(&self, name: &str) -> PathBuf {
        self.scratch.join("files").join(name)
    }

    /// A copy of a member's data directory in `scratch`, to be damaged.
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

/// A configuration of the demonstration's ring, for its member with that id.
pub(crate) fn configure(scratch: &Scratch, id: u64, data_dir: &Path) {
    // Ports without listeners; the members that are not started stay unreachable.
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
