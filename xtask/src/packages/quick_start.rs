//! Does what docs/quick-start.md says, with its commands as they stand there, on three hosts that are containers. Only the addresses are
//! other ones.

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
/// Of the page, and here.
const SUBNET: [&str; 2] = ["10.0.0.", "10.91.0."];
const HOSTS: [(&str, &str); 3] = [("db-1", "11"), ("witness-1", "12"), ("witness-2", "13")];
/// The page's headings in their order, and the hosts that their commands are for; none: all.
const PARTS: [(&str, Option<&str>); 6] = [
    ("On every host", None),
    ("On witness-1", Some("witness-1")),
    ("On witness-2", Some("witness-2")),
    ("Start them, on every host", None),
    ("Create the ring, on db-1", Some("db-1")),
    ("Look at it, on witness-1", Some("witness-1")),
];

/// Runs it with these packages.
pub(super) fn run(engine: &Engine, image: &str, tree: &MysqlTree, packages: &Path) -> Result<()> {
    let network = Network::make(engine)?;
    let shared = (&*MysqlTree::folder(), MYSQL_PLACE);
    let mut hosts = BTreeMap::new();
    for (name, last) in HOSTS {
        let address = format!("{}{last}", SUBNET[1]);
        let place = Some((NETWORK, &*address));
        let host = Machine::boot(engine, image, name, shared, place)?;
        host.copy(packages, "/root/packages")?;
        hosts.insert(name, host);
    }
    let database = hosts.get("db-1").context("there is no db-1")?;
    install_mysql(database, tree)?;
    // What the page begins with is there.
    let begun = Instant::now();
    for (heading, only) in PARTS {
        let commands = shell_blocks(PAGE, heading)?.join("\n");
        let commands = commands.replace(SUBNET[0], SUBNET[1]);
        for (name, host) in &hosts {
            if only.is_none_or(|only| only == *name) {
                host.run(&format!("set -eu\n{commands}"))
                    .with_context(|| format!("{heading}, on {name}"))?;
            }
        }
    }
    println!(
        "packages: the quick start took {:.0} s on three hosts",
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

/// As a package of MySQL would: programs at their usual places.
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

/// The hosts' network; it is removed with this value.
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
