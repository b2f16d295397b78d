//! The table of server versions and products: which ones this project was tested with, and which it refuses. Pure. `docs/versions.md` shows
//! the table, and a test compares the two.

use std::cmp::Ordering;
use std::str::FromStr;

use derive_more::Display;
use thiserror::Error;

/// The mechanisms of a server that the ring relies on, named as in the table:
///
/// * the binlog's tail of a crashed primary is trimmed before mysqld recovers from it;
/// * XA transactions survive crashes and failovers;
/// * executed GTIDs survive a crash, even of a follower whose binlog lacks the applied changes;
/// * `CLONE` replaces a mysqld's data;
/// * a log is applied to the server.
const MECHANISMS: [&str; 5] = ["trim", "XA", "GTID persistence", "clone", "applier"];

/// The mechanisms that were tested with a release of each series. A missing series was not tested.
const PROVEN: [((u16, u16), ServerVersion, &[&str]); 2] = [
    ((8, 0), ServerVersion::new(8, 0, 15), &["applier"]),
    ((9, 7), ServerVersion::new(9, 7, 4), &MECHANISMS),
];

/// Older versions stored the GTIDs of transactions in a table. After a crash it could lack transactions that InnoDB had committed.
const GTIDS_IN_INNODB: ServerVersion = ServerVersion::new(8, 0, 17);
/// In older versions, a crash could lose a prepared XA transaction from the engine or from the binlog, and a rotation did not wait for XA
/// PREPARE.
const CRASH_SAFE_XA: ServerVersion = ServerVersion::new(8, 0, 30);

/// Whether a server can be a member's mysqld.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionSupport {
    /// Every mechanism was tested with a release of its series.
    Proven,
    /// Some mechanisms were not tested; the operator must accept that.
    Unproven(String),
    /// It cannot be used, even with the operator's consent.
    Refused(String),
}

/// Returns whether a server can be a member's mysqld. `comment` is its `@@version_comment`.
pub fn version_support(
    version: ServerVersion,
    version_text: &str,
    comment: &str,
) -> VersionSupport {
    let product = product(version_text, comment);
    if let Some(Product {
        name,
        replicates_as_mysql: false,
    }) = product
    {
        return VersionSupport::Refused(foreign(name));
    }
    if version < GTIDS_IN_INNODB {
        return VersionSupport::Refused(format!(
            "MySQL {version} keeps its GTIDs outside of InnoDB, so that a crash may leave them behind its data: a member needs \
             {GTIDS_IN_INNODB} at least"
        ));
    }
    if let Some(product) = product {
        return VersionSupport::Unproven(format!(
            "it is {} {version}, with which nothing was proven",
            product.name
        ));
    }
    let series = version.series();
    let proven = PROVEN.iter().find(|(proven, ..)| *proven == series);
    let proven = proven.map_or(&[][..], |(.., mechanisms)| *mechanisms);
    let mut lacking = MECHANISMS.to_vec();
    lacking.retain(|one| !proven.contains(one));
    if lacking.is_empty() {
        return VersionSupport::Proven;
    }
    let xa = match version < CRASH_SAFE_XA {
        true => format!("; XA transactions are not safe in a crash before {CRASH_SAFE_XA}"),
        false => String::new(),
    };
    VersionSupport::Unproven(format!(
        "with MySQL {}.{} these were not proven: {}{xa}",
        series.0,
        series.1,
        lacking.join(", ")
    ))
}

/// Returns the message for a product with a log that is not compatible with MySQL's.
pub fn foreign(name: &str) -> String {
    format!(
        "it is {name}, not MySQL: its binlog or its replication are another's, and nothing here was made for it"
    )
}

/// A product that uses MySQL's protocol and is not MySQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// Name of the product, for messages.
    pub name: &'static str,
    /// True if it is a modified MySQL server: its binlog and replication are compatible with MySQL's.
    pub replicates_as_mysql: bool,
}

/// The lower-case text that identifies a product in `@@version` or `@@version_comment`.
const PRODUCTS: [(&str, &str, bool); 13] = [
    ("mariadb", "MariaDB", false),
    ("tidb", "TiDB", false),
    ("vitess", "Vitess", false),
    ("oceanbase", "OceanBase", false),
    ("singlestore", "SingleStore", false),
    ("memsql", "SingleStore", false),
    ("dolt", "Dolt", false),
    ("aurora", "Amazon Aurora", false),
    ("wsrep", "a Galera cluster", false),
    ("xtradb cluster", "Percona XtraDB Cluster", false),
    ("percona", "Percona Server", true),
    ("-google", "Google Cloud SQL", true),
    ("-azure", "Azure Database for MySQL", true),
];

/// Identifies a server that is not MySQL by its version and comment.
pub fn product(version_text: &str, comment: &str) -> Option<Product> {
    let said = format!("{version_text}\n{comment}").to_lowercase();
    let found = PRODUCTS.iter().find(|(word, ..)| said.contains(word))?;
    Some(Product {
        name: found.1,
        replicates_as_mysql: found.2,
    })
}

/// Returns why the log of a server of version `source` cannot be applied to a server of version `target`; `None` if it is expected to work.
/// Follows the rule of [`crate::may_take_over`]: from older to newer.
pub fn cannot_apply(source: ServerVersion, target: ServerVersion) -> Option<String> {
    (!crate::may_take_over(source, target)).then(|| {
        format!(
            "the log was written by MySQL {source}, and the target is MySQL {target}: an older server does not know what a newer \
             one writes (default_table_encryption, collations, statements), and the run would stop somewhere in the middle"
        )
    })
}

// A MySQL version as numbers, so that 10.x and 26.x are newer than 9.x.

/// `major.minor.patch` of a server. Suffixes as in `9.7.4-2` or `8.0.36-log` are ignored.
#[derive(Debug, Display, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[display("{major}.{minor}.{patch}")]
pub struct ServerVersion {
    /// First number: 8, 9, or a year as in 26.
    pub major: u16,
    /// Minor number; it identifies the series together with the major number.
    pub minor: u16,
    /// Patch number; 0 if a server announces none.
    pub patch: u16,
}

impl ServerVersion {
    /// Creates a version from three numbers.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// The first version whose variables, statements and status counters use the names source and replica.
    pub const SOURCE_REPLICA_NAMES: Self = Self::new(8, 0, 26);

    /// Parses the number that events and `version` functions contain: 90704 is 9.7.4.
    pub const fn from_number(number: u32) -> Self {
        Self::new(
            (number / 10_000) as u16,
            (number / 100 % 100) as u16,
            (number % 100) as u16,
        )
    }

    /// Major and minor number, which all releases of a series share.
    pub const fn series(self) -> (u16, u16) {
        (self.major, self.minor)
    }
}

/// Returns whether a server of version `to` may become the primary after one of version `from`. The primary moves from older to newer
/// versions only. An older server may not understand what the newer one wrote: statements, collations, events, and "unsupported" features.
/// Within a long-term series, any release may follow any other.
///
/// Considers these two servers only. The caller decides about further followers that are older than a new primary.
pub fn may_take_over(from: ServerVersion, to: ServerVersion) -> bool {
    match from.series().cmp(&to.series()) {
        Ordering::Less => true,
        // Long-term series receive fixes only: MySQL calls them LTS, and replicates between their releases in both directions. 8.0 is not
        // one of them; its patch releases brought new statements and events.
        Ordering::Equal => matches!(from.series(), (8, 4) | (9, 7)) || from.patch <= to.patch,
        Ordering::Greater => false,
    }
}

/// The error for a text that is not a MySQL version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a MySQL version")]
pub struct VersionError(String);

impl FromStr for ServerVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let numbers = text
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .next()
            .unwrap_or_default();
        let mut parts = numbers.split('.').map(|part| part.parse::<u16>().ok());
        match (parts.next().flatten(), parts.next().flatten(), parts.next()) {
            (Some(major), Some(minor), patch) => {
                Ok(Self::new(major, minor, patch.flatten().unwrap_or(0)))
            }
            _ => Err(VersionError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands(text: &str, comment: &str) -> VersionSupport {
        version_support(text.parse().unwrap(), text, comment)
    }

    #[test]
    fn unproven_versions_need_consent_and_unusable_ones_are_refused() {
        let community = "MySQL Community Server - GPL";
        assert_eq!(stands("9.7.4-2", "(Debian)"), VersionSupport::Proven);
        for (text, comment, message) in [
            (
                "8.0.36",
                community,
                "with MySQL 8.0 these were not proven: trim, XA, GTID persistence, clone",
            ),
            ("8.0.29", community, "not safe in a crash before 8.0.30"),
            ("8.4.3", community, "with MySQL 8.4 these were not proven"),
            ("26.1.0", community, "with MySQL 26.1"),
            (
                "9.7.4-4",
                "Percona Server (GPL), Release 4",
                "Percona Server 9.7.4",
            ),
        ] {
            match stands(text, comment) {
                VersionSupport::Unproven(found) => assert!(found.contains(message), "{found}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        for (text, comment, message) in [
            ("8.0.16", community, "needs 8.0.17 at least"),
            ("5.7.44-log", community, "outside of InnoDB"),
            (
                "5.5.5-10.11.6-MariaDB",
                "Debian 12",
                "it is MariaDB, not MySQL",
            ),
            ("8.0.11-TiDB-v7.5.0", "TiDB Server", "it is TiDB"),
            (
                "8.0.36-28.1",
                "Percona XtraDB Cluster (GPL)",
                "it is Percona XtraDB Cluster",
            ),
            ("8.0.mysql_aurora.3.05.2", "", "it is Amazon Aurora"),
        ] {
            match stands(text, comment) {
                VersionSupport::Refused(found) => assert!(found.contains(message), "{found}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_newer_log_is_refused_by_an_older_server_before_it_begins() {
        let version = |text: &str| text.parse::<ServerVersion>().unwrap();
        let message = cannot_apply(version("9.7.4"), version("8.0.15")).unwrap();
        assert!(message.contains("MySQL 9.7.4") && message.contains("MySQL 8.0.15"));
        assert_eq!(cannot_apply(version("8.0.15"), version("9.7.4")), None);
        assert_eq!(cannot_apply(version("9.7.4"), version("9.7.2")), None);
    }

    #[test]
    fn the_page_shows_the_table() {
        let page = include_str!("../../../docs/versions.md");
        for ((major, minor), release, mechanisms) in PROVEN {
            let cells = MECHANISMS.map(|one| match mechanisms.contains(&one) {
                true => "proven",
                false => "no",
            });
            let row = format!("| {major}.{minor} | {} | {} |", release, cells.join(" | "));
            assert!(
                page.contains(&row),
                "docs/versions.md lacks this row: {row}"
            );
        }
        let rows = page.lines().filter(|line| line.ends_with("proven |"));
        assert_eq!(
            rows.count(),
            PROVEN.len(),
            "rows that the table does not have"
        );
    }
}

#[cfg(test)]
mod server_version_tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let parse = |text: &str| text.parse::<ServerVersion>().unwrap();
        assert_eq!(parse("9.7.4-2"), ServerVersion::new(9, 7, 4));
        assert_eq!(parse("8.0.36-log"), ServerVersion::new(8, 0, 36));
        assert_eq!(parse("26.1"), ServerVersion::new(26, 1, 0));
        assert_eq!(ServerVersion::from_number(90_704), parse("9.7.4"));
        assert!(parse("26.1.0") > parse("9.7.4"));
        assert!(parse("8.0.25") < ServerVersion::SOURCE_REPLICA_NAMES);
        assert!(parse("8.0.100") > ServerVersion::SOURCE_REPLICA_NAMES);
        assert!("mysql".parse::<ServerVersion>().is_err());
        assert!("8".parse::<ServerVersion>().is_err());
    }

    #[test]
    fn the_primary_moves_from_older_to_newer_and_never_back() {
        let parse = |text: &str| text.parse::<ServerVersion>().unwrap();
        for (from, to, back) in [
            // The last column is the answer for the opposite direction.
            ("9.7.4", "9.7.4", true),
            ("8.4.3", "8.4.9", true),
            ("9.7.0", "9.7.4", true),
            ("8.0.30", "8.0.36", false),
            ("8.0.36", "8.4.0", false),
            ("8.4.9", "9.7.0", false),
            ("9.1.0", "9.2.0", false),
            ("9.7.4", "26.1.0", false),
        ] {
            let (older, newer) = (parse(from), parse(to));
            assert!(may_take_over(older, newer), "{from} to {to}");
            assert_eq!(may_take_over(newer, older), back, "{to} back to {from}");
        }
    }
}
