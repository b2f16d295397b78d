//! Runs the commands of docs/quick-start.md on hosts that are containers. Only the addresses are changed. Files are copied from host to
//! host through this machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use testkit::documentation::shell_blocks;
use testkit::mysql_tree::MysqlTree;

use crate::docker::{Engine, Machine};
use crate::packages::{MYSQL_PLACE, options_there, words_there};

const PAGE: &str = "docs/quick-start.md";
const NETWORK: &str = "witness-quick-start";
/// The subnet of the page, and the subnet of this test.
const SUBNET: [&str; 2] = ["10.0.0.", "10.91.0."];
const MEMBERS: [(&str, &str); 3] = [("db-1", "11"), ("witness-1", "12"), ("witness-2", "13")];
const ADMIN: (&str, &str) = ("admin", "10");
/// The headings of the page in order, each with the hosts on which its commands run.
const PARTS: [(&str, &[&str]); 7] = [
    (
        "On every host, and on admin",
        &["admin", "db-1", "witness-1", "witness-2"],
    ),
    ("Make certificates, on admin", &["admin"]),
    ("On witness-1", &["witness-1"]),
    ("On witness-2", &["witness-2"]),
    (
        "Start them, on every host",
        &["db-1", "witness-1", "witness-2"],
    ),
    ("Create the ring, on db-1", &["db-1"]),
    ("Look at it, on witness-1", &["witness-1"]),
];
/// A replacement for `scp`. It copies a file with its rights to a folder, from which this test copies it to the other host.
const SCP: &str = r#"scp() { to="/root/outbox/${2#root@}"; to="${to%%:*}${to#*:}"; mkdir -p "${to%/*}"; cp -p "$1" "$to"; }"#;

/// Runs the page with these packages.
pub(super) fn run(engine: &Engine, tree: &MysqlTree, packages: &Path) -> Result<()> {
    let network = Network::make(engine)?;
    let shared = (&*MysqlTree::folder(), MYSQL_PLACE);
    let mut hosts = BTreeMap::new();
    for (name, last) in MEMBERS.into_iter().chain([ADMIN]) {
        let address = format!("{}{last}", SUBNET[1]);
        let place = Some((NETWORK, &*address));
        let host = Machine::boot(engine, name, shared, place)?;
        host.copy(packages, "/root/packages")?;
        hosts.insert(name, host);
    }
    let database = hosts.get("db-1").context("there is no db-1")?;
    install_mysql(database, tree)?;
    // The page's prerequisites are complete here.
    let begun = Instant::now();
    for (heading, names) in PARTS {
        let commands = shell_blocks(PAGE, heading)?.join("\n");
        let commands = commands.replace(SUBNET[0], SUBNET[1]);
        for name in names {
            let host = hosts.get(name).context("there is no such host")?;
            host.run(&format!("set -eu\n{SCP}\n{commands}"))
                .with_context(|| format!("{heading}, on {name}"))?;
        }
        deliver(&hosts)?;
    }
    println!(
        "packages: the quick start took {:.0} s on three hosts and admin",
        begun.elapsed().as_secs_f64()
    );
    let rows = database.run(
        "mysql --user=root --password=root-password --socket=/var/lib/witness/mysqld.sock --batch --skip-column-names \
         --execute 'SELECT COUNT(*) FROM shop.orders' 2>/dev/null",
    )?;
    ensure!(rows.trim() == "1", "the row is not there: {rows}");
    drop(hosts);
    drop(network);
    Ok(())
}

/// Copies the files that `admin` has sent to the hosts of the members.
fn deliver(hosts: &BTreeMap<&str, Machine<'_>>) -> Result<()> {
    let admin = hosts.get(ADMIN.0).context("there is no admin")?;
    for (name, _) in MEMBERS {
        let outbox = format!("/root/outbox/{name}");
        let pack = format!("test ! -d {outbox} || tar -C {outbox} -cz . | base64 -w0");
        let sent = admin.run(&pack)?;
        if !sent.is_empty() {
            let host = hosts.get(name).context("there is no such host")?;
            let unpack = "base64 -d | tar -C / --no-overwrite-dir -xz";
            host.run(&format!("printf %s {sent} | {unpack}"))?;
            admin.run(&format!("rm -r {outbox}"))?;
        }
    }
    Ok(())
}

/// Installs MySQL's programs in their usual folders, as a package of MySQL would.
fn install_mysql(host: &Machine<'_>, tree: &MysqlTree) -> Result<()> {
    let client = tree.mysql.as_ref().context("the tree has no client")?;
    let mut options = options_there(tree);
    options.extend(["--mysqlx=OFF".to_owned(), "--secure-file-priv=".to_owned()]);
    for (place, words, options) in [
        ("/usr/sbin/mysqld", words_there(tree, &tree.mysqld), options),
        ("/usr/bin/mysql", words_there(tree, client), Vec::new()),
    ] {
        let (words, options) = (words.join(" "), options.join(" "));
        host.run(&format!(
            "printf '#!/bin/sh\\nexec {words} \"$@\" {options}\\n' >{place} && chmod 755 {place}"
        ))?;
    }
    Ok(())
}

/// The network of the hosts. Dropping this value removes it.
struct Network<'e>(&'e Engine);

impl<'e> Network<'e> {
    fn make(engine: &'e Engine) -> Result<Self> {
        let network = Self(engine);
        network.remove();
        let subnet = format!("{}0/24", SUBNET[1]);
        engine.docker(&["network", "create", "--subnet", &subnet, NETWORK])?;
        Ok(network)
    }

    fn remove(&self) {
        let _ = self.0.docker(&["network", "rm", NETWORK]);
    }
}

impl Drop for Network<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}
