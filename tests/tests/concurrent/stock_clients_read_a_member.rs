//! Stock `mysqlbinlog` and `mysql` connect to a member's binlog server: they copy the member's files, read by GTIDs, and list files.
//! Files are rotated and purged; purged files are refused as by any MySQL source.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::time::Duration;

use anyhow::ensure;
use testkit::bounded_run::Finished;
use testkit::cluster::{BINLOG_PASSWORD, BINLOG_USER, Cluster};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::MysqlClient;
use testkit::mysqld::client::mysqlbinlog;
use testkit::mysqld::client::verified_sql;
use testkit::wait::eventually;
use witness_tests::Scene;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(30);

pub(super) fn remote(ring: &Cluster, member: usize, more: &[&str], file: &str) -> Finished {
    let address = ring.binlog_server(member);
    let login = [
        format!("--host={}", address.ip()),
        format!("--port={}", address.port()),
        format!("--user={BINLOG_USER}"),
        format!("--password={BINLOG_PASSWORD}"),
        "--ssl-mode=DISABLED".to_owned(),
        "--get-server-public-key".to_owned(),
    ];
    let arguments: Vec<&str> = login
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    mysqlbinlog(&MysqlTree::require(), &arguments, &[file]).unwrap()
}

#[test]
fn mysqlbinlog_copies_and_people_look() {
    let _turn = SCENES.take();
    let scene = Scene::launch(|options| {
        options
            .with_binlog_servers()
            .with("log", "max_file_bytes = \"64KiB\"")
    })
    .unwrap();
    let tree = MysqlTree::require();
    let writers = scene.start_writers(2).unwrap();
    writers.wait_for_more(400, Duration::from_secs(60)).unwrap();
    writers.finish().unwrap();
    let files = scene
        .ring
        .wait_until_equal(Duration::from_secs(30))
        .unwrap();
    let own: Vec<_> = files.paths();
    assert!(own.len() > 2, "{files:?}");
    let names: Vec<String> = own
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();

    // A copy by file and position equals the file byte by byte.
    let copies = tempfile::tempdir().unwrap();
    let result = format!("--result-file={}/", copies.path().display());
    let raw = [
        "--read-from-remote-server",
        "--raw",
        "--to-last-log",
        &result,
    ];
    let done = remote(&scene.ring, 1, &raw, &names[0]);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    for path in &own {
        let copy = copies.path().join(path.file_name().unwrap());
        assert!(
            fs::read(path).unwrap() == fs::read(&copy).unwrap(),
            "{}",
            copy.display()
        );
    }

    // A copy by GTIDs omits the ring's own events. The other events have the same content.
    let by_gtids = tempfile::tempdir().unwrap();
    let result = format!("--result-file={}/", by_gtids.path().display());
    let raw = [
        "--read-from-remote-source=BINLOG-DUMP-GTIDS",
        "--raw",
        "--to-last-log",
        &result,
    ];
    let done = remote(&scene.ring, 2, &raw, &names[0]);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let copied: Vec<_> = names
        .iter()
        .map(|name| by_gtids.path().join(name))
        .collect();
    let statements = |sql: &str| -> Vec<String> {
        let gtids = sql
            .lines()
            .filter(|line| line.starts_with("SET @@SESSION.GTID_NEXT="));
        gtids.map(str::to_owned).collect()
    };
    let expected = statements(&verified_sql(&tree, &own).unwrap());
    assert!(expected.len() > 400);
    assert_eq!(statements(&verified_sql(&tree, &copied).unwrap()), expected);

    // Reads once only a set of GTIDs, and once all GTIDs except a set.
    let executed = scene.server.client().gtid_executed().unwrap();
    let source = executed.split(':').next().unwrap().to_owned();
    let seen = |done: Finished| -> Vec<String> {
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let gtids = statements(&text).into_iter();
        let numbers =
            gtids.filter_map(|line| Some(line.split(':').nth(1)?.split('\'').next()?.to_owned()));
        numbers.collect()
    };
    for how in [
        "--read-from-remote-server",
        "--read-from-remote-source=BINLOG-DUMP-GTIDS",
    ] {
        let only = format!("--include-gtids={source}:3-5:7");
        let done = remote(&scene.ring, 0, &[how, "--to-last-log", &only], &names[0]);
        assert_eq!(seen(done), ["3", "4", "5", "7"], "{how}");
        let all_but = format!("--exclude-gtids={source}:1-5:7-100000");
        let done = remote(&scene.ring, 0, &[how, "--to-last-log", &all_but], &names[0]);
        assert_eq!(seen(done), ["6"], "{how}");
    }

    // Statements of users with a stock client.
    let address = scene.ring.binlog_server(0);
    let people = MysqlClient::over_tcp(&tree, address, BINLOG_USER, BINLOG_PASSWORD);
    let listed = people.sql("SHOW BINARY LOGS").unwrap().0;
    assert_eq!(
        listed.iter().map(|row| row[0].clone()).collect::<Vec<_>>(),
        names
    );
    for (row, path) in listed.iter().zip(&own) {
        assert_eq!(
            row[1],
            fs::metadata(path).unwrap().len().to_string(),
            "{row:?}"
        );
    }
    let status = people.sql("SHOW BINARY LOG STATUS").unwrap().0.concat();
    assert_eq!(&status[0], names.last().unwrap());
    // In the meantime, the ring may have appended to its log.
    let later = people.sql("SHOW BINARY LOGS").unwrap().0;
    let end = |end: &str| end.parse::<u64>().unwrap();
    let ends = end(&listed.last().unwrap()[1])..=end(&later.last().unwrap()[1]);
    assert!(ends.contains(&end(&status[1])), "{status:?} {ends:?}");
    assert_eq!(status[4].replace("\\n", ""), executed);
    let events = people
        .sql(&format!("SHOW BINLOG EVENTS IN '{}' LIMIT 3", names[1]))
        .unwrap()
        .0;
    assert_eq!(
        events.iter().map(|row| &row[2][..]).collect::<Vec<_>>(),
        ["FORMAT_DESCRIPTION", "PREVIOUS_GTIDS", "IGNORABLE"]
    );
    let refused = people
        .sql("INSERT INTO t VALUES (1)")
        .unwrap_err()
        .to_string();
    assert!(refused.contains("has no tables"), "{refused}");
    let refused = people
        .sql("RESET BINARY LOGS AND GTIDS")
        .unwrap_err()
        .to_string();
    assert!(refused.contains("decided by the ring"), "{refused}");

    // FLUSH at a follower returns an error that names the leader. At the leader it ends the file on all members.
    let follower = MysqlClient::over_tcp(
        &tree,
        scene.ring.binlog_server(1),
        BINLOG_USER,
        BINLOG_PASSWORD,
    );
    let refused = follower.sql("FLUSH BINARY LOGS").unwrap_err().to_string();
    assert!(refused.contains("`db-1` leads"), "{refused}");
    people.sql("FLUSH BINARY LOGS").unwrap();
    let files = || people.sql("SHOW BINARY LOGS").unwrap().0;
    let more = names.len() + 1;
    eventually("there is a new file", SOON, || files().len() == more).unwrap();

    // For a purged file the server returns error 1236, as MySQL does.
    let purge = format!("PURGE BINARY LOGS TO '{}'", names[2]);
    let purged = eventually("the first file is purged", SOON, || {
        people.sql(&purge).unwrap();
        files()[0][0] != names[0]
    });
    purged.unwrap();
    let replica = testkit::mysqld::Mysqld::launch_with(
        &tree,
        testkit::mysqld::MysqldOptions::with_server_id(9),
    )
    .unwrap();
    replica
        .client()
        .sql(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{}', SOURCE_PORT = {}, SOURCE_USER = '{BINLOG_USER}', \
             SOURCE_PASSWORD = '{BINLOG_PASSWORD}', SOURCE_SSL = 0, SOURCE_AUTO_POSITION = 1; START REPLICA",
            address.ip(),
            address.port()
        ))
        .unwrap();
    let query = "SELECT last_error_number, last_error_message FROM performance_schema.replication_connection_status";
    let told = eventually("the replica receives the purge error", SOON, || {
        let said = replica.client().sql(query)?.0.concat();
        ensure!(said[0] == "13114" || said[0] == "1236", "{said:?}");
        Ok(said)
    });
    let told = told.unwrap();
    let purged = told[1].contains("1236") && told[1].contains("purged required");
    assert!(purged, "{told:?}");
}
