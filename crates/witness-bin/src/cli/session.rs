//! Shared parts of the operators' commands: arguments, queries of the members, orders with their progress, and the confirmation before a
//! change.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::ProgressBar;
use member::protocol::{CommandEvent, CommandResult, OperatorCommand};
use member::settings::MemberEntry;
use raft_types::MemberId;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cli::config_args::ConfigArgs;
use crate::config::{address_of, duration_of, nearest};
use crate::operator::{Asker, Directory, RingReport, Told};
use crate::terminal::{Attempt, Exit, Failure, Format, bar, print, shape};

/// The ring of a command, and how long its members may take to carry it out.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct OrderArgs {
    /// Give up waiting after this long, e.g. 30s; the command itself continues on the members
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    ring: RingArgs,
}

impl OrderArgs {
    /// Queries all members, then runs `work`. The errors are those of [`RingArgs::session`].
    pub(super) fn session<T>(
        &self,
        format: Format,
        work: impl AsyncFnOnce(Session) -> Attempt<T>,
    ) -> Attempt<T> {
        self.ring.session(self.timeout, format, work)
    }
}

/// The ring of a query, and how long its members may take to answer.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct QueryArgs {
    /// How long each member may take to answer, e.g. 500ms; all are asked concurrently
    #[arg(long = "timeout", value_name = "DURATION", default_value = "2s", value_parser = duration_of)]
    limit: Duration,
    #[command(flatten)]
    ring: RingArgs,
}

impl QueryArgs {
    /// Creates a client that queries the ring's members.
    ///
    /// # Errors
    /// Exit 2 if the configuration or an address is wrong.
    pub(super) fn asker(&self) -> Attempt<Asker> {
        Ok(self.ring.asker()?.within(self.limit))
    }

    /// Queries all members, and returns their answers.
    ///
    /// # Errors
    /// Exit 3 if no member answers.
    pub(super) fn answers(&self) -> Attempt<(RingReport, Directory)> {
        let asker = self.asker()?;
        block_on(answers(&asker))
    }
}

/// A change that can be tried, and that is confirmed first.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ChangeArgs {
    /// Only report what would happen; nothing is changed
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    consent: Consent,
}

impl ChangeArgs {
    /// Asks the operator for confirmation, unless this is a dry run.
    ///
    /// # Errors
    /// Exit 4 if the answer is no, or there is no terminal.
    pub(super) fn confirm(self, question: &str) -> Attempt {
        match self.dry_run {
            true => Ok(()),
            false => self.consent.to(question),
        }
    }
}

/// Returns the command, or its dry run if `dry_run` is set.
pub(super) fn dry_run_of(dry_run: bool, command: OperatorCommand) -> OperatorCommand {
    match dry_run {
        true => OperatorCommand::DryRun {
            of: Box::new(command),
        },
        false => command,
    }
}

/// Returns a JSON document with the outcome of an order about a member, and the member's number and name.
pub(super) fn about(
    member: MemberId,
    name: &str,
    dry_run: bool,
    outcome: &impl Serialize,
) -> Value {
    let mut json = json!(outcome);
    json["member"] = json!(member);
    json["name"] = json!(name);
    json["dry_run"] = json!(dry_run);
    json
}

/// Prints the result of a dry run that no check has refused. `would` describes the effect of the command.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn would_be_done(member: MemberId, name: &str, would: &str, format: Format) -> Attempt {
    print(format, &about(member, name, true, &()), || {
        format!("Nothing was changed; without --dry-run {would}\n")
    })
}

/// Rejects the name of a region that has no member. A typo would otherwise create a region with one member.
pub(super) fn known_region(region: &str, directory: &Directory) -> Attempt {
    let regions = || directory.places().map(|place| place.region.0.as_str());
    if regions().any(|known| known == region) {
        return Ok(());
    }
    let meant = nearest(region, regions())
        .map(|near| format!("did you mean `{near}`? "))
        .unwrap_or_default();
    Err(Exit::Refused.because(
        format!("no member of the ring runs in region `{region}`"),
        format!("{meant}Give --new-region for a region that begins with this member"),
    ))
}

/// Returns a line for a value that changes; otherwise an empty text.
pub(super) fn changed(what: &str, before: &str, after: &str) -> String {
    match before == after {
        true => String::new(),
        false => format!("  {what}: {before} -> {after}\n"),
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
    /// Asks the operator for confirmation, unless `--yes` is given.
    ///
    /// # Errors
    /// Exit 4 if the answer is no, or there is no terminal.
    pub(super) fn to(self, question: &str) -> Attempt {
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            return Err(Exit::Refused.because(
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
            _ => Err(Exit::Refused.because("nothing was done", "")),
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
    pub(super) endpoints: Vec<String>,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

impl RingArgs {
    /// Creates a client that queries the ring's members.
    ///
    /// # Errors
    /// Exit 2 if the configuration or an address is wrong.
    pub(super) fn asker(&self) -> Attempt<Asker> {
        let asker = if self.endpoints.is_empty() {
            Asker::new(&self.config.member()?)
        } else {
            let tls = self.config.tls_without_file()?;
            Asker::of_endpoints(&self.endpoints, tls.as_ref())
        };
        asker.map_err(|error| Exit::Usage.because(error, ""))
    }

    /// Returns the number of the configured member, which is the default if a command names no member.
    ///
    /// # Errors
    /// Exit 2 without a configuration.
    pub(super) fn own_member(&self) -> Attempt<String> {
        if !self.endpoints.is_empty() {
            return Err(Exit::Usage.because(
                "with --endpoints there is no member of this host",
                "name the member",
            ));
        }
        Ok(self.config.member()?.own.id.to_string())
    }

    /// Queries all members, then runs `work`.
    ///
    /// # Errors
    /// Exit 2 if the configuration or an address is wrong, 3 if no member answers; the errors of `work`.
    pub(super) fn session<T>(
        &self,
        timeout: Duration,
        format: Format,
        work: impl AsyncFnOnce(Session) -> Attempt<T>,
    ) -> Attempt<T> {
        let asker = self.asker()?;
        block_on(async {
            let (report, directory) = answers(&asker).await?;
            let session = Session {
                asker,
                report,
                directory,
                timeout,
                format,
            };
            work(session).await
        })
    }
}

/// A ring whose members have answered, for orders.
pub(super) struct Session {
    pub(super) asker: Asker,
    pub(super) report: RingReport,
    pub(super) directory: Directory,
    timeout: Duration,
    format: Format,
}

impl Session {
    /// Returns the deadline of an order that is sent now.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Waits until there is a leader with a quorum; returns `None` at the deadline.
    pub(super) async fn leader(&self, until: Instant) -> Option<MemberId> {
        loop {
            let leader = self.asker.report().await.leader;
            if leader.is_some() || Instant::now() >= until {
                return leader;
            }
            tokio::time::sleep(LEADER_POLL).await;
        }
    }

    /// Sends a command to the leader, shows the progress of its phases, and returns the result.
    ///
    /// # Errors
    /// Exit 3 without a leader, 4 if the command is refused, 5 if the result is unknown.
    pub(super) async fn order(&self, command: OperatorCommand) -> Attempt<CommandResult> {
        let mut progress = Progress::new(self.format);
        let tell = |told| progress.show(told);
        let until = self.until();
        let ordered = self.asker.lead(&self.report, &command, until, tell);
        ordered.await
    }

    /// Sends a command to a member, and returns the result.
    ///
    /// # Errors
    /// Exit 3 if the member does not answer, 4 if it refuses, 5 if the result is unknown.
    pub(super) async fn at(
        &self,
        place: &MemberEntry,
        command: OperatorCommand,
    ) -> Attempt<CommandResult> {
        self.at_until(place, &command, self.until()).await
    }

    /// Sends a command to a member with a given deadline, and returns the result.
    pub(super) async fn at_until(
        &self,
        place: &MemberEntry,
        command: &OperatorCommand,
        until: Instant,
    ) -> Attempt<CommandResult> {
        let directory = &self.directory;
        let ordered = self.asker.at(place, directory, command, until, |_| {});
        ordered.await
    }
}

/// Interval between checks for a leader.
const LEADER_POLL: Duration = Duration::from_millis(100);

/// Queries all members, and returns their answers; exit 3 if no member answers.
async fn answers(asker: &Asker) -> Attempt<(RingReport, Directory)> {
    let report = asker.report().await;
    let directory = Directory::of(&report);
    let any_answers = report.views().next().is_some();
    match any_answers {
        true => Ok((report, directory)),
        false => Err(no_answer(&report)),
    }
}

/// Returns the failure of a command that no member has answered, with the reasons.
pub(super) fn no_answer(report: &RingReport) -> Failure {
    let members = report.members.iter();
    let errors = members.filter_map(|one| Some((one.name.as_str(), one.error.as_deref()?)));
    let why = match report.members.is_empty() {
        true => report.warnings.join("; "),
        false => each_once(errors),
    };
    let advice = report.quorum.fix.clone().unwrap_or_default();
    Exit::NoQuorum.because(format!("no member answers: {why}"), advice)
}

/// Lists each reason once, with the members that gave it.
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

/// Returns the failure for an unexpected answer, which a member of another version may give.
pub(super) fn another_answer(answer: &CommandResult) -> Failure {
    Exit::Error.because(
        format!("the member gave an unexpected answer: {answer:?}"),
        "run the same version everywhere, and check with `witness status` what was done",
    )
}

/// Runs asynchronous work on the current thread.
///
/// # Errors
/// The errors of `work`; exit 1 if the runtime cannot be created.
pub(super) fn block_on<T>(work: impl Future<Output = Attempt<T>>) -> Attempt<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

/// Interval of the spinner.
const TURN: Duration = Duration::from_millis(80);

const SPINNER: &str = "{spinner} {msg} {elapsed}";
const COPY: &str = "{spinner} {msg} {bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {elapsed}";
const CATCH_UP: &str = "{bar:30} {pos}/{len} entries  {per_sec}  {eta} to go";

/// Shows the progress of a command on standard error: each completed phase with its duration, and the progress of a copy or a catch-up. A
/// terminal shows a spinner or a bar; otherwise lines are printed. With JSON output, no progress is shown, so standard error contains only
/// an error.
pub(super) struct Progress {
    shown: bool,
    /// `None` if standard error is not a terminal, or nothing is shown.
    bar: Option<ProgressBar>,
    /// The number of completed tenths in the last printed line.
    tenths: Option<u64>,
    /// The largest lag so far in a catch-up. The leader continues to write, so the lag may grow.
    longest: u64,
}

impl Progress {
    pub(super) fn new(format: Format) -> Self {
        let shown = format == Format::Table;
        let bar = (shown && std::io::stderr().is_terminal()).then(|| bar(SPINNER));
        Self {
            shown,
            bar,
            tenths: None,
            longest: 0,
        }
    }

    /// Shows an event that a member has reported.
    pub(super) fn show(&mut self, told: Told) {
        match told {
            Told::Asking(place) => {
                self.line(&format!("asking `{}` ({})", place.name, place.address))
            }
            Told::Reported(CommandEvent::Began { phase }) => {
                if let Some(bar) = &self.bar {
                    shape(bar, SPINNER);
                    bar.reset_elapsed();
                    bar.set_message(phase);
                    bar.enable_steady_tick(TURN);
                }
            }
            Told::Reported(CommandEvent::Done { phase, seconds }) => {
                self.line(&format!("{phase:<14} {:>10}", milliseconds(seconds)));
            }
            Told::Reported(CommandEvent::Copied { stage, bytes, of }) => {
                let line = format!("copied {bytes} of {of} bytes ({stage})");
                self.advance(COPY, stage, (bytes, of), &line);
            }
            // The result of the command, which the caller shows.
            Told::Reported(_) => {}
        }
    }

    /// Shows the current lag of a new member, in entries.
    pub(super) fn catches_up(&mut self, lag: u64) {
        self.longest = self.longest.max(lag);
        let done = (self.longest - lag, self.longest);
        let line = format!("{lag} entries to go");
        self.advance(CATCH_UP, String::new(), done, &line);
    }

    /// Advances a bar on a terminal; elsewhere prints a line for each completed tenth.
    fn advance(&mut self, template: &str, message: String, (done, of): (u64, u64), line: &str) {
        let now = tenths(done, of);
        if let Some(bar) = &self.bar {
            shape(bar, template);
            bar.set_message(message);
            bar.set_length(of);
            bar.set_position(done);
        } else if self.tenths.replace(now) != Some(now) {
            self.line(line);
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None if !self.shown => {}
            None => {
                // The caller may have closed standard error.
                drop(writeln!(std::io::stderr(), "{text}"));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Returns the number of completed tenths, at most 10: `done` may exceed the expected total `of`.
fn tenths(done: u64, of: u64) -> u64 {
    match of / 10 {
        0 => 0,
        tenth => (done / tenth).min(10),
    }
}

/// Formats a duration: "152.3 ms", "2.25 s".
pub(super) fn milliseconds(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1000.0)
    } else {
        format!("{seconds:.2} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_reported_once() {
        let errors = [("a", "refused"), ("b", "no route"), ("c", "refused")];
        assert_eq!(
            each_once(errors.into_iter()),
            "`a`, `c`: refused; `b`: no route"
        );
    }

    #[test]
    fn durations_are_shortened() {
        assert_eq!(milliseconds(0.0004), "0.4 ms");
        assert_eq!(milliseconds(0.152_34), "152.3 ms");
        assert_eq!(milliseconds(2.254), "2.25 s");
    }

    #[test]
    fn progress_is_counted_in_tenths() {
        let parts = [(0, 0), (5, 9), (0, 100), (19, 100), (100, 100), (150, 100)];
        let shown = parts.map(|(done, of)| tenths(done, of));
        assert_eq!(shown, [0, 0, 0, 1, 10, 10]);
    }

    #[test]
    fn a_region_without_members_is_refused() {
        let failure = known_region("south", &Directory::default()).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "no member of the ring runs in region `south`\n  Give --new-region for a region that begins with this member"
        );
    }
}
