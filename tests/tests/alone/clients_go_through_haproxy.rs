//! A real HAProxy with the example's configuration. Clients have only its address, and continue at the new primary when the old primary's
//! host dies and when the primary moves. Readers are sent to followers.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use mysql_link::{ConnectOptions, Connection, Endpoint};
use testkit::cluster::haproxy::Haproxy;
use testkit::cluster::{CLIENT, CLIENT_PASSWORD, Cluster};
use testkit::mysql_tree::MysqlTree;
use testkit::ports::free_address;
use witness_tests::{Writers, WrittenRows, replicaset};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
const EXAMPLE: &str = include_str!("../../../docs/examples/haproxy.cfg");

/// Returns the example's configuration with the addresses of this ring.
fn configuration(set: &Cluster, writes: SocketAddr, reads: SocketAddr) -> String {
    let mut text = replaced(EXAMPLE, "127.0.0.1:3307", &writes.to_string());
    text = replaced(&text, "127.0.0.1:3308", &reads.to_string());
    for (member, address) in set.databases().into_iter().zip(["10.0.0.1", "10.0.1.1"]) {
        let server = format!("{address}:3306 check port 7480");
        let mysqld = set.server(member).address();
        let http = set.http(member).port();
        text = replaced(&text, &server, &format!("{mysqld} check port {http}"));
    }
    text
}

fn replaced(text: &str, what: &str, by: &str) -> String {
    assert!(text.contains(what), "the example has no {what}");
    text.replace(what, by)
}

/// Returns the server that a new connection reaches.
fn server_of(address: SocketAddr) -> Option<String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::tcp(address.ip().to_string(), address.port());
        let options = ConnectOptions::new(endpoint, CLIENT, CLIENT_PASSWORD);
        let mut connection = Connection::open(&options).await.ok()?;
        let answer = connection.query("SELECT @@server_uuid").await.ok()?;
        Some(answer.first()?.text_at(0)?.to_owned())
    })
}

fn wait_for_server(haproxy: &Haproxy, set: &Cluster, address: SocketAddr, member: usize) {
    let wanted = set.client(member).variable("server_uuid").unwrap();
    let what = format!("member {member} is behind {address}");
    let found = set.eventually(&what, SOON, || server_of(address).as_ref() == Some(&wanted));
    found.with_context(|| haproxy.words()).unwrap();
}

#[test]
fn clients_of_haproxy_follow_the_primary() {
    let _turn = SCENES.take();
    let mut set = replicaset(2).unwrap();
    let (first, second) = (0, 3);
    set.follows(second, SOON).unwrap();
    let [writes, reads] = [(), ()].map(|()| free_address().unwrap());
    let configuration = configuration(&set, writes, reads);
    let haproxy = Haproxy::start(&MysqlTree::require(), &configuration).unwrap();
    wait_for_server(&haproxy, &set, writes, first);
    wait_for_server(&haproxy, &set, reads, second);

    let clients = Writers::through(writes, 4, 0);
    clients.wait_for_more(200, SOON).unwrap();
    set.kill_host(first).unwrap();
    clients.wait_for_more(200, SOON).unwrap();
    wait_for_server(&haproxy, &set, writes, second);
    // Without a follower, readers are sent to the primary.
    wait_for_server(&haproxy, &set, reads, second);

    // After the old primary has restarted as a follower, readers are sent to it.
    set.start(first).unwrap();
    set.follows(first, SOON).unwrap();
    wait_for_server(&haproxy, &set, reads, first);
    let written: WrittenRows = clients.finish().unwrap();
    println!("longest pause {:?}", written.longest_pause());

    // The primary moves back while clients write. Sessions at the old primary are closed.
    let clients = Writers::through(writes, 4, 1_000_000);
    clients.wait_for_more(200, SOON).unwrap();
    set.promote("db-1", SOON).unwrap();
    clients.wait_for_more(200, SOON).unwrap();
    wait_for_server(&haproxy, &set, writes, first);
    wait_for_server(&haproxy, &set, reads, second);
    let moved = clients.finish().unwrap();
    println!("longest pause of the move {:?}", moved.longest_pause());

    set.equal("acked", SOON).unwrap();
    let written = written.and(moved);
    for member in set.databases() {
        written.ensure_all_are_in(&set.client(member)).unwrap();
    }
}
