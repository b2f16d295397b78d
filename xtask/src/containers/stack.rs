//! The containers of `containers/compose.yaml` in the test. Dropping this value removes them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use testkit::bounded_run;
use testkit::bounded_run::Finished;
use testkit::cluster::{Profile, http_get, program};
use testkit::documentation::shell_blocks;
use testkit::ports::free_addresses;
use testkit::wait::{eventually, try_eventually};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::containers::say;
use crate::docker::Engine;

const PROJECT: &str = "witness-containers";
const OVERRIDES: &str = "overrides.yaml";
const PAGE: &str = "docs/containers.md";
/// The metric with the expiry of certificates, and the label for a member's own certificate.
const CERTIFICATE_EXPIRES: [&str; 2] = [
    "witness_certificate_expiry_timestamp_seconds{",
    "key=\"tls.certificate_file\"",
];
/// The member that the page's commands upgrade.
const UPGRADED: &str = "north-w1";
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const HTTP: u16 = 7480;
/// Time limit for all members to answer. The machine initialises three mysqlds in parallel.
const START_LIMIT: Duration = Duration::from_secs(180);

/// A member of the ring. The service of its container has the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) region: &'static str,
    address: Ipv4Addr,
}

const fn member(name: &'static str, region: &'static str, subnet: u8, host: u8) -> Member {
    Member {
        name,
        region,
        address: Ipv4Addr::new(10, 90, subnet, host),
    }
}

/// The members, as in `containers/witness.toml`.
pub(super) const MEMBERS: [Member; 9] = [
    member("north-db", "north", 1, 11),
    member("north-w1", "north", 1, 12),
    member("north-w2", "north", 1, 13),
    member("south-db", "south", 2, 11),
    member("south-w1", "south", 2, 12),
    member("south-w2", "south", 2, 13),
    member("west-db", "west", 3, 11),
    member("west-w1", "west", 3, 12),
    member("west-w2", "west", 3, 13),
];

impl Member {
    pub(super) fn has_mysqld(self) -> bool {
        self.name.ends_with("-db")
    }

    /// Sends a request to the member over HTTPS. `None`: the member does not answer.
    fn ask(self, path: &str, agent: &Agent) -> Option<(u16, String)> {
        let address = SocketAddr::from((self.address, HTTP));
        let answer = agent.get(format!("https://{address}{path}")).call();
        let mut answer = answer.ok()?;
        let body = answer.body_mut().read_to_string().ok()?;
        Some((answer.status().as_u16(), body))
    }

    fn says_yes(self, path: &str, agent: &Agent) -> bool {
        let answer = self.ask(path, agent);
        answer.is_some_and(|(status, _)| status == 200)
    }
}

/// Returns an HTTP client that trusts this authority. Each request uses a connection of its own.
fn agent_of(authority: &Path) -> Result<Agent> {
    let authority = fs::read(authority).context("there is no authority")?;
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(vec![Certificate::from_pem(
            &authority,
        )?])))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = Agent::config_builder()
        .timeout_global(Some(ANSWER_LIMIT))
        .http_status_as_error(false)
        .max_idle_connections(0)
        .proxy(None)
        .tls_config(tls.build());
    Ok(config.build().into())
}

pub(super) fn databases() -> impl Iterator<Item = Member> {
    MEMBERS.into_iter().filter(|member| member.has_mysqld())
}

pub(super) struct Stack<'e> {
    engine: &'e Engine,
    /// A folder like a checkout after `cargo xtask dist`.
    folder: TempDir,
    /// Environment variables for the page's commands, specific to this machine.
    variables: Vec<(&'static str, String)>,
    pub(super) writes: SocketAddr,
    prometheus: SocketAddr,
    /// The HTTP client. Set after the certificates exist.
    agent: OnceLock<Agent>,
}

impl<'e> Stack<'e> {
    /// Builds the images, starts all containers and bootstraps the ring, with the commands of the page's quick start.
    ///
    /// # Errors
    /// A command fails.
    pub(super) fn up(engine: &'e Engine, folder: TempDir) -> Result<Self> {
        let ports = free_addresses(3)?;
        let [writes, reads, prometheus] = ports[..] else {
            bail!("three ports were asked for");
        };
        let port = |address: SocketAddr| address.port().to_string();
        let stack = Self {
            engine,
            folder,
            variables: vec![
                ("COMPOSE_PROJECT_NAME", PROJECT.to_owned()),
                ("COMPOSE_FILE", format!("compose.yaml:{OVERRIDES}")),
                ("WRITES_PORT", port(writes)),
                ("READS_PORT", port(reads)),
                ("PROMETHEUS_PORT", port(prometheus)),
            ],
            writes,
            prometheus,
            agent: OnceLock::new(),
        };
        fs::write(stack.place().join(OVERRIDES), delay_without_netem()?)?;
        // Removes the containers that a killed run has left.
        stack.down()?;
        let blocks = shell_blocks(PAGE, "Quick start")?;
        let [images, certificates, start, create, clients] = &blocks[..] else {
            bail!("{PAGE} has another quick start than this test");
        };
        let begun = Instant::now();
        // `cargo xtask dist` is replaced by an empty command, because its results exist already.
        let images = format!("cargo() {{ [ \"$*\" = 'xtask dist' ]; }}\n{images}");
        stack.shell(stack.folder.path(), &images)?;
        say("images", begun);
        let begun = Instant::now();
        stack.shell(&stack.place(), certificates)?;
        let agent = agent_of(&stack.place().join("tls/ca.crt"))?;
        let agent = stack.agent.get_or_init(|| agent);
        stack.shell(&stack.place(), start)?;
        eventually("all members answer", START_LIMIT, || {
            MEMBERS
                .iter()
                .all(|member| member.says_yes("/liveness", agent))
        })
        .with_context(|| stack.last_words())?;
        let distance = stack.distance()?;
        println!("containers: {distance}");
        ensure!(
            distance.ends_with("apart"),
            "the router does not delay what goes from one region to another\n{}",
            stack.last_words()
        );
        for commands in [create, clients] {
            let done = stack.shell(&stack.place(), commands);
            done.with_context(|| stack.last_words())?;
        }
        say("from nothing to an account for clients", begun);
        Ok(stack)
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("containers")
    }

    fn shell(&self, folder: &Path, commands: &str) -> Result<String> {
        self.engine.shell(commands, folder, &self.variables)
    }

    /// Waits until a member is the primary, and returns that member.
    ///
    /// # Errors
    /// There is no primary within the limit.
    pub(super) fn primary(&self, limit: Duration) -> Result<Member> {
        let agent = self.agent()?;
        eventually("there is a primary", limit, || {
            databases().find(|member| member.says_yes("/primary", agent))
        })
        .with_context(|| self.last_words())
    }

    /// Waits until a member has its usual role, and its lag is at most two seconds.
    ///
    /// # Errors
    /// This does not happen within the limit.
    pub(super) fn is_back(&self, member: Member, limit: Duration) -> Result<()> {
        let path = match member.has_mysqld() {
            true => "/read-only?lag=2s",
            false => "/readiness",
        };
        let what = format!("{} is back", member.name);
        let agent = self.agent()?;
        eventually(&what, limit, || member.says_yes(path, agent))
            .with_context(|| format!("{path}: {:?}", member.ask(path, agent)))
            .with_context(|| self.last_words())
    }

    fn agent(&self) -> Result<&Agent> {
        self.agent.get().context("there are no certificates yet")
    }

    /// Runs a command as an operator. Returns its output.
    ///
    /// # Errors
    /// The command fails.
    pub(super) fn order_ring(&self, arguments: &[&str]) -> Result<String> {
        let words = arguments.join(" ");
        let command = format!("docker compose run --rm --no-deps -T operator {words}");
        self.shell(&self.place(), &command)
    }

    /// Runs `witness` in a member's container. The result contains a failure of the program.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(super) fn try_witness(&self, member: Member, arguments: &[&str]) -> Result<Finished> {
        let container = self.container(member.name)?;
        let command = [&["exec", &container, "witness"][..], arguments].concat();
        let what = format!("witness {}", arguments.join(" "));
        bounded_run::run(
            &*what,
            self.engine.command(&command),
            Vec::new(),
            COMMAND_LIMIT,
        )
    }

    /// Runs statements as `root` in a member's mysqld. Returns their output.
    ///
    /// # Errors
    /// A statement fails.
    pub(super) fn sql(&self, member: Member, statements: &str) -> Result<String> {
        let container = self.container(member.name)?;
        self.engine.docker(&[
            "exec",
            "--env",
            "MYSQL_PWD=root-password",
            &container,
            "mysql",
            "--no-defaults",
            "--user=root",
            "--socket=/var/lib/witness/mysqld.sock",
            "--batch",
            "--skip-column-names",
            "--execute",
            statements,
        ])
    }

    /// Runs a Docker command on members' containers: `kill`, `pause`, `unpause`, `start`.
    ///
    /// # Errors
    /// Docker refuses the command.
    pub(super) fn order(&self, what: &str, members: &[Member]) -> Result<()> {
        let mut command = vec![what.to_owned()];
        for member in members {
            command.push(self.container(member.name)?);
        }
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        self.engine.docker(&command).map(drop)
    }

    /// Disconnects a member from the network of its region.
    ///
    /// # Errors
    /// Docker refuses the command.
    pub(super) fn cut_off(&self, member: Member) -> Result<()> {
        let container = self.container(member.name)?;
        let network = network(member);
        self.engine
            .docker(&["network", "disconnect", &network, &container])
            .map(drop)
    }

    /// Connects a member to the network of its region again.
    ///
    /// # Errors
    /// Docker refuses the command.
    pub(super) fn connect(&self, member: Member) -> Result<()> {
        let container = self.container(member.name)?;
        let (network, address) = (network(member), member.address.to_string());
        self.engine
            .docker(&["network", "connect", "--ip", &address, &network, &container])
            .map(drop)
    }

    /// Replaces a member's container by one of the next version, with the commands of the page.
    ///
    /// # Errors
    /// The new container cannot be started.
    pub(super) fn replace(&self, member: Member) -> Result<()> {
        for image in ["witness", "witness-database"] {
            self.engine
                .docker(&["tag", image, &format!("{image}:next")])?;
        }
        let commands = shell_blocks(PAGE, "Upgrade")?.join("\n");
        ensure!(
            commands.contains(UPGRADED),
            "{PAGE} upgrades another member"
        );
        self.shell(&self.place(), &commands.replace(UPGRADED, member.name))?;
        let container = self.container(member.name)?;
        let image = ["inspect", "--format", "{{.Config.Image}}", &container];
        let image = self.engine.docker(&image)?;
        ensure!(
            image.trim().ends_with(":next"),
            "{} still has {image}",
            member.name
        );
        Ok(())
    }

    /// Gives each member a new certificate, with the commands of the page.
    ///
    /// # Errors
    /// A member continues to use its old certificate.
    pub(super) fn renew_certificates(&self) -> Result<()> {
        let before = self.expiries()?;
        let commands = shell_blocks(PAGE, "Renew certificates")?.join("\n");
        self.shell(&self.place(), &commands)?;
        for ((member, before), after) in MEMBERS.iter().zip(before).zip(self.expiries()?) {
            ensure!(
                after != before,
                "{} continues with its certificate: {after}",
                member.name
            );
        }
        Ok(())
    }

    /// Returns the metric with the expiry of each member's certificate, as the member last read it.
    fn expiries(&self) -> Result<Vec<String>> {
        let agent = self.agent()?;
        let expiry = |member: &Member| {
            let (_, metrics) = member.ask("/metrics", agent)?;
            let mut lines = metrics.lines();
            let is_it = |line: &&str| CERTIFICATE_EXPIRES.iter().all(|part| line.contains(part));
            lines.find(is_it).map(str::to_owned)
        };
        let of = |member: &Member| {
            let missing = || format!("{} does not say when its certificate expires", member.name);
            expiry(member).with_context(missing)
        };
        MEMBERS.iter().map(of).collect()
    }

    /// Returns the names of the alerts in Prometheus that have this state: `firing` or `pending`.
    ///
    /// # Errors
    /// Prometheus does not answer.
    pub(super) fn alerts(&self, state: &str) -> Result<Vec<String>> {
        let answer = http_get(self.prometheus, "/api/v1/alerts")?.json()?;
        let alerts = answer["data"]["alerts"].as_array();
        let alerts = alerts.context("Prometheus lists no alerts")?.iter();
        let named = alerts.filter(|alert| alert["state"] == state);
        let mut names: Vec<String> = named
            .filter_map(|alert| Some(alert["labels"]["alertname"].as_str()?.to_owned()))
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Returns the router's report of the delays between the regions. Waits for it, because members may answer before the routes exist.
    fn distance(&self) -> Result<String> {
        let router = self.container("router")?;
        try_eventually(
            "the router says how far the regions are",
            COMMAND_LIMIT,
            || {
                let words = self.engine.docker(&["logs", &router])?;
                Ok(words.lines().last().map(str::to_owned))
            },
        )
        .with_context(|| self.last_words())
    }

    fn container(&self, service: &str) -> Result<String> {
        let project = format!("label=com.docker.compose.project={PROJECT}");
        let service = format!("label=com.docker.compose.service={service}");
        let found = self.engine.docker(&[
            "ps", "--all", "--quiet", "--filter", &project, "--filter", &service,
        ])?;
        let mut found = found.split_whitespace();
        match (found.next(), found.next()) {
            (Some(container), None) => Ok(container.to_owned()),
            (None, _) => bail!("there is no container with {service}"),
            _ => bail!("there are several containers with {service}"),
        }
    }

    fn down(&self) -> Result<()> {
        self.shell(
            &self.place(),
            "docker compose down --volumes --remove-orphans --timeout 1",
        )
        .map(drop)
    }

    /// Returns the last lines of the containers' output.
    pub(super) fn last_words(&self) -> String {
        let words = |service: &str| {
            let container = self.container(service).unwrap_or_default();
            let mut command = self.engine.command(&["logs", "--tail", "15", &container]);
            command.stdin(std::process::Stdio::null());
            let said = bounded_run::run("docker logs", command, Vec::new(), LOOK * 100);
            let said = said.map(|done| [done.stdout, done.stderr].concat());
            let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
            format!("── {service} ──\n{said}")
        };
        let services = MEMBERS.iter().map(|member| member.name);
        services.chain(["haproxy", "router"]).map(words).collect()
    }
}

impl Drop for Stack<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.down() {
            eprintln!("containers: {error:#}");
        }
    }
}

fn network(member: Member) -> String {
    format!("{PROJECT}_{}", member.region)
}

/// Returns a compose file with which the router delays packets with this program, if the kernel lacks netem.
fn delay_without_netem() -> Result<String> {
    // Mounts the built program, not the running one: the tests may have recompiled it, so that the running file no longer exists.
    let program = program(Profile::Dev, "xtask");
    ensure!(
        program.is_file(),
        "`{}` is not there: run this by `cargo xtask`",
        program.display()
    );
    let program = program
        .to_str()
        .context("the path of this program is no text")?;
    let program = serde_json::to_string(&format!("{program}:/usr/local/bin/xtask:ro"))?;
    Ok(format!(
        "services:\n  router:\n    volumes: [{program}]\n    devices: [/dev/net/tun]\n    sysctls:\n      net.ipv4.conf.all.rp_filter: 0\n      \
         net.ipv4.conf.default.rp_filter: 0\n    environment:\n      DELAY: /usr/local/bin/xtask delay\n"
    ))
}
