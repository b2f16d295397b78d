//! The members of the demonstration as processes: this same program, with configurations of its own.
//! Only processes that were started here are ever signalled.

use std::env;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::Deserialize;

use crate::terminal::Failure;

/// How often a process that should end is looked at.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct MemberProcess {
    pub(crate) name: String,
    data_dir: PathBuf,
    config: PathBuf,
    child: Option<Child>,
}

impl MemberProcess {
    /// A member with this configuration, which does not run yet.
    pub(crate) fn new(name: &str, data_dir: &Path, toml: &str) -> Result<Self, Failure> {
        std::fs::create_dir_all(data_dir)?;
        let config = data_dir.join("witness.toml");
        std::fs::write(&config, toml)?;
        Ok(Self {
            name: name.to_owned(),
            data_dir: data_dir.to_owned(),
            config,
            child: None,
        })
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Starts it; what it says goes to a file in its data directory.
    pub(crate) fn start(&mut self, bootstrap: bool) -> Result<(), Failure> {
        let said = self.data_dir.join("output.log");
        let output = OpenOptions::new().create(true).append(true).open(said)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run").arg("--config").arg(&self.config);
        if bootstrap {
            command.arg("--bootstrap");
        }
        // Settings of the caller are for members of the caller.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("WITNESS_") {
                command.env_remove(variable);
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Asks it to stop with SIGTERM, and does not wait.
    pub(crate) fn ask_to_stop(&mut self) {
        if let Some(child) = &self.child {
            // One that has ended meanwhile is what is wanted.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
    }

    /// Waits for its end; none when it still runs after that time, or did not run.
    pub(crate) async fn ended(
        &mut self,
        patience: Duration,
    ) -> Result<Option<ExitStatus>, Failure> {
        let until = Instant::now() + patience;
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        loop {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(Some(status));
            }
            if Instant::now() > until {
                return Ok(None);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A sentence if it has ended without having been asked to.
    pub(crate) fn has_ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(format!(
            "member `{}` ended ({status}):\n{}",
            self.name,
            self.last_words()
        ))
    }

    /// The last lines that it said.
    pub(crate) fn last_words(&self) -> String {
        let said = std::fs::read_to_string(self.data_dir.join("output.log")).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        lines[lines.len().saturating_sub(6)..].join("\n")
    }

    /// Kills the mysqld that it left behind, if its pid file names one that works in `datadir`.
    pub(crate) fn kill_mysqld(&self, datadir: &Path) {
        let Ok(text) = std::fs::read_to_string(self.data_dir.join("mysqld.pid")) else {
            return;
        };
        let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) else {
            return;
        };
        let line =
            std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let ours = format!("--datadir={}\0", datadir.display());
        let is_ours = line
            .windows(ours.len())
            .any(|window| window == ours.as_bytes());
        if is_ours && test_kill_process(pid).is_ok() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

// Finds a mysqld to show the ring with: one that the operator names, one on the PATH, or the tree that
// `cargo xtask mysql` described. A tree that was unpacked rather than installed is run through its own
// dynamic loader and told where its folders are.

/// How to start a mysqld.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTree {
    /// Where it was found, in words.
    pub(crate) found: String,
    /// The program, and before it whatever it has to be run through.
    pub(crate) command: Vec<String>,
    /// What the server has to be told about its own folders.
    pub(crate) arguments: Vec<String>,
}

/// Names a tree, or its description file.
const TREE_VARIABLE: &str = "WITNESS_MYSQL_TREE";
/// The variable that names a mysqld to use.
const SERVER_VARIABLE: &str = "MYSQLD";
/// The description of a tree, in its folder.
const DESCRIPTION: &str = "tree.json";
/// The folder of a checkout in which `cargo xtask mysql` keeps its tree.
const FOLDER: &str = ".mysql";

/// What the description file says; other fields are for others.
#[derive(Debug, Deserialize)]
struct Description {
    version: String,
    loader: Option<PathBuf>,
    #[serde(default)]
    library_path: Vec<PathBuf>,
    mysqld: PathBuf,
    basedir: Option<PathBuf>,
    plugin_dir: Option<PathBuf>,
    messages_dir: Option<PathBuf>,
    charsets_dir: Option<PathBuf>,
}

impl ServerTree {
    /// The mysqld to use here; the error says what was looked at.
    pub(crate) fn find() -> Result<Self, String> {
        if let Some(named) = env::var_os(TREE_VARIABLE) {
            return Self::described(&PathBuf::from(named))
                .map_err(|why| format!("{TREE_VARIABLE} names no usable tree: {why}"));
        }
        if let Some(mysqld) = env::var_os(SERVER_VARIABLE) {
            let mysqld = PathBuf::from(mysqld);
            if !mysqld.is_file() {
                return Err(format!(
                    "{SERVER_VARIABLE} names {}, which is no file",
                    mysqld.display()
                ));
            }
            return Ok(Self::installed(&mysqld));
        }
        if let Some(mysqld) = on_path("mysqld") {
            return Ok(Self::installed(&mysqld));
        }
        match above_here().find(|folder| folder.join(DESCRIPTION).is_file()) {
            Some(folder) => Self::described(&folder),
            None => Err(format!(
                "there is no mysqld: {SERVER_VARIABLE} is not set, none is on the PATH, and no folder above this one \
                 holds a {FOLDER}/{DESCRIPTION}"
            )),
        }
    }

    fn installed(mysqld: &Path) -> Self {
        Self {
            found: mysqld.display().to_string(),
            command: vec![mysqld.display().to_string()],
            arguments: Vec::new(),
        }
    }

    fn described(place: &Path) -> Result<Self, String> {
        let file = if place.is_dir() {
            place.join(DESCRIPTION)
        } else {
            place.to_owned()
        };
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Self::from_description(&text, &folder)
            .map_err(|error| format!("{} is not a description: {error}", file.display()))
    }

    /// Reads a description; its relative paths are relative to `folder`.
    fn from_description(text: &str, folder: &Path) -> Result<Self, serde_json::Error> {
        let tree: Description = serde_json::from_str(text)?;
        let absolute = |path: &PathBuf| folder.join(path).display().to_string();
        let mysqld = absolute(&tree.mysqld);
        let command = match &tree.loader {
            None => vec![mysqld.clone()],
            Some(loader) => {
                let libraries: Vec<_> = tree.library_path.iter().map(absolute).collect();
                vec![
                    absolute(loader),
                    "--argv0".into(),
                    "mysqld".into(),
                    "--library-path".into(),
                    libraries.join(":"),
                    mysqld.clone(),
                ]
            }
        };
        let folders = [
            ("basedir", &tree.basedir),
            ("plugin-dir", &tree.plugin_dir),
            ("lc-messages-dir", &tree.messages_dir),
            ("character-sets-dir", &tree.charsets_dir),
        ];
        let argument = |(name, folder): (&str, &Option<PathBuf>)| {
            Some(format!("--{name}={}", absolute(folder.as_ref()?)))
        };
        Ok(Self {
            found: format!("MySQL {} at {mysqld}", tree.version),
            command,
            arguments: folders.into_iter().filter_map(argument).collect(),
        })
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut candidates = env::split_paths(&path).map(|folder| folder.join(program));
    candidates.find(|candidate| candidate.is_file())
}

/// The tree's folder in every directory above the current one and above the program.
fn above_here() -> impl Iterator<Item = PathBuf> {
    let starts = [env::current_dir().ok(), env::current_exe().ok()];
    starts.into_iter().flatten().flat_map(|start| {
        let above: Vec<_> = start
            .ancestors()
            .map(|folder| folder.join(OsStr::new(FOLDER)))
            .collect();
        above
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpacked_tree_runs_through_its_loader() {
        let text = r#"{"origin": "unpacked", "version": "9.7.4", "loader": "root/ld.so",
            "library_path": ["root/a", "/b"], "mysqld": "root/mysqld", "basedir": "root",
            "plugin_dir": null, "messages_dir": "root/share", "charsets_dir": null}"#;
        let tree = ServerTree::from_description(text, Path::new("/t")).unwrap();
        assert_eq!(
            tree.command,
            [
                "/t/root/ld.so",
                "--argv0",
                "mysqld",
                "--library-path",
                "/t/root/a:/b",
                "/t/root/mysqld"
            ]
        );
        assert_eq!(
            tree.arguments,
            ["--basedir=/t/root", "--lc-messages-dir=/t/root/share"]
        );
    }

    #[test]
    fn an_installed_server_needs_nothing() {
        let text = r#"{"version": "8.4.0", "loader": null, "mysqld": "/usr/sbin/mysqld"}"#;
        let tree = ServerTree::from_description(text, Path::new("/t")).unwrap();
        assert_eq!(tree.command, ["/usr/sbin/mysqld"]);
        assert!(tree.arguments.is_empty());
    }
}
