//! A container that acts as a host: systemd is its first process, and packages can be installed. Dropping this value removes the container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use testkit::bounded_run;

use crate::docker::base_image::WITH_SYSTEMD;
use crate::docker::engine::{Engine, folder_of_containers};

const BOOT_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

/// A container that acts as a host.
pub(crate) struct Machine<'e> {
    engine: &'e Engine,
    name: String,
    /// Mount point of a separate cgroup hierarchy of version 2. Needed if the machine uses cgroups of version 1, with which systemd does
    /// not start.
    groups: Option<PathBuf>,
}

impl<'e> Machine<'e> {
    /// Boots a container with a mounted folder of this machine. If `network` is given, the container has that address in that network.
    ///
    /// # Errors
    /// systemd does not start.
    pub(crate) fn boot(
        engine: &'e Engine,
        name: &str,
        (folder, place): (&Path, &str),
        network: Option<(&str, &str)>,
    ) -> Result<Self> {
        let shared = format!("{}:{place}:ro", folder.display());
        let groups = own_groups(engine, name)?;
        let tree = match &groups {
            Some(mounted) => mounted.join(name),
            None => PathBuf::from("/sys/fs/cgroup"),
        };
        let tree = format!("{}:/sys/fs/cgroup:rw", tree.display());
        // All capabilities except one that a nested container cannot have.
        let rights = ["--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE"];
        let filters = [
            "--security-opt",
            "seccomp=unconfined",
            "--security-opt",
            "apparmor=unconfined",
        ];
        let places = [
            "--cgroupns",
            "host",
            "--volume",
            &tree,
            "--tmpfs",
            "/run",
            "--tmpfs",
            "/tmp",
            "--volume",
            &shared,
        ];
        let machine = Self {
            engine,
            name: name.to_owned(),
            groups,
        };
        let mut arguments = vec!["run", "--detach", "--name", name, "--hostname", name];
        arguments.extend(rights.iter().chain(&filters).chain(&places));
        if let Some((network, address)) = network {
            arguments.extend(["--network", network, "--ip", address]);
        }
        arguments.extend([WITH_SYSTEMD, "/sbin/init"]);
        engine.docker(&arguments)?;
        let deadline = Instant::now() + BOOT_LIMIT;
        loop {
            // systemd reports `degraded`, because a container cannot load kernel modules.
            let state = machine.try_run("systemctl is-system-running")?.1;
            if ["running", "degraded"].contains(&state.trim()) {
                return Ok(machine);
            }
            ensure!(
                Instant::now() < deadline,
                "systemd does not come up: {state}"
            );
            thread::sleep(LOOK);
        }
    }

    /// Runs a shell command. Returns its output, including standard error.
    ///
    /// # Errors
    /// The command fails.
    pub(crate) fn run(&self, shell: &str) -> Result<String> {
        let (succeeded, said) = self.try_run(shell)?;
        if !succeeded {
            bail!("`{shell}` failed: {said}");
        }
        Ok(said)
    }

    /// Runs a shell command. Returns whether it succeeded, and its output.
    ///
    /// # Errors
    /// The container cannot be reached.
    pub(crate) fn try_run(&self, shell: &str) -> Result<(bool, String)> {
        let both =
            format!("exec 2>&1; export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8; {shell}");
        let command = self
            .engine
            .command(&["exec", &self.name, "sh", "-c", &both]);
        let done = bounded_run::run(shell, command, Vec::new(), Duration::from_secs(300))?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        Ok((done.status.success(), said))
    }

    /// Copies a file or a folder into the container.
    ///
    /// # Errors
    /// The copy fails.
    pub(crate) fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = format!("{}:{to}", self.name);
        self.engine
            .docker(&["cp", &from.display().to_string(), &to])
            .map(drop)
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        let _ = self
            .engine
            .docker(&["rm", "--force", "--volumes", &self.name]);
        if let Some(groups) = &self.groups {
            // The folders that the container's systemd created are empty after its end.
            let mut remove = Command::new("find");
            remove
                .arg(groups.join(&self.name))
                .args(["-depth", "-type", "d", "-delete"]);
            let _ = bounded_run::run("find", remove, Vec::new(), BOOT_LIMIT);
            let _ = Command::new("umount").arg(groups).status();
        }
    }
}

/// If the machine uses cgroups of version 1, mounts a hierarchy of version 2, and creates a folder for this container. The container sees
/// only this part.
fn own_groups(engine: &Engine, name: &str) -> Result<Option<PathBuf>> {
    let version = engine.docker(&["info", "--format", "{{.CgroupVersion}}"])?;
    if version.trim() != "1" {
        return Ok(None);
    }
    let place = folder_of_containers().join(format!("control-groups-{name}"));
    fs::create_dir_all(&place)?;
    let mut command = Command::new("mount");
    command.args(["-t", "cgroup2", "none"]).arg(&place);
    bounded_run::run("mount", command, Vec::new(), BOOT_LIMIT)?.into_text("mount")?;
    fs::create_dir_all(place.join(name))?;
    Ok(Some(place))
}
