//! MySQL Group Replication between servers on loopback, in single-primary mode, for comparisons.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::mysqld::Mysqld;
use crate::mysqld::replication::{REPLICATION_PASSWORD, REPLICATION_USER};
use crate::ports::free_addresses;
use crate::wait::eventually;

/// The group's name. Any UUID works; it is the source in the GTIDs of all transactions.
const NAME: &str = "5f0c4f2e-7d3b-4b51-9a53-0d2f3f6f9a10";
const JOIN_LIMIT: Duration = Duration::from_secs(120);

/// A group: the group communication addresses of its members.
#[derive(Clone, Debug)]
pub struct Group {
    addresses: Vec<SocketAddr>,
    /// `group_replication_member_expel_timeout` in seconds; `None`: MySQL's default.
    expel_timeout: Option<u32>,
}

impl Group {
    /// Creates a group for this many servers.
    ///
    /// # Errors
    /// If no ports are free.
    pub fn of(members: usize, expel_timeout: Option<u32>) -> Result<Self> {
        Ok(Self {
            addresses: free_addresses(members)?,
            expel_timeout,
        })
    }

    /// Returns the start options of a member.
    #[must_use]
    pub fn arguments() -> [&'static str; 1] {
        // Without this option, other members connect to the machine's host name.
        ["--report-host=127.0.0.1"]
    }

    /// Bootstraps the group with this server as its first member and primary.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn begin(&self, server: &Mysqld) -> Result<()> {
        self.configure(0, server)?;
        server.client().sql(&format!(
            "SET GLOBAL group_replication_bootstrap_group = ON; {}; SET GLOBAL group_replication_bootstrap_group = OFF",
            start()
        ))?;
        is_online(server)
    }

    /// Joins a server as member `number`, and waits until it has all transactions. Its data must be that
    /// of the group, or older.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn join(&self, number: usize, server: &Mysqld) -> Result<()> {
        self.configure(number, server)?;
        server.client().sql_within(&start(), JOIN_LIMIT)?;
        is_online(server)
    }

    /// Returns the number of transactions that the group has certified, from a member's counter.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn certified(server: &Mysqld) -> Result<u64> {
        let query = "SELECT count_transactions_checked FROM performance_schema.replication_group_member_stats \
                     WHERE member_id = @@server_uuid";
        server
            .client()
            .value(query)?
            .parse()
            .context("not a number")
    }

    fn configure(&self, number: usize, server: &Mysqld) -> Result<()> {
        let client = server.client();
        client.install_plugin("group_replication", "group_replication.so")?;
        let own = self.addresses.get(number).context("the group is smaller")?;
        let seeds: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let expel = self.expel_timeout.map(|seconds| {
            format!("; SET GLOBAL group_replication_member_expel_timeout = {seconds}")
        });
        client.sql(&format!(
            "SET GLOBAL group_replication_group_name = '{NAME}'; \
             SET GLOBAL group_replication_local_address = '{own}'; \
             SET GLOBAL group_replication_group_seeds = '{}'; \
             SET GLOBAL group_replication_recovery_get_public_key = ON{}",
            seeds.join(","),
            expel.unwrap_or_default()
        ))?;
        Ok(())
    }
}

fn start() -> String {
    format!(
        "START GROUP_REPLICATION USER = '{REPLICATION_USER}', PASSWORD = '{REPLICATION_PASSWORD}'"
    )
}

fn is_online(server: &Mysqld) -> Result<()> {
    let query = "SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid";
    eventually("the member is online", JOIN_LIMIT, || {
        let state = server.client().value(query)?;
        ensure!(state == "ONLINE", "it is {state}");
        Ok(())
    })
}
