//! What the operators' commands share: the configuration, the operator over it, the time that a command
//! may take, the way to the leader, and the question before it changes something.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand};
use tokio::time::Instant;

use super::config_args::ConfigArgs;
use super::phases::Phases;
use crate::config::duration_of;
use crate::operator::{Asker, Directory, Operator, RingReport};
use crate::terminal::{Exit, Failure, Format};

/// How long a command may take.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Patience {
    /// Give up waiting after this long, e.g. 30s; the command itself continues on the members
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration_of)]
    timeout: Duration,
}

impl Patience {
    /// When it is over.
    pub(super) fn until(self) -> Instant {
        Instant::now() + self.timeout
    }
}

/// Whether to ask before something is changed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Consent {
    /// Do not ask before anything is changed
    #[arg(short, long)]
    yes: bool,
}

impl Consent {
    /// Asks, unless that was answered on the command line.
    ///
    /// # Errors
    /// Exit 4 when the answer is no, or there is nobody to ask.
    pub(super) fn to(self, question: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            return Err(Failure::new(
                Exit::Refused,
                format!("nothing was done: there is no terminal to ask on: {question}"),
                "give --yes to go on without the question",
            ));
        }
        let mut err = std::io::stderr().lock();
        write!(err, "{question} [y/N] ")?;
        err.flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Failure::new(Exit::Refused, "nothing was done", "")),
        }
    }
}

/// The configured members, to be asked and ordered.
pub(super) struct Session {
    pub(super) operator: Operator,
}

impl Session {
    /// Reads the configuration.
    ///
    /// # Errors
    /// Exit 2 when it is wrong.
    pub(super) fn open(args: &ConfigArgs) -> Result<Self, Failure> {
        let settings = args.member()?;
        let asker = Asker::new(&settings)
            .map_err(|error| Failure::new(Exit::Usage, error.to_string(), ""))?;
        Ok(Self {
            operator: Operator::new(asker),
        })
    }

    /// Asks everybody.
    ///
    /// # Errors
    /// Exit 3 when nobody answers.
    pub(super) async fn ring(&self) -> Result<(RingReport, Directory), Failure> {
        let report = self.operator.ring().await;
        let directory = Directory::of(&report);
        if report.members.iter().all(|member| member.view.is_none()) {
            let members = report.members.iter();
            let errors = members.filter_map(|member| member.error.as_deref());
            return Err(Failure::new(
                Exit::NoQuorum,
                format!(
                    "no member answers: {}",
                    errors.collect::<Vec<_>>().join("; ")
                ),
                "start the members, or check the addresses and the TLS settings of this configuration",
            ));
        }
        Ok((report, directory))
    }

    /// Has the leader carry out a command, and shows its phases as they come.
    ///
    /// # Errors
    /// Exit 3 without a leader, 4 when it is refused, 5 when its end is not known.
    pub(super) async fn order(
        &self,
        report: &RingReport,
        command: &OperatorCommand,
        until: Instant,
        format: Format,
    ) -> Result<CommandResult, Failure> {
        let mut phases = Phases::new(format);
        let tell = |told| phases.show(told);
        self.operator.lead(report, command, until, tell).await
    }
}

/// A member of another version answers something else than what was asked.
pub(super) fn another_answer(answer: &CommandResult) -> Failure {
    Failure::new(
        Exit::Error,
        format!("the member answers something that was not asked: {answer:?}"),
        "run the same version everywhere, and look with `witness status` what was done",
    )
}

/// Runs what waits for other members.
///
/// # Errors
/// Its own.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}
