//! A Docker engine: that of the machine, or one started from Debian's packages with data and a socket of its own. Dropping this value ends
//! an engine that was started here.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::bounded_run;
use testkit::mysql_tree::find_on_path;

/// The programs that the container tests need, each with its Debian package.
const PROGRAMS: [(&str, &str); 4] = [
    ("dockerd", "docker.io"),
    ("docker", "docker.io"),
    ("iptables", "iptables"),
    ("debootstrap", "debootstrap"),
];
const INSTALL_LIMIT: Duration = Duration::from_secs(600);
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(30);
const COMMAND_LIMIT: Duration = Duration::from_secs(300);
const BUILD_LIMIT: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(100);

/// The engine that runs the containers.
pub(crate) struct Engine {
    /// The engine that was started here. `None`: the machine's, as in the environment.
    own: Option<Daemon>,
}

struct Daemon {
    process: Child,
    socket: PathBuf,
    _folder: TempDir,
}

impl Engine {
    /// Returns the machine's engine if it answers. Otherwise starts one.
    ///
    /// # Errors
    /// No engine answers, and none can be started. The error states what to install.
    pub(crate) fn find_or_start() -> Result<Self> {
        let machines = Self { own: None };
        install_what_is_missing(machines.answers())?;
        if machines.answers() {
            return Ok(machines);
        }
        let engine = Self {
            own: Some(Daemon::start()?),
        };
        let deadline = Instant::now() + START_LIMIT;
        while !engine.answers() {
            ensure!(
                Instant::now() < deadline,
                "the Docker engine does not answer; see {}",
                log_file().display()
            );
            thread::sleep(LOOK);
        }
        Ok(engine)
    }

    fn answers(&self) -> bool {
        self.docker(&["info", "--format", "{{.ServerVersion}}"])
            .is_ok()
    }

    /// Runs `docker` with these arguments. Returns its output.
    ///
    /// # Errors
    /// The command fails. The error contains its output.
    pub(crate) fn docker(&self, arguments: &[&str]) -> Result<String> {
        let what = format!("docker {}", arguments.join(" "));
        bounded_run::run(&*what, self.command(arguments), Vec::new(), COMMAND_LIMIT)?
            .into_text(&what)
    }

    /// Builds an image from a Dockerfile and its context folder.
    ///
    /// # Errors
    /// The build fails. The error contains its output.
    pub(crate) fn build(&self, tag: &str, dockerfile: &Path, folder: &Path) -> Result<()> {
        let mut command = self.command(&["build", "--quiet", "--tag", tag, "--file"]);
        command.arg(dockerfile).arg(folder);
        let what = format!("docker build of {tag}");
        bounded_run::run(&*what, command, Vec::new(), BUILD_LIMIT)?
            .into_text(&what)
            .map(drop)
    }

    /// Returns a `docker` command that uses this engine.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.args(arguments);
        self.point(command)
    }

    /// Runs the commands of a documentation page in a folder, with additional variables. If the plugin `docker compose` is missing,
    /// `docker-compose` replaces it.
    ///
    /// # Errors
    /// A command fails. The error contains its output.
    pub(crate) fn shell(
        &self,
        commands: &str,
        folder: &Path,
        variables: &[(&str, String)],
    ) -> Result<String> {
        let has_plugin = self.docker(&["compose", "version"]).is_ok();
        let stand_in = match has_plugin {
            true => "",
            false => {
                install(&[("docker-compose", "docker-compose")])?;
                "docker() { if [ \"$1\" = compose ]; then shift; docker-compose \"$@\"; else command docker \"$@\"; fi; }\n"
            }
        };
        let mut command = self.point(Command::new("sh"));
        command
            .args(["-eu", "-c", &format!("{stand_in}{commands}")])
            .current_dir(folder)
            .envs(variables.iter().cloned());
        bounded_run::run(commands, command, Vec::new(), BUILD_LIMIT)?.into_text(commands)
    }

    fn point(&self, mut command: Command) -> Command {
        if let Some(daemon) = &self.own {
            command.env("DOCKER_HOST", format!("unix://{}", daemon.socket.display()));
        }
        command
    }
}

impl Daemon {
    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let data = folder_of_containers().join("engine");
        fs::create_dir_all(&data)?;
        let log = fs::File::create(log_file())?;
        let socket = folder.path().join("docker.sock");
        // `setpriv` ends the engine when this process ends, even if this process is killed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", "dockerd", "--data-root"])
            .arg(&data)
            .arg("--exec-root")
            .arg(folder.path().join("run"))
            .arg("--pidfile")
            .arg(folder.path().join("pid"))
            .arg("--host")
            .arg(format!("unix://{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = command.spawn().context("dockerd does not start")?;
        Ok(Self {
            process,
            socket,
            _folder: folder,
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        if !matches!(
            bounded_run::wait_within(&mut self.process, STOP_LIMIT),
            Ok(Some(_))
        ) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Returns the folder for data that stays between runs, below the target folder.
pub(super) fn folder_of_containers() -> PathBuf {
    testkit::checkout().join("target/containers")
}

fn log_file() -> PathBuf {
    folder_of_containers().join("engine.log")
}

fn install_what_is_missing(has_engine: bool) -> Result<()> {
    fs::create_dir_all(folder_of_containers())?;
    let needed = PROGRAMS
        .iter()
        .filter(|(program, _)| !has_engine || *program == "debootstrap" || *program == "docker");
    install(&needed.copied().collect::<Vec<_>>())
}

/// Installs the packages of those programs that are missing.
fn install(programs: &[(&str, &str)]) -> Result<()> {
    let missing = programs.iter().filter(|(program, _)| {
        find_on_path(program).is_none() && !Path::new("/usr/sbin").join(program).exists()
    });
    let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("install {} as root, and try again", packages.join(" and "));
    if !rustix::process::geteuid().is_root() || find_on_path("apt-get").is_none() {
        bail!("the tests with containers need more programs: {by_hand}");
    }
    eprintln!("containers: installing {}", packages.join(", "));
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&packages);
    for arguments in [&["update"][..], &install] {
        let mut command = Command::new("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        bounded_run::run("apt-get", command, Vec::new(), INSTALL_LIMIT)?
            .into_text("apt-get")
            .with_context(|| by_hand.clone())?;
    }
    Ok(())
}
