//! A running primary with replicas becomes a ring with the commands of docs/enable-raft.md, fails over, and becomes plain replication
//! again. A writer runs throughout. The commands in both directions may be killed at every step.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use testkit::cluster::{
    Cluster, ClusterOptions, MemberDatabase, Profile, http_get, witness_binary,
};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{MysqlClient, Mysqld, MysqldOptions};
use witness_tests::{Writers, WrittenRows, make_rows};

use crate::SCENES;
use crate::stock_clients_read_a_member::remote;

const SOON: Duration = Duration::from_secs(60);
/// The load balancer's pause between two polls.
const BALANCER_PAUSE: Duration = Duration::from_millis(20);
/// The database members of the ring; members 1 and 2 are witnesses.
const FIRST: usize = 0;
const SECOND: usize = 3;
const REPLICATION_PASSWORD: &str = "replication-password";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/enable-raft.md");

/// A primary, a semi-sync replica that becomes a member, and a stock replica that does not.
struct Scene {
    primary: Mysqld,
    replica: Mysqld,
    stock: Mysqld,
    ring: Cluster,
    folder: tempfile::TempDir,
}

/// Creates one certificate for all members, which are on one host, and one for the operator. Returns their folder.
fn certificates(folder: &Path) -> Result<PathBuf> {
    let configuration = "data_dir = \"data\"\nring.name = \"test\"\nmember.id = 1\n\
         members = [{ id = 1, name = \"member\", region = \"here\", kind = \"witness\", address = \"127.0.0.1:7400\" }]\n";
    let (config, directory) = (folder.join("init.toml"), folder.join("ring-tls"));
    std::fs::write(&config, configuration)?;
    let mut init = Command::new(witness_binary(Profile::Dev)?);
    init.args(["tls", "init", "--operator", "ana", "--directory"]);
    let made = init.arg(&directory).arg("--config").arg(config).output()?;
    ensure!(made.status.success(), "{made:?}");
    Ok(directory)
}

impl Scene {
    fn launch() -> Result<Self> {
        let tree = MysqlTree::require();
        let folder = tempfile::tempdir()?;
        let tls = certificates(folder.path())?;
        // The replicas verify their source with the ring's CA.
        let own = ["ca=ca.crt", "cert=member.crt", "key=member.key"].map(|option| {
            let (option, file) = option.split_once('=').unwrap_or_default();
            format!("--ssl-{option}={}", tls.join(file).display())
        });
        let launch = |id| {
            let options = MysqldOptions {
                arguments: own.to_vec(),
                ..MysqldOptions::with_server_id(id)
            };
            Mysqld::launch_with(&tree, options)
        };
        let (primary, replica, stock) = (launch(1)?, launch(2)?, launch(3)?);
        let client = primary.client();
        client.create_replication_user()?;
        client.sql("CREATE USER admin IDENTIFIED BY 'admin-password'; GRANT ALL ON *.* TO admin WITH GRANT OPTION")?;
        // Semi-sync is enabled first: a dump that began without the plugin is not semi-sync.
        client.enable_semi_sync_source(1)?;
        replica.replicate_from(&primary, true)?;
        stock.replicate_from(&primary, false)?;
        make_rows(&primary)?;
        let before = Writers::at(&primary, 2, 9_000_000);
        before.wait_for_more(50, SOON)?;
        before.finish()?;
        // The transactions before the ring are removed from all binlogs, so the ring's log cannot begin with the first transaction.
        let executed = client.gtid_executed()?;
        for server in [&replica, &stock] {
            server.client().wait_for_gtids(&executed, SOON)?;
        }
        client.sql("FLUSH BINARY LOGS")?;
        let files = client.sql("SHOW BINARY LOGS")?.0;
        let newest = files
            .last()
            .and_then(|row| row.first())
            .context("a binlog")?;
        client.sql(&format!("PURGE BINARY LOGS TO '{newest}'"))?;
        ensure!(!client.value("SELECT @@GLOBAL.gtid_purged")?.is_empty());

        let attached = MemberDatabase::Attached {
            socket: replica.socket(),
        };
        let tls = |key: &str, file: &str| format!("{key} = {:?}", tls.join(file));
        let options = ClusterOptions {
            // Some commands must be sent to the leader's member, so a busy machine must not cause an election.
            heartbeat: Some(Duration::from_millis(500)),
            ..ClusterOptions::around(&primary)
                .with_more([attached])
                .with_binlog_servers()
                .with("tls", tls("certificate_file", "member.crt"))
                .with("tls", tls("key_file", "member.key"))
                .with("tls", tls("ca_file", "ca.crt"))
                .with("tls", tls("operator_certificate_file", "operator-ana.crt"))
                .with("tls", tls("operator_key_file", "operator-ana.key"))
                // The test sends its HTTP requests without TLS.
                .with("http", "tls = false")
        };
        let mut ring = Cluster::prepare(&witness_binary(Profile::Dev)?, options)?;
        for member in 0..ring.size() {
            ring.start(member)?;
        }
        for (name, password) in [
            ("replication-password", REPLICATION_PASSWORD),
            ("admin-password", "admin-password"),
        ] {
            std::fs::write(folder.path().join(name), password)?;
        }
        ring.wait_until("the members answer", SOON, |ring| {
            Ok((0..ring.size()).all(|member| ring.get(member, "/liveness").is_ok()))
        })?;
        Ok(Self {
            primary,
            replica,
            stock,
            ring,
            folder,
        })
    }

    /// Returns a command of the page, with this test's paths, addresses and names.
    fn command(&self, of_the_page: &str, member: usize) -> Vec<String> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let text = of_the_page
            .replace(
                "/etc/witness/witness.toml",
                &self.ring.config(member).display().to_string(),
            )
            .replace(
                "/etc/witness/replication-password",
                &file("replication-password"),
            )
            .replace("/etc/witness/admin-password", &file("admin-password"))
            .replace("/etc/mysql/ring-ca.crt", &file("ring-tls/ca.crt"))
            .replace("10.0.0.9:3306", &self.stock.address().to_string())
            .replace("witness-1:3307", &self.ring.binlog_server(1).to_string());
        let words = text.split_whitespace().skip(1).map(str::to_owned);
        words.chain(["--yes".to_owned()]).collect()
    }

    fn run(&self, of_the_page: &str, member: usize) -> Result<String> {
        let words = self.command(of_the_page, member);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let finished = self.ring.cli(&words)?;
        finished.into_text(of_the_page)
    }

    /// Starts a command repeatedly, and kills it after a different step each time, until it ends without being killed. Returns the number
    /// of kills.
    fn run_killed_at_every_step(&self, of_the_page: &str, member: usize) -> Result<usize> {
        let binary = witness_binary(Profile::Dev)?;
        let deadline = Instant::now() + 2 * SOON;
        let mut killed_behind = std::collections::BTreeSet::new();
        for kills in 0.. {
            ensure!(
                Instant::now() < deadline,
                "killed {kills} times and still not done"
            );
            let output = self.folder.path().join("output");
            let mut child = Command::new(&binary)
                .args(self.command(of_the_page, member))
                .stdin(Stdio::null())
                .stdout(std::fs::File::create(&output)?)
                .stderr(Stdio::piped())
                .spawn()?;
            let errors = BufReader::new(child.stderr.take().context("piped")?);
            let mut said = Vec::new();
            for line in errors.lines() {
                let line = line?;
                let done = line.ends_with(" s") || line.ends_with(" ms");
                let step = line.split("  ").next().unwrap_or_default().to_owned();
                said.push(line);
                if done && killed_behind.insert(step) {
                    // The next step has begun, or is about to begin.
                    child.kill()?;
                    break;
                }
            }
            let status = child.wait()?;
            if status.success() {
                return Ok(kills);
            }
            let output = std::fs::read_to_string(&output)?;
            ensure!(status.code().is_none(), "{status}: {said:?}\n{output}");
        }
        bail!("not reached")
    }

    fn equal(&self, primary: &MysqlClient, written: &[&WrittenRows]) -> Result<()> {
        let executed = primary.gtid_executed()?;
        let expected = primary.table_checksums("acked")?;
        for server in [&self.primary, &self.replica, &self.stock] {
            let client = server.client();
            client.wait_for_gtids(&executed, SOON)?;
            ensure!(client.gtid_executed()? == executed);
            ensure!(client.table_checksums("acked")? == expected);
        }
        let there: std::collections::BTreeSet<u64> = primary
            .sql("SELECT id FROM acked.rows")?
            .0
            .iter()
            .filter_map(|row| row.first()?.parse().ok())
            .collect();
        for written in written {
            let acknowledged = written.acknowledged();
            let lost: Vec<_> = acknowledged.difference(&there).collect();
            ensure!(lost.is_empty(), "acknowledged and lost: {lost:?}");
            println!("{} acknowledged commits are there", acknowledged.len());
        }
        Ok(())
    }

    /// Returns the port of a server's source, if the server replicates and both replica threads run.
    fn source_of(server: &Mysqld) -> Result<Option<u16>> {
        let rows = server.client().sql(
            "SELECT c.port FROM performance_schema.replication_connection_configuration c \
             JOIN performance_schema.replication_connection_status s USING (channel_name) \
             JOIN performance_schema.replication_applier_status a USING (channel_name) \
             WHERE s.service_state = 'ON' AND a.service_state = 'ON'",
        )?;
        let port = rows.0.first().and_then(|row| row.first());
        Ok(port.and_then(|port| port.parse().ok()))
    }
}

/// Returns the commands of the page that begin with this text.
fn of_the_page(beginning: &str) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(Path::new(PAGE))?.replace("\\\n", " ");
    let commands = page.lines().map(str::trim);
    let commands: Vec<_> = commands
        .filter(|line| line.starts_with(beginning))
        .map(str::to_owned)
        .collect();
    ensure!(!commands.is_empty(), "the page has no `{beginning}`");
    Ok(commands)
}

fn print(path: PathBuf) {
    println!("{}", std::fs::read_to_string(path).unwrap_or_default());
}

#[test]
fn a_primary_with_replicas_becomes_a_ring_fails_over_and_goes_back() {
    let _turn = SCENES.take();
    through_a_ring_and_back().unwrap_or_else(|error| panic!("{error:#}"));
}

fn through_a_ring_and_back() -> Result<()> {
    let mut scene = Scene::launch()?;
    let enable = of_the_page("witness enable-raft")?;
    let writers = Writers::at(&scene.primary, 4, 0);
    writers.wait_for_more(100, SOON)?;
    for command in &enable {
        let said = scene.run(command, FIRST)?;
        println!("$ {command}\n{said}");
        writers.wait_for_more(100, SOON)?;
        if command.contains("--dry-run") {
            ensure!(said.contains("Nothing was done"), "{said}");
            ensure!(Scene::source_of(&scene.replica)?.is_some());
        } else {
            ensure!(said.contains("Clients could not write for "), "{said}");
        }
    }
    let first = writers.finish()?;
    println!("the longest commit took {:?}", first.longest());
    ensure!(scene.ring.get(FIRST, "/primary")?.status == 200);
    ensure!(scene.ring.get(SECOND, "/replica")?.status == 200);
    let of_binlog_server = scene.ring.binlog_server(1).port();
    ensure!(Scene::source_of(&scene.stock)? == Some(of_binlog_server));
    scene.equal(&scene.primary.client(), &[&first])?;

    // A failover: the primary's host dies and restarts.
    scene.ring.kill(FIRST)?;
    scene.primary.kill()?;
    scene
        .ring
        .wait_until("the second is the primary", SOON, |ring| {
            Ok(ring
                .get(SECOND, "/primary")
                .is_ok_and(|answer| answer.status == 200))
        })?;
    let writers = Writers::at(&scene.replica, 2, 1_000_000);
    writers.wait_for_more(100, SOON)?;
    scene.primary.start()?;
    scene.ring.start(FIRST)?;
    scene.ring.wait_until("the first follows", SOON, |ring| {
        Ok(ring
            .get(FIRST, "/replica")
            .is_ok_and(|answer| answer.status == 200))
    })?;

    // The ring becomes plain replication again, at the current primary. During this, a load balancer polls continuously.
    let (over, balancer) = (Arc::new(AtomicBool::new(false)), scene.ring.http(SECOND));
    let asking = {
        let over = over.clone();
        std::thread::spawn(move || {
            let mut refused = Vec::new();
            while !over.load(Ordering::Relaxed) {
                match http_get(balancer, "/primary") {
                    Ok(answer) if answer.status == 200 => {}
                    other => refused.push(format!("{other:?}")),
                }
                std::thread::sleep(BALANCER_PAUSE);
            }
            refused
        })
    };
    for command in &of_the_page("witness disable-raft")? {
        let said = scene.run(command, SECOND)?;
        println!("$ {command}\n{said}");
        writers.wait_for_more(100, SOON)?;
    }
    for question in ["/replica", "/replica?lag=10s"] {
        scene.ring.wait_until(question, SOON, |ring| {
            Ok(ring.get(FIRST, question)?.status == 200)
        })?;
    }
    ensure!(scene.ring.get(FIRST, "/primary")?.status == 503);
    over.store(true, Ordering::Relaxed);
    let refused = asking.join().map_err(|_| anyhow!("the load balancer"))?;
    ensure!(refused.is_empty(), "sessions would be closed: {refused:?}");
    // The ring's log has ended, and every member reports that to consumers.
    scene
        .ring
        .wait_until("the end of the log is known", SOON, |ring| {
            let reads = [
                "--ssl-mode=REQUIRED",
                "--read-from-remote-server",
                "--stop-never",
                "--connection-server-id=77",
            ];
            let ended = remote(ring, 1, &reads, "binlog.000001");
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            println!("{said}");
            Ok(said.contains("`witness disable-raft` released its primary"))
        })?;
    let second = writers.finish()?;
    let port = Some(scene.replica.address().port());
    for server in [&scene.primary, &scene.stock] {
        ensure!(Scene::source_of(server)? == port);
        let verifies = server.client().sql(
            "SELECT user, ssl_verify_server_certificate, ssl_ca_file <> '', get_public_key \
             FROM performance_schema.replication_connection_configuration",
        )?;
        ensure!(
            verifies.0 == [["replication", "YES", "1", "NO"]],
            "{verifies:?}"
        );
    }
    for member in 0..scene.ring.size() {
        scene.ring.stop(member)?;
    }
    // No member acknowledges transactions any longer, and no commit waits for an ACK.
    let writers = Writers::at(&scene.replica, 2, 2_000_000);
    writers.wait_for_more(100, SOON)?;
    let third = writers.finish()?;
    scene.equal(&scene.replica.client(), &[&first, &second, &third])?;
    print(scene.ring.directory(FIRST).join("enable-raft.json"));
    Ok(())
}

#[test]
fn both_commands_may_be_killed_at_every_step() {
    let _turn = SCENES.take();
    killed_at_every_step().unwrap_or_else(|error| panic!("{error:#}"));
}

fn killed_at_every_step() -> Result<()> {
    let scene = Scene::launch()?;
    let last = |commands: Vec<String>| commands.into_iter().next_back().context("a command");
    let enable = last(of_the_page("witness enable-raft")?)?;
    let disable = last(of_the_page("witness disable-raft")?)?;
    let writers = Writers::at(&scene.primary, 2, 0);
    writers.wait_for_more(50, SOON)?;
    let kills = scene.run_killed_at_every_step(&enable, FIRST)?;
    println!("enable-raft was killed {kills} times");
    ensure!(kills >= 7, "{kills}");
    writers.wait_for_more(50, SOON)?;
    ensure!(scene.ring.get(FIRST, "/primary")?.status == 200);
    ensure!(scene.ring.get(SECOND, "/replica")?.status == 200);
    let said = scene.run(&enable, FIRST)?;
    ensure!(said.contains("Everything is done already"), "{said}");

    let kills = scene.run_killed_at_every_step(&disable, FIRST)?;
    println!("disable-raft was killed {kills} times");
    ensure!(kills >= 3, "{kills}");
    writers.wait_for_more(50, SOON)?;
    let written = writers.finish()?;
    let port = Some(scene.primary.address().port());
    ensure!(Scene::source_of(&scene.replica)? == port);
    ensure!(Scene::source_of(&scene.stock)? == port);
    scene.equal(&scene.primary.client(), &[&written])
}
