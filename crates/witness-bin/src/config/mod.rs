//! One configuration out of one TOML file, `WITNESS_*` variables and flags, in rising precedence.
//! Every key stands once in a table ([`keys`]), from which reading, flags, variables, the example
//! and the check of the documentation follow. Reading goes in steps, and each names every mistake
//! that it finds: syntax and unknown keys (`layers`), single values (`validation`), rules between them (`rules`), files
//! (`sections`).

mod build;
mod example;
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

/// Reads a configuration. The findings come back in both cases: warnings do not prevent a start.
pub fn read(sources: &Sources) -> (Option<Config>, Problems) {
    judge(sources, true)
}

/// The same on a host that need not have the files that the configuration names, certificates among them.
pub(crate) fn read_without_files(sources: &Sources) -> (Option<Config>, Problems) {
    judge(sources, false)
}

fn judge(sources: &Sources, with_files: bool) -> (Option<Config>, Problems) {
    let mut problems = Problems::default();
    let layers = layers::lay(sources, &mut problems);
    let (values, members) = validation::check(&layers, &mut problems);
    rules::check(&values, &members, &mut problems);
    if with_files {
        rules::check_beyond_loopback(&values, &members, &mut problems);
        let with_mysql = rules::own_kind(&values, &members).as_deref() == Some("database");
        rules::check_files(&values, with_mysql, &mut problems);
    }
    problems.sort();
    let config = if problems.any_error() {
        None
    } else {
        build::build(&values, &members)
    };
    (config, problems)
}
