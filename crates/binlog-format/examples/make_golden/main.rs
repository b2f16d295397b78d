//! Regenerates the files in `testdata/` with a real mysqld: see `testdata/README.md`.
//!
//! Run `cargo run -p binlog-format --example make_golden` after `cargo xtask mysql`.

mod dump;
mod gtid_tables;
mod scenarios;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::client::mysqlbinlog;
use testkit::mysqld::{Mysqld, MysqldOptions};

use crate::dump::Request;
use crate::scenarios::{SCENARIOS, Scenario};

fn main() -> Result<()> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let tree = MysqlTree::locate()?;
    let options = MysqldOptions::with_server_id(7).with_arguments(["--performance-schema=OFF"]);
    let mut server = Mysqld::launch_with(&tree, options)?;
    let client = server.client();
    let first_file = current_file(&server)?;
    client.sql(dump::ACCOUNT)?;
    client.sql(scenarios::SETUP)?;
    client.sql("FLUSH BINARY LOGS")?;
    keep(&server, &target, "first_file", &first_file)?;

    let mut previous_gtids = format!(
        "first_file\t\n{}\t{}\n",
        SCENARIOS[0].name,
        client.gtid_executed()?
    );
    for scenario in SCENARIOS {
        let file =
            record(&server, scenario).with_context(|| format!("scenario {}", scenario.name))?;
        keep(&server, &target, scenario.name, &file)?;
        let gtids = client.gtid_executed()?;
        previous_gtids.push_str(&format!("{}\t{gtids}\n", next_scenario_name(scenario.name)));
    }
    fs::write(target.join("previous_gtids.tsv"), previous_gtids)?;

    gtid_tables::write(&client, &target)?;
    record_streams(&server, &target)?;

    // Keeps the server's current file from before and after a normal shutdown.
    let file = current_file(&server)?;
    client.sql("INSERT INTO shop.item VALUES (900, 'before the stop', 1)")?;
    fs::copy(server.data_dir().join(&file), target.join("in_use.binlog"))?;
    write_listing(&server, &target, "in_use", &file)?;
    server.stop()?;
    fs::copy(server.data_dir().join(&file), target.join("stopped.binlog"))?;
    server.start()?;
    write_listing(&server, &target, "stopped", &file)?;

    check_with_mysqlbinlog(&tree, &target)
}

/// Runs a scenario between two rotations; returns the name of the scenario's file.
fn record(server: &Mysqld, scenario: &Scenario) -> Result<String> {
    let client = server.client();
    client.sql(scenario.before)?;
    client.sql("FLUSH BINARY LOGS")?;
    let file = current_file(server)?;
    let load_file = server.data_dir().join("items.txt");
    // The statement names the file relative to the server's data directory, because the name is in the binlog.
    fs::write(&load_file, "500\tfrom a file\t5\n501\tand another\t6\n")?;
    let uuid = client.variable("server_uuid")?;
    let sql = scenario.sql.replace("{uuid}", &uuid);
    client.sql(&format!("USE shop; {sql}"))?;
    client.sql("FLUSH BINARY LOGS")?;
    client.sql(scenario.after)?;
    Ok(file)
}

/// Records the streams of replicas that request everything.
fn record_streams(server: &Mysqld, target: &Path) -> Result<()> {
    let requests = [
        (
            "crc32",
            Request {
                checksum: "CRC32",
                heartbeat_v2: true,
            },
        ),
        (
            "none",
            Request {
                checksum: "NONE",
                heartbeat_v2: false,
            },
        ),
    ];
    for (name, request) in requests {
        fs::write(
            target.join(format!("{name}.stream")),
            dump::record(server, &request)?,
        )?;
    }
    Ok(())
}

fn next_scenario_name(name: &str) -> &'static str {
    let at = SCENARIOS.iter().position(|scenario| scenario.name == name);
    at.and_then(|at| SCENARIOS.get(at + 1))
        .map_or("in_use", |scenario| scenario.name)
}

fn current_file(server: &Mysqld) -> Result<String> {
    let status = server.client().sql("SHOW BINARY LOG STATUS")?;
    let row = status
        .0
        .into_iter()
        .next()
        .context("the server writes no binlog")?;
    row.into_iter().next().context("the server names no file")
}

fn keep(server: &Mysqld, target: &Path, name: &str, file: &str) -> Result<()> {
    fs::copy(
        server.data_dir().join(file),
        target.join(format!("{name}.binlog")),
    )?;
    write_listing(server, target, name, file)
}

/// The server's own listing of a file: position, type, server id, end position, description.
fn write_listing(server: &Mysqld, target: &Path, name: &str, file: &str) -> Result<()> {
    let rows = server
        .client()
        .sql(&format!("SHOW BINLOG EVENTS IN '{file}'"))?;
    let lines = rows.0.iter().map(|row| row[1..].join("\t") + "\n");
    fs::write(
        target.join(format!("{name}.events.tsv")),
        lines.collect::<String>(),
    )?;
    Ok(())
}

/// Checks that mysqlbinlog accepts every file and finds the GTIDs of the listing.
fn check_with_mysqlbinlog(tree: &MysqlTree, target: &Path) -> Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(target)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "binlog")
    });
    ensure!(!files.is_empty(), "no golden file was made");
    for file in files {
        let done = mysqlbinlog(
            tree,
            &["--verify-binlog-checksum", "--base64-output=decode-rows"],
            &[&file],
        )?;
        let text = done.into_text("mysqlbinlog")?;
        let seen: Vec<&str> = text.lines().filter_map(gtid_of).collect();
        let listing = fs::read_to_string(file.with_extension("events.tsv"))?;
        let listed: Vec<&str> = listing.lines().filter_map(gtid_of).collect();
        ensure!(
            seen == listed,
            "{}: mysqlbinlog sees {seen:?}, the listing has {listed:?}",
            file.display()
        );
    }
    Ok(())
}

fn gtid_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("SET @@SESSION.GTID_NEXT= '")?;
    let (gtid, _) = rest.split_once('\'')?;
    (gtid != "AUTOMATIC").then_some(gtid)
}
