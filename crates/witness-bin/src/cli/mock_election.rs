//! `witness mock-election`: whether a member would be elected now. Changes nothing.

use consensus::{MockElection, MockVote};
use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{MemberId, OpId};
use serde::Serialize;

use super::session::{Patience, RingArgs, Session, another_answer, block_on};
use crate::operator::Directory;
use crate::terminal::{Exit, Failure, Format, Table, print_json, print_text};

/// Arguments of `witness mock-election`.
#[derive(Debug, clap::Args)]
pub(crate) struct MockElectionArgs {
    /// Name or number of the member that would lead
    member: String,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    ring: RingArgs,
}

/// Output of `witness mock-election --output json`.
#[derive(Debug, Serialize)]
struct Document {
    candidate: MemberId,
    name: String,
    won: bool,
    /// The leader's last entry at the query.
    cursor: OpId,
    votes: Vec<Vote>,
}

#[derive(Debug, Serialize)]
struct Vote {
    voter: MemberId,
    name: Option<String>,
    region: Option<String>,
    log_end: Option<OpId>,
    would_elect: bool,
    refusal: Option<String>,
}

/// Runs `witness mock-election`.
///
/// # Errors
/// Exit 4 when it would not be elected, or did not answer; 3 without a leader.
pub(crate) fn run(args: &MockElectionArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let (report, directory) = session.ring().await?;
        let to = directory.find(&args.member)?.id;
        let command = OperatorCommand::MockElection { to };
        let until = args.patience.until();
        match session.order(&report, &command, until, format).await? {
            CommandResult::MockElection(election) => show(&election, &directory, format),
            other => Err(another_answer(&other)),
        }
    })
}

fn show(election: &MockElection, directory: &Directory, format: Format) -> Result<(), Failure> {
    let document = document(election, directory);
    match format {
        Format::Json => print_json(&document)?,
        Format::Table => print_text(&page(&document))?,
    }
    if document.won {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Refused,
        directory.with_names(&election.to_string()),
        "resolve the refusals, and try again",
    ))
}

fn document(election: &MockElection, directory: &Directory) -> Document {
    let vote = |vote: &MockVote| {
        let place = directory.get(vote.voter);
        Vote {
            voter: vote.voter,
            name: place.map(|place| place.name.clone()),
            region: place.map(|place| place.region.to_string()),
            log_end: vote.log_end,
            would_elect: vote.refusal.is_none(),
            refusal: vote.refusal.as_ref().map(|why| directory.with_names(why)),
        }
    };
    Document {
        candidate: election.candidate,
        name: directory.name(election.candidate),
        won: election.is_won(),
        cursor: election.cursor,
        votes: election.votes.iter().map(vote).collect(),
    }
}

fn page(document: &Document) -> String {
    let titles = ["Id", "Name", "Region", "Log_end", "Would_elect", "Because"];
    let mut table = Table::new(&titles);
    let missing = || "-".to_owned();
    for vote in &document.votes {
        table.row(vec![
            vote.voter.to_string(),
            vote.name.clone().unwrap_or_else(missing),
            vote.region.clone().unwrap_or_else(missing),
            vote.log_end.map_or_else(missing, |end| end.to_string()),
            if vote.would_elect { "yes" } else { "no" }.to_owned(),
            vote.refusal.clone().unwrap_or_else(missing),
        ]);
    }
    let mut lines = table.lines();
    if document.won {
        lines.push(String::new());
        lines.push(format!(
            "{} would be elected; the leader's log ends at {}",
            document.name, document.cursor
        ));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_voters_answer_is_a_line() {
        let vote = |voter: u64, refusal: Option<&str>| MockVote {
            voter: MemberId(voter),
            log_end: Some(OpId::new(3, 40 + voter)),
            refusal: refusal.map(str::to_owned),
        };
        let mut election = MockElection {
            candidate: MemberId(4),
            cursor: OpId::new(3, 45),
            sets: vec![[4, 5, 6].map(MemberId).into()],
            votes: vec![vote(4, None), vote(5, None), vote(6, Some("it lags"))],
        };
        let directory = Directory::default();
        assert_eq!(
            page(&document(&election, &directory)),
            "\
Id  Name  Region  Log_end  Would_elect  Because
 4     -       -     3.44  yes          -
 5     -       -     3.45  yes          -
 6     -       -     3.46  no           it lags

member 4 would be elected; the leader's log ends at 3.45
"
        );
        election.votes[1].refusal = Some("its log is longer".to_owned());
        let failure = show(&election, &directory, Format::Table).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(
            failure.what,
            "member 4 would not be elected; member 5: its log is longer; member 6: it lags"
        );
    }
}
