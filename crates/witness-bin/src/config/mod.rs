//! One configuration out of one TOML file, `WITNESS_*` variables and flags, in rising precedence.
//! Every key stands once in a table ([`keys`]), from which reading, flags, variables, the example
//! and the check of the documentation follow. Reading goes in steps, and each names every mistake
//! that it finds: syntax and unknown keys, single values, rules between them, files.

mod binlog_server;
mod document;
mod example;
mod external_mysqld;
mod files;
mod hooks;
mod layers;
mod password_source;
mod problem;
mod quorum_rules;
mod regions;
mod rules;
mod settings;
mod suggest;
mod typed;
mod values;

pub mod key;
pub mod keys;

pub use binlog_server::BinlogServerSettings;
pub use example::{example, reference};
pub use external_mysqld::ExternalMysqld;
pub use hooks::HookSettings;
pub use layers::Sources;
pub use password_source::PasswordSource;
pub use problem::{Place, Problem, Problems, Severity};
pub use regions::RegionsSettings;
pub use settings::{
    Config, Durability, LogSettings, LoggingSettings, MemberEntry, MysqlMode, MysqlSettings,
    MysqlTls, RaftSettings, TlsSettings,
};
pub use suggest::nearest;
pub(crate) use typed::{bytes_of, duration_of};

/// Reads a configuration. The findings come back in both cases: warnings do not prevent a start.
pub fn read(sources: &Sources) -> (Option<Config>, Problems) {
    let mut problems = Problems::default();
    let layers = layers::lay(sources, &mut problems);
    let (values, members) = values::check(&layers, &mut problems);
    rules::check(&values, &members, &mut problems);
    let with_mysql = rules::own_kind(&values, &members).as_deref() == Some("database");
    files::check(&values, with_mysql, &mut problems);
    problems.sort();
    let config = if problems.any_error() {
        None
    } else {
        settings::build(&values, &members)
    };
    (config, problems)
}
