//! Measures the same failover in MySQL's Group Replication: three servers in single-primary mode on loopback. The primary is killed while a
//! client at each server tries to write. The time runs from the kill to the first commit that another server acknowledges.
//!
//! Group Replication has two advantages here: no latency between the servers, and no proxy between the clients and the primary.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::group_replication::Group;
use testkit::mysqld::{MysqlClient, Mysqld, MysqldOptions};
use testkit::wait::eventually;

use crate::compare::failover::options::ensure_writes_continue;

const SERVERS: usize = 3;
/// The measured settings: a name in the figures, and `group_replication_member_expel_timeout` in seconds. `None`: MySQL's default.
pub(super) const SETTINGS: [(&str, Option<u32>); 2] = [
    ("group_replication_defaults", None),
    ("group_replication_expel_timeout_0", Some(0)),
];
const COMMIT_LIMIT: Duration = Duration::from_secs(120);
const STATEMENT_LIMIT: Duration = Duration::from_secs(60);
/// Pause between two attempts of a client to write.
const PAUSE: Duration = Duration::from_millis(10);
/// Time during which the clients write before each kill.
const CALM: Duration = Duration::from_secs(2);

/// Returns the milliseconds of each failover, by setting.
pub(super) fn measure(kills: u32, stop: &AtomicBool) -> Result<BTreeMap<String, Vec<f64>>> {
    let mut measured = BTreeMap::new();
    for (name, expel_timeout) in SETTINGS {
        let mut scene = Scene::set(expel_timeout)?;
        let mut times = Vec::new();
        for _ in 0..kills {
            ensure_writes_continue(stop)?;
            times.push(scene.kill_the_primary()?);
        }
        measured.insert(name.to_owned(), times);
    }
    Ok(measured)
}

struct Scene {
    group: Group,
    servers: Vec<Mysqld>,
    primary: usize,
}

impl Scene {
    fn set(expel_timeout: Option<u32>) -> Result<Self> {
        let tree = MysqlTree::require();
        let group = Group::of(SERVERS, expel_timeout)?;
        let mut servers = Vec::new();
        for server_id in (1..).take(SERVERS) {
            let options = MysqldOptions::with_server_id(server_id);
            let options = options.with_arguments(Group::arguments());
            let server = Mysqld::launch_with(&tree, options)?;
            // Each server creates the account before it joins, so that the group does not replicate the statement.
            server.client().sql("SET GLOBAL super_read_only = OFF")?;
            server.client().create_replication_user()?;
            server.client().sql("RESET BINARY LOGS AND GTIDS")?;
            servers.push(server);
        }
        group.begin(&servers[0])?;
        for (number, server) in servers.iter().enumerate().skip(1) {
            group.join(number, server)?;
        }
        servers[0].client().sql(
            "CREATE DATABASE compare; CREATE TABLE compare.numbered (id BIGINT UNSIGNED PRIMARY KEY)",
        )?;
        Ok(Self {
            group,
            servers,
            primary: 0,
        })
    }

    /// Kills the primary. Returns the milliseconds until another server acknowledges a commit.
    fn kill_the_primary(&mut self) -> Result<f64> {
        let clients: Vec<MysqlClient> = self.servers.iter().map(Mysqld::client).collect();
        let writers = Writers::start(clients);
        thread::sleep(CALM);
        let killed = Instant::now();
        self.servers[self.primary].kill()?;
        let (by, at) = eventually("another server commits", COMMIT_LIMIT, || {
            writers.first_of_another(self.primary, killed)
        })?;
        drop(writers);
        let old = std::mem::replace(&mut self.primary, by);
        self.servers[old].start()?;
        self.group
            .join(old, &self.servers[old])
            .context("the killed server joins again")?;
        ensure!(at > killed, "it was acknowledged before the kill");
        Ok((at - killed).as_secs_f64() * 1e3)
    }
}

/// A client at each server. Dropping this value ends the clients.
struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<(usize, Instant)>>>,
    threads: Vec<JoinHandle<()>>,
}

/// The next row's number. Each row has a different number.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Writers {
    fn start(clients: Vec<MysqlClient>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged: Arc<Mutex<Vec<(usize, Instant)>>> = Arc::default();
        let threads = clients.into_iter().enumerate().map(|(number, client)| {
            let (stop, acknowledged) = (stop.clone(), acknowledged.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let id = NEXT.fetch_add(1, Ordering::Relaxed);
                    let insert = format!("INSERT INTO compare.numbered VALUES ({id})");
                    if client.sql_within(&insert, STATEMENT_LIMIT).is_ok() {
                        let mut list = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
                        list.push((number, Instant::now()));
                    }
                    thread::sleep(PAUSE);
                }
            })
        });
        Self {
            threads: threads.collect(),
            stop,
            acknowledged,
        }
    }

    fn first_of_another(&self, than: usize, since: Instant) -> Option<(usize, Instant)> {
        let list = self
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut others = list.iter().filter(|(by, at)| *by != than && *at > since);
        others.next().copied()
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
