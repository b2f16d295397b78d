use raft_types::MemberKind;

use super::*;
use crate::routes::Because;

const DATABASE: MemberId = MemberId(2);
const WITNESS: MemberId = MemberId(3);
const HEARD_WITHIN: Duration = Duration::from_secs(1);

fn record(name: &str, region: &str, kind: MemberKind) -> MemberRecord {
    MemberRecord {
        name: name.to_owned(),
        region: Region(region.to_owned()),
        kind,
        ..MemberRecord::default()
    }
}

fn begin(board: &Board) {
    board.begin(DATABASE, &record("db", "far", MemberKind::Database));
    board.begin(WITNESS, &record("w", "far", MemberKind::Witness));
}

/// A leader's board with a database member and a witness in another region, where the former has answered.
fn board(now: Instant) -> Board {
    let leader = record("leader", "home", MemberKind::Database);
    let board = Board::new(MemberId(1), &leader, ProxyOptions::default(), HEARD_WITHIN);
    begin(&board);
    board.holds(DATABASE, None, now);
    board
}

fn proxies(board: &Board, now: Instant) -> Vec<MemberId> {
    board.route(WITNESS, now).proxies().to_vec()
}

#[test]
fn a_way_is_kept_for_a_moment_and_chosen_anew_then() {
    let begun = Instant::now();
    let board = board(begun);
    // By the passing of time alone the proxy becomes one that does not answer.
    let chosen = begun + HEARD_WITHIN - Duration::from_millis(1);
    assert_eq!(proxies(&board, chosen), [DATABASE]);
    let just_before = chosen + CHOSEN_FOR - Duration::from_millis(1);
    assert_eq!(proxies(&board, just_before), [DATABASE]);
    let route = board.route(WITNESS, chosen + CHOSEN_FOR);
    assert!(
        matches!(&*route, Route::Direct(Because::Unfit(DATABASE, why)) if why.contains("not answered")),
        "{route:?}"
    );
}

#[test]
fn a_failure_changes_the_way_at_once_and_for_a_while() {
    let now = Instant::now();
    let board = board(now);
    let mut happenings = board.happenings();
    happenings.mark_unchanged();
    assert_eq!(proxies(&board, now), [DATABASE]);
    board.failed(&[DATABASE], WITNESS, &Failure::Silent, now);
    assert!(happenings.has_changed().unwrap(), "whoever waits is told");
    assert!(proxies(&board, now).is_empty());
    let after = now + Duration::from_secs(1);
    board.heard(DATABASE, after);
    assert_eq!(proxies(&board, after), [DATABASE]);
}

#[test]
fn who_is_heard_of_first_may_be_the_proxy_at_once() {
    let now = Instant::now();
    let board = board(now);
    begin(&board);
    assert!(proxies(&board, now).is_empty());
    board.holds(DATABASE, None, now);
    assert_eq!(proxies(&board, now), [DATABASE]);
}

#[test]
fn what_went_wrong_with_one_member_does_not_count_for_the_others() {
    const OTHER: MemberId = MemberId(4);
    let now = Instant::now();
    let board = board(now);
    board.begin(OTHER, &record("w2", "far", MemberKind::Witness));
    board.failed(&[DATABASE], WITNESS, &Failure::CannotCall(WITNESS), now);
    assert!(proxies(&board, now).is_empty());
    assert_eq!(board.route(OTHER, now).proxies(), [DATABASE]);
}

#[test]
fn a_new_leadership_forgets_what_went_wrong() {
    let now = Instant::now();
    let board = board(now);
    for failure in [Failure::Silent, Failure::CannotCall(WITNESS)] {
        board.failed(&[DATABASE], WITNESS, &failure, now);
        assert!(proxies(&board, now).is_empty());
        begin(&board);
        board.holds(DATABASE, None, now);
        assert_eq!(proxies(&board, now), [DATABASE], "after {failure}");
    }
}

#[test]
fn people_are_told_the_ways_and_why_there_is_none() {
    let now = Instant::now();
    let board = board(now);
    for member in [DATABASE, WITNESS] {
        board.route(member, now);
    }
    let direct = RouteView {
        member: DATABASE,
        through: Vec::new(),
        because: Some("it is the proxy of its region".to_owned()),
    };
    let through = RouteView {
        member: WITNESS,
        through: vec![DATABASE],
        because: None,
    };
    assert_eq!(board.routes(), [direct, through]);
}
