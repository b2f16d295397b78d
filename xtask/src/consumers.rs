//! `cargo xtask consumers`: common change-data consumers read a ring's log from a witness. They are Debezium's engine, the Java and the Go
//! binlog client, and python-mysql-replication. During the reads the primary's host is killed, the primary is moved, and the witness is
//! killed. Each consumer must receive every row with an acknowledged commit.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use clap::Args;
use testkit::cluster::{
    BINLOG_PASSWORD, BINLOG_USER, ChildServer, Cluster, ClusterOptions, Profile, witness_binary,
};
use testkit::mysql_tree::find_on_path;
use testkit::wait::eventually;

use crate::mysql;

const LIMIT: Duration = Duration::from_secs(120);
/// Index of the member that the consumers read from: a witness in the first region.
const READ: usize = 1;
/// Pause between two commits.
const PAUSE: Duration = Duration::from_millis(10);
/// Duration of the writes before, between and after the faults.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Options {
    /// Consumers to run; default: all
    #[arg(value_enum, value_delimiter = ',')]
    consumers: Vec<Consumer>,
}

/// A change-data consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Consumer {
    /// Debezium's embedded engine with its MySQL connector
    Debezium,
    /// mysql-binlog-connector-java
    Java,
    /// go-mysql's BinlogSyncer
    Go,
    /// python-mysql-replication
    Python,
}

impl Consumer {
    const ALL: [Self; 4] = [Self::Debezium, Self::Java, Self::Go, Self::Python];

    /// The consumer's name in the table.
    fn name(self) -> &'static str {
        match self {
            Self::Debezium => "Debezium 3.0.8 (embedded engine)",
            Self::Java => "mysql-binlog-connector-java 0.30.1",
            Self::Go => "go-mysql 1.12.0",
            Self::Python => "python-mysql-replication 1.0.17",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Debezium => "debezium",
            Self::Java => "java",
            Self::Go => "go",
            Self::Python => "python",
        }
    }

    /// Downloads the consumer's dependencies from their registry, compiles it below `out`, and returns its command line.
    fn build(self, out: &Path) -> Result<Vec<String>> {
        let source = testkit::checkout()
            .join("xtask/consumers")
            .join(self.folder());
        let out = out.join(self.folder());
        fs::create_dir_all(&out)?;
        let text = |path: PathBuf| path.display().to_string();
        match self {
            Self::Debezium | Self::Java => {
                let libraries = format!("-DoutputDirectory={}", text(out.join("lib")));
                let fetch = ["-q", "-B", "dependency:copy-dependencies", &libraries];
                run_in(&source, "mvn", &fetch)?;
                let path = format!("{}/*", text(out.join("lib")));
                let classes = text(out.join("classes"));
                run_in(
                    &source,
                    "javac",
                    &["-cp", &path, "-d", &classes, "Reader.java"],
                )?;
                let path = format!("{path}:{classes}");
                let level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn";
                Ok(["java", level, "-cp", &path, "Reader"]
                    .map(str::to_owned)
                    .into())
            }
            Self::Go => {
                let program = text(out.join("reader"));
                run_in(&source, "go", &["build", "-o", &program, "."])?;
                Ok(vec![program])
            }
            Self::Python => {
                run_in(&source, "python3", &["-m", "venv", &text(out.clone())])?;
                let pip = text(out.join("bin/pip"));
                run_in(
                    &source,
                    &pip,
                    &["install", "--quiet", "--requirement", "requirements.txt"],
                )?;
                Ok(vec![
                    text(out.join("bin/python")),
                    text(source.join("reader.py")),
                ])
            }
        }
    }
}

fn run_in(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    let status = command.args(arguments).current_dir(folder).status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    ensure!(
        status.success(),
        "{program} {} failed ({status})",
        arguments.join(" ")
    );
    Ok(())
}

/// Runs the task.
pub(crate) fn run(options: &Options) -> Result<()> {
    let consumers = match options.consumers.as_slice() {
        [] => Consumer::ALL.to_vec(),
        chosen => chosen.to_vec(),
    };
    provide_programs()?;
    let out = testkit::checkout().join("target/consumers");
    let mut started = BTreeMap::new();
    for consumer in consumers {
        eprintln!("consumers: building {}", consumer.name());
        started.insert(consumer, consumer.build(&out)?);
    }
    let mut ring = start_ring()?;
    let address = ring.binlog_server(READ);
    let mut readers = BTreeMap::new();
    for (consumer, mut command) in started {
        let login = [address.ip().to_string(), address.port().to_string()];
        command.extend(login);
        command.extend([BINLOG_USER, BINLOG_PASSWORD].map(str::to_owned));
        readers.insert(
            consumer,
            Reader::start(&command, &out.join(consumer.folder()))?,
        );
    }
    let acknowledged = faults(&mut ring)?;
    for (consumer, reader) in &readers {
        let lacks = || acknowledged.difference(&reader.rows()).count();
        let all = eventually("it has every acknowledged row", LIMIT, || {
            (lacks() == 0).then_some(())
        });
        all.with_context(|| {
            format!(
                "{} lacks {} of {} rows; it said: {}",
                consumer.name(),
                lacks(),
                acknowledged.len(),
                reader.last_words()
            )
        })?;
    }
    println!(
        "{:36} {:>8} {:>8} {:>12}",
        "consumer", "rows", "twice", "connections"
    );
    for (consumer, reader) in &readers {
        let seen = reader.seen();
        let (rows, twice) = (reader.rows().len(), seen.rows.len() - reader.rows().len());
        let again = match consumer {
            // The libraries of these consumers reconnect without a message.
            Consumer::Go | Consumer::Debezium => "-".to_owned(),
            _ => (seen.again + 1).to_string(),
        };
        println!("{:36} {rows:>8} {twice:>8} {again:>12}", consumer.name());
    }
    println!(
        "{} rows were acknowledged, and each of them saw all of them",
        acknowledged.len()
    );
    Ok(())
}

fn provide_programs() -> Result<()> {
    if ["java", "javac", "mvn", "go", "python3"]
        .iter()
        .all(|name| find_on_path(name).is_some())
    {
        return Ok(());
    }
    let packages = ["default-jdk-headless", "maven", "golang-go", "python3-venv"];
    let here = Path::new("/");
    run_in(here, "apt-get", &["--quiet", "update"])?;
    let install = ["--quiet", "install", "--yes", "--no-install-recommends"];
    run_in(here, "apt-get", &[&install[..], &packages].concat())
}

fn start_ring() -> Result<Cluster> {
    let tree = mysql::provide(false)?;
    let mut databases = Vec::new();
    for (number, region) in [(1, "north"), (2, "south")] {
        databases.push((region, ChildServer::prepare(&tree, number, None)?.into()));
    }
    let options = ClusterOptions::in_regions(databases).with_binlog_servers();
    let mut ring = Cluster::launch(&witness_binary(Profile::Dev)?, options)?;
    ring.wait_until_primary(LIMIT)?;
    ring.create_client(ring.primary(LIMIT)?, "")?;
    Ok(ring)
}

/// Writes rows while the primary's host is killed and restarted, the primary is moved, and the consumers' member is killed. Returns the
/// rows with acknowledged commits.
fn faults(ring: &mut Cluster) -> Result<BTreeSet<u64>> {
    let first = ring.primary(LIMIT)?;
    ring.client(first).sql(
        "CREATE DATABASE shop; CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, words VARCHAR(40))",
    )?;
    let mut written = Written::default();
    written.for_a_while(ring, QUIET)?;
    eprintln!("consumers: the primary's host is killed");
    ring.kill_host(first)?;
    written.for_a_while(ring, QUIET)?;
    ring.start(first)?;
    ring.follows(first, LIMIT)?;
    written.for_a_while(ring, QUIET)?;
    eprintln!("consumers: the primary is moved back");
    let name = ring.name(first).to_owned();
    ring.promote(&name, LIMIT)?;
    written.for_a_while(ring, QUIET)?;
    eprintln!("consumers: the witness that they read from is killed, and comes back");
    ring.kill(READ)?;
    written.for_a_while(ring, QUIET)?;
    ring.start(READ)?;
    written.for_a_while(ring, QUIET)?;
    Ok(written.acknowledged)
}

/// The rows of one client, which searches for the primary before each row.
#[derive(Default)]
struct Written {
    next: u64,
    acknowledged: BTreeSet<u64>,
}

impl Written {
    fn for_a_while(&mut self, ring: &Cluster, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let id = self.next;
            let row = format!("INSERT INTO shop.orders VALUES ({id}, 'row {id}')");
            // Without an answer, the outcome of a row is unknown. Such a row is not written again and not checked.
            self.next += 1;
            let primary = ring.primary(LIMIT)?;
            if ring.client(primary).sql(&row).is_ok() {
                self.acknowledged.insert(id);
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// The output of a consumer so far.
#[derive(Debug, Default, Clone)]
struct Seen {
    rows: Vec<u64>,
    again: usize,
    last: Vec<String>,
}

/// A running consumer.
struct Reader {
    child: Child,
    seen: Arc<Mutex<Seen>>,
    ended: Arc<AtomicBool>,
}

impl Reader {
    fn start(command: &[String], folder: &Path) -> Result<Self> {
        let errors = fs::File::create(folder.join("stderr"))?;
        let (program, arguments) = command.split_first().context("a program")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let output = child.stdout.take().context("its output")?;
        let (seen, ended) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let (into, over) = (seen.clone(), ended.clone());
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
                match line.strip_prefix("ROW ").map(str::parse) {
                    Some(Ok(id)) => seen.rows.push(id),
                    _ => {
                        seen.again += usize::from(line.starts_with("AGAIN"));
                        seen.last.push(line);
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        Ok(Self { child, seen, ended })
    }

    fn seen(&self) -> Seen {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    fn rows(&self) -> BTreeSet<u64> {
        self.seen().rows.into_iter().collect()
    }

    fn last_words(&self) -> String {
        let last = self.seen().last;
        let end = match self.ended.load(Ordering::Relaxed) {
            true => "; it has ended",
            false => "",
        };
        format!("{:?}{end}", last.last())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
