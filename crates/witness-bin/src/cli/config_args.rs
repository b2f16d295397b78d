//! The configuration from the command line: the file, and one flag for every key, generated from the table of keys.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use member::settings::{Settings, TlsSettings};

use crate::config::key::flag_of;
use crate::config::sections::{MEMBERS, keys};
use crate::config::{Config, FileCheck, Problems, Sources, read_tls, read_with};
use crate::terminal::{Attempt, Exit};

/// The paths at which a configuration file is searched if `--config` names none.
const USUAL_FILES: [&str; 2] = ["witness.toml", "/etc/witness/witness.toml"];

const KEYS_ARE_FLAGS: &str = "Every key of the configuration except passwords is also a flag, as in --tls-ca-file FILE for `tls.ca_file`; \
                             `witness config reference` lists them.";

/// `--config` and the keys' flags.
#[derive(Debug, Clone, Default)]
pub struct ConfigArgs {
    file: Option<PathBuf>,
    flags: Vec<(String, String)>,
}

/// Returns the dotted names of the keys that are also flags, with their meanings.
fn flags() -> impl Iterator<Item = (&'static str, &'static str)> {
    let keys = keys().filter(|key| !key.secret);
    let keys = keys.map(|key| (key.path, key.meaning));
    keys.chain([(MEMBERS, "Every member of the ring, as a TOML list")])
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
        let flags = flags().map(|(path, meaning)| {
            let flag = Arg::new(path).long(flag_of(path)).value_name("VALUE");
            flag.allow_hyphen_values(true).help(meaning).hide(true)
        });
        command.arg(file).args(flags).after_help(KEYS_ARE_FLAGS)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |(path, _): (&str, _)| {
            let value = matches.get_one::<String>(path)?;
            Some((path.to_owned(), value.clone()))
        };
        Ok(Self {
            file: matches.get_one::<PathBuf>("config").cloned(),
            flags: flags().filter_map(given).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl ConfigArgs {
    /// Creates arguments with this file and no flags.
    pub(crate) fn of_file(file: Option<PathBuf>) -> Self {
        Self {
            file,
            flags: Vec::new(),
        }
    }

    /// Returns the command line for a command of this program that reads the same configuration.
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

    /// True if the configuration file can be read a second time. A pipe cannot (`--config <(…)`).
    pub(crate) fn can_be_read_again(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.is_file())
    }

    /// Returns the configured data directory.
    ///
    /// # Errors
    /// When there is no configuration, or the configuration has mistakes.
    pub(crate) fn data_dir(&self) -> Attempt<PathBuf> {
        if self.sources()?.file.is_none() {
            return Err(Exit::Usage.because(
                "neither a path nor a configuration is given",
                "name a data directory, a directory of binlog files, or one such file",
            ));
        }
        Ok(self.member()?.data_dir)
    }

    /// Reads the three sources of the configuration: the file, the environment and the flags.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn sources(&self) -> Attempt<Sources> {
        Ok(self.sources_with(self.file_text()?))
    }

    fn sources_with(&self, file: Option<(String, String)>) -> Sources {
        Sources {
            file,
            environment: environment(),
            flags: self.flags.clone(),
        }
    }

    /// Reads the settings for TLS from variables and flags, without a file.
    ///
    /// # Errors
    /// Exit 2 if the settings are incomplete or contradict each other.
    pub(crate) fn tls_without_file(&self) -> Attempt<Option<TlsSettings>> {
        read_tls(&self.sources_with(None)).map_err(|problems| {
            Exit::Usage.because(
                format!("TLS cannot be set up:\n{problems}"),
                "give --tls-certificate-file, --tls-key-file and --tls-ca-file, or none of them",
            )
        })
    }

    /// Reads and checks the configuration, and returns the settings of the member.
    ///
    /// # Errors
    /// The same errors as of [`Self::load`].
    pub(crate) fn member(&self) -> Attempt<Settings> {
        Ok(self.load(FileCheck::Readable)?.0.member)
    }

    /// Reads and checks the configuration.
    ///
    /// # Errors
    /// Exit 1 if the file cannot be read; exit 2 with all mistakes that prevent a start, one on each line.
    pub(crate) fn load(&self, files: FileCheck) -> Attempt<(Config, Problems)> {
        let sources = self.sources()?;
        let (config, problems) = read_with(&sources, files);
        if let Some(config) = config {
            return Ok((config, problems));
        }
        let mistakes = counted(problems.error_count());
        if sources.file.is_some() {
            return Err(Exit::Usage.because(
                format!("the configuration has {mistakes}:\n{problems}"),
                "`witness config check` names them too; `witness config init` prints a file to begin with",
            ));
        }
        let files = USUAL_FILES.join(" nor ");
        let mut what = format!("no configuration file found: neither {files} exists");
        if !sources.flags.is_empty() || sources.variables().next().is_some() {
            what += &format!(", and the variables and flags alone have {mistakes}:\n{problems}");
        }
        Err(Exit::Usage.because(what, NO_FILE))
    }

    fn file_text(&self) -> Attempt<Option<(String, String)>> {
        let mut usual = USUAL_FILES.iter().map(PathBuf::from);
        let usual = || usual.find(|file| file.exists());
        let Some(file) = self.file.clone().or_else(usual) else {
            return Ok(None);
        };
        let name = file.display().to_string();
        let text = std::fs::read_to_string(&file).map_err(|error| {
            Exit::Error.because(
                format!("the configuration file {name} cannot be read: {error}"),
                "name another with --config, or write one: witness config init > witness.toml",
            )
        })?;
        Ok(Some((name, text)))
    }
}

const NO_FILE: &str = "name a file with --config, or write one: witness config init > witness.toml; commands to a ring that runs \
                       take addresses of its members instead (--endpoints)";

/// Returns the environment variables with a name and a value in UTF-8. Other variables cannot set a key.
fn environment() -> Vec<(String, String)> {
    let texts = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.collect()
}

/// Returns a number of mistakes as text, such as "one mistake" or "3 mistakes".
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
    fn only_regular_files_can_be_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of = |file: Option<PathBuf>| ConfigArgs::of_file(file).can_be_read_again();
        assert!(of(None) && of(Some(file.path().to_owned())));
        assert!(!of(Some("/dev/null".into())));
    }
}
