//! Reads the configuration from one TOML file, `WITNESS_*` variables and flags, in rising precedence.
//! Every key is declared once, in the struct of its section (`sections`). The parser, flags, variables, the example and
//! the check of the documentation derive from that declaration. Each step of reading reports every mistake that it
//! finds: syntax and single values (`value`), unknown keys (`layers`), rules among the keys (`sections`), files (`build`).

mod build;
mod example;
pub(crate) mod key;
mod layers;
mod problem;
pub(crate) mod sections;
mod value;

pub use crate::config::build::Config;
pub use crate::config::example::{example, reference};
pub use crate::config::layers::Sources;
pub(crate) use crate::config::problem::did_you_mean;
pub use crate::config::problem::{Place, Problem, Problems, Severity, nearest};
pub use crate::config::sections::process::{HttpSettings, LoggingSettings};
pub(crate) use crate::config::value::{
    Mistake, address_of, bytes_of, duration_of, keep_of, name_of,
};

use member::settings::TlsSettings;

use crate::config::layers::Layers;
use crate::config::sections::{MEMBERS, Sections};

/// Reads only section `[tls]`, for a client that is not a member.
///
/// # Errors
/// The mistakes in this section.
pub(crate) fn read_tls(sources: &Sources) -> Result<Option<TlsSettings>, Problems> {
    let mut problems = Problems::default();
    let layers = layers::lay(sources, &mut problems);
    // Problems with other sections are dropped: keys that only a member needs may be missing here.
    let tls = values(&layers, &mut Problems::default()).tls;
    tls.validate(&mut problems);
    match problems.any_error() {
        true => Err(problems),
        false => Ok(tls.settings()),
    }
}

/// Reads the value of every key, and checks each value alone.
fn values(layers: &Layers<'_>, problems: &mut Problems) -> Sections {
    let sections = Sections::read(&layers.whole, &layers.members, problems);
    if layers.members.is_empty() {
        problems.error(
            layers.members_place.as_ref().unwrap_or(&layers.whole.place),
            MEMBERS,
            "no member is listed",
            "add a [[members]] entry for every member of the ring, this one included",
        );
    }
    sections
}

/// How far the files in the configuration are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileCheck {
    /// The files are not checked: this host may lack them.
    Nothing,
    /// The files are readable. For a command on a host that may lack some of the member's credentials.
    Readable,
    /// A member can use the secrets and certificates in the files.
    Usable,
}

/// Reads a configuration for a member, and returns all errors and warnings. The configuration is `None` if there is an error; warnings do
/// not prevent a start.
pub fn read(sources: &Sources) -> (Option<Config>, Problems) {
    read_with(sources, FileCheck::Usable)
}

/// Reads a configuration and returns all errors and warnings, like [`read`], but checks its files only as far as `files` demands.
pub(crate) fn read_with(sources: &Sources, files: FileCheck) -> (Option<Config>, Problems) {
    let mut problems = Problems::default();
    let layers = layers::lay(sources, &mut problems);
    let sections = values(&layers, &mut problems);
    sections::check(&sections, &mut problems);
    if files >= FileCheck::Readable {
        sections::check_beyond_loopback(&sections, &mut problems);
        build::check_files(&sections, &mut problems);
    }
    let mut config = match problems.any_error() {
        true => None,
        false => build::build(sections),
    };
    if files == FileCheck::Usable
        && let Some(built) = &config
    {
        build::check_credentials(built, &mut problems);
        config = config.filter(|_| !problems.any_error());
    }
    problems.sort();
    (config, problems)
}
