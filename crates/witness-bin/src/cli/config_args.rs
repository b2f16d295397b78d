//! The configuration from the command line: the file, and one flag for every key, generated from the table of keys.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use member::settings::{Settings, TlsSettings};

use crate::config::key::flag_of;
use crate::config::sections::{MEMBERS, keys};
use crate::config::{
    Config, Problems, Sources, read, read_for_command, read_tls, read_without_files,
};
use crate::terminal::{Exit, Failure};

/// Default paths of the file.
const USUAL_FILES: [&str; 2] = ["witness.toml", "/etc/witness/witness.toml"];

const KEYS_ARE_FLAGS: &str = "Every key of the configuration except passwords is also a flag, as in --tls-ca-file FILE for `tls.ca_file`; \
                             `witness config reference` lists them.";

/// `--config` and the keys' flags.
#[derive(Debug, Clone, Default)]
pub struct ConfigArgs {
    file: Option<PathBuf>,
    flags: Vec<(String, String)>,
}

impl Args for ConfigArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .short('c')
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .env("WITNESS_CONFIG")
            .help("Configuration file; without it ./witness.toml or /etc/witness/witness.toml");
        let flag = |path: &'static str, meaning: &'static str| {
            Arg::new(path)
                .long(flag_of(path))
                .value_name("VALUE")
                .allow_hyphen_values(true)
                .help(meaning)
                .hide(true)
        };
        let keys = keys()
            .filter(|key| !key.secret)
            .map(|key| flag(key.path, key.meaning));
        let members = flag(MEMBERS, "Every member of the ring, as a TOML list");
        command
            .arg(file)
            .args(keys)
            .arg(members)
            .after_help(KEYS_ARE_FLAGS)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let paths = keys()
            .filter(|key| !key.secret)
            .map(|key| key.path)
            .chain([MEMBERS]);
        let given = |path: &str| {
            let value = matches.get_one::<String>(path)?;
            Some((path.to_owned(), value.clone()))
        };
        Ok(Self {
            file: matches.get_one::<PathBuf>("config").cloned(),
            flags: paths.filter_map(given).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl ConfigArgs {
    /// That file and no flags.
    pub(crate) fn of_file(file: Option<PathBuf>) -> Self {
        Self {
            file,
            flags: Vec::new(),
        }
    }

    /// Arguments for a command of this program that reads the same configuration.
    pub(crate) fn arguments(&self, command: &str) -> Vec<OsString> {
        let mut arguments = vec![OsString::from(command)];
        if let Some(file) = &self.file {
            arguments.extend(["--config".into(), file.clone().into_os_string()]);
        }
        for (path, value) in &self.flags {
            arguments.push(format!("--{}={value}", flag_of(path)).into());
        }
        arguments
    }

    /// Whether it can be read again: a pipe cannot (`--config <(…)`).
    pub(crate) fn can_be_read_again(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.is_file())
    }

    /// The configured data directory.
    ///
    /// # Errors
    /// When there is no configuration, or it has mistakes.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Failure> {
        if self.sources()?.file.is_none() {
            return Err(Failure::new(
                Exit::Usage,
                "neither a path nor a configuration is given",
                "name a data directory, a directory of binlog files, or one such file",
            ));
        }
        Ok(self.member()?.data_dir)
    }

    /// The current three sources.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn sources(&self) -> Result<Sources, Failure> {
        Ok(Sources {
            file: self.file_text()?,
            environment: environment(),
            flags: self.flags.clone(),
        })
    }

    /// TLS from variables and flags, without a file.
    ///
    /// # Errors
    /// Exit 2 when they do not fit together.
    pub(crate) fn tls_without_file(&self) -> Result<Option<TlsSettings>, Failure> {
        let sources = Sources {
            file: None,
            environment: environment(),
            flags: self.flags.clone(),
        };
        read_tls(&sources).map_err(|problems| {
            Failure::new(
                Exit::Usage,
                format!("TLS cannot be set up:\n{problems}"),
                "give --tls-certificate-file, --tls-key-file and --tls-ca-file, or none of them",
            )
        })
    }

    /// The member's settings.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn member(&self) -> Result<Settings, Failure> {
        Ok(self.load()?.0.member)
    }

    /// Reads and checks the configuration of a starting member.
    ///
    /// # Errors
    /// A file that cannot be read, or findings that prevent a start, each on its own line.
    pub(crate) fn load_for_start(&self) -> Result<(Config, Problems), Failure> {
        self.load_by(read)
    }

    /// The same for a command to a member.
    ///
    /// # Errors
    /// As `load_for_start`.
    pub fn load(&self) -> Result<(Config, Problems), Failure> {
        self.load_by(read_for_command)
    }

    /// The same on a host that may lack the files named in the configuration.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn load_without_files(&self) -> Result<(Config, Problems), Failure> {
        self.load_by(read_without_files)
    }

    fn load_by(
        &self,
        read: impl FnOnce(&Sources) -> (Option<Config>, Problems),
    ) -> Result<(Config, Problems), Failure> {
        let sources = self.sources()?;
        let (config, problems) = read(&sources);
        match config {
            Some(config) => Ok((config, problems)),
            None if sources.file.is_none() => {
                let mut what = format!(
                    "no configuration file found: neither {} exists",
                    USUAL_FILES.join(" nor ")
                );
                if sources.say_something() {
                    let mistakes = counted(problems.error_count());
                    what += &format!(
                        ", and the variables and flags alone have {mistakes}:\n{problems}"
                    );
                }
                Err(Failure::new(Exit::Usage, what, NO_FILE))
            }
            None => Err(Failure::new(
                Exit::Usage,
                format!(
                    "the configuration has {}:\n{problems}",
                    counted(problems.error_count())
                ),
                "`witness config check` names them too; `witness config init` prints a file to begin with",
            )),
        }
    }

    fn file_text(&self) -> Result<Option<(String, String)>, Failure> {
        let file = match &self.file {
            Some(file) => Some(file.clone()),
            None => USUAL_FILES
                .iter()
                .map(PathBuf::from)
                .find(|file| file.exists()),
        };
        let Some(file) = file else { return Ok(None) };
        let name = file.display().to_string();
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(Some((name, text))),
            Err(error) => Err(Failure::new(
                Exit::Error,
                format!("the configuration file {name} cannot be read: {error}"),
                "name another with --config, or write one: witness config init > witness.toml",
            )),
        }
    }
}

const NO_FILE: &str = "name a file with --config, or write one: witness config init > witness.toml; commands to a ring that runs \
                       take addresses of its members instead (--endpoints)";

/// Variables whose name and value are text; no other variable could set a key.
fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// "one mistake", "3 mistakes".
pub(crate) fn counted(errors: usize) -> String {
    match errors {
        1 => "one mistake".into(),
        errors => format!("{errors} mistakes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_can_be_read_again_and_what_is_none_cannot() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of = |file: Option<PathBuf>| ConfigArgs::of_file(file).can_be_read_again();
        assert!(of(None) && of(Some(file.path().to_owned())));
        assert!(!of(Some("/dev/null".into())));
    }
}
