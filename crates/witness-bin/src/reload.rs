//! Reloads the configuration of a running member: on SIGHUP, on `POST /reload` and on `witness reload`. The whole configuration
//! is read and checked before any value takes effect, so a bad file changes nothing.

use std::sync::{Mutex, PoisonError};

use member::protocol::{Refusal, Reloaded};
use member::{MemberError, Reload, Renewed};

use crate::cli::config_args::ConfigArgs;
use crate::cli::process::{LogFilter, filter_of};
use crate::config::{Config, Problem, Severity, read};
use crate::http::{Access, Credentials, Expiries};

/// The parts of a running member that a reload affects.
pub(crate) struct Reloading {
    /// The sources of the configuration.
    pub(crate) args: ConfigArgs,
    /// The configuration at the start of the member.
    pub(crate) started_with: Config,
    pub(crate) member: Box<dyn Fn(Renewed) + Send + Sync>,
    /// The replaceable parts of HTTP; `None` if HTTP is not served.
    pub(crate) http: Option<(Access, Expiries)>,
    pub(crate) log: LogFilter,
    pub(crate) turn: Mutex<()>,
}

impl Reload for Reloading {
    fn reload(&self, dry_run: bool) -> Result<Reloaded, Refusal> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = self.args.sources().map_err(|error| refused(&error))?;
        let (config, problems) = read(&sources);
        let Some(mut config) = config else {
            return Err(Refusal::refused(
                format!("the configuration was not taken: it has mistakes:\n{problems}"),
                NOTHING_CHANGED,
            ));
        };
        let needs_restart = self.started_with.needs_restart(&config);
        // Until this member restarts, the other members reach it at the address in the configuration that it was started with.
        let started_as = &self.started_with.member.own;
        config.member.own.clone_from(started_as);
        // If TLS between members is turned on or off, that waits for a restart. Until then, HTTP keeps its certificate, too.
        let tls = |config: &Config| config.member.tls.is_some();
        if tls(&config) != tls(&self.started_with)
            && let (Some(http), Some(started)) = (&mut config.http, &self.started_with.http)
        {
            http.certificate.clone_from(&started.certificate);
        }

        let unusable = |error: MemberError| refused(&error);
        let member = Renewed::read(&config.member).map_err(unusable)?;
        let http = config.http.as_ref().map(Credentials::load);
        let http = http.transpose().map_err(unusable)?;
        let filter = filter_of(&config.logging.level).map_err(|error| refused(&error))?;

        let warning = |problem: &&Problem| problem.severity == Severity::Warning;
        let reloaded = Reloaded {
            needs_restart: needs_restart.into_iter().map(str::to_owned).collect(),
            warnings: problems
                .iter()
                .filter(warning)
                .map(ToString::to_string)
                .collect(),
        };
        if dry_run {
            return Ok(reloaded);
        }
        (self.member)(member);
        if let (Some((access, expiries)), Some(credentials)) = (&self.http, http) {
            access.renew(credentials);
            expiries.renew(&config.member);
        }
        // The reload fails if an earlier start in the same process has installed the log's filter, as in tests.
        let _ = self.log.reload(filter);
        for warning in &reloaded.warnings {
            tracing::warn!("{warning}");
        }
        if !reloaded.needs_restart.is_empty() {
            let keys = reloaded.needs_restart.join("`, `");
            tracing::warn!("the configuration was taken, but for what needs a restart: `{keys}`");
        }
        Ok(reloaded)
    }
}

const NOTHING_CHANGED: &str =
    "nothing was changed; `witness config check` on that host names mistakes as well";

fn refused(why: &dyn std::fmt::Display) -> Refusal {
    Refusal::refused(
        format!("the configuration was not taken: {why}"),
        NOTHING_CHANGED,
    )
}
