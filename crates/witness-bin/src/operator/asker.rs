//! Requests the views of all members of a ring concurrently, each with a deadline, and combines the answers into a report of the ring.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use consensus::Timers;
use member::settings::{MemberEntry, Settings, TlsSettings};
use member::status::{MemberView, MysqldState, PauseView, QuorumView, ViewSource};
use raft_types::MemberId;
use serde::Serialize;
use transport::{AdminClient, AdminError, TlsError, TlsMaterial, TransportConfig};

use crate::text::differences::differences;

use crate::text::ring::{
    even_among, forgotten_pause, lost, not_known, of_answers, scheduled, unknown,
};

/// Time limit for a member's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Queries the members of one ring.
pub struct Asker {
    pub(super) ring: RingSource,
    /// If a member queries its ring: its number, and its own view, for which no call is needed.
    pub(crate) own: Option<(MemberId, Arc<dyn ViewSource>)>,
    tls: Option<TlsMaterial>,
    transport: TransportConfig,
}

/// The source of the list of members.
pub(crate) enum RingSource {
    /// The members are listed in a configuration.
    Configured {
        ring: String,
        members: Vec<MemberEntry>,
    },
    /// The answers of the members at these addresses list all members.
    Endpoints(Vec<String>),
}

impl Asker {
    /// Creates an asker for the members of this configuration.
    ///
    /// # Errors
    /// When the TLS files cannot be used.
    pub fn new(settings: &Settings) -> Result<Self, TlsError> {
        let tls = settings.tls.as_ref().map(TlsSettings::load_for_commands);
        let tls = tls.transpose()?;
        Ok(Self::of_ring(settings, tls))
    }

    /// Creates an asker for the member with this configuration: it queries the others with its TLS settings, and uses its own view.
    pub fn of_member(
        settings: &Settings,
        tls: Option<TlsMaterial>,
        view: Arc<dyn ViewSource>,
    ) -> Self {
        let mut asker = Self::of_ring(settings, tls);
        asker.own = Some((settings.own.id, view));
        // The member's client repeats its request, so a short limit for looking up a name is enough.
        asker.transport.lookup_limit = PATIENCE;
        asker
    }

    /// Creates an asker for the ring of the members at these addresses; one answer is enough.
    ///
    /// # Errors
    /// When the TLS files cannot be used.
    pub fn of_endpoints(endpoints: &[String], tls: Option<&TlsSettings>) -> Result<Self, TlsError> {
        let tls = tls.map(TlsSettings::load_for_commands).transpose()?;
        Ok(Self::of(RingSource::Endpoints(endpoints.to_vec()), tls))
    }

    fn of_ring(settings: &Settings, tls: Option<TlsMaterial>) -> Self {
        let (ring, members) = (settings.ring_name.clone(), settings.members.clone());
        Self::of(RingSource::Configured { ring, members }, tls)
    }

    pub(crate) fn of(ring: RingSource, tls: Option<TlsMaterial>) -> Self {
        Self {
            ring,
            own: None,
            tls,
            transport: TransportConfig {
                connect_deadline: PATIENCE,
                call_deadline: PATIENCE,
                ..TransportConfig::for_timers(&Timers::default())
            },
        }
    }

    /// Sets another time limit for each member's answer.
    #[must_use]
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.transport.connect_deadline = limit;
        self.transport.call_deadline = limit;
        self
    }

    pub(super) async fn ask_all(
        &self,
        members: Vec<MemberEntry>,
        configured: bool,
    ) -> Vec<MemberReport> {
        let asked = members.into_iter().map(async |entry| {
            let answer = self.ask(&entry).await;
            MemberReport::new(entry, configured, answer)
        });
        futures::future::join_all(asked).await
    }

    /// Creates a client for the member at an address, with the TLS settings and the time limit of this asker.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn client(&self, address: &str) -> Result<AdminClient, AdminError> {
        AdminClient::new(address, self.tls.as_ref(), self.transport)
    }

    /// Requests one member's view.
    ///
    /// # Errors
    /// The reason why the member gave no usable answer.
    pub async fn ask(&self, member: &MemberEntry) -> Result<MemberView, Silence> {
        if let Some((_, own)) = self.own.as_ref().filter(|(id, _)| *id == member.id) {
            return Ok(own.view());
        }
        let view = self.view_at(&member.address).await?;
        if view.member.id != member.id {
            let why = format!(
                "member {} `{}` answers at {}; check the addresses",
                view.member.id, view.member.name, member.address
            );
            return Err(why.into());
        }
        Ok(view)
    }

    /// Requests the view of the member at an address.
    pub(super) async fn view_at(&self, address: &str) -> Result<MemberView, Silence> {
        let client = self.client(address);
        let client = client.map_err(|error| Silence::from(error.to_string()))?;
        let json = client.status().await.map_err(|error| match error {
            AdminError::Unreachable { reason, .. } => Silence::from(reason),
            AdminError::Unresolved { reason, .. } => Silence {
                why: reason,
                unresolved: true,
            },
            other => other.to_string().into(),
        })?;
        serde_json::from_slice(&json).map_err(|error| {
            let why =
                format!("its answer cannot be read ({error}); run the same version everywhere");
            why.into()
        })
    }
}

// Answers of a ring's members, all requested at the same moment.

/// Why a member gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// The reason, as text.
    pub why: String,
    /// True if the member was not called because its host name could not be resolved.
    pub unresolved: bool,
}

impl<S: Into<String>> From<S> for Silence {
    fn from(why: S) -> Self {
        Self {
            why: why.into(),
            unresolved: false,
        }
    }
}

/// Returns the view of the member with the longest log: it has the newest list of members and the newest voter sets.
pub(crate) fn latest(asked: &[MemberReport]) -> Option<&MemberView> {
    let views = asked.iter().filter_map(|asked| asked.view.as_ref());
    views
        .filter(|view| !view.members.is_empty())
        .max_by_key(|view| view.log_end)
}

// The report of a ring whose members have all been queried: which members answer, which one leads, and
// whether commits can proceed. Pure: it gets the answers as arguments.

/// The whole ring at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RingReport {
    /// The ring's name in the configuration.
    pub ring: String,
    /// The leader that has a quorum.
    pub leader: Option<MemberId>,
    /// The state of the quorum. If commits wait: since when, why, and what to do.
    pub quorum: QuorumView,
    /// True if the state of the quorum is unknown: the client reached no member, or could not resolve the host names of too many members.
    pub quorum_unknown: bool,
    /// How many more voters may fail, in the worst case, before commits wait; `None` without a leader.
    pub tolerates: Option<usize>,
    /// Every configured member, followed by unconfigured members of the ring.
    pub members: Vec<MemberReport>,
    /// The pause of failover, if one is in force.
    pub pause: Option<PauseView>,
    /// Contradictions: configurations that differ from each other, or from the ring.
    pub warnings: Vec<String>,
}

/// One member in a report of the ring.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemberReport {
    /// The member, with the address at which it was queried.
    #[serde(flatten)]
    pub entry: MemberEntry,
    /// True if the member is in the client's configuration.
    pub configured: bool,
    /// True if the member is in the ring; `None` if no answer shows it.
    pub in_ring: Option<bool>,
    /// How many entries the member's log is behind the leader's log.
    pub lag_entries: Option<u64>,
    /// Why the member did not answer; `None` if it answered.
    pub error: Option<String>,
    /// True if the member was not called because its host name could not be resolved.
    pub unresolved: bool,
    /// The member's own status; `None` if it did not answer.
    pub view: Option<MemberView>,
}

impl Deref for MemberReport {
    type Target = MemberEntry;

    fn deref(&self) -> &MemberEntry {
        &self.entry
    }
}

impl MemberReport {
    /// Creates a report from the answer of one member. [`RingReport::new`] adds the fields that depend on the other members' answers.
    pub fn new(entry: MemberEntry, configured: bool, answer: Result<MemberView, Silence>) -> Self {
        let (view, silence) = match answer {
            Ok(view) => (Some(view), None),
            Err(silence) => (None, Some(silence)),
        };
        Self {
            entry,
            configured,
            in_ring: None,
            lag_entries: None,
            unresolved: silence.as_ref().is_some_and(|silence| silence.unresolved),
            error: silence.map(|silence| silence.why),
            view,
        }
    }
}

impl RingReport {
    /// The member with this number.
    pub fn member(&self, id: MemberId) -> Option<&MemberReport> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The views of the members that answered.
    pub fn views(&self) -> impl Iterator<Item = &MemberView> {
        self.members.iter().filter_map(|one| one.view.as_ref())
    }

    /// The leader's view, if the report has a leader that answered.
    pub fn leader_view(&self) -> Option<&MemberView> {
        self.member(self.leader?)?.view.as_ref()
    }

    /// Returns the database members with a mysqld that is held, has failed or is unreachable, if no mysqld of the ring runs. Otherwise the
    /// list is empty.
    pub(crate) fn databases_down(&self) -> Vec<&str> {
        use MysqldState::{Failed, Held, Running, Unreachable};
        let members = self.members.iter();
        let databases =
            members.filter_map(|one| Some((one, one.view.as_ref()?.mysql.as_ref()?.state)));
        let databases: Vec<_> = databases.collect();
        if databases.iter().any(|(_, state)| *state == Running) {
            return Vec::new();
        }
        let down = databases.iter();
        let down = down.filter(|(_, state)| matches!(state, Held | Failed | Unreachable));
        down.map(|(member, _)| member.name.as_str()).collect()
    }

    /// Combines the answers of all members, and keeps their order.
    pub fn new(ring: &str, mut asked: Vec<MemberReport>) -> Self {
        let views = || asked.iter().filter_map(|asked| asked.view.as_ref());
        // If two members report that they lead, the report with the later term counts.
        let serving = views().filter(|view| view.serving);
        let serving = serving.max_by_key(|view| view.term);
        let leader = serving.map(|view| view.member.id);
        let end = serving.and_then(|view| view.log_end).map(|end| end.index);
        let lag = |view: &MemberView| {
            let own = view.log_end.map_or(0, |end| end.index + 1);
            end.map(|end| (end + 1).saturating_sub(own))
        };
        let answers = QuorumView {
            ok: true,
            ..QuorumView::default()
        };
        let (quorum, quorum_unknown) = match (serving, not_known(&asked)) {
            (Some(_), _) => (answers, false),
            (None, Some(unknown)) => (unknown, true),
            (None, None) => (lost(&asked), false),
        };
        let pause = latest(&asked).and_then(|view| view.pause.clone());
        let tolerates = leader.and_then(|leader| of_answers(leader, &asked));
        let mut warnings = differences(&asked);
        let voter_sets = latest(&asked).map_or(&[][..], |view| &view.voter_sets);
        warnings.extend(even_among(voter_sets));
        warnings.extend(pause.as_ref().and_then(forgotten_pause));
        warnings.extend(latest(&asked).and_then(scheduled));
        let roster = latest(&asked).map(|view| view.members.iter().map(|logged| logged.id));
        let roster: Option<BTreeSet<_>> = roster.map(Iterator::collect);
        for member in &mut asked {
            member.in_ring = roster.as_ref().map(|roster| roster.contains(&member.id));
            member.lag_entries = member.view.as_ref().and_then(lag);
        }
        Self {
            ring: ring.to_owned(),
            leader,
            quorum,
            quorum_unknown,
            tolerates,
            members: asked,
            pause,
            warnings,
        }
    }
}

impl Asker {
    /// Queries all configured members, and then the other members of the ring that their answers list, and returns the combined report.
    pub async fn report(&self) -> RingReport {
        match &self.ring {
            RingSource::Configured { ring, members } => {
                let mut asked = self.ask_all(members.clone(), true).await;
                let strangers = strangers(&asked);
                asked.extend(self.ask_all(strangers, false).await);
                RingReport::new(ring, asked)
            }
            RingSource::Endpoints(endpoints) => self.report_from(endpoints).await,
        }
    }

    /// Queries the members at these addresses, and then all other members in the ring's log.
    async fn report_from(&self, endpoints: &[String]) -> RingReport {
        let answers = endpoints.iter().map(async |endpoint| {
            let answer = self.view_at(endpoint).await;
            (endpoint, answer)
        });
        let (mut asked, mut errors) = (Vec::<MemberReport>::new(), Vec::new());
        let mut unresolved = false;
        let mut reached = BTreeMap::new();
        for (endpoint, answer) in futures::future::join_all(answers).await {
            match answer {
                Ok(view) if asked.iter().any(|one| one.entry.id == view.member.id) => {}
                Ok(view) => {
                    reached.insert(view.member.id, endpoint.clone());
                    let entry = answering(&view, endpoint);
                    asked.push(MemberReport::new(entry, true, Ok(view)));
                }
                Err(silence) => {
                    unresolved |= silence.unresolved;
                    errors.push(format!("{endpoint}: {}", silence.why));
                }
            }
        }
        let ring = latest(&asked).or_else(|| asked.first()?.view.as_ref());
        let ring = ring.map(|view| view.ring.name.clone()).unwrap_or_default();
        let others = strangers(&asked);
        asked.extend(self.ask_all(others, true).await);
        asked.sort_by_key(|one| one.entry.id);
        let mut report = RingReport::new(&ring, asked);
        // For a member that answered at an endpoint, the report contains that endpoint: this client may not reach the address in the log.
        for member in &mut report.members {
            if let Some(endpoint) = reached.remove(&member.id) {
                member.entry.address = endpoint;
            }
        }
        // The errors are reported only if no member is known. Otherwise, each member's own line shows that it does not answer.
        if report.members.is_empty() {
            report.quorum = unknown("no member answers".to_owned(), unresolved);
            report.quorum_unknown = true;
            report.warnings.extend(errors);
        }
        report
    }
}

/// Returns the entry of a member that answered at an endpoint. Its address is the one in the log; for a member that is not in the log, the
/// endpoint.
fn answering(view: &MemberView, endpoint: &str) -> MemberEntry {
    let mut logged = view.members.iter();
    let logged = logged.find(|logged| logged.id == view.member.id);
    let (priority, address) = match logged {
        Some(logged) => (logged.record.priority, logged.record.address.clone()),
        None => (0, endpoint.to_owned()),
    };
    MemberEntry {
        id: view.member.id,
        name: view.member.name.clone(),
        region: view.member.region.clone(),
        kind: view.member.kind,
        votes: view.member.votes,
        priority,
        address,
    }
}

/// Returns the members in the ring's log that have not been queried.
fn strangers(asked: &[MemberReport]) -> Vec<MemberEntry> {
    let known = |id| asked.iter().any(|asked| asked.entry.id == id);
    let logged = latest(asked).into_iter().flat_map(|view| &view.members);
    let strangers = logged.filter(|logged| !known(logged.id));
    strangers.map(MemberEntry::from).collect()
}

// The path of log entries to the members, hop by hop, along the routes that a leader chose.

/// One part of a route: a member that sends entries, and the member that receives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The leader, or a proxy.
    pub from: MemberId,
    /// The receiving member.
    pub to: MemberId,
}

/// Returns the last hop of the route to each member. The earlier hops of a route are the last hops to its proxies.
///
/// The leader chooses a route when it sends entries. Routes that it chose at different moments may together form a cycle. Entries do not
/// travel in cycles, so the members of a cycle get a hop from the leader.
pub fn hops(leader: &MemberView) -> Vec<Hop> {
    let routes = leader.replication_routes.iter();
    let routes = routes.flat_map(|routes| &routes.routes);
    let proxies: BTreeMap<_, _> = routes
        .map(|route| (route.member, route.through.last().copied()))
        .collect();
    let proxy = |member: &MemberId| proxies.get(member).copied().flatten();
    let stands_behind_itself = |member: MemberId| {
        let ahead = successors(proxy(&member), proxy);
        ahead.take(proxies.len()).any(|ahead| ahead == member)
    };
    let hop = |(to, from): (&MemberId, &Option<MemberId>)| Hop {
        from: from
            .filter(|_| !stands_behind_itself(*to))
            .unwrap_or(leader.member.id),
        to: *to,
    };
    proxies.iter().map(hop).collect()
}

#[cfg(test)]
impl MemberReport {
    /// Creates a report for tests, with a member of the region `north`. Number 1 is a database member; all others are witnesses.
    pub(crate) fn sample(id: u64, name: &str, answer: Result<MemberView, String>) -> Self {
        let answer = answer.map_err(Silence::from);
        use raft_types::{MemberKind, Region};
        let entry = MemberEntry {
            id: MemberId(id),
            name: name.into(),
            region: Region("north".into()),
            kind: match id {
                1 => MemberKind::Database,
                _ => MemberKind::Witness,
            },
            votes: true,
            priority: 100,
            address: format!("10.0.0.{id}:7400"),
        };
        Self::new(entry, true, answer)
    }
}

#[cfg(test)]
mod tests {
    use raft_types::{MemberKind, Region};

    use super::*;
    use crate::operator::Silence;
    use member::status::sample::database_leader;
    use member::status::sample::witness_follower;

    fn entry(id: u64, name: &str) -> MemberEntry {
        MemberEntry {
            id: MemberId(id),
            name: name.into(),
            region: Region("north".into()),
            kind: MemberKind::Witness,
            votes: true,
            priority: 100,
            address: format!("10.0.0.{id}:7400"),
        }
    }

    fn answers(given: [Result<MemberView, Silence>; 3]) -> Vec<MemberReport> {
        let entries = [
            entry(1, "db-1"),
            entry(2, "witness-1"),
            entry(3, "witness-2"),
        ];
        let asked = entries.into_iter().zip(given);
        let asked = asked.map(|(entry, answer)| MemberReport::new(entry, true, answer));
        asked.collect()
    }

    fn silent() -> Result<MemberView, Silence> {
        Err("connection refused".into())
    }

    fn unresolved() -> Result<MemberView, Silence> {
        Err(Silence {
            why: "the name `w` cannot be looked up: no name server answers".to_owned(),
            unresolved: true,
        })
    }

    #[test]
    fn a_ring_whose_only_mysqld_is_held_is_not_well() {
        let with_state = |state| {
            let mut leader = database_leader();
            let mysql = leader.mysql.as_mut().unwrap();
            mysql.state = state;
            let follower = || Ok(witness_follower());
            RingReport::new("orders", answers([Ok(leader), follower(), follower()]))
        };
        for (state, held) in [
            (MysqldState::Running, false),
            (MysqldState::Starting, false),
            (MysqldState::Held, true),
            (MysqldState::Unreachable, true),
        ] {
            let report = with_state(state);
            assert!(report.quorum.ok);
            assert_eq!(!report.databases_down().is_empty(), held, "{state}");
            let sentence = crate::text::ring::quorum(&report);
            let is_bad = sentence.level == crate::text::Level::Bad;
            assert_eq!(is_bad, held, "{state}: {}", sentence.begins);
        }
        let sentence = crate::text::ring::quorum(&with_state(MysqldState::Failed));
        assert_eq!(sentence.begins, "No mysqld runs");
        let fix = "see below why the mysqld of `db-1` does not run";
        assert_eq!(sentence.fix.as_deref(), Some(fix));
    }

    /// Regression test: with the first name server down, `witness status` reported a lost quorum and advised
    /// `witness quorum fix`.
    #[test]
    fn where_too_few_could_be_asked_nothing_is_said_of_the_quorum() {
        let alone = || {
            let mut view = witness_follower();
            view.leader = None;
            Ok(view)
        };
        for (given, expected) in [
            (
                [silent(), silent(), silent()],
                Some(("no member answers", "start the members, or ")),
            ),
            (
                [unresolved(), silent(), unresolved()],
                Some((
                    "no member answers, and this host cannot look up the address of `db-1`, `witness-2`",
                    "check the names, ",
                )),
            ),
            (
                [silent(), alone(), unresolved()],
                Some((
                    "too few members could be asked, and this host cannot look up the address of `witness-2`",
                    "check the names, ",
                )),
            ),
            ([silent(), alone(), silent()], None),
            ([alone(), alone(), unresolved()], None),
            ([unresolved(), alone(), Ok(database_leader())], None),
        ] {
            let report = RingReport::new("r", answers(given));
            let quorum = &report.quorum;
            assert_eq!(report.quorum_unknown, expected.is_some(), "{quorum:?}");
            let Some((cause, fix)) = expected else {
                continue;
            };
            assert_eq!(quorum.cause.as_deref(), Some(cause));
            let advice = quorum.fix.as_deref().unwrap();
            assert!(advice.starts_with(fix), "{advice}");
            assert!(!quorum.ok && !advice.contains("quorum fix"), "{advice}");
        }
    }

    #[test]
    fn a_serving_leader_is_a_quorum() {
        let mut lagging = witness_follower();
        lagging.log_end = Some(raft_types::OpId::new(3, 40));
        let report = RingReport::new("r", answers([Ok(database_leader()), Ok(lagging), silent()]));
        assert!(report.quorum.ok);
        assert_eq!(report.leader, Some(MemberId(1)));
        let lags: Vec<_> = report
            .members
            .iter()
            .map(|member| member.lag_entries)
            .collect();
        assert_eq!(lags, [Some(0), Some(2), None]);
        assert_eq!(
            report.members[2].error.as_deref(),
            Some("connection refused")
        );
    }

    #[test]
    fn a_deposed_leader_that_does_not_know_it_is_not_the_leader() {
        let mut deposed = database_leader();
        deposed.term = 2;
        let mut leader = witness_follower();
        leader.serving = true;
        let report = RingReport::new("r", answers([Ok(deposed), Ok(leader), silent()]));
        assert_eq!(report.leader, Some(MemberId(2)));
    }

    #[test]
    fn the_loss_of_a_quorum_has_an_age_a_cause_and_a_fix() {
        let mut alone = database_leader();
        alone.serving = false;
        alone.quorum.ok = false;
        alone.quorum.lost_for_seconds = Some(7.0);
        let report = RingReport::new("r", answers([Ok(alone), silent(), silent()]));
        assert_eq!(
        report.quorum,
        QuorumView {
            ok: false,
            lost_for_seconds: Some(7.0),
            cause: Some("1 of 3 voters answer and 2 are needed".into()),
            fix: Some(
                "start witness on `witness-1` (10.0.0.2:7400) or `witness-2` (10.0.0.3:7400) (`systemctl start witness`, or \
                 `witness run`); if they are permanently lost, see `witness quorum fix`"
                    .into()
            ),
        }
    );
    }

    #[test]
    fn a_ring_that_was_never_made_says_so() {
        let fresh = || {
            let mut view = witness_follower();
            view.ring.id = None;
            view.leader = None;
            Ok(view)
        };
        let report = RingReport::new("r", answers([fresh(), fresh(), fresh()]));
        assert_eq!(
            report.quorum.cause.as_deref(),
            Some("the ring is not bootstrapped")
        );
        assert!(report.quorum.fix.unwrap().contains("`witness bootstrap`"));
    }
}

#[cfg(test)]
mod hop_tests {
    use member::status::sample::database_leader;
    use proxy::RouteView;

    use super::*;

    #[test]
    fn a_circle_of_routes_is_opened() {
        let mut leader = database_leader();
        let routes: [(u64, &[u64]); 7] = [
            (2, &[]),
            (3, &[2]),
            (4, &[2, 3]),
            (5, &[6]),
            (6, &[7]),
            (7, &[5]),
            (8, &[7]),
        ];
        leader.replication_routes.as_mut().unwrap().routes = routes
            .map(|(member, through)| RouteView {
                member: MemberId(member),
                through: through.iter().copied().map(MemberId).collect(),
                because: None,
            })
            .into();
        let hops = hops(&leader);
        let hops = hops.iter().map(|hop| (hop.from.0, hop.to.0));
        assert_eq!(
            hops.collect::<Vec<_>>(),
            [(1, 2), (2, 3), (3, 4), (1, 5), (1, 6), (1, 7), (7, 8)]
        );
    }
}
