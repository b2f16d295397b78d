//! The client side of a command: queries all members for the leader, sends the command to the leader, reports
//! progress, and follows a change of leadership.

mod asker;
mod directory;
pub(crate) mod events;

use std::time::Duration;

use member::protocol::{CommandEvent, CommandResult, OperatorCommand, Order, Refusal};
use member::settings::MemberEntry;
use tokio::time::Instant;
use transport::AdminError;

#[cfg(feature = "fuzzing")]
pub(crate) use crate::operator::asker::RingSource;
pub(crate) use crate::operator::asker::latest;
pub use crate::operator::asker::{Asker, Hop, MemberReport, RingReport, Silence, hops};
pub use crate::operator::directory::Directory;
use crate::terminal::{Attempt, Exit, Failure};

/// How many times a command is redirected to the leader that a member reports.
const MOST_REDIRECTS: usize = 2;
/// Delay before a command is sent again to the same member, which has refused it but reports itself as the leader.
const BETWEEN_REDIRECTS: Duration = Duration::from_millis(300);

/// Progress of a running command.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// The command is sent to this member.
    Asking(MemberEntry),
    /// The member's report.
    Reported(CommandEvent),
}

impl Asker {
    /// Executes a command on the leader.
    ///
    /// # Errors
    /// Exit 3 without a leader; the exit code of the member's refusal; exit 5 if the command has not ended by `until`,
    /// the connection broke, or the operator interrupted the command. After exit 5, the ring may continue the command.
    pub async fn lead(
        &self,
        report: &RingReport,
        command: &OperatorCommand,
        until: Instant,
        mut tell: impl FnMut(Told),
    ) -> Attempt<CommandResult> {
        let directory = Directory::of(report);
        let end = async {
            let mut leader = leader(report, &directory)?;
            for _ in 0..=MOST_REDIRECTS {
                tell(Told::Asking(leader.clone()));
                let refusal = match self
                    .command(&leader, command, &directory, &mut tell)
                    .await?
                {
                    Ok(result) => return Ok(result),
                    Err(refusal) => refusal,
                };
                match refusal.leader.and_then(|next| directory.get(next)) {
                    Some(next) => {
                        if next.id == leader.id {
                            tokio::time::sleep(BETWEEN_REDIRECTS).await;
                        }
                        leader = next.clone();
                    }
                    None => return Err(directory.failure(&refusal)),
                }
            }
            Err(Exit::NoQuorum.because(
                "the leadership moves from member to member",
                "wait until it settles, and check with `witness status`",
            ))
        };
        tokio::select! {
            end = tokio::time::timeout_at(until, end) => end.unwrap_or_else(|_| {
                Err(unknown(command, &directory, "it did not end in time"))
            }),
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                Err(unknown(command, &directory, "it was interrupted here"))
            }
        }
    }

    /// Executes a command on this member.
    ///
    /// # Errors
    /// The exit code of the member's refusal; exit 3 if the member does not answer; exit 5 if the command has not ended
    /// by `until` or the connection broke. After exit 5, the ring may continue the command.
    pub async fn at(
        &self,
        place: &MemberEntry,
        directory: &Directory,
        command: &OperatorCommand,
        until: Instant,
        mut tell: impl FnMut(Told),
    ) -> Attempt<CommandResult> {
        let asked = self.command(place, command, directory, &mut tell);
        match tokio::time::timeout_at(until, asked).await {
            Ok(answer) => answer?.map_err(|refusal| directory.failure(&refusal)),
            Err(_) => Err(unknown(command, directory, "it did not end in time")),
        }
    }

    /// Sends a command to a member, and returns its result or its refusal; a failure if the member gives neither.
    async fn command(
        &self,
        place: &MemberEntry,
        command: &OperatorCommand,
        directory: &Directory,
        tell: &mut impl FnMut(Told),
    ) -> Attempt<Result<CommandResult, Refusal>> {
        let order = Order {
            command: command.clone(),
            by: operator_name(),
        };
        // An order is plain data, which always serializes.
        let json = serde_json::to_vec(&order).unwrap_or_default();
        let client = self.client(&place.address);
        let client = client.map_err(|error| Exit::Usage.because(error, "fix the address"))?;
        let begun = client.command(json.into()).await;
        let mut events = begun.map_err(|error| not_begun(&error))?;
        loop {
            let why = match events.next().await {
                Ok(Some(json)) => match serde_json::from_slice(&json) {
                    Ok(CommandEvent::Result(result)) => return Ok(Ok(result)),
                    Ok(CommandEvent::Refused(refusal)) => return Ok(Err(refusal)),
                    Ok(event) => {
                        tell(Told::Reported(event));
                        continue;
                    }
                    Err(error) => format!(
                        "{} gave an answer that cannot be read ({error}); run the same version everywhere",
                        directory.name(place.id)
                    ),
                },
                Ok(None) => format!("{} ended before it had an answer", directory.name(place.id)),
                Err(error) => directory.with_names(&error.to_string()),
            };
            return Err(unknown(command, directory, &why));
        }
    }
}

/// Returns the system's name of the user who runs this command.
pub(crate) fn operator_name() -> String {
    ["SUDO_USER", "USER", "LOGNAME"]
        .iter()
        .find_map(|variable| std::env::var(variable).ok())
        .unwrap_or_else(|| "an operator".to_owned())
}

/// Returns the leader that has a quorum.
///
/// # Errors
/// Exit 3 if there is none.
fn leader(report: &RingReport, directory: &Directory) -> Attempt<MemberEntry> {
    let place = report.leader.and_then(|leader| directory.get(leader));
    place.cloned().ok_or_else(|| {
        let quorum = &report.quorum;
        let cause = quorum.cause.as_deref().unwrap_or("no member leads");
        let fix = quorum.fix.as_deref();
        let fix = fix.unwrap_or("check with `witness status`");
        let what = match report.quorum_unknown {
            true => "no leader was found",
            false => "no member leads with a quorum",
        };
        Exit::NoQuorum.because(format!("{what}: {cause}"), fix)
    })
}

fn not_begun(error: &AdminError) -> Failure {
    let look = "check the leader with `witness status`, and try again";
    let (exit, advice) = match error {
        // No advice: the message of this error already names the accepted certificates.
        AdminError::NotAllowed { .. } => (Exit::NotAllowed, ""),
        AdminError::Refused { .. } => (Exit::Refused, look),
        _ => (Exit::NoQuorum, look),
    };
    exit.because(format!("nothing was done: {error}"), advice)
}

fn unknown(command: &OperatorCommand, directory: &Directory, why: &str) -> Failure {
    let command = command.text(&|id| directory.with_names(&format!("member {id}")));
    let what = format!("{command} may continue in the ring: {why}");
    Exit::Unknown.because(
        what,
        "check with `witness status` how it ended, and the ring's members with `witness members list`",
    )
}

#[cfg(test)]
mod tests {
    use raft_types::MemberId;

    use super::*;
    use member::status::QuorumView;

    fn report(leader: Option<u64>) -> RingReport {
        RingReport {
            ring: "orders".into(),
            leader: leader.map(MemberId),
            quorum: QuorumView {
                cause: Some("1 of 3 voters answer and 2 are needed".into()),
                fix: Some("run `witness run` on `db-2`".into()),
                ..QuorumView::default()
            },
            tolerates: None,
            quorum_unknown: false,
            members: Vec::new(),
            pause: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn without_a_leader_the_report_says_what_to_do() {
        let failure = leader(&report(None), &Directory::default()).unwrap_err();
        assert_eq!(
            (failure.exit, failure.to_string()),
            (
                Exit::NoQuorum,
                "no member leads with a quorum: 1 of 3 voters answer and 2 are needed\n  \
                 run `witness run` on `db-2`"
                    .to_owned()
            )
        );
    }

    #[test]
    fn what_is_not_known_says_where_to_look() {
        let command = OperatorCommand::Promote {
            to: MemberId(2),
            force: false,
        };
        let failure = unknown(&command, &Directory::default(), "it was interrupted here");
        assert_eq!(failure.exit, Exit::Unknown);
        assert_eq!(
            failure.what,
            "the promotion of member 2 may continue in the ring: it was interrupted here"
        );
        assert!(failure.advice.contains("`witness status`"), "{failure}");
    }
}
