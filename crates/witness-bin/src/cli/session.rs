//! Shared parts of the operators' commands: configuration, ring client, timeouts, finding the leader, and the confirmation before a change.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use member::protocol::{CommandResult, OperatorCommand};
use raft_types::MemberId;
use tokio::time::Instant;

use crate::cli::config_args::ConfigArgs;
use crate::config::{address_of, duration_of};
use crate::operator::{Asker, Directory, Operator, RingReport, Told};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// How long a command may take.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Patience {
    /// Give up waiting after this long, e.g. 30s; the command itself continues on the members
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration_of)]
    timeout: Duration,
}

impl Patience {
    pub(super) fn until(self) -> Instant {
        Instant::now() + self.timeout
    }
}

/// How long members may take to answer a query.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct AnswerLimit {
    /// How long each member may take to answer, e.g. 500ms; all are asked at once
    #[arg(long = "timeout", value_name = "DURATION", default_value = "2s", value_parser = duration_of)]
    limit: Duration,
}

/// Whether to report only what a command would do.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct DryRun {
    /// Only say whether it would be refused, and why; nothing is changed
    #[arg(long)]
    dry_run: bool,
}

impl DryRun {
    pub(super) fn wanted(self) -> bool {
        self.dry_run
    }

    /// The command, or its dry run.
    pub(super) fn of(self, command: OperatorCommand) -> OperatorCommand {
        match self.dry_run {
            true => OperatorCommand::DryRun {
                of: Box::new(command),
            },
            false => command,
        }
    }
}

/// Reports that nothing refuses a command; `would` is its effect, and the member that it goes to.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn would_be_done(
    member: MemberId,
    name: &str,
    would: &str,
    format: Format,
) -> Result<(), Failure> {
    match format {
        Format::Json => {
            print_json(&serde_json::json!({ "member": member, "name": name, "dry_run": true }))
        }
        Format::Table => print_text(&format!("Nothing was changed; without --dry-run {would}\n")),
    }
}

/// Whether to ask before a change.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Consent {
    /// Do not ask before anything is changed
    #[arg(short, long)]
    yes: bool,
}

impl Consent {
    /// Asks, unless answered on the command line.
    ///
    /// # Errors
    /// Exit 4 when the answer is no, or there is no terminal.
    pub(super) fn to(self, question: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            return Err(Failure::new(
                Exit::Refused,
                format!("nothing was done: there is no terminal to ask on: {question}"),
                "use --yes to skip the question",
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

/// The ring of a command: the configured one, or that of the members at some addresses.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RingArgs {
    /// Addresses of some members, separated by commas; then no configuration file is needed
    #[arg(
        short = 'E',
        long,
        value_name = "HOST:PORT",
        env = "WITNESS_ENDPOINTS",
        value_delimiter = ',',
        value_parser = address_of,
        hide_env_values = true
    )]
    endpoints: Vec<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

impl RingArgs {
    /// A client that queries the ring's members.
    ///
    /// # Errors
    /// Exit 2 when the configuration or an address is wrong.
    pub(super) fn asker(&self) -> Result<Asker, Failure> {
        let asker = if self.endpoints.is_empty() {
            Asker::new(&self.config.member()?)
        } else {
            let tls = self.config.tls_without_file()?;
            Asker::at(&self.endpoints, tls.as_ref())
        };
        asker.map_err(|error| Failure::new(Exit::Usage, error.to_string(), ""))
    }

    /// The same for a command that only queries, with this limit for each member.
    ///
    /// # Errors
    /// As [`Self::asker`].
    pub(super) fn asker_within(
        &self,
        AnswerLimit { limit }: AnswerLimit,
    ) -> Result<Asker, Failure> {
        Ok(self.asker()?.within(limit))
    }

    /// The configured member's number, as default for a command without a member.
    ///
    /// # Errors
    /// Exit 2 without a configuration.
    pub(super) fn own_member(&self) -> Result<String, Failure> {
        if !self.endpoints.is_empty() {
            return Err(Failure::new(
                Exit::Usage,
                "with --endpoints there is no member of this host",
                "name the member",
            ));
        }
        Ok(self.config.member()?.own.id.to_string())
    }
}

/// A connection to a ring's members, for queries and orders.
pub(super) struct Session {
    pub(super) operator: Operator,
}

impl Session {
    /// Reads the configuration, for commands about this host's member.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn configured(config: &ConfigArgs) -> Result<Self, Failure> {
        Self::open(&RingArgs {
            endpoints: Vec::new(),
            config: config.clone(),
        })
    }

    /// Reads the configuration, or takes the endpoints.
    ///
    /// # Errors
    /// Exit 2 when it is wrong.
    pub(super) fn open(args: &RingArgs) -> Result<Self, Failure> {
        Ok(Self {
            operator: Operator::new(args.asker()?),
        })
    }

    /// The same for a command that only queries.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn asking(args: &RingArgs, limit: AnswerLimit) -> Result<Self, Failure> {
        Ok(Self {
            operator: Operator::new(args.asker_within(limit)?),
        })
    }

    /// Queries all members.
    ///
    /// # Errors
    /// Exit 3 when no member answers.
    pub(super) async fn ring(&self) -> Result<(RingReport, Directory), Failure> {
        let report = self.operator.ring().await;
        let directory = Directory::of(&report);
        match report.members.iter().any(|member| member.view.is_some()) {
            true => Ok((report, directory)),
            false => Err(nobody_answers(&report)),
        }
    }

    /// Has the leader execute a command, and shows its phases as they arrive.
    ///
    /// # Errors
    /// Exit 3 without a leader, 4 when it is refused, 5 when its result is unknown.
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

/// Why none of the queried members answered.
pub(super) fn nobody_answers(report: &RingReport) -> Failure {
    let members = report.members.iter();
    let errors = members.filter_map(|one| Some((one.name.as_str(), one.error.as_deref()?)));
    let why = match report.members.is_empty() {
        true => report.warnings.join("; "),
        false => each_once(errors),
    };
    let advice = report.quorum.fix.clone().unwrap_or_default();
    Failure::new(Exit::NoQuorum, format!("no member answers: {why}"), advice)
}

/// Each reason once, with its members.
fn each_once<'a>(errors: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, error) in errors {
        let name = format!("`{name}`");
        match reasons.iter_mut().find(|(reason, _)| *reason == error) {
            Some((_, members)) => members.push(name),
            None => reasons.push((error, vec![name])),
        }
    }
    let said = reasons
        .iter()
        .map(|(reason, members)| format!("{}: {reason}", members.join(", ")));
    said.collect::<Vec<_>>().join("; ")
}

/// A member of another version gives an unexpected answer.
pub(super) fn another_answer(answer: &CommandResult) -> Failure {
    Failure::new(
        Exit::Error,
        format!("the member gave an unexpected answer: {answer:?}"),
        "run the same version everywhere, and check with `witness status` what was done",
    )
}

/// Runs work that waits for other members.
///
/// # Errors
/// Its own.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

/// Interval of the spinner.
const TURN: Duration = Duration::from_millis(80);

/// Shows the progress of a command on standard error: each completed phase with its duration, a new member's catch-up, and on a terminal
/// the current phase with a spinner. With JSON output nothing is shown: standard error contains only an error.
pub(super) struct Phases {
    shown: bool,
    /// None where standard error is no terminal.
    spinner: Option<ProgressBar>,
    /// Tenths of a copy reported in lines.
    tenths: Option<u64>,
}

const SPINNER: &str = "{spinner} {msg} {elapsed}";
const COPY: &str = "{spinner} {msg} {bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {elapsed}";

/// Whether standard error is a terminal.
fn on_a_terminal(format: Format) -> bool {
    format == Format::Table && std::io::stderr().is_terminal()
}

impl Phases {
    pub(super) fn new(format: Format) -> Self {
        let spinner = on_a_terminal(format).then(|| {
            let spinner = ProgressBar::new_spinner();
            dress(&spinner, SPINNER);
            spinner
        });
        Self {
            shown: format == Format::Table,
            spinner,
            tenths: None,
        }
    }

    /// Shows a member's event.
    pub(super) fn show(&mut self, told: Told) {
        match told {
            Told::Asking(place) => {
                self.line(&format!("asking `{}` ({})", place.name, place.address))
            }
            Told::Began(phase) => {
                if let Some(spinner) = &self.spinner {
                    dress(spinner, SPINNER);
                    spinner.reset_elapsed();
                    spinner.set_message(phase);
                    spinner.enable_steady_tick(TURN);
                }
            }
            Told::Done(phase, seconds) => {
                self.line(&format!("{phase:<14} {:>10}", milliseconds(seconds)));
            }
            Told::Copied(stage, bytes, of) => self.copied(stage, bytes, of),
        }
    }

    /// A bar on a terminal, otherwise a line for each tenth.
    fn copied(&mut self, stage: String, bytes: u64, of: u64) {
        if let Some(bar) = &self.spinner {
            dress(bar, COPY);
            bar.set_message(stage);
            bar.set_length(of);
            bar.set_position(bytes);
            return;
        }
        let tenths = tenths(bytes, of);
        if self.tenths != Some(tenths) {
            self.tenths = Some(tenths);
            self.line(&format!("copied {bytes} of {of} bytes ({stage})"));
        }
    }

    fn line(&self, text: &str) {
        match &self.spinner {
            Some(spinner) => spinner.println(text),
            None if !self.shown => {}
            None => {
                // The caller may have closed standard error.
                drop(writeln!(std::io::stderr(), "{text}"));
            }
        }
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}

fn dress(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// Completed tenths; the expected total may be too small.
fn tenths(bytes: u64, of: u64) -> u64 {
    match of / 10 {
        0 => 0,
        tenth => (bytes / tenth).min(10),
    }
}

/// A duration in readable form: "152.3 ms", "2.25 s".
pub(super) fn milliseconds(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1000.0)
    } else {
        format!("{seconds:.2} s")
    }
}

/// A new member's catch-up, in entries.
pub(super) struct CatchUp {
    shown: bool,
    /// None where standard error is no terminal.
    bar: Option<ProgressBar>,
    way: Way,
}

/// The completed and remaining entries.
#[derive(Debug, Default)]
struct Way {
    /// The largest lag.
    longest: u64,
    /// The value of the last line.
    told: Option<u64>,
}

impl Way {
    /// Returns how many of how many entries it has caught up, for this lag. The leader continues to write, so the lag may exceed the first
    /// one.
    fn done(&mut self, behind: u64) -> (u64, u64) {
        self.longest = self.longest.max(behind);
        (self.longest - behind, self.longest)
    }

    /// Whether to print a line: the first time, and whenever a tenth less is left.
    fn worth_a_line(&mut self, behind: u64) -> bool {
        let tenth_less = |told: u64| behind < told && behind <= told - told / 10;
        let worth = self.told.is_none_or(tenth_less);
        if worth {
            self.told = Some(behind);
        }
        worth
    }
}

impl CatchUp {
    pub(super) fn new(format: Format) -> Self {
        let bar = on_a_terminal(format).then(|| {
            let bar = ProgressBar::new(0);
            let template = "{bar:30} {pos}/{len} entries  {per_sec}  {eta} to go";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Self {
            shown: format == Format::Table,
            bar,
            way: Way::default(),
        }
    }

    /// Shows the current lag in entries.
    pub(super) fn show(&mut self, behind: u64) {
        let (done, of) = self.way.done(behind);
        if let Some(bar) = &self.bar {
            bar.set_length(of);
            bar.set_position(done);
        } else if self.shown && self.way.worth_a_line(behind) {
            drop(writeln!(std::io::stderr(), "{behind} entries to go"));
        }
    }
}

impl Drop for CatchUp {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once() {
        let errors = [("a", "refused"), ("b", "no route"), ("c", "refused")];
        assert_eq!(
            each_once(errors.into_iter()),
            "`a`, `c`: refused; `b`: no route"
        );
    }

    #[test]
    fn times_are_short() {
        assert_eq!(milliseconds(0.0004), "0.4 ms");
        assert_eq!(milliseconds(0.152_34), "152.3 ms");
        assert_eq!(milliseconds(2.254), "2.25 s");
    }

    #[test]
    fn a_copy_is_told_in_tenths() {
        let told = [(0, 0), (5, 9), (0, 100), (19, 100), (100, 100), (150, 100)];
        let told = told.map(|(bytes, of)| tenths(bytes, of));
        assert_eq!(told, [0, 0, 0, 1, 10, 10]);
    }

    #[test]
    fn a_way_that_grows_is_still_one_way() {
        let mut way = Way::default();
        assert_eq!(way.done(100), (0, 100));
        assert_eq!(way.done(40), (60, 100));
        assert_eq!(way.done(130), (0, 130));
        assert_eq!(way.done(0), (130, 130));
    }

    #[test]
    fn lines_come_when_a_tenth_less_is_left() {
        let mut way = Way::default();
        let told: Vec<u64> = [100, 100, 95, 90, 89, 120, 81, 3, 2, 1, 0, 0]
            .into_iter()
            .filter(|behind| way.worth_a_line(*behind))
            .collect();
        assert_eq!(told, [100, 90, 81, 3, 2, 1, 0]);
    }
}
