//! Mistakes of an operator with a running ring: each has a clear message, and causes no loss.

use std::fs;
use std::path::Path;
use std::time::Duration;

use testkit::cluster::{Cluster, ClusterOptions, Profile, witness_binary};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;
use witness_tests::{Writers, assert_nothing_lost_or_doubled, make_rows};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(20);

fn server() -> Mysqld {
    Mysqld::launch(&MysqlTree::require()).expect("the scene of a test")
}

fn ring_around(server: &Mysqld, options: ClusterOptions) -> Cluster {
    let ring = Cluster::launch(
        &witness_binary(Profile::Dev).expect("the scene of a test"),
        options,
    )
    .expect("the scene of a test");
    make_rows(server).expect("the scene of a test");
    ring
}

fn is_closed(server: &Mysqld) -> bool {
    server
        .client()
        .variable("super_read_only")
        .expect("the scene of a test")
        == "1"
}

/// True if the response at `path` of member 0 contains all of `words`.
fn says(ring: &Cluster, path: &str, words: &[&str]) -> bool {
    ring.get(0, path)
        .is_ok_and(|answer| words.iter().all(|word| answer.body.contains(word)))
}

#[test]
fn a_finite_timeout_while_it_runs_closes_the_primary_until_it_is_fixed() {
    let _turn = SCENES.take();
    let server = server();
    let mut ring = ring_around(&server, ClusterOptions::around(&server));
    // The member has made all settings already. From now on it does not manage them, and its account may only read.
    assert!(ring.stop(0).unwrap().success());
    let config = fs::read_to_string(ring.config(0)).unwrap();
    let config = config.replace("[mysql]", "[mysql]\nmanage_settings = false");
    fs::write(ring.config(0), config).unwrap();
    ring.start(0).unwrap();
    ring.wait_until_primary(SOON).unwrap();
    let timeout = server
        .client()
        .variable("rpl_semi_sync_source_timeout")
        .unwrap();

    server
        .client()
        .sql("SET GLOBAL rpl_semi_sync_source_timeout = 1000")
        .unwrap();
    ring.wait_until("the drift is named", SOON, |ring| {
        Ok(says(
            ring,
            "/status",
            &["rpl_semi_sync_source_timeout", "\"protected\":false"],
        ))
    })
    .unwrap();
    ring.wait_until("the primary is closed", SOON, |_| Ok(is_closed(&server)))
        .unwrap();
    assert_eq!(ring.get(0, "/primary").unwrap().status, 503);

    let restored = format!("SET GLOBAL rpl_semi_sync_source_timeout = {timeout}");
    server.client().sql(&restored).unwrap();
    ring.wait_until("the primary is open again", SOON, |ring| {
        Ok(!is_closed(&server) && ring.get(0, "/primary")?.status == 200)
    })
    .unwrap();
    server
        .client()
        .sql("INSERT INTO acked.rows VALUES (1, 0, 'after')")
        .unwrap();
}

#[test]
fn a_finite_timeout_that_the_member_may_set_is_fixed_by_it() {
    let _turn = SCENES.take();
    let server = server();
    let mut ring = ring_around(&server, ClusterOptions::around(&server));
    server
        .client()
        .sql("SET GLOBAL rpl_semi_sync_source_timeout = 1000")
        .unwrap();
    ring.wait_until("it is repaired and open", SOON, |ring| {
        let timeout = server.client().variable("rpl_semi_sync_source_timeout")?;
        Ok(timeout != "1000" && !is_closed(&server) && ring.get(0, "/primary")?.status == 200)
    })
    .unwrap();
    let output = ring.output(0);
    assert!(output.contains("rpl_semi_sync_source_timeout"), "{output}");
}

#[test]
fn a_finite_timeout_that_the_member_may_not_set_is_named_with_its_remedy() {
    let _turn = SCENES.take();
    let server = server();
    server.client().sql("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'; SET GLOBAL super_read_only = ON").unwrap();
    let options = ClusterOptions::around(&server).with("mysql", "manage_settings = false");
    let mut ring = Cluster::prepare(&witness_binary(Profile::Dev).unwrap(), options).unwrap();
    for witness in [1, 2] {
        ring.start(witness).unwrap();
    }
    ring.start_with(0, &["--bootstrap"]).unwrap();
    ring.wait_until("the timeout is named", SOON, |ring| {
        Ok(says(
            ring,
            "/status",
            &["SET PERSIST rpl_semi_sync_source_timeout"],
        ))
    })
    .unwrap();
    assert_eq!(ring.get(0, "/primary").unwrap().status, 503);
    assert!(
        is_closed(&server),
        "a primary that does not wait for the ring must not be opened"
    );
}

#[test]
fn a_wrong_password_is_named_and_nothing_is_acknowledged() {
    let _turn = SCENES.take();
    let server = server();
    server.client().sql("CREATE USER 'member'@'localhost' IDENTIFIED BY 'right'; GRANT ALL ON *.* TO 'member'@'localhost'").unwrap();
    let options = ClusterOptions::around(&server);
    let binary = witness_binary(Profile::Dev).unwrap();
    let mut ring = Cluster::prepare(&binary, options).unwrap();
    let config = ring.config(0).to_owned();
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        text.replace("user = \"root\"", "user = \"member\"\npassword = \"wrong\""),
    )
    .unwrap();
    for witness in [1, 2] {
        ring.start(witness).unwrap();
    }
    ring.start_with(0, &["--bootstrap"]).unwrap();
    ring.wait_until("the password is named", SOON, |ring| {
        Ok(says(ring, "/status", &["Access denied", "member"]))
    })
    .unwrap();
    assert_eq!(ring.get(0, "/primary").unwrap().status, 503);

    assert!(ring.stop(0).unwrap().success());
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\"wrong\"", "\"right\"")).unwrap();
    ring.start(0).unwrap();
    ring.wait_until_primary(SOON).unwrap();
}

#[test]
fn a_foreign_rings_member_is_refused_on_both_sides() {
    let _turn = SCENES.take();
    let (ours, theirs) = (server(), server());
    let mut ring = ring_around(&ours, ClusterOptions::around(&ours));
    let mut other = ring_around(&theirs, ClusterOptions::around(&theirs));
    ring.stop(1).unwrap();
    other.stop(1).unwrap();
    let foreign_log = other.log_files(1).unwrap();
    let own = ring.directory(1).with_extension("own");
    fs::create_dir(&own).unwrap();
    for part in ["identity", "log", "meta"] {
        fs::rename(ring.directory(1).join(part), own.join(part)).unwrap();
        fs::rename(other.directory(1).join(part), ring.directory(1).join(part)).unwrap();
    }

    ring.start(1).unwrap();
    let writers = Writers::at(&ours, 2, 0);
    writers.wait_for_more(20, SOON).unwrap();
    let refused =
        |ring: &Cluster| (0..3).any(|member| ring.output(member).contains("calls from ring"));
    ring.wait_until("the foreign member is named", SOON, |ring| {
        Ok(refused(ring))
    })
    .unwrap();
    assert_eq!(
        ring.log_files(1).unwrap().first_difference(&foreign_log),
        None,
        "the foreign log was touched"
    );

    ring.stop(1).unwrap();
    for part in ["identity", "log", "meta"] {
        fs::rename(ring.directory(1).join(part), other.directory(1).join(part)).unwrap();
        fs::rename(own.join(part), ring.directory(1).join(part)).unwrap();
    }
    ring.start(1).unwrap();
    let written = writers.finish().unwrap();
    assert_eq!(written.errors(), []);
    let files = ring.wait_until_equal(SOON).unwrap();
    assert_nothing_lost_or_doubled(&ours, &files, &written).unwrap();
}

/// Regression: after its disk was full, the member stayed down until an operator restarted it.
#[test]
fn a_witness_with_a_full_disk_waits_for_room_and_loses_nothing() {
    let _turn = SCENES.take();
    let server = server();
    let mut ring = ring_around(&server, ClusterOptions::around(&server));
    // The witness's data are on a separate disk, in a mount namespace of its own. The disk is small at first, and grows when the file
    // that requests it exists.
    ring.stop(2).unwrap();
    let ask = ring.directory(2).join("make-room");
    let script = format!(
        "set -u; mount -t tmpfs -o size=3m small '{log}' && cp -a '{saved}'/. '{log}'/ || exit 9; \
         (i=0; until [ -e '{ask}' ] || [ $i -gt 600 ]; do sleep 0.1; i=$((i+1)); done; mount -o remount,size=512m '{log}') & exec \"$0\" \"$@\"",
        log = ring.directory(2).join("log").display(),
        saved = ring.directory(2).join("saved").display(),
        ask = ask.display(),
    );
    copy_folder(
        &ring.directory(2).join("log"),
        &ring.directory(2).join("saved"),
    );
    let writers = Writers::at(&server, 4, 0);
    ring.start_wrapped(
        2,
        &[
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            &script,
        ],
    )
    .unwrap();
    let filler = server.client();
    for _ in 0..40 {
        filler.sql("CREATE TABLE IF NOT EXISTS acked.big (b LONGBLOB); INSERT INTO acked.big VALUES (REPEAT('f', 200000))").unwrap();
    }
    // `wait_until` fails if a member ends.
    ring.wait_until("the full disk is named", SOON, |ring| {
        let waits = ring
            .output(2)
            .contains("has no room for the leader's entries");
        Ok(waits
            && ring
                .get(2, "/status")
                .is_ok_and(|status| status.body.contains("disk_alarm\":true")))
    })
    .unwrap();
    writers.wait_for_more(20, SOON).unwrap();
    let written = writers.finish().unwrap();
    assert_eq!(written.errors(), [], "two of three continue");

    fs::write(&ask, "").unwrap();
    let mounted = format!(
        "/proc/{}/root{}",
        ring.process_id(2).unwrap(),
        ring.directory(2).join("log").display()
    );
    ring.wait_until("the witness has caught up", SOON, |ring| {
        // The ring's history is also in the log. The entry about a recent event is written some seconds later.
        let leaders = ring.log_files(0)?;
        Ok(testkit::cluster::LogFiles::read(Path::new(&mounted))?
            .first_difference(&leaders)
            .is_none())
    })
    .unwrap();
    let files = ring.log_files(0).unwrap();
    assert_nothing_lost_or_doubled(&server, &files, &written).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder to copy");
    for entry in fs::read_dir(from).expect("a folder to copy") {
        let entry = entry.expect("a folder to copy");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a folder to copy");
    }
}

#[test]
fn a_transaction_above_the_operators_limit_is_refused_and_holds_nothing_up() {
    let _turn = SCENES.take();
    let server = server();
    // mysqld's own limit for transactions is larger.
    let limit = ClusterOptions::around(&server).with("mysql", "max_transaction_bytes = \"2MiB\"");
    let ring = ring_around(&server, limit);
    let client = server.client();
    assert_eq!(client.variable("max_binlog_cache_size").unwrap(), "2097152");
    client
        .sql("CREATE TABLE acked.large (id INT PRIMARY KEY, b LONGBLOB)")
        .unwrap();
    let insert = |rows: &str, kib: u32| {
        let one = |id| format!("INSERT INTO acked.large VALUES ({id}, REPEAT('a', {kib} * 1024));");
        let all: String = rows.split(',').map(one).collect();
        client.sql(&format!("BEGIN; {all} COMMIT"))
    };
    insert("1,2,3", 600).unwrap();
    let refused = insert("4,5,6,7,8", 600).unwrap_err().to_string();
    assert!(
        refused.contains("1197") && refused.contains("max_binlog_cache_size"),
        "{refused}"
    );
    insert("9", 1).unwrap();
    // MySQL checks the size before it writes an event. So the ring accepts a transaction that exceeds the limit by a single event.
    insert("10", 5000).unwrap();
    let kept = client
        .value("SELECT GROUP_CONCAT(id ORDER BY id) FROM acked.large")
        .unwrap();
    assert_eq!(kept, "1,2,3,9,10");
    ring.wait_until_equal(SOON).unwrap();
    assert!(says(&ring, "/status", &["\"protected\":true"]));
}
