//! `witness log purge` on a running member: the files that no member needs are deleted; the current file remains.

use std::time::{Duration, Instant};

use member::{Opened, Surroundings};
use testkit::wait::eventually;
use witness_bin::config::{Sources, read};

use crate::program::{Scratch, witness};

#[test]
fn closed_files_go_and_the_last_one_stays() {
    let scratch = Scratch::new();
    let listen = testkit::ports::free_address().expect("a port");
    let text = format!(
        r#"
data_dir = "{}"
ring.name = "alone"
member.id = 1
raft.heartbeat = "100ms"
log.disk_reserve_bytes = 0
members = [{{ id = 1, name = "only", region = "here", kind = "witness", address = "{listen}" }}]
"#,
        scratch.join("d").display()
    );
    scratch.write("witness.toml", &text);
    let sources = Sources {
        file: Some(("witness.toml".into(), text)),
        ..Sources::default()
    };
    let config = read(&sources).0.expect("a configuration");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let member = runtime.block_on(async {
        let mut opened = Opened::open(config.member, Surroundings::default())
            .await
            .expect("a member");
        let joined = opened.join(true).await.expect("its ring");
        let member = opened.take_part(joined).await.expect("its part");
        let ring = member.ring();
        let until = Instant::now() + Duration::from_secs(20);
        while ring.member.leadership_now().serving_term().is_none() {
            assert!(Instant::now() < until, "it never serves");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for _ in 0..3 {
            // On a loaded machine, the member may lose its leadership. Then the rotation is refused and tried again.
            while let Err(refused) = ring.rotate().await {
                assert!(Instant::now() < until, "a new file: {refused:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        member
    });
    let files = || {
        let list = witness(&scratch)
            .args(["log", "list", "d", "--output", "json"])
            .run();
        let list = list.json();
        let files = list.as_array().expect("a list").iter();
        files
            .map(|file| file["log_name"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    let purge = |line: &str| {
        let line = format!("log purge only {line}");
        witness(&scratch).args(line.split(' ')).run()
    };
    let all = [
        "binlog.000001",
        "binlog.000002",
        "binlog.000003",
        "binlog.000004",
    ];
    assert_eq!(files(), all);

    for (line, code, expected) in [
        (
            "--yes",
            2,
            "--to <FILE>|--keep <SIZE>|--older-than <DURATION>",
        ),
        ("--keep 1 --to binlog.000002", 2, "cannot be used with"),
        ("--keep x --yes", 2, "`x` is not a size"),
        (
            "--keep 0",
            4,
            "nothing was done: there is no terminal to ask on: Remove old files",
        ),
        (
            "--to 7 --yes",
            4,
            "`7` is not the name of a log file\n  write it as in binlog.000007; `witness log list` shows them",
        ),
    ] {
        let run = purge(line);
        assert_eq!(run.code, code, "{line}: {run}");
        assert!(
            run.stderr.contains(expected),
            "{line}: `{expected}` is not in {run}"
        );
    }

    let dry = purge("--keep 0 --dry-run");
    assert_eq!(dry.code, 0, "{dry}");
    let said = "3 files of `only` would go, binlog.000001 to binlog.000003, ";
    assert!(dry.stdout.starts_with(said), "{dry}");
    assert!(
        dry.stdout
            .contains("binlog.000004 stays: it is being written to"),
        "{dry}"
    );
    let young = purge("--older-than 1h --dry-run");
    assert!(
        young.stdout.starts_with("No file of `only` would go"),
        "{young}"
    );
    assert_eq!(files(), all);

    let part = purge("--to binlog.000002 --yes --output json");
    assert_eq!(part.code, 0, "{part}");
    let part = part.json();
    assert_eq!(
        part["removed"],
        serde_json::json!(["binlog.000001"]),
        "{part}"
    );
    assert_eq!(part["kept"], serde_json::Value::Null, "{part}");
    let gone = purge("--keep 0 --yes");
    assert_eq!(gone.code, 0, "{gone}");
    let purged = eventually("one file is left", Duration::from_secs(20), || {
        let files = files();
        match files == ["binlog.000004"] {
            true => Ok(()),
            false => Err(format!("{files:?}")),
        }
    });
    purged.expect("a purge");
    runtime.block_on(member.stop()).expect("a good end");
}
