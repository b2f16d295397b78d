//! The part of the judgement that is about semi-sync: whether commits wait at all, for whom, and for how long.

use crate::settings::collector::Findings;
use crate::settings::finding::{Check, Fix, Severity};
use crate::settings::limits::Requirements;
use crate::settings::names::SemiSyncNames;
use crate::settings::observed::says_on;

/// A timeout of ten years and more counts as none.
const INFINITE_MS: u64 = 10 * 365 * 24 * 3600 * 1000;
/// What the timeout is set to: larger than any clock will see, and still no overflow inside mysqld.
pub(crate) const TIMEOUT_MS: u64 = 1_000_000_000_000_000_000;

/// Whether a semi-sync timeout is as good as none.
pub fn is_effectively_infinite(milliseconds: u64) -> bool {
    milliseconds >= INFINITE_MS
}

impl Findings<'_> {
    pub(super) fn no_semi_sync(&mut self) {
        let names = SemiSyncNames::of_version(self.observed.version);
        let mut fix = vec![format!(
            "INSTALL PLUGIN {} SONAME '{}'",
            names.plugin(),
            names.library()
        )];
        if self.observed.is_super_read_only() {
            fix.insert(0, "SET GLOBAL super_read_only = OFF".to_owned());
            fix.push("SET GLOBAL super_read_only = ON".to_owned());
        }
        self.add(
            Check::SemiSyncPlugin,
            Severity::Unprotected,
            "the semi-sync source plugin is not loaded",
            "commits do not wait for anybody",
            Fix::Sql(fix),
        );
    }

    pub(super) fn semi_sync(&mut self, names: SemiSyncNames, requirements: &Requirements) {
        let unprotected = Severity::Unprotected;
        let timeout = self
            .observed
            .variable(&names.timeout())
            .and_then(|value| value.parse::<u64>().ok());
        if let Some(milliseconds) =
            timeout.filter(|milliseconds| !is_effectively_infinite(*milliseconds))
        {
            self.add(
                Check::SemiSyncTimeout,
                unprotected,
                format!("{} is {milliseconds} ms", names.timeout()),
                "after that time a commit goes on without the ring",
                Fix::sql(format!("SET PERSIST {} = {TIMEOUT_MS}", names.timeout())),
            );
        }
        for (check, name, expected, why) in [
            (
                Check::SemiSyncReplicaCount,
                names.replica_count(),
                "1",
                "the member beside the primary is the only one that acknowledges",
            ),
            (
                Check::SemiSyncWaitNoReplica,
                names.wait_no_replica(),
                "ON",
                "commits would go on without the ring while the member is not attached",
            ),
            (
                Check::SemiSyncWaitPoint,
                names.wait_point(),
                "AFTER_SYNC",
                "others would see a transaction before the ring has it",
            ),
            (
                Check::SemiSyncEnabled,
                names.enabled(),
                "ON",
                "commits do not wait for the ring",
            ),
        ] {
            let fix = Fix::sql(format!("SET PERSIST {name} = {}", quoted(expected)));
            self.expect(check, unprotected, &name, expected, why, fix);
        }
        let enabled = self.observed.is_on(&names.enabled());
        if enabled
            && self
                .observed
                .status(&names.status())
                .is_some_and(|status| !says_on(status))
        {
            self.add(
                Check::SemiSyncStatus,
                unprotected,
                format!("{} is OFF although semi-sync is enabled", names.status()),
                "it has given up waiting (a timeout), and commits go on without the ring until the member has caught up",
                Fix::Manual(
                    "let the member attach: its ACKs turn it on again; and check why the timeout was finite".to_owned(),
                ),
            );
        }
        self.foreign_ackers(names, requirements);
    }

    fn foreign_ackers(&mut self, names: SemiSyncNames, requirements: &Requirements) {
        let why = "its ACK counts too, so a commit may go on without the ring";
        let fix = || {
            Fix::Manual(
                "on that replica: SET PERSIST rpl_semi_sync_replica_enabled = OFF; STOP REPLICA IO_THREAD; START \
                 REPLICA IO_THREAD"
                    .to_owned(),
            )
        };
        if let Some(replicas) = &self.observed.semi_sync_replicas {
            for replica in replicas
                .iter()
                .filter(|replica| replica.uuid != Some(requirements.replica_uuid))
            {
                let who = replica
                    .uuid
                    .map_or_else(|| "without a UUID".to_owned(), |uuid| uuid.to_string());
                let found = format!(
                    "another semi-sync replica is attached: {who}, connection {}",
                    replica.connection_id
                );
                self.add(
                    Check::ForeignAcker,
                    Severity::Unprotected,
                    found,
                    why,
                    fix(),
                );
            }
            return;
        }
        // Without a look at who they are, only their number tells.
        let clients = self
            .observed
            .status(&names.clients())
            .and_then(|count| count.parse::<u64>().ok());
        if let Some(count) = clients.filter(|count| *count > 1) {
            let found = format!("{count} semi-sync replicas are attached");
            self.add(
                Check::ForeignAcker,
                Severity::Unprotected,
                found,
                why,
                fix(),
            );
        }
    }
}

/// Words need quotes in `SET`, numbers and ON must not have them.
pub(crate) fn quoted(value: &str) -> String {
    if value == "ON" || value.bytes().all(|byte| byte.is_ascii_digit()) {
        value.to_owned()
    } else {
        format!("'{value}'")
    }
}
