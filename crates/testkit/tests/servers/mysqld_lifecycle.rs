//! A mysqld of a test can be started, stopped, killed, frozen and copied, and leaves no remains.

use std::path::Path;
use std::time::Duration;

use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

const TABLE: &str = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO d.t VALUES (1, 'one')";

#[test]
fn mysqld_keeps_its_rows_and_its_address_over_stop_and_kill() {
    let mut server = Mysqld::launch(&MysqlTree::require()).unwrap();
    let client = server.client();
    client.sql(TABLE).unwrap();
    let (address, gtids) = (server.address(), client.gtid_executed().unwrap());
    assert!(gtids.ends_with(":1-3"), "{gtids}");
    server.kill().unwrap();
    assert!(client.sql("SELECT 1").is_err(), "a killed server answers");
    server.start().unwrap();
    server.restart().unwrap();
    assert_eq!(client.value("SELECT v FROM d.t").unwrap(), "one");
    assert_eq!(client.gtid_executed().unwrap(), gtids);
    assert_eq!(client.variable("port").unwrap(), address.port().to_string());
    assert_eq!(
        server.binlog_files().unwrap().len(),
        3,
        "one binlog file for each start"
    );
}

#[test]
fn mysqld_that_is_frozen_answers_after_it_was_thawed() {
    let server = Mysqld::launch(&MysqlTree::require()).unwrap();
    server.pause().unwrap();
    let error = server
        .client()
        .sql_within("SELECT 1", Duration::from_millis(300))
        .unwrap_err();
    assert!(
        error.to_string().contains("did not end within"),
        "{error:#}"
    );
    server.resume().unwrap();
    assert_eq!(server.client().value("SELECT 1").unwrap(), "1");
}

#[test]
fn mysqld_goes_with_its_fixture() {
    let server = Mysqld::launch(&MysqlTree::require()).unwrap();
    let process = format!("/proc/{}", server.process_id().unwrap());
    let data_dir = server.data_dir().to_path_buf();
    assert!(Path::new(&process).exists() && data_dir.exists());
    server.pause().unwrap();
    drop(server);
    assert!(!Path::new(&process).exists() && !data_dir.exists());
}

#[test]
fn mysqld_that_does_not_start_reports_the_reason() {
    let options = MysqldOptions::default().with_arguments(["--no-such-option"]);
    let error = Mysqld::launch_with(&MysqlTree::require(), options).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("unknown option '--no-such-option'"),
        "{error:#}"
    );
}

#[test]
fn mysqld_copied_from_another_has_its_rows_and_its_own_identity() {
    let tree = MysqlTree::require();
    let mut original = Mysqld::launch(&tree).unwrap();
    original.client().sql(TABLE).unwrap();
    original.stop().unwrap();
    let options = MysqldOptions {
        copy_of: Some(original.data_dir().to_path_buf()),
        ..MysqldOptions::with_server_id(2)
    };
    let copy = Mysqld::launch_with(&tree, options).unwrap();
    original.start().unwrap();
    let (original, copy) = (original.client(), copy.client());
    assert_eq!(
        original.table_checksums("d").unwrap(),
        copy.table_checksums("d").unwrap()
    );
    assert_eq!(
        original.gtid_executed().unwrap(),
        copy.gtid_executed().unwrap()
    );
    assert_ne!(
        original.variable("server_uuid").unwrap(),
        copy.variable("server_uuid").unwrap()
    );
    assert_eq!(copy.variable("server_id").unwrap(), "2");
    original.sql("UPDATE d.t SET v = 'two'").unwrap();
    assert_ne!(
        original.table_checksums("d").unwrap(),
        copy.table_checksums("d").unwrap()
    );
}

#[test]
fn mysqld_accepts_a_password_over_tcp_without_tls() {
    use testkit::mysqld::MysqlClient;
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    server
        .client()
        .sql("CREATE USER u@'%' IDENTIFIED BY 'secret'")
        .unwrap();
    let user = MysqlClient::over_tcp(&tree, server.address(), "u", "secret");
    assert_eq!(user.value("SELECT CURRENT_USER()").unwrap(), "u@%");
    let wrong = MysqlClient::over_tcp(&tree, server.address(), "u", "guess");
    assert!(
        wrong
            .sql("SELECT 1")
            .unwrap_err()
            .to_string()
            .contains("Access denied")
    );
}
