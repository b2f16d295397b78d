//! Tests a member in mode `external` with the package `witness-external-mysqld`. systemd must kill the mysqld of a failed member. It must
//! not kill a mysqld that the member does not manage: after a failed start of a member, or after `witness disable-raft`.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::mysql_tree::MysqlTree;

use super::{Host, LIMIT, LOOK, options_there, words_there};

/// The section `[mysql]` for mode `external`. It replaces the section of a member that starts its mysqld itself.
const EXTERNAL: &str = r#"[mysql]
mode = "external"
datadir = "/var/lib/witness/mysql"
socket = "/var/lib/witness/mysqld.sock"
log_bin = "binlog"
start_command = ["systemctl", "start", "mysql"]
stop_command = ["systemctl", "stop", "mysql"]
kill_command = ["systemctl", "kill", "--signal=KILL", "mysql"]
"#;
const RECORD: &str = "/run/witness/managed-mysqld";
/// How long the test waits after a failure of the member, until systemd has run its actions.
const SETTLED: Duration = Duration::from_secs(3);

/// Returns the unit of a mysqld with the options of the package.
pub(super) fn mysqld_unit(tree: &MysqlTree) -> String {
    let mut words = words_there(tree, &tree.mysqld);
    words.push("--defaults-file=/usr/share/witness/external-mysqld.cnf".to_owned());
    words.extend(options_there(tree));
    words.extend(
        [
            "--datadir=/var/lib/witness/mysql",
            "--socket=/var/lib/witness/mysqld.sock",
            "--mysqlx=OFF",
            "--secure-file-priv=",
            "--innodb-buffer-pool-size=64M",
        ]
        .map(str::to_owned),
    );
    let words = words.join(" ");
    format!("[Service]\nType=exec\nUser=mysql\nTimeoutStopSec=60\nExecStart={words}\n")
}

impl Host<'_> {
    pub(super) fn kills_a_managed_mysqld(&self) -> Result<()> {
        let unit = &self.mysqld_unit;
        self.machine.run(&format!(
            "cat >/etc/systemd/system/mysql.service <<'E'\n{unit}E\nsystemctl daemon-reload"
        ))?;
        let (before, rest) = self.configuration.split_once("[mysql]").unwrap_or_default();
        let (_, members) = rest.split_once("[[members]]").unwrap_or_default();
        let configuration = format!("{before}{EXTERNAL}\n[[members]]{members}");
        self.machine.run(&format!(
            "cat >/etc/witness/witness.toml <<'E'\n{configuration}E\ncp -a /etc/witness/witness.toml /root/right.toml"
        ))?;
        self.machine.run("systemctl start witness")?;
        self.until("witness status", "  primary  ")?;
        let mysqld = self.process_of("mysql")?;
        self.until(&format!("cat {RECORD}"), &format!("{mysqld} "))?;
        self.machine
            .run(&format!("kill -STOP {}", self.process()?))?;
        let deadline = Instant::now() + LIMIT;
        while [&mysqld, "0"].contains(&&*self.process_of("mysql")?) {
            ensure!(
                Instant::now() < deadline,
                "the mysqld of a member that hung is not killed and started again"
            );
            thread::sleep(LOOK);
        }
        self.until("witness status", "  primary  ")
    }

    pub(super) fn leaves_an_unmanaged_mysqld_alone(&self) -> Result<()> {
        self.machine
            .run("witness disable-raft --config /etc/witness/witness.toml --yes")?;
        self.machine.run(&format!("test ! -e {RECORD}"))?;
        let mysqld = self.process_of("mysql")?;
        let fails = |what: &str, how: &str| -> Result<()> {
            self.machine.run(how)?;
            thread::sleep(SETTLED);
            let now = self.process_of("mysql")?;
            ensure!(
                now == mysqld,
                "{what}: mysqld, which no member manages, is process {now} in the place of {mysqld}"
            );
            Ok(())
        };
        let die = "kill -KILL $(systemctl show witness --property MainPID --value)";
        fails("a member dies that has released it", die)?;
        let typo = "echo 'data_durr = 1' >>/etc/witness/witness.toml; ! systemctl restart witness";
        fails("a member has a wrong configuration", typo)?;
        let again =
            "cp -a /root/right.toml /etc/witness/witness.toml; systemctl reset-failed witness";
        let taken = "systemd-run --unit=holder systemd-socket-activate -l 7400 /bin/true; sleep 1; systemctl start --no-block witness";
        fails("the member's port is in use", &format!("{again}; {taken}"))?;
        // A member without a ring, as before `witness enable-raft`.
        let fresh = "systemctl stop witness holder; sed -i 's#^data_dir = .*#data_dir = \"/var/lib/witness/fresh\"#' /etc/witness/witness.toml; systemctl start witness";
        fails("a member starts that has no ring", fresh)?;
        fails("a member dies that has no ring", die)?;

        self.machine
            .run("systemctl stop witness mysql; rm /etc/systemd/system/mysql.service /var/lib/witness/hands-off")?;
        self.machine
            .run("apt-get purge --yes witness-external-mysqld")?;
        self.says("systemctl show witness --property User", "User=witness")?;
        self.machine.run(&format!(
            "cat >/etc/witness/witness.toml <<'E'\n{}E\nsystemctl start witness",
            self.configuration
        ))?;
        self.until("witness status", "  primary  ")
    }
}
