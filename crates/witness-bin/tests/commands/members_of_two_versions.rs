//! A ring is upgraded member by member: members of this version and of the next version work together, with real logs and connections.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use consensus::Program;
use member::settings::Settings;
use member::{Opened, Running, Surroundings};
use raft_types::{MemberId, MemberKind};
use witness_bin::config::{Sources, read};

use crate::program::{Scratch, witness};

const PATIENCE: Duration = Duration::from_secs(30);

fn this_version() -> Program {
    Program::this()
}

fn next_version() -> Program {
    Program {
        version: "0.2.0".to_owned(),
        formats: "1-2".parse().expect("a range"),
    }
}

/// The ring of this test: two database members without a mysqld, and a witness.
struct Ring {
    scratch: Scratch,
    addresses: Vec<String>,
    members: BTreeMap<MemberId, Running>,
}

impl Ring {
    fn new() -> Self {
        let free = || testkit::ports::free_address().expect("a port").to_string();
        let ring = Self {
            scratch: Scratch::new(),
            addresses: (0..4).map(|_| free()).collect(),
            members: BTreeMap::new(),
        };
        ring.scratch.write("witness.toml", &ring.config(1, 3));
        ring
    }

    fn config(&self, id: u64, members: usize) -> String {
        let entry = |(at, address): (usize, &String)| {
            let id = at + 1;
            format!(
                r#"{{ id = {id}, name = "m{id}", region = "here", kind = "witness", address = "{address}" }}"#
            )
        };
        let list = self.addresses.iter().enumerate().take(members);
        let list: Vec<_> = list.map(entry).collect();
        format!(
            r#"
data_dir = "{}"
ring.name = "two"
member.id = {id}
raft.heartbeat = "100ms"
log.disk_reserve_bytes = 0
members = [{}]
"#,
            self.scratch.join(&format!("d{id}")).display(),
            list.join(", ")
        )
    }

    fn settings(&self, id: u64, program: Program) -> Settings {
        let text = self.config(id, if id == 4 { 4 } else { 3 });
        let sources = Sources {
            file: Some(("witness.toml".into(), text)),
            ..Sources::default()
        };
        let mut settings = read(&sources).0.expect("a configuration").member;
        // The configuration has only witnesses, so that no section `[mysql]` is needed. Here, two become database members without a mysqld.
        for entry in &mut settings.members {
            entry.kind = kind(entry.id);
        }
        settings.own.kind = kind(settings.own.id);
        Settings {
            program,
            ..settings
        }
    }

    async fn start(&mut self, id: u64, program: Program, bootstrap: bool) {
        let settings = self.settings(id, program);
        let mut opened = Opened::open(settings, Surroundings::default())
            .await
            .expect("a member");
        let joined = opened.join(bootstrap).await.expect("its ring");
        let running = opened.take_part(joined).await.expect("its part");
        self.members.insert(MemberId(id), running);
    }

    async fn stop(&mut self, id: u64) {
        let member = self.members.remove(&MemberId(id)).expect("it runs");
        member.stop().await.expect("an end in good order");
    }

    /// Writes an entry through the current leader, and waits until it is committed.
    async fn write(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            for member in self.members.values() {
                if member.ring().rotate().await.is_ok() {
                    return;
                }
            }
            assert!(Instant::now() < until, "nothing is committed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn formats(&self) -> Vec<u32> {
        let members = self.members.values();
        members
            .map(|member| member.ring().member.ring_format().0)
            .collect()
    }

    async fn reaches(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !reached(self) {
            assert!(Instant::now() < until, "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn committed(&self) -> Vec<Option<u64>> {
        let members = self.members.values();
        let committed = members.map(|member| *member.ring().member.committed().borrow());
        committed.map(|at| at.map(|at| at.index)).collect()
    }
}

fn kind(id: MemberId) -> MemberKind {
    match id.0 {
        1 | 2 => MemberKind::Database,
        _ => MemberKind::Witness,
    }
}

/// Returns the content of every file below a directory, except the lock file, which each start may change.
fn content(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(content(&path));
        } else if !path.ends_with("lock") {
            let bytes = std::fs::read(&path).expect("a file");
            found.insert(path.display().to_string(), bytes);
        }
    }
    found
}

#[test]
fn a_ring_is_upgraded_member_by_member_under_writes() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut ring = Ring::new();
    let answers = |ring: &Ring, line: &str| {
        let scratch = &ring.scratch;
        witness(scratch).args(line.split(' ')).run()
    };
    runtime.block_on(async {
        // All members must be open before the first one bootstraps, because the bootstrap waits for all of them.
        let first = Opened::open(ring.settings(1, this_version()), Surroundings::default());
        let mut first = first.await.expect("a member");
        let mut others = Vec::new();
        for id in [2, 3] {
            let settings = ring.settings(id, this_version());
            let opened = Opened::open(settings, Surroundings::default()).await;
            others.push((id, opened.expect("a member")));
        }
        let joined = first.join(true).await.expect("a ring");
        let first = first.take_part(joined).await.expect("its part");
        ring.members.insert(MemberId(1), first);
        for (id, mut opened) in others {
            let joined = opened.join(false).await.expect("its ring");
            let running = opened.take_part(joined).await.expect("its part");
            ring.members.insert(MemberId(id), running);
        }
        ring.write().await;

        for id in [3, 2, 1] {
            assert_eq!(ring.formats(), [1, 1, 1], "before member {id}");
            if id == 1 {
                let status = answers(&ring, "status");
                let warning = "Warning: members run different versions (0.1.0, formats 1: `m1`; 0.2.0, formats 1-2: `m2`, `m3`): finish the upgrade. The ring's format is 1, and rises when all members support 2";
                assert!(status.stdout.contains(warning), "{status}");
            }
            ring.stop(id).await;
            ring.write().await;
            ring.start(id, next_version(), false).await;
            ring.write().await;
        }
    });
    runtime.block_on(ring.reaches("the format does not rise", |ring| {
        ring.formats() == [2, 2, 2]
    }));

    runtime.block_on(async {
        // After the change of the format, the previous version does not start, and does not change the directory.
        ring.stop(3).await;
        let directory = ring.scratch.join("d3");
        let before = content(&directory);
        let old = Opened::open(ring.settings(3, this_version()), Surroundings::default());
        let refused = old.await.err().expect("a refusal").to_string();
        assert!(
            refused.contains("is in format 2, and this program speaks 1: install a later version of witness; nothing was changed"),
            "{refused}"
        );
        assert_eq!(content(&directory), before);
        ring.write().await;
        ring.start(3, next_version(), false).await;
        ring.write().await;
    });
    runtime.block_on(ring.reaches("it does not catch up", |ring| {
        let committed = ring.committed();
        committed.iter().all(|at| *at == committed[0])
    }));
    let raised = answers(&ring, "history");
    let sentence = "Every member speaks format 2, which is the ring's from now on";
    assert_eq!(raised.stdout.matches(sentence).count(), 1, "{raised}");
    let explained = answers(&ring, "status --explain");
    let versions = "Versions: 0.2.0, formats 1-2: `m1`, `m2`, `m3`. The ring's format is 2";
    assert!(explained.stdout.contains(versions), "{explained}");

    // A new member that supports only the first format cannot be added.
    let old = ring.settings(4, this_version());
    let opened = runtime.block_on(Opened::open(old, Surroundings::default()));
    let opened = opened.expect("a member");
    let address = ring.addresses[3].clone();
    let line =
        format!("members add --id 4 --name m4 --region here --kind witness --address {address}");
    let refused = answers(&ring, &line);
    assert_eq!(refused.code, 4, "{refused}");
    let words = "the ring's format is 2, and the new member speaks 1: install a later version of witness there";
    assert!(refused.stderr.contains(words), "{refused}");
    runtime.block_on(opened.close()).expect("its end");
    runtime.block_on(async {
        for id in [1, 2, 3] {
            ring.stop(id).await;
        }
    });
}

#[test]
fn bootstrap_refuses_members_without_its_format_and_status_lists_versions() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let ring = Ring::new();
    runtime.block_on(async {
        let later = Program {
            formats: "2-3".parse().expect("a range"),
            ..next_version()
        };
        let first = Opened::open(ring.settings(1, later), Surroundings::default());
        let mut first = first.await.expect("a member");
        let mut others = Vec::new();
        for id in [2, 3] {
            let settings = ring.settings(id, this_version());
            let opened = Opened::open(settings, Surroundings::default()).await;
            others.push(opened.expect("a member"));
        }
        let Err(refused) = first.join(true).await else {
            panic!("it made a ring");
        };
        let words = "member 2 speaks the formats 1, and the ring would begin with 2";
        assert!(refused.to_string().contains(words), "{refused}");
        let status = tokio::task::block_in_place(|| witness(&ring.scratch).args(["status"]).run());
        let warning = "Warning: members run different versions (0.1.0, formats 1: `m2`, `m3`; 0.2.0, formats 2-3: `m1`): finish the upgrade";
        assert!(status.stdout.contains(warning), "{status}");
        first.close().await.expect("its end");
        for other in others {
            other.close().await.expect("its end");
        }
    });
}
