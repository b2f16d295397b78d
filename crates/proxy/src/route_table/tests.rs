use raft_types::{LogId, MemberKind, OpId};

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

fn begin(route_table: &RouteTable) {
    route_table.begin(DATABASE, &record("db", "far", MemberKind::Database));
    route_table.begin(WITNESS, &record("w", "far", MemberKind::Witness));
}

/// Returns a leader's route table with a database member and a witness in another region. The database member has answered.
fn route_table(now: Instant) -> RouteTable {
    let leader = record("leader", "home", MemberKind::Database);
    let route_table = RouteTable::new(MemberId(1), &leader, ProxyOptions::default(), HEARD_WITHIN);
    begin(&route_table);
    holds(&route_table, None, now);
    route_table
}

/// Records that the database member has acknowledged all entries up to `matching`.
fn holds(route_table: &RouteTable, matching: Option<LogId>, now: Instant) {
    let answered = Answered {
        result: Ok(matching),
        report: None,
    };
    route_table.answered(DATABASE, &answered, now);
}

fn proxies(route_table: &RouteTable, now: Instant) -> Vec<MemberId> {
    route_table.route(WITNESS, now).proxies().to_vec()
}

#[test]
fn a_route_is_kept_briefly_and_then_chosen_again() {
    let begun = Instant::now();
    let route_table = route_table(begun);
    // No event occurs. The proxy becomes unsuitable only because time passes without an answer.
    let chosen = begun + HEARD_WITHIN - Duration::from_millis(1);
    assert_eq!(proxies(&route_table, chosen), [DATABASE]);
    let just_before = chosen + CHOSEN_FOR - Duration::from_millis(1);
    assert_eq!(proxies(&route_table, just_before), [DATABASE]);
    let route = route_table.route(WITNESS, chosen + CHOSEN_FOR);
    assert!(
        matches!(&*route, Route::Direct(Because::Unfit(DATABASE, why)) if why.contains("not answered")),
        "{route:?}"
    );
}

#[test]
fn a_failure_changes_the_route_immediately_for_a_while() {
    let now = Instant::now();
    let route_table = route_table(now);
    let mut happenings = route_table.happenings();
    happenings.mark_unchanged();
    assert_eq!(proxies(&route_table, now), [DATABASE]);
    route_table.failed(&[DATABASE], WITNESS, &Failure::Silent, now);
    assert!(
        happenings.has_changed().unwrap(),
        "waiting tasks are notified"
    );
    assert!(proxies(&route_table, now).is_empty());
    let after = now + Duration::from_secs(1);
    route_table.heard(DATABASE, after);
    assert_eq!(proxies(&route_table, after), [DATABASE]);
}

#[test]
fn a_new_member_may_become_the_proxy_immediately() {
    let now = Instant::now();
    let route_table = route_table(now);
    begin(&route_table);
    assert!(proxies(&route_table, now).is_empty());
    holds(&route_table, None, now);
    assert_eq!(proxies(&route_table, now), [DATABASE]);
}

#[test]
fn a_failed_link_does_not_count_for_other_members() {
    const OTHER: MemberId = MemberId(4);
    let now = Instant::now();
    let route_table = route_table(now);
    route_table.begin(OTHER, &record("w2", "far", MemberKind::Witness));
    route_table.failed(&[DATABASE], WITNESS, &Failure::CannotCall(WITNESS), now);
    assert!(proxies(&route_table, now).is_empty());
    assert_eq!(route_table.route(OTHER, now).proxies(), [DATABASE]);
}

#[test]
fn a_new_leadership_clears_failures_of_links() {
    let now = Instant::now();
    let route_table = route_table(now);
    for failure in [Failure::Silent, Failure::CannotCall(WITNESS)] {
        route_table.failed(&[DATABASE], WITNESS, &failure, now);
        assert!(proxies(&route_table, now).is_empty());
        begin(&route_table);
        holds(&route_table, None, now);
        assert_eq!(proxies(&route_table, now), [DATABASE], "after {failure}");
    }
}

#[test]
fn the_view_has_routes_and_reasons_for_direct_ones() {
    let now = Instant::now();
    let route_table = route_table(now);
    for member in [DATABASE, WITNESS] {
        route_table.route(member, now);
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
    assert_eq!(route_table.routes(), [direct, through]);
}

#[test]
fn an_entry_is_in_flight_until_the_member_acknowledges_it() {
    let route_table = route_table(Instant::now());
    let way = |index| route_table.way_to(DATABASE, index);
    let departure = Departure::watched();
    assert_eq!(way(7), Way::Leaves(0));
    route_table.departs(DATABASE, 7, &departure);
    assert_eq!(way(7), Way::Leaves(0), "it is packed");
    departure.piece_left(false);
    assert_eq!(way(7), Way::Leaves(1));
    departure.piece_left(true);
    assert_eq!((way(6), way(7)), (Way::HasLeft, Way::HasLeft));
    assert_eq!(way(8), Way::Leaves(2), "that one leaves next");
    assert_eq!(route_table.way_to(WITNESS, 7), Way::Leaves(0));
    holds(&route_table, Some(OpId::new(1, 7).into()), Instant::now());
    assert_eq!(way(7), Way::There);
}
