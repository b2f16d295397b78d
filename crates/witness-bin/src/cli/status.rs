//! `witness status`: queries every configured member and shows the ring.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use member::status::{LoggedMember, MemberView, Role, ScrubView};
use raft_types::MemberId;

use crate::cli::session::{QueryArgs, block_on, no_answer};
use crate::operator::events::Events;
use crate::operator::{MemberReport, RingReport, hops};
use crate::terminal::{
    Attempt, Exit, Failure, Format, Table, cell, colours, print, print_json_line, print_text,
};
use crate::text::differences::versions;
use crate::text::event::Event;
use crate::text::member::{mysqld, notes, role};
use crate::text::ring;
use crate::text::times::{now, now_ms, span, time_of_day};
use crate::text::{Level, lines};

/// Arguments of `witness status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show it again every second until it is interrupted, with the events since then
    #[arg(short, long)]
    watch: bool,
    /// Say what a commit waits for, and for each member why it can or cannot be elected now
    #[arg(short, long)]
    explain: bool,
    #[command(flatten)]
    query: QueryArgs,
}

const AGAIN: Duration = Duration::from_secs(1);

/// Runs `witness status`.
///
/// # Errors
/// Exit 3 without a quorum, 1 if no mysqld of the ring runs, 2 for a wrong configuration.
pub(crate) fn run(args: &StatusArgs, format: Format) -> Attempt {
    let asker = args.query.asker()?;
    block_on(async {
        let mut watched = Watched {
            began_ms: now_ms(),
            ..Watched::default()
        };
        loop {
            let report = asker.report().await;
            if args.watch {
                watched.see(now_ms(), &report);
                let on_a_terminal = std::io::stdout().is_terminal();
                match format {
                    Format::Json => print_json_line(&report)?,
                    Format::Table => {
                        let page = watched.page(&report, args.explain, colours(), on_a_terminal);
                        print_text(&match on_a_terminal {
                            // Moves the cursor home, and clears the rest of each old line and all lines below the page.
                            true => format!("\x1b[H{}\x1b[J", page.replace('\n', "\x1b[K\n")),
                            false => format!("{page}\n"),
                        })?;
                    }
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            // With --endpoints, no member is known until one answers.
            if report.members.is_empty() {
                return Err(no_answer(&report));
            }
            print(format, &report, || {
                let explained = args.explain.then(|| explained(&report));
                page(&report, colours()) + &explained.unwrap_or_default()
            })?;
            return match (report.quorum.ok, report.databases_down().is_empty()) {
                (false, _) => Err(Failure::silent(Exit::NoQuorum)),
                (true, false) => Err(Failure::silent(Exit::Error)),
                (true, true) => Ok(()),
            };
        }
    })
}

// `witness status --watch`: the page has the problems first, then the members, the requirements of a commit, and the events since the
// command began.

/// The most events shown on a terminal.
const SHOWN: usize = 12;

/// The state of a ring that is queried again and again.
#[derive(Default)]
struct Watched {
    began_ms: u64,
    now_ms: u64,
    events: Events,
    /// The last view: the leader's, or that of the member with the latest term and the longest log.
    view: Option<MemberView>,
    /// The time of the last printed page, in milliseconds since 1970.
    printed_ms: u64,
}

impl Watched {
    /// Records the members' answers, and the events that they show.
    fn see(&mut self, now_ms: u64, report: &RingReport) {
        self.now_ms = now_ms;
        let is_first = self.view.is_none();
        let furthest = || report.views().max_by_key(|view| (view.term, view.log_end));
        let seen = report.leader_view().or_else(furthest).cloned();
        // If no member answers, the last view is used without its leader.
        let view = seen.or_else(|| {
            self.view.clone().map(|last| MemberView {
                leader: None,
                role: Role::Follower,
                ..last
            })
        });
        let Some(view) = view else { return };
        self.events.see(self.now_ms, &view, Some(report));
        if is_first {
            self.events.forget();
        }
        self.view = Some(view);
    }

    /// Returns the current page. On a terminal, a page replaces the previous page, and has the newest events. Elsewhere, all pages remain
    /// in the output, so a page has only the events that no earlier page had.
    fn page(
        &mut self,
        report: &RingReport,
        explain: bool,
        colours: bool,
        on_a_terminal: bool,
    ) -> String {
        let now = time_of_day(self.now_ms);
        let mut page = format!("{now}, again every second\n\n");
        page += &quorum_lines(report, colours);
        page += &warnings(report, colours);
        page.push('\n');
        page += &members(report);
        page.push('\n');
        page += &notes_lines(report);
        if explain {
            page += &explained(report);
        } else {
            page += &lines("", ring::explained(report).commit);
        }
        let newest = self.events.kept().rev();
        let is_shown = |event: &&Event| on_a_terminal || event.at_ms > self.printed_ms;
        let most = if on_a_terminal { SHOWN } else { usize::MAX };
        let lines = newest.filter(is_shown).take(most);
        let lines: String = lines.map(|event| line(event, colours)).collect();
        self.printed_ms = self.now_ms;
        let began = time_of_day(self.began_ms);
        match lines.as_str() {
            "" if !on_a_terminal => {}
            "" => page += &format!("\nNothing has happened since {began}\n"),
            _ => page += &format!("\nSince {began}, the newest first\n{lines}"),
        }
        page
    }
}

fn line(event: &Event, colours: bool) -> String {
    let text = event.change.to_string();
    let text = match event.change.level() {
        Level::Good => paint(colours, "32", &text),
        Level::Bad => paint(colours, "31", &text),
        Level::Note => text,
    };
    format!("{}  {text}\n", time_of_day(event.at_ms))
}

// The table of `witness status`: one line for each member, and problems below. With `--explain`, the page also has the requirements of a
// commit, and why each member can or cannot be elected now. Without a leader, the explanation is derived from the answers of all members.

/// Returns the page: the quorum, the table, notes and warnings.
pub(super) fn page(report: &RingReport, colours: bool) -> String {
    let (members, quorum) = (members(report), quorum_lines(report, colours));
    let (notes, warnings) = (notes_lines(report), warnings(report, false));
    format!("{quorum}\n{members}\n{notes}{warnings}")
}

/// Returns the table with a line for each member.
pub(crate) fn members(report: &RingReport) -> String {
    let mut table =
        Table::titled("Id Name Region Kind Role Term Log_end Committed Lag Mysqld Uptime");
    for member in &report.members {
        table.row(row(member, report));
    }
    table.to_string()
}

/// Returns the lines about replication routes, a pause of failover, the members' problems, and their scrubs.
pub(super) fn notes_lines(report: &RingReport) -> String {
    let routes = report.leader_view().map(routes).unwrap_or_default();
    let mut out = lines("", routes) + &lines("", ring::pause(report));
    for member in &report.members {
        out += &lines(&format!("{}: ", member.name), notes(member));
    }
    let now = now();
    for member in &report.members {
        let scrub = member.view.as_ref().map(|view| &view.log.scrub);
        let line = scrub.and_then(|scrub| scrub_line(scrub, now));
        out += &lines(&format!("{}: ", member.name), line);
    }
    out
}

/// Returns the warnings about contradictions, one on each line.
pub(super) fn warnings(report: &RingReport, colours: bool) -> String {
    let warning = paint(colours, "33", "Warning:");
    lines(&format!("{warning} "), &report.warnings)
}

/// Returns a text in the color of an ANSI code, if `colours` is set.
pub(super) fn paint(colours: bool, code: &str, text: &str) -> String {
    match colours {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text.to_owned(),
    }
}

fn row(member: &MemberReport, report: &RingReport) -> Vec<String> {
    let view = member.view.as_ref();
    let mysql = view.and_then(|view| view.mysql.as_ref());
    vec![
        member.id.to_string(),
        member.name.clone(),
        member.region.to_string(),
        member.kind.to_string(),
        view.map_or_else(|| "unreachable".to_owned(), |view| role(view, report)),
        cell(view.map(|view| view.term)),
        cell(view.and_then(|view| view.log_end)),
        cell(view.and_then(|view| view.committed)),
        cell(member.lag_entries),
        cell(mysql.map(mysqld)),
        cell(view.map(|view| span(view.uptime_seconds))),
    ]
}

pub(super) fn quorum_lines(report: &RingReport, colours: bool) -> String {
    let said = ring::quorum(report);
    let code = match said.level {
        Level::Good => "32",
        Level::Note => "33",
        Level::Bad => "31",
    };
    let sentence = format!("{}{}\n", paint(colours, code, said.begins), said.rest);
    sentence + &lines("To fix it: ", said.fix)
}

// The scrub progress of a member's log, in one line.

/// Returns the line, or `None` if there is nothing to report: no file is closed, or the first pass of the scrub has not begun, as in a new
/// ring.
pub(super) fn scrub_line(scrub: &ScrubView, now: u64) -> Option<String> {
    let is_due = scrub.completed_at.is_none() && scrub.turn_bytes == 0;
    let is_on = scrub.bytes_per_second.is_some();
    if scrub.closed_bytes == 0 || is_due && is_on && scrub.damaged_total == 0 {
        return None;
    }
    let size = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let last = scrub.completed_at.map(|at| {
        let ago = span(now.saturating_sub(at) as f64);
        format!("all of its closed files were last read back {ago} ago")
    });
    let mut parts: Vec<String> = last.into_iter().collect();
    match scrub.bytes_per_second {
        Some(rate) if scrub.turn_bytes > 0 => parts.push(format!(
            "{} of {} read back in this pass, {} a second at most",
            size(scrub.turn_bytes),
            size(scrub.closed_bytes),
            size(rate)
        )),
        Some(_) => {}
        None => parts.push(format!(
            "off (`log.scrub_rate` is 0); {} of {} not verified since they were written",
            size(scrub.unverified_bytes),
            size(scrub.closed_bytes)
        )),
    }
    if scrub.damaged_total > 0 {
        parts.push(format!(
            "{} found damaged and {} replaced since its start",
            scrub.damaged_total, scrub.repaired_total
        ));
    }
    Some(format!("scrub: {}", parts.join("; ")))
}

/// Returns the explanations for `--explain`, and the versions that the members run.
pub(super) fn explained(report: &RingReport) -> String {
    let explained = ring::explained(report);
    let versions = versions(report.views());
    let all = explained.commit.iter().chain(&explained.elections);
    format!("\n{}", lines("", all.chain(&versions)))
}

/// Returns the tree of replication routes, which begins with the leader. Empty if all members receive entries directly from the leader.
fn routes(leader: &MemberView) -> Vec<String> {
    let mut routes = (leader.replication_routes.iter()).flat_map(|routes| &routes.routes);
    if routes.all(|route| route.through.is_empty()) {
        return Vec::new();
    }
    let (own, hops) = (leader.member.id, hops(leader));
    let mut below: BTreeMap<MemberId, Vec<&LoggedMember>> = BTreeMap::new();
    for member in leader.members.iter().filter(|member| member.id != own) {
        let hop = hops.iter().find(|hop| hop.to == member.id);
        below
            .entry(hop.map_or(own, |hop| hop.from))
            .or_default()
            .push(member);
    }
    // The tree has the leader's name at its top, and below each member the members to which it sends entries.
    let mut lines = vec![format!("Entries travel from `{}`", leader.member.name)];
    draw(own, "", &below, &mut lines);
    lines
}

fn draw(
    from: MemberId,
    indent: &str,
    below: &BTreeMap<MemberId, Vec<&LoggedMember>>,
    lines: &mut Vec<String>,
) {
    let members = below.get(&from).map(Vec::as_slice).unwrap_or_default();
    for (at, member) in members.iter().enumerate() {
        let (branch, deeper) = match at + 1 == members.len() {
            true => ("└─ ", "   "),
            false => ("├─ ", "│  "),
        };
        let record = &member.record;
        lines.push(format!(
            "{indent}{branch}{} ({})",
            record.name, record.region
        ));
        draw(member.id, &format!("{indent}{deeper}"), below, lines);
    }
}

#[cfg(test)]
mod tests {
    use member::settings::MemberEntry;
    use member::status::ReplicationRoutesView;
    use member::status::sample::{database_leader, witness_follower};
    use proxy::RouteView;
    use raft_types::{MemberRecord, Region};
    use ring_admin::{Explanation, Prospects};

    use super::*;
    use crate::operator::{MemberReport, Silence};

    fn report(witness: Result<MemberView, String>) -> RingReport {
        let members = [
            MemberReport::sample(1, "db-1", Ok(database_leader())),
            MemberReport::sample(2, "witness-1", witness),
        ];
        RingReport::new("orders", members.into())
    }

    fn at(seconds: u64) -> u64 {
        (1_800_000_000 + seconds) * 1_000
    }

    #[test]
    fn events_during_the_watch_are_shown_with_their_time() {
        let mut watched = Watched {
            began_ms: at(0),
            ..Watched::default()
        };
        let mut page = |second, witness: Result<MemberView, String>| {
            let report = report(witness);
            watched.see(at(second), &report);
            watched.page(&report, false, false, true)
        };
        let first = page(0, Ok(witness_follower()));
        assert!(
            first.contains("Nothing has happened since 2027-01-15T08:00:00Z\n"),
            "{first}"
        );
        let lost = page(1, Err("connection refused".into()));
        let back = page(2, Ok(witness_follower()));
        assert!(
            lost.ends_with("\n2027-01-15T08:00:01Z  `witness-1` does not answer\n"),
            "{lost}"
        );
        let both = "\n2027-01-15T08:00:02Z  `witness-1` answers again\n\
            2027-01-15T08:00:01Z  `witness-1` does not answer\n";
        assert!(back.ends_with(both), "{back}");
        let (quorum, members) = (back.find("quorum"), back.find("Log_end"));
        assert!(quorum < members, "problems come first: {back}");
    }

    #[test]
    fn kept_pages_have_each_event_once_and_no_colours() {
        let mut watched = Watched {
            began_ms: at(0),
            ..Watched::default()
        };
        let mut page = |second, witness: Result<MemberView, String>| {
            let report = report(witness);
            watched.see(at(second), &report);
            watched.page(&report, false, false, false)
        };
        page(0, Ok(witness_follower()));
        let told = page(1, Err("connection refused".into()));
        let later = page(2, Err("connection refused".into()));
        assert!(told.contains("`witness-1` does not answer"), "{told}");
        assert!(!later.contains("does not answer"), "{later}");
        assert!(!told.contains('\x1b'));
    }

    #[test]
    fn a_ring_that_does_not_answer_is_an_event() {
        let mut watched = Watched {
            began_ms: at(0),
            ..Watched::default()
        };
        let silent = || {
            let gone = || Err("connection refused".to_owned());
            let members = [
                MemberReport::sample(1, "db-1", gone()),
                MemberReport::sample(2, "witness-1", gone()),
            ];
            RingReport::new("orders", members.into())
        };
        watched.see(at(0), &silent());
        watched.see(at(1), &report(Ok(witness_follower())));
        watched.see(at(2), &silent());
        let page = watched.page(&silent(), false, true, true);
        assert!(page.contains("\x1b[31m`db-1` does not answer"), "{page}");
        assert!(page.contains("lost the leadership"), "{page}");
    }

    fn entry(view: &MemberView) -> MemberEntry {
        MemberEntry {
            id: view.member.id,
            name: view.member.name.clone(),
            region: view.member.region.clone(),
            kind: view.member.kind,
            votes: true,
            priority: 100,
            address: view.member.address.clone(),
        }
    }

    fn asked(entry: MemberEntry, answer: Result<MemberView, String>) -> MemberReport {
        MemberReport::new(entry, true, answer.map_err(Silence::from))
    }

    #[test]
    fn a_healthy_ring_is_a_table_and_one_line() {
        let views = [database_leader(), witness_follower()];
        let answers = views.map(|mut view| {
            view.members.truncate(2);
            asked(entry(&view), Ok(view))
        });
        let report = RingReport::new("orders", answers.into());
        let expected = "\
The quorum answers, `db-1` leads ring `orders`; it tolerates 1 more failure, but not of `db-1`, the only database member

Id  Name       Region  Kind      Role      Term  Log_end  Committed  Lag  Mysqld   Uptime
 1  db-1       north   database  leader       3     3.42       3.42    0  primary     12s
 2  witness-1  north   witness   follower     3     3.42       3.42    0  -           12s

";
        assert_eq!(page(&report, false), expected);
    }

    #[test]
    fn a_lost_quorum_is_shown_with_its_start_cause_and_fix() {
        let mut alone = database_leader();
        alone.serving = false;
        alone.quorum.lost_for_seconds = Some(75.0);
        let witness = witness_follower();
        alone.voter_sets.clear();
        let answers = vec![
            asked(entry(&alone), Ok(alone)),
            asked(entry(&witness), Err("connection refused".to_owned())),
        ];
        let text = page(&RingReport::new("orders", answers), false);
        for line in [
            " 1  db-1       north   database  leader (not serving)",
            "unreachable              -",
            "No quorum for 1m15s: 1 of 2 voters answer and 2 are needed. Commits wait.\n",
            "To fix it: start witness on `witness-1` (10.0.0.2:7400) (`systemctl start witness`, or `witness run`); if they are permanently lost, see `witness quorum fix`\n",
            "witness-1: no answer: connection refused. See the runbook lost-member\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_scrub_line_has_the_last_pass_the_current_one_and_the_rate() {
        const MIB: u64 = 1 << 20;
        let scrub = ScrubView {
            closed_bytes: 40 * MIB,
            bytes_per_second: Some(8 * MIB),
            ..ScrubView::default()
        };
        let table = [
            (ScrubView::default(), None),
            (
                ScrubView {
                    unverified_bytes: 40 * MIB,
                    ..scrub
                },
                None,
            ),
            (
                ScrubView {
                    unverified_bytes: 30 * MIB,
                    turn_bytes: 10 * MIB,
                    ..scrub
                },
                Some(
                    "scrub: 10.0 MiB of 40.0 MiB read back in this pass, 8.0 MiB a second at most",
                ),
            ),
            (
                ScrubView {
                    completed_at: Some(1_000),
                    ..scrub
                },
                Some("scrub: all of its closed files were last read back 1h01m ago"),
            ),
            (
                ScrubView {
                    completed_at: Some(1_000),
                    turn_bytes: 10 * MIB,
                    damaged_total: 2,
                    repaired_total: 1,
                    ..scrub
                },
                Some(
                    "scrub: all of its closed files were last read back 1h01m ago; 10.0 MiB of 40.0 MiB read back in this pass, 8.0 MiB a \
                 second at most; 2 found damaged and 1 replaced since its start",
                ),
            ),
            (
                ScrubView {
                    bytes_per_second: None,
                    unverified_bytes: 30 * MIB,
                    ..scrub
                },
                Some(
                    "scrub: off (`log.scrub_rate` is 0); 30.0 MiB of 40.0 MiB not verified since they were written",
                ),
            ),
        ];
        for (scrub, expected) in table {
            assert_eq!(scrub_line(&scrub, 4_660).as_deref(), expected);
        }
    }

    fn explained_by(leader: MemberView) -> RingReport {
        let members = [
            MemberReport::sample(1, "db-1", Ok(leader)),
            MemberReport::sample(2, "witness-1", Ok(witness_follower())),
        ];
        RingReport::new("orders", members.into())
    }

    #[test]
    fn the_leaders_explanation_is_shown() {
        let mut leader = database_leader();
        let prospects = |member: u64, could_win, because: &str| Prospects {
            member: MemberId(member),
            could_win,
            because: because.into(),
        };
        leader.explanation = Some(Explanation {
            commit: "a commit waits for member 2".into(),
            quorum: Some("policy majority requires other voters: moving to {1, 2}".into()),
            members: vec![
                prospects(1, true, "it leads"),
                prospects(2, false, "member 1 has a longer log"),
            ],
        });
        let expected = "
A commit waits for member 2 `witness-1`
Policy majority requires other voters: moving to {1, 2}
`db-1` can be elected: it leads
`witness-1` cannot be elected: member 1 `db-1` has a longer log
Versions: 0.1.0, formats 1: `db-1`, `witness-1`. The ring's format is 1
";
        assert_eq!(explained(&explained_by(leader)), expected);
    }

    #[test]
    fn without_a_leader_the_logs_are_compared() {
        let mut deposed = database_leader();
        deposed.serving = false;
        deposed.leader = None;
        let text = explained(&explained_by(deposed));
        for line in [
            "`db-1`: its log ends at 3.42 in term 3; it reports no leader\n",
            "`witness-1`: its log ends at 3.42 in term 3; it reports `db-1` as the leader\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    fn leader(routes: &[(u64, &[u64])]) -> MemberView {
        let mut view = database_leader();
        let names = ["a-db", "a-w", "b-db", "b-w1", "b-w2", "c-w"];
        view.members = names
            .iter()
            .zip(1..)
            .map(|(name, id)| LoggedMember {
                id: MemberId(id),
                voter: true,
                record: MemberRecord {
                    name: (*name).to_owned(),
                    region: Region(name[..1].to_owned()),
                    ..MemberRecord::default()
                },
            })
            .collect();
        view.member.name = "a-db".to_owned();
        view.replication_routes = Some(ReplicationRoutesView {
            routes: routes
                .iter()
                .map(|(member, through)| RouteView {
                    member: MemberId(*member),
                    through: through.iter().copied().map(MemberId).collect(),
                    because: None,
                })
                .collect(),
            ..ReplicationRoutesView::default()
        });
        view
    }

    #[test]
    fn members_are_drawn_below_their_proxies() {
        let view = leader(&[(4, &[3]), (5, &[3]), (6, &[3, 5])]);
        let expected = "\
Entries travel from `a-db`
├─ a-w (a)
└─ b-db (b)
   ├─ b-w1 (b)
   └─ b-w2 (b)
      └─ c-w (c)";
        assert_eq!(routes(&view).join("\n"), expected);
    }

    #[test]
    fn a_circle_of_routes_hides_no_member() {
        assert!(routes(&leader(&[(4, &[])])).is_empty());
        let circle = leader(&[(2, &[3]), (3, &[2]), (4, &[3])]);
        assert_eq!(routes(&circle).len(), circle.members.len());
    }
}
