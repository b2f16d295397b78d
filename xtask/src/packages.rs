//! `cargo xtask packages`: uses the Debian packages in a clean Debian stable, as an administrator would. Installs, configures and starts a
//! member, lets it hang, upgrades it while it runs, and removes it. Prints the confinement of the unit and the time of each part.

mod external;
mod quick_start;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use testkit::mysql_tree::MysqlTree;

use crate::docker::{Engine, Machine, provide_images};
use crate::{dist, mysql};

const LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(250);
/// Limit for the exposure that `systemd-analyze security` reports, in tenths.
const MOST_EXPOSED: u32 = 15;

#[derive(Args)]
pub(crate) struct Options {
    /// Pack the programs `witness` and `examples/manual` of this folder instead of building them
    #[arg(long, value_name = "DIR")]
    built_in: Option<PathBuf>,
    /// Run docs/quick-start.md instead, on three hosts
    #[arg(long)]
    quick_start: bool,
}

/// Runs the test with a program that is already built and the files in its folder.
pub(crate) fn run_short(program: &Path) -> Result<()> {
    run(&Options {
        built_in: program.parent().map(Path::to_path_buf),
        quick_start: false,
    })
}

/// Runs the task.
pub(crate) fn run(options: &Options) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let next = format!("{version}+next");
    let first = packages(options, version)?;
    let engine = Engine::find_or_start()?;
    provide_images(&engine)?;
    let name = format!("witness-packages-{}", std::process::id());
    let tree = mysql::provide_unpacked()?;
    if options.quick_start {
        return quick_start::run(&engine, &tree, &first);
    }
    let second = packages(options, &next)?;
    let shared = (&*MysqlTree::folder(), MYSQL_PLACE);
    let host = Host {
        machine: Machine::boot(&engine, &name, shared, None)?,
        configuration: configuration(&tree),
        mysqld_unit: external::mysqld_unit(&tree),
    };
    host.machine.copy(&first, "/root/first")?;
    host.machine.copy(&second, "/root/second")?;
    let steps: [(&str, &dyn Fn() -> Result<()>); 10] = [
        ("installed", &|| host.is_installed(version)),
        ("confined", &|| host.is_confined()),
        ("started", &|| host.is_started()),
        ("started again when it hung", &|| host.is_started_again()),
        ("left down with a wrong configuration", &|| {
            host.stays_down()
        }),
        ("upgraded under way", &|| host.is_upgraded(version, &next)),
        ("with a mysqld of systemd's", &|| host.runs_with_a_mysqld()),
        ("mysqld killed after its member hung", &|| {
            host.kills_a_managed_mysqld()
        }),
        ("a released mysqld left alone by members that fail", &|| {
            host.leaves_an_unmanaged_mysqld_alone()
        }),
        ("removed", &|| host.is_removed()),
    ];
    for (what, step) in steps {
        let begun = Instant::now();
        step()?;
        println!("packages: {what} ({:.1} s)", begun.elapsed().as_secs_f64());
    }
    Ok(())
}

fn packages(options: &Options, version: &str) -> Result<PathBuf> {
    let out = testkit::checkout().join("target/packages").join(version);
    dist::build(&dist::Options {
        out: out.clone(),
        package_version: Some(version.to_owned()),
        built_in: options.built_in.clone(),
    })?;
    Ok(out)
}

/// The clean system, with the packages.
struct Host<'e> {
    machine: Machine<'e>,
    /// The member's configuration, as an administrator would write it.
    configuration: String,
    /// The unit of a mysqld that systemd starts on the data of the member's mysqld.
    mysqld_unit: String,
}

impl Host<'_> {
    fn is_installed(&self, version: &str) -> Result<()> {
        self.machine
            .run("cd /root/first && sha256sum --check --quiet SHA256SUMS")?;
        let said = self
            .machine
            .run("apt-get install --yes --no-install-recommends /root/first/witness_*.deb")?;
        ensure!(
            said.contains("systemctl enable --now witness"),
            "it does not say how to continue: {said}"
        );
        self.says("witness version", version)?;
        self.says(
            "stat -c '%a %U %G' /etc/witness/witness.toml",
            "640 root witness",
        )?;
        let missing = "/etc/witness/tls/member.crt cannot be read";
        self.says("witness config check || true", missing)?;
        self.says("systemctl is-enabled witness || true", "disabled")?;
        self.machine
            .run("zcat /usr/share/man/man1/witness-switchover.1.gz | grep -q switchover")?;
        self.machine
            .run("bash -n /usr/share/bash-completion/completions/witness")?;
        self.machine
            .run("systemd-analyze verify --man=no /usr/lib/systemd/system/witness.service")?;
        Ok(())
    }

    fn is_confined(&self) -> Result<()> {
        let said = self
            .machine
            .run("systemd-analyze security --no-pager witness.service | tail -1")?;
        println!("packages: systemd-analyze security: {}", said.trim());
        let tenths: String = said.chars().filter(char::is_ascii_digit).collect();
        ensure!(
            tenths.parse::<u32>()? <= MOST_EXPOSED,
            "the unit is less confined than it was: {said}"
        );
        Ok(())
    }

    /// Creates a ring of one database member with its own mysqld, as the documentation describes.
    fn is_started(&self) -> Result<()> {
        self.machine.run(&format!(
            "cat >/etc/witness/witness.toml <<'E'\n{}E",
            self.configuration
        ))?;
        self.machine.run("systemctl enable --now witness")?;
        self.says("witness bootstrap --yes", "ring `orders` exists")?;
        self.until("witness status", "  primary  ")?;
        let owners = "stat -c %U /var/lib/witness/log /var/lib/witness/mysql | uniq";
        ensure!(self.machine.run(owners)? == "witness\n");
        Ok(())
    }

    fn is_started_again(&self) -> Result<()> {
        let before = self.process()?;
        self.machine.run(&format!("kill -STOP {before}"))?;
        let deadline = Instant::now() + LIMIT;
        while self.process()? == before || !self.machine.try_run("systemctl is-active witness")?.0 {
            ensure!(
                Instant::now() < deadline,
                "a member that hangs is not started again"
            );
            thread::sleep(LOOK);
        }
        self.until("witness status", "  primary  ")
    }

    fn stays_down(&self) -> Result<()> {
        self.machine.run("cp -a /etc/witness/witness.toml /root/right.toml; echo 'data_durr = 1' >>/etc/witness/witness.toml")?;
        let (started, _) = self.machine.try_run("systemctl restart witness")?;
        ensure!(!started, "it starts with a wrong configuration");
        thread::sleep(Duration::from_secs(3));
        self.says("systemctl is-active witness || true", "failed")?;
        self.says(
            "journalctl --unit witness --no-pager | tail -20",
            "data_durr",
        )?;
        self.machine.run("cp -a /root/right.toml /etc/witness/witness.toml; systemctl reset-failed witness; systemctl start witness")?;
        self.until("witness status", "  primary  ")
    }

    /// Upgrades the package, which must not restart the member. The administrator chooses when to restart it.
    fn is_upgraded(&self, version: &str, next: &str) -> Result<()> {
        let before = self.process()?;
        let said = self
            .machine
            .run("apt-get install --yes /root/second/witness_*.deb")?;
        ensure!(
            said.contains("until you restart it"),
            "it does not say that the former version runs: {said}"
        );
        ensure!(
            self.process()? == before,
            "the upgrade from {version} restarted the member"
        );
        self.says("dpkg-query -W -f '${Version}' witness", next)?;
        self.says("cat /etc/witness/witness.toml", "127.0.0.1:7400")?;
        self.machine.run("systemctl restart witness")?;
        self.until("witness status", "  primary  ")
    }

    /// Checks the package for an external mysqld. A placeholder unit takes the place of mysqld's, and the account `mysql` is created.
    fn runs_with_a_mysqld(&self) -> Result<()> {
        self.machine
            .run("systemctl stop witness; useradd --system --user-group mysql")?;
        for unit in ["mysql", "other"] {
            self.machine.run(&format!("printf '[Service]\\nExecStart=/bin/sleep infinity\\n' >/etc/systemd/system/{unit}.service"))?;
        }
        self.machine.run("apt-get update && apt-get install --yes --no-install-recommends /root/second/witness-external-mysqld_*.deb util-linux")?;
        self.says("systemctl show witness --property User", "User=mysql")?;
        self.says(
            "systemctl show witness --property KillMode",
            "KillMode=process",
        )?;
        self.says("systemctl show mysql --property Restart", "Restart=no")?;
        // systemd must start the member again without a limit, and the member must not start mysqld before its checks.
        let limit = "StartLimitIntervalUSec=0";
        self.says(
            "systemctl show witness --property StartLimitIntervalUSec",
            limit,
        )?;
        self.machine.run("systemctl start witness")?;
        self.says("systemctl show mysql --property MainPID", "MainPID=0")?;
        self.machine.run("systemctl stop witness")?;
        let readable = "stat -c %G /etc/witness/witness.toml";
        self.says(readable, "mysql")?;
        self.machine
            .run("apt-get install --reinstall --yes /root/second/witness_*.deb")?;
        self.says(readable, "mysql")?;
        self.machine
            .run("runuser -u mysql -- systemctl start mysql && systemctl is-active mysql")?;
        self.machine
            .run("runuser -u mysql -- systemctl kill --signal=KILL mysql")?;
        let (allowed, said) = self
            .machine
            .try_run("runuser -u mysql -- systemctl start other")?;
        ensure!(!allowed, "the account mysql may start any unit: {said}");
        Ok(())
    }

    fn is_removed(&self) -> Result<()> {
        let said = self.machine.run("apt-get purge --yes witness")?;
        ensure!(
            said.contains("holds a member's data, and stays"),
            "it does not say that the data stay: {said}"
        );
        self.machine
            .run("test -e /var/lib/witness/log/binlog.000001 && ! pgrep -x witness")?;
        // Removes the package once more, after the data was deleted.
        self.machine.run("apt-get install --yes /root/second/witness_*.deb && rm -r /var/lib/witness && apt-get purge --yes witness")?;
        let left = self.machine.run(
            "find / -xdev \\( -path /proc -o -path /sys -o -path /root -o -path /var/log \\) -prune -o -iname '*witness*' -print; getent passwd witness || true",
        )?;
        ensure!(left.is_empty(), "something is left: {left}");
        Ok(())
    }

    fn process(&self) -> Result<String> {
        self.process_of("witness")
    }

    fn process_of(&self, unit: &str) -> Result<String> {
        let shown = format!("systemctl show {unit} --property MainPID --value");
        Ok(self.machine.run(&shown)?.trim().to_owned())
    }

    fn says(&self, command: &str, wanted: &str) -> Result<()> {
        let said = self.machine.run(command)?;
        ensure!(
            said.contains(wanted),
            "`{command}` should say `{wanted}`, and says: {said}"
        );
        Ok(())
    }

    fn until(&self, command: &str, wanted: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let (succeeded, said) = self.machine.try_run(command)?;
            if succeeded && said.contains(wanted) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "`{command}` does not come to say `{wanted}`: {said}"
            );
            thread::sleep(LOOK);
        }
    }
}

/// The folder of the unpacked MySQL on the host.
const MYSQL_PLACE: &str = "/opt/mysql";

/// Returns the command line of one of MySQL's programs on the host.
fn words_there(tree: &MysqlTree, program: &Path) -> Vec<String> {
    let here = MysqlTree::folder().display().to_string();
    let words = tree.words(program).into_iter();
    words
        .map(|word| word.to_string_lossy().replace(&here, MYSQL_PLACE))
        .collect()
}

/// Returns the options with mysqld's folders on the host.
fn options_there(tree: &MysqlTree) -> Vec<String> {
    let here = MysqlTree::folder().display().to_string();
    let options = tree.server_options().into_iter();
    options
        .map(|option| option.replace(&here, MYSQL_PLACE))
        .collect()
}

fn configuration(tree: &MysqlTree) -> String {
    let mysqld = words_there(tree, &tree.mysqld);
    let mut options = options_there(tree);
    options.extend(
        [
            "--mysqlx=OFF",
            "--secure-file-priv=",
            "--innodb-buffer-pool-size=64M",
        ]
        .map(str::to_owned),
    );
    format!(
        r#"data_dir = "/var/lib/witness"
ring.name = "orders"
member.id = 1

[mysql]
mysqld = {mysqld:?}
datadir = "/var/lib/witness/mysql"
extra_args = {options:?}

[[members]]
id = 1
name = "db-1"
region = "north"
kind = "database"
address = "127.0.0.1:7400"
"#
    )
}
