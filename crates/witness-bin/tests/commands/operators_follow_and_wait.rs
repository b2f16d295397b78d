//! The client side of a command, against simulated members: the command is sent to the current leader. If its
//! result is not received, the command is reported as possibly continuing.

use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use consensus::{Term, Timers};
use futures::FutureExt;
use futures::future::BoxFuture;
use member::protocol::{CommandEvent, CommandResult, OperatorCommand, Refusal};
use member::status::{LoggedMember, MemberName, MemberView, QuorumView, RingName, Role};
use raft_types::{Incarnation, MemberId, MemberKind, MemberRecord, OpId, Region, RingId};
use ring_admin::{Identity, IdentityBook, IdentityFile, IdentityPages, LogOrigin, Promoted};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use transport::{
    CommandCaller, CommandSource, LocalMember, Right, RunningServer, StatusSource, TransportConfig,
    serve,
};

use crate::program::{Run, Scratch, witness};

/// How a simulated member answers a command.
#[derive(Clone, Copy, PartialEq)]
enum Play {
    /// The member executes the command.
    Obeys,
    /// The member refuses, and reports this member as the leader.
    Sends(u64),
    /// The member begins the command, and never finishes it.
    Begins,
    /// The member begins the command, and closes the connection without a result.
    Falls,
    /// The member sends an event that the client cannot parse.
    Babbles,
}

struct Player {
    play: Play,
    view: MemberView,
}

impl StatusSource for Player {
    fn status(&self) -> BoxFuture<'_, Vec<u8>> {
        async { serde_json::to_vec(&self.view).expect("JSON") }.boxed()
    }
}

impl CommandSource for Player {
    fn right(&self, _: &[u8]) -> Right {
        Right::Operate
    }

    fn command(&self, _: CommandCaller, json: Bytes) -> mpsc::Receiver<Bytes> {
        let command: OperatorCommand = serde_json::from_slice(&json).expect("a command");
        let OperatorCommand::Promote { to, .. } = command else {
            panic!("{command:?}");
        };
        let (events, receiver) = mpsc::channel(8);
        let play = self.play;
        tokio::spawn(async move {
            let tell = async |event: CommandEvent| {
                let json = serde_json::to_vec(&event).expect("JSON");
                let _ = events.send(json.into()).await;
            };
            let phase = "check".to_owned();
            match play {
                Play::Sends(leader) => {
                    let refusal = Refusal::not_leader(Some(MemberId(leader)));
                    tell(CommandEvent::Refused(refusal)).await;
                }
                Play::Obeys => {
                    tell(CommandEvent::Began {
                        phase: phase.clone(),
                    })
                    .await;
                    tell(CommandEvent::Done {
                        phase,
                        seconds: 0.25,
                    })
                    .await;
                    tell(CommandEvent::Result(CommandResult::Promoted(Promoted {
                        leader: to,
                        term: Term(4),
                        phases: Vec::new(),
                    })))
                    .await;
                }
                Play::Begins => {
                    tell(CommandEvent::Began { phase }).await;
                    events.closed().await;
                }
                Play::Falls => tell(CommandEvent::Began { phase }).await,
                Play::Babbles => drop(events.send(Bytes::from_static(b"{\"x\":1}")).await),
            }
        });
        receiver
    }
}

struct NoFile;

impl IdentityFile for NoFile {
    fn write(&self, _: &IdentityPages) -> std::io::Result<()> {
        Ok(())
    }
}

fn view(id: u64, roster: &[LoggedMember]) -> MemberView {
    let own = roster[id as usize - 1].record.clone();
    MemberView {
        ring: RingName {
            id: Some(RingId::default()),
            name: "orders".into(),
        },
        member: MemberName {
            id: MemberId(id),
            name: own.name,
            region: own.region,
            kind: own.kind,
            votes: true,
            address: own.address,
            incarnation: Incarnation::default(),
        },
        version: "0".into(),
        uptime_seconds: 1.0,
        role: if id == 1 {
            Role::Leader
        } else {
            Role::Follower
        },
        serving: id == 1,
        leader: Some(MemberId(1)),
        term: 3,
        log_end: Some(OpId::new(3, 9)),
        committed: Some(OpId::new(3, 9)),
        quorum: QuorumView {
            ok: true,
            ..QuorumView::default()
        },
        voter_sets: vec![[1, 2].map(MemberId).into()],
        members: roster.to_vec(),
        ..MemberView::default()
    }
}

/// Two simulated members. The first one reports itself as the leader.
struct Stage {
    scratch: Scratch,
    _runtime: tokio::runtime::Runtime,
    _servers: Vec<RunningServer>,
}

impl Stage {
    fn set(plays: [Play; 2]) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let scratch = Scratch::new();
        let servers = runtime.block_on(async {
            let mut roster = Vec::new();
            let mut listeners = Vec::new();
            for (id, name) in [(1, "db-1"), (2, "db-2")] {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let address = listener.local_addr().expect("an address").to_string();
                roster.push(LoggedMember {
                    id: MemberId(id),
                    voter: true,
                    record: MemberRecord {
                        name: name.into(),
                        region: Region("north".into()),
                        kind: MemberKind::Database,
                        votes: true,
                        address,
                        ..MemberRecord::default()
                    },
                });
                listeners.push(listener);
            }
            configure(&scratch, &roster);
            let config = TransportConfig::for_timers(&Timers::default());
            let played = listeners.into_iter().zip(plays).zip(1..);
            played
                .map(|((listener, play), id)| {
                    let player = Arc::new(Player {
                        play,
                        view: view(id, &roster),
                    });
                    let book = IdentityBook::new(
                        Identity::fresh(MemberId(id)),
                        LogOrigin::default(),
                        Box::new(NoFile),
                    );
                    let local = Arc::new(LocalMember::new(Arc::new(book), player.clone()));
                    let _ = local.commands.set(player);
                    serve(listener, local, None, &config).expect("a server")
                })
                .collect()
        });
        Self {
            scratch,
            _runtime: runtime,
            _servers: servers,
        }
    }

    fn run(&self, line: &str) -> Run {
        witness(&self.scratch).args(line.split(' ')).run()
    }

    fn spawn(&self, line: &str) -> Child {
        witness(&self.scratch).args(line.split(' ')).spawn()
    }
}

fn configure(scratch: &Scratch, roster: &[LoggedMember]) {
    let lines: Vec<_> = roster
        .iter()
        .map(|logged| {
            format!(
                "{{ id = {}, name = \"{}\", region = \"north\", kind = \"database\", address = \"{}\" }}",
                logged.id, logged.record.name, logged.record.address
            )
        })
        .collect();
    let text = format!(
        "data_dir = \"d\"\nring.name = \"orders\"\nmember.id = 1\nmysql.mode = \"attach\"\nmembers = [{}]\n",
        lines.join(", ")
    );
    scratch.write("witness.toml", &text);
}

const LOOK: &str = "check with `witness status` how it ended";

#[test]
fn a_command_follows_the_leadership() {
    let stage = Stage::set([Play::Sends(2), Play::Obeys]);
    let run = stage.run("switchover db-2 --yes");
    assert_eq!(run.code, 0, "{run}");
    assert!(run.stdout.starts_with("`db-2` leads in term 4"), "{run}");
    let asked: Vec<_> = run
        .stderr
        .lines()
        .filter(|line| line.starts_with("asking"))
        .collect();
    assert_eq!(asked.len(), 2, "{run}");
    assert!(
        asked[0].contains("`db-1`") && asked[1].contains("`db-2`"),
        "{run}"
    );
    assert!(run.stderr.contains("check            250.0 ms"), "{run}");
}

#[test]
fn a_leadership_that_keeps_moving_is_reported() {
    let stage = Stage::set([Play::Sends(2), Play::Sends(1)]);
    let run = stage.run("switchover db-2 --yes");
    assert_eq!(run.code, 3, "{run}");
    assert!(
        run.stderr.contains(
            "the leadership moves from member to member\n  wait until it settles, and check with `witness status`"
        ),
        "{run}"
    );
    let gone = Stage::set([Play::Sends(7), Play::Obeys]).run("switchover db-2 --yes");
    assert_eq!(gone.code, 3, "{gone}");
    assert!(
        gone.stderr
            .contains("this member does not lead; member 7 does\n  ask that one"),
        "{gone}"
    );
}

#[test]
fn an_unknown_result_is_reported_as_unknown() {
    let about = "the promotion of member 2 `db-2` may continue in the ring: ";
    for (play, line, why) in [
        (
            Play::Begins,
            "switchover db-2 --yes --timeout 300ms",
            "it did not end in time",
        ),
        (
            Play::Falls,
            "switchover db-2 --yes",
            "`db-1` ended before it had an answer",
        ),
        (
            Play::Babbles,
            "switchover db-2 --yes",
            "`db-1` gave an answer that cannot be read",
        ),
    ] {
        let run = Stage::set([play, Play::Obeys]).run(line);
        assert_eq!(run.code, 5, "{run}");
        assert!(run.stderr.contains(&format!("{about}{why}")), "{run}");
        assert!(run.stderr.contains(LOOK), "{run}");
    }
}

#[test]
fn an_interrupted_command_is_reported_as_continuing() {
    let stage = Stage::set([Play::Begins, Play::Obeys]);
    let command = stage.spawn("switchover db-2 --yes --output json");
    // The command handles the signal only after it has sent its request. An earlier signal would end the process.
    std::thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&command), Signal::INT).expect("a signal");
    let until = Instant::now() + Duration::from_secs(20);
    let output = command.wait_with_output().expect("its end");
    assert!(Instant::now() < until);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(5), "{said}");
    let error: serde_json::Value = serde_json::from_str(&said).expect("JSON and nothing else");
    assert_eq!(
        error["error"],
        "the promotion of member 2 `db-2` may continue in the ring: it was interrupted here"
    );
    assert_eq!(error["exit_code"], 5);
}
