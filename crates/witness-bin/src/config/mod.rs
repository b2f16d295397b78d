//! One configuration from one TOML file, `WITNESS_*` variables and flags, in rising precedence.
//! Every key is defined once in a table ([`keys`]). The parser, flags, variables, the example and
//! the check of the documentation derive from it. Each step of reading reports every mistake it
//! finds: syntax and unknown keys (`layers`), single values (`validation`), rules among them
//! (`rules`, `sections`), files (`files`).

mod build;
mod example;
mod files;
pub mod key;
pub mod keys;
mod layers;
mod problem;
mod restart;
mod rules;
mod sections;
mod validation;

pub use crate::config::build::{Config, HttpSettings, LoggingSettings};
pub use crate::config::example::{example, reference};
pub use crate::config::layers::Sources;
pub use crate::config::problem::{Place, Problem, Problems, Severity, nearest};
pub(crate) use crate::config::validation::{address_of, bytes_of, duration_of, keep_of};
use member::settings::TlsSettings;

/// Reads only section `[tls]`, for a client that is not a member.
///
/// # Errors
/// Its mistakes.
pub(crate) fn read_tls(sources: &Sources) -> Result<Option<TlsSettings>, Problems> {
    let mut problems = Problems::default();
    let layers = layers::lay(sources, &mut problems);
    // Keys that only a member needs may be missing here.
    let (values, _) = validation::check(&layers, &mut Problems::default());
    rules::tls(&values, &mut problems);
    match problems.any_error() {
        true => Err(problems),
        false => Ok(build::tls(&values).flatten()),
    }
}

/// How far the files in the configuration are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FileCheck {
    Nothing,
    /// They are readable.
    Readable,
    /// A member can use the secrets and certificates in them.
    Usable,
}

/// Reads a configuration for a member. The findings are returned in both cases: warnings do not prevent a start.
pub fn read(sources: &Sources) -> (Option<Config>, Problems) {
    judge(sources, FileCheck::Usable)
}

/// The same for a command to a member, which may lack some of its credentials.
pub(crate) fn read_for_command(sources: &Sources) -> (Option<Config>, Problems) {
    judge(sources, FileCheck::Readable)
}

/// The same on a host that may lack the files in the configuration, including certificates.
pub(crate) fn read_without_files(sources: &Sources) -> (Option<Config>, Problems) {
    judge(sources, FileCheck::Nothing)
}

fn judge(sources: &Sources, with_files: FileCheck) -> (Option<Config>, Problems) {
    let mut problems = Problems::default();
    let layers = layers::lay(sources, &mut problems);
    let (values, members) = validation::check(&layers, &mut problems);
    rules::check(&values, &members, &mut problems);
    if with_files >= FileCheck::Readable {
        rules::check_beyond_loopback(&values, &members, &mut problems);
        let with_mysql = rules::own_kind(&values, &members).as_deref() == Some("database");
        files::check_files(&values, with_mysql, &mut problems);
    }
    let mut config = match problems.any_error() {
        true => None,
        false => build::build(&values, &members),
    };
    if with_files == FileCheck::Usable
        && let Some(built) = &config
    {
        files::check_credentials(built, &values, &mut problems);
        config = config.filter(|_| !problems.any_error());
    }
    problems.sort();
    (config, problems)
}
