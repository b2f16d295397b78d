//! One configuration out of one TOML file, `WITNESS_*` variables and flags, in rising precedence.
//! Every key stands once in a table ([`keys`]), from which reading, flags, variables, the example
//! and the check of the documentation follow. Reading goes in steps, and each names every mistake
//! that it finds: syntax and unknown keys (`layers`), single values (`validation`), rules between them (`rules`, `sections`),
//! files (`files`).

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

/// Reads section `[tls]` alone, for somebody who asks members and is none.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_tls(sources: &Sources) -> Result<Option<TlsSettings>, Problems> {
    let mut problems = Problems::default();
    let layers = layers::lay(sources, &mut problems);
    // Whatever a member would miss besides is nobody's mistake here.
    let (values, _) = validation::check(&layers, &mut Problems::default());
    rules::tls(&values, &mut problems);
    match problems.any_error() {
        true => Err(problems),
        false => Ok(build::tls(&values).flatten()),
    }
}

/// How much of the files is checked that a configuration names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FileCheck {
    Nothing,
    /// That they can be read.
    Readable,
    /// That a member can use the secrets and certificates in them.
    Usable,
}

/// Reads a configuration as a member takes it. The findings come back in both cases: warnings do not prevent a start.
pub fn read(sources: &Sources) -> (Option<Config>, Problems) {
    judge(sources, FileCheck::Usable)
}

/// The same for a command to a member, which may run without all of its credentials.
pub(crate) fn read_for_command(sources: &Sources) -> (Option<Config>, Problems) {
    judge(sources, FileCheck::Readable)
}

/// The same on a host that need not have the files that the configuration names, certificates among them.
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
