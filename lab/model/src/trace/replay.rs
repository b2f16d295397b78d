//! Replays a trace step by step. The model's rules must allow each step in the members' current state. If the trace lacks a fact, the
//! replay assumes the value that allows the step: for example, a leader receives every answer. So no correct step is refused.

use std::collections::BTreeMap;
use std::fmt;

use raft_types::{MemberId, OpId};

use crate::naming::{end_at, op_id};
use crate::repair;
use crate::ring::{
    Content, End, Entry, Id, Member, Members, Membership, NO_MEMBER, Planned, Ring, Role, Term,
    common,
};
use crate::rules::Rules;
use crate::trace::format::{Damage, Line, Seen, SeenContent, SeenEntry, SeenVote};
use crate::trace::leadership::Leadership;

/// A step that the model does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// When the step occurred, in milliseconds since the beginning of the run.
    pub at_ms: u64,
    /// The broken rule, as text for the reader.
    pub words: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} ms: {}", self.at_ms, self.words)
    }
}

/// How many steps were checked, and how many could not be checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Checked steps, by kind.
    pub held: BTreeMap<&'static str, u64>,
    /// Steps that could not be checked, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
}

/// A member's candidacy in a term: the end of its log, and the votes so far.
struct Candidacy {
    end: End,
    votes: Members,
}

/// The state of the ring after the replayed lines of a trace.
#[derive(Default)]
pub struct Replay {
    rules: Rules,
    ids: Vec<MemberId>,
    ring: Ring,
    /// For each member, the number of entries on its disk.
    durable: Vec<usize>,
    /// For each member, the log before its last truncation. Until the member has written other entries, a restart may find the old ones
    /// again.
    taken_back: Vec<Vec<Entry>>,
    votes: Vec<Option<SeenVote>>,
    candidates: BTreeMap<(Term, Id), Candidacy>,
    /// Votes that were stored before the candidate had stored its own vote. A candidate sends its requests before its own vote is on disk.
    early: BTreeMap<(Term, Id), Vec<(Id, Member)>>,
    leaderships: BTreeMap<Term, Leadership>,
    /// Ordered repairs that the trace does not show as carried out yet.
    ordered: Vec<(Option<OpId>, Term, bool)>,
    /// The number of entries acknowledged before the current millisecond. `acknowledged_now` also counts that millisecond, within which
    /// actions have no order.
    acknowledged: usize,
    acknowledged_now: (u64, usize),
    counts: Counts,
}

type Verdict = Result<(), String>;

impl Replay {
    /// Replays the next line of a trace.
    ///
    /// # Errors
    /// [`Refusal`]: the model does not allow the step.
    pub fn take(&mut self, line: &Line) -> Result<(), Refusal> {
        let verdict = self.step(line);
        verdict.map_err(|words| Refusal {
            at_ms: line.at_ms,
            words,
        })
    }

    /// Replays a whole trace, with one JSON object per line.
    ///
    /// # Errors
    /// The first step that the model does not allow, or a line that cannot be read.
    pub fn of(lines: &str) -> Result<Counts, Refusal> {
        let mut replay = Self::default();
        for text in lines.lines() {
            let line: Line = serde_json::from_str(text).map_err(|error| Refusal {
                at_ms: 0,
                words: format!("not a line of a trace: {error}: {text}"),
            })?;
            replay.take(&line)?;
        }
        Ok(replay.counts)
    }

    fn held(&mut self, what: &'static str) -> Verdict {
        *self.counts.held.entry(what).or_default() += 1;
        Ok(())
    }

    fn left_out(&mut self, why: &'static str) -> Verdict {
        *self.counts.left_out.entry(why).or_default() += 1;
        Ok(())
    }

    /// Returns a member's index in the model. `NO_MEMBER` represents the author of memberships that no leader proposed.
    fn id(&mut self, member: MemberId) -> Id {
        if member.0 == u64::MAX {
            return NO_MEMBER;
        }
        if let Some(id) = self.ids.iter().position(|known| *known == member) {
            return id;
        }
        self.ids.push(member);
        self.ring.members.push(Member::with_log(Vec::new()));
        self.durable.push(0);
        self.taken_back.push(Vec::new());
        self.votes.push(None);
        self.ids.len() - 1
    }

    fn name(&self, id: Id) -> String {
        let name = self.ids.get(id);
        name.map_or_else(|| "no member".to_owned(), |name| format!("member {name}"))
    }

    fn step(&mut self, line: &Line) -> Verdict {
        let seen = &line.seen;
        if let Seen::Repaired { after, term, loss } = seen {
            self.ordered.push((*after, term_of(*term)?, *loss));
            if *loss {
                // The operator accepted the loss of acknowledged entries after that end, so reads need not return them.
                let (last, (_, now)) = (&mut self.acknowledged, &mut self.acknowledged_now);
                (*last, *now) = ((*last).min(kept(*after)), (*now).min(kept(*after)));
            }
            return Ok(());
        }
        let member = line.member.ok_or("a line names no member")?;
        let id = match seen {
            Seen::Opened { .. } => self.id(member),
            _ => self.running(member)?,
        };
        let verdict = match seen {
            Seen::Voted { vote } => self.voted(id, *vote),
            Seen::Appended { entries } => {
                let mut entries = entries.iter();
                entries.try_for_each(|entry| self.appended(id, entry))
            }
            Seen::Durable { upto } => self.stored(id, *upto),
            Seen::Truncated { keep } => self.truncated(id, kept(*keep)),
            Seen::CutBack { keep } => self.cut_back(id, kept(*keep)),
            Seen::Began { before } => self.began(id, *before),
            Seen::Opened {
                floor,
                entries,
                vote,
                damage,
            } => self.opened(id, kept(*floor), entries, *vote, *damage),
            Seen::Committed { upto } => self.committed(id, *upto),
            Seen::Acknowledged { op_id } => self.acknowledged(line.at_ms, id, *op_id),
            Seen::Served { mark } => self.served(line.at_ms, id, *mark),
            Seen::Repaired { .. } => Ok(()),
        };
        verdict.map_err(|why| format!("{} {why}", self.name(id)))
    }

    /// Returns the member's index, or an error if the member's disk was lost.
    fn running(&mut self, member: MemberId) -> Result<Id, String> {
        let id = self.id(member);
        match self.ring.members[id].role {
            Role::Lost => {
                let name = self.name(id);
                Err(format!("{name} takes part, although its disk was lost"))
            }
            _ => Ok(id),
        }
    }

    fn voted(&mut self, id: Id, vote: SeenVote) -> Verdict {
        let (term, to) = (term_of(vote.term)?, self.id(vote.to));
        if self.votes[id].is_some_and(|stored| vote < stored && vote.term <= stored.term) {
            return Err(format!("goes back to the vote {vote:?}"));
        }
        self.votes[id] = Some(vote);
        match (vote.elected, to == id) {
            (false, true) => self.campaigned(id, term)?,
            (false, false) => self.gave_its_vote(id, to, term)?,
            (true, true) => self.was_elected(id, term)?,
            (true, false) => self.followed(id, to, term)?,
        }
        Ok(())
    }

    fn campaigned(&mut self, id: Id, term: Term) -> Verdict {
        let member = &self.ring.members[id];
        if member.term >= term || !self.rules.may_campaign(&follower(member)) {
            return Err(format!("must not campaign in term {term}"));
        }
        let end = member.end();
        let early = self.early.remove(&(term, id)).unwrap_or_default();
        let may = |(_, before): &&(Id, Member)| self.rules.may_vote(before, id, term, end);
        let own = Members::default().with(id);
        let votes = early.iter().filter(may);
        let votes = votes.fold(own, |votes, (voter, _)| votes.with(*voter));
        self.candidates.insert((term, id), Candidacy { end, votes });
        let member = &mut self.ring.members[id];
        Rules::follow(member, term, id);
        member.role = Role::Candidate { votes };
        self.held("campaigns")
    }

    /// Replays a stored vote for another member. If the rules forbid that vote, the member has only adopted the term, and the candidate
    /// gets no vote.
    fn gave_its_vote(&mut self, id: Id, to: Id, term: Term) -> Verdict {
        let member = follower(&self.ring.members[id]);
        if member.term > term || member.term == term && member.vote.is_some_and(|vote| vote != to) {
            return Err(format!("votes twice in term {term}"));
        }
        match self.candidates.get_mut(&(term, to)) {
            Some(candidacy) if self.rules.may_vote(&member, to, term, candidacy.end) => {
                candidacy.votes = candidacy.votes.with(id);
            }
            Some(_) => {}
            None => self.early.entry((term, to)).or_default().push((id, member)),
        }
        Rules::follow(&mut self.ring.members[id], term, to);
        self.held("votes")
    }

    fn led_by(&self, leader: Id, term: Term) -> Option<&Leadership> {
        let leadership = self.leaderships.get(&term)?;
        (leadership.leader == leader).then_some(leadership)
    }

    fn was_elected(&mut self, id: Id, term: Term) -> Verdict {
        let member = &self.ring.members[id];
        // A leader that restarts in its own term continues to lead.
        if self.led_by(id, term).is_some() {
            return Ok(());
        }
        let candidacy = self.candidates.get(&(term, id));
        let votes = candidacy.map_or_else(Members::default, |one| one.votes);
        if member.term != term || !self.rules.is_elected(member, votes) {
            return Err(format!(
                "leads term {term} with the votes of {votes:?}, of {:?}",
                member.voters()
            ));
        }
        if let Some(other) = self.leaderships.get(&term) {
            let other = self.name(other.leader);
            return Err(format!("and {other} lead term {term}"));
        }
        let mut leadership = Leadership::of(id, member, term);
        leadership.taken_by(id, member);
        self.leaderships.insert(term, leadership);
        self.count_on(id, term);
        self.held("elections")
    }

    fn followed(&mut self, id: Id, leader: Id, term: Term) -> Verdict {
        if !self.rules.may_follow(&self.ring.members[id], term) {
            return Err(format!(
                "follows in term {term}, although it knows a later one"
            ));
        }
        Rules::follow(&mut self.ring.members[id], term, leader);
        if leader == NO_MEMBER {
            return Ok(());
        }
        let member = &self.ring.members[id];
        let Some(leadership) = self
            .leaderships
            .get_mut(&term)
            .filter(|leadership| leadership.leader == leader)
        else {
            let leader = self.name(leader);
            return Err(format!(
                "follows {leader} in term {term}, which it does not lead"
            ));
        };
        leadership.taken_by(id, member);
        self.count_on(id, term);
        self.held("followings")
    }

    fn appended(&mut self, id: Id, seen: &SeenEntry) -> Verdict {
        let entry = self.entry(seen)?;
        let member = &self.ring.members[id];
        let (at, term) = (member.log.len(), member.term);
        let elected = self.votes[id].is_some_and(|vote| vote.elected);
        if seen.op_id.index != at as u64 {
            return Err(format!("appends {} after {at} entries", seen.op_id));
        }
        let leader = member.vote.filter(|_| elected);
        match leader {
            Some(NO_MEMBER) => self.imposed(id, entry),
            Some(leader) if leader == id => self.proposed(id, entry),
            Some(leader) => self.took(id, leader, entry),
            None => Err(format!(
                "appends {} in term {term}, and follows no leader",
                seen.op_id
            )),
        }
    }

    /// Replays a membership that no leader proposed: the bootstrap or a repair.
    fn imposed(&mut self, id: Id, entry: Entry) -> Verdict {
        let member = &mut self.ring.members[id];
        let (kept, term) = (member.log.len(), member.term);
        let ordered = self.ordered.iter().position(|(after, ordered, _)| {
            *ordered == term && *after == kept.checked_sub(1).and_then(|at| op_id(&member.log, at))
        });
        let alone = |membership: &Membership| membership.sets == [Members::default().with(id)];
        let is_alone = entry.membership().is_some_and(alone);
        match ordered {
            Some(at) if is_alone && entry.term == term => {
                let (_, _, loss) = self.ordered.remove(at);
                let end = member.end();
                let planned = Planned {
                    survivor: id,
                    end,
                    term,
                    loss,
                };
                repair::carry_out(&mut self.ring, &planned);
                // Replaces the planned membership by the one in the trace, which has the real encoding.
                if let Some(last) = self.ring.members[id].log.last_mut() {
                    *last = entry;
                }
                if self.ring.lost {
                    return Err(
                        "loses by a repair what its plan had said not to be lost".to_owned()
                    );
                }
                self.held("repairs")?;
            }
            None if kept == 0 && entry.membership().is_some() => {
                member.log.push(entry);
                self.held("foundings")?;
            }
            _ => {
                return Err(format!(
                    "takes {entry:?}, which no leader proposed and no operator ordered"
                ));
            }
        }
        let mut leadership = Leadership::of(NO_MEMBER, &self.ring.members[id], term);
        leadership.taken_by(id, &self.ring.members[id]);
        self.leaderships.insert(term, leadership);
        Ok(())
    }

    /// Replays an entry that a leader appends to its own log.
    fn proposed(&mut self, id: Id, entry: Entry) -> Verdict {
        let term = self.ring.members[id].term;
        let Some(leadership) = self.leaderships.get_mut(&term) else {
            return Err(format!("proposes in term {term}, which it does not lead"));
        };
        let leader = &mut leadership.member;
        let goes_on = leader.log.len() == self.ring.members[id].log.len();
        if entry.term != term || !goes_on {
            return Err(format!("proposes {entry:?} in term {term}"));
        }
        if let Some(membership) = entry.membership() {
            let (before, after) = (leader.voters().to_vec(), membership.sets.clone());
            let may = self.rules.may_change_the_membership(leader);
            if !may || before != after && !Rules::is_step(&before, &after) {
                let why = match may {
                    true => "that is no step",
                    false => "no entry of its own term, or not the step before, is committed",
                };
                return Err(format!(
                    "goes from the voters {before:?} to {after:?} in term {term}: {why}"
                ));
            }
            *self.counts.held.entry("memberships").or_default() += 1;
        }
        leader.log.push(entry.clone());
        self.ring.members[id].log.push(entry);
        leadership.taken_by(id, &self.ring.members[id]);
        // If the entry removes voters, more of the log may now be committed.
        self.count_on(id, term);
        self.held("proposals")?;
        self.verdict_on_commits()
    }

    /// Replays an entry that a follower appends from its leader's log.
    fn took(&mut self, id: Id, leader: Id, entry: Entry) -> Verdict {
        let member = &self.ring.members[id];
        let term = member.term;
        let leadership = self.leaderships.get_mut(&term);
        let Some(leadership) = leadership.filter(|leadership| leadership.leader == leader) else {
            let leader = self.name(leader);
            return Err(format!(
                "takes {entry:?} of {leader}, which does not lead term {term}"
            ));
        };
        let (after, _) = self
            .rules
            .appended((leader, &leadership.member), (id, member));
        let goes_on = after.is_up() && after.log.len() == member.log.len() + 1;
        if !goes_on || after.log.last() != Some(&entry) {
            let (at, next) = (member.log.len(), after.log.last().cloned());
            return Err(format!(
                "takes {entry:?} at {at}; of the leader of term {term} it would be {next:?}"
            ));
        }
        leadership.taken_by(id, &after);
        self.ring.members[id].log = after.log;
        self.held("entries taken")
    }

    fn stored(&mut self, id: Id, upto: OpId) -> Verdict {
        let log = &self.ring.members[id].log;
        // The entry may have been truncated in the meantime.
        if op_id(log, upto.index as usize) != Some(upto) {
            return Ok(());
        }
        self.durable[id] = self.durable[id].max(upto.index as usize + 1);
        self.taken_back[id].clear();
        let terms: Vec<Term> = self.leaderships.keys().copied().collect();
        for term in terms.into_iter().rev().take(RECENT) {
            self.count_on(id, term);
        }
        self.verdict_on_commits()
    }

    /// Commits more of a leader's log if a member's durable entries complete a quorum.
    fn count_on(&mut self, id: Id, term: Term) {
        let durable = self.durable[id];
        let Some(leadership) = self.leaderships.get_mut(&term) else {
            return;
        };
        if !leadership.stored_by(self.rules, id, durable) {
            return;
        }
        // A quorum of members that a repair left out commits nothing for the surviving members.
        let latest = self.ring.repairs.last();
        let log = &leadership.member.log;
        if latest.is_none_or(|latest| log.iter().any(|entry| entry.term == *latest)) {
            let (upto, log) = (leadership.member.commit, log.clone());
            self.ring.take_for_committed(&log[..upto as usize]);
        }
    }

    fn verdict_on_commits(&self) -> Verdict {
        match self.ring.contradicted {
            true => Err("completes a quorum for something else than what was committed".to_owned()),
            false => Ok(()),
        }
    }

    fn truncated(&mut self, id: Id, kept: usize) -> Verdict {
        let member = &self.ring.members[id];
        let Some(leadership) = self.leaderships.get(&member.term) else {
            return Err("truncates entries, and follows no leader".to_owned());
        };
        let shared = common(&leadership.member.log, &member.log);
        if kept < shared {
            return Err(format!(
                "keeps {kept} entries, and has {shared} in common with its leader"
            ));
        }
        if kept < member.commit as usize {
            return Err("takes back what it has as committed".to_owned());
        }
        self.taken_back[id] = self.ring.members[id].log.clone();
        self.shorten(id, kept);
        self.held("entries taken back")
    }

    fn cut_back(&mut self, id: Id, kept: usize) -> Verdict {
        if self.ring.repairs.is_empty() {
            return Err("cuts its log back, and nothing was repaired".to_owned());
        }
        let member = &mut self.ring.members[id];
        member.commit = member.commit.min(kept as u32);
        self.shorten(id, kept);
        self.held("logs cut back")
    }

    fn shorten(&mut self, id: Id, kept: usize) {
        self.ring.members[id].log.truncate(kept);
        self.durable[id] = self.durable[id].min(kept);
        for leadership in self.leaderships.values_mut() {
            leadership.taken_back_by(id, kept);
        }
    }

    fn began(&mut self, id: Id, before: OpId) -> Verdict {
        let at = before.index as usize;
        if op_id(&self.ring.members[id].log, at) == Some(before) {
            return Ok(());
        }
        if op_id(&self.ring.committed, at) != Some(before) {
            return Err(format!("begins after {before}, which is not committed"));
        }
        self.shorten(id, 0);
        let member = &mut self.ring.members[id];
        member.log = self.ring.committed[..=at].to_vec();
        member.commit = at as u32 + 1;
        self.durable[id] = at + 1;
        let (term, member) = (member.term, &self.ring.members[id]);
        if let Some(leadership) = self.leaderships.get_mut(&term) {
            leadership.taken_by(id, member);
        }
        self.count_on(id, term);
        self.held("logs begun later")?;
        self.verdict_on_commits()
    }

    fn opened(
        &mut self,
        id: Id,
        floor: usize,
        entries: &[SeenEntry],
        vote: Option<SeenVote>,
        damage: Damage,
    ) -> Verdict {
        if damage == Damage::Wiped {
            self.ring.members[id] = Member::with_log(Vec::new());
            self.ring.members[id].role = Role::Lost;
            self.held("lost disks")?;
            return Ok(());
        }
        let found = entries.iter().map(|seen| self.entry(seen));
        let found = found.collect::<Result<Vec<Entry>, _>>()?;
        let there = floor + found.len();
        let taken_back = std::mem::take(&mut self.taken_back[id]);
        let log = [&self.ring.members[id].log, &taken_back]
            .into_iter()
            .find(|log| log.get(floor..there) == Some(&found))
            .map(|log| log[..there].to_vec());
        let Some(log) = log else {
            return Err("finds what it never wrote".to_owned());
        };
        if there < self.durable[id] && damage == Damage::None {
            return Err(format!(
                "finds {there} entries, and had {} on disk",
                self.durable[id]
            ));
        }
        if there < self.durable[id] {
            self.left_out("a log that lost its end: whom it waits for")?;
        }
        if vote < self.votes[id] {
            return Err(format!(
                "finds the vote {vote:?}, and had stored {:?}",
                self.votes[id]
            ));
        }
        self.shorten(id, there);
        self.durable[id] = there;
        let member = &mut self.ring.members[id];
        member.log = log;
        // The commit index is not on disk; the member receives it again from the leader.
        member.commit = 0;
        member.role = Role::Follower;
        self.continues_to_follow(id);
        self.held("starts")?;
        // The member may have been stopped after it stored a vote and before the trace recorded the vote.
        match vote.filter(|vote| Some(*vote) > self.votes[id]) {
            Some(vote) => self.voted(id, vote),
            None => Ok(()),
        }
    }

    /// Records that a restarted member still follows its leader. The leader requests the end of the member's log again.
    fn continues_to_follow(&mut self, id: Id) {
        let (term, member) = (self.ring.members[id].term, &self.ring.members[id]);
        let elected = self.votes[id].is_some_and(|vote| vote.elected);
        if let Some(leadership) = self.leaderships.get_mut(&term).filter(|_| elected) {
            leadership.taken_by(id, member);
        }
        self.count_on(id, term);
    }

    fn committed(&mut self, id: Id, upto: OpId) -> Verdict {
        let at = upto.index as usize;
        let member = &self.ring.members[id];
        if self.was_abandoned(id) {
            return self.left_out("commits of members abandoned by a repair");
        }
        let has = op_id(&member.log, at) == Some(upto);
        let taken = member.log.get(..=at).filter(|_| has).unwrap_or_default();
        if !has || !self.ring.committed.starts_with(taken) {
            return Err(format!(
                "has {upto} as committed, on which no quorum has agreed (up to {:?})",
                op_id(
                    &self.ring.committed,
                    self.ring.committed.len().saturating_sub(1)
                )
            ));
        }
        self.ring.members[id].commit = self.ring.members[id].commit.max(at as u32 + 1);
        self.held("commits")
    }

    fn acknowledged(&mut self, at_ms: u64, id: Id, op_id: OpId) -> Verdict {
        if self.was_abandoned(id) {
            return self.left_out("acknowledgements of members abandoned by a repair");
        }
        let at = op_id.index as usize;
        if crate::naming::op_id(&self.ring.committed, at) != Some(op_id) {
            return Err(format!("acknowledges {op_id}, which is not committed"));
        }
        let (moment, last) = self.acknowledged_now;
        if moment < at_ms {
            self.acknowledged = self.acknowledged.max(last);
        }
        self.acknowledged_now = (at_ms, last.max(at + 1));
        self.held("acknowledgements")
    }

    fn served(&mut self, at_ms: u64, id: Id, mark: Option<OpId>) -> Verdict {
        if self.was_abandoned(id) {
            return self.left_out("reads of members abandoned by a repair");
        }
        let term = self.ring.members[id].term;
        let may = |led: &Leadership| self.rules.may_serve(id, &led.member);
        if !self.led_by(id, term).is_some_and(may) {
            return Err(format!("must not serve in term {term}"));
        }
        let (moment, last) = self.acknowledged_now;
        let before = match moment < at_ms {
            true => self.acknowledged.max(last),
            false => self.acknowledged,
        };
        if kept(mark) < before {
            return Err(format!(
                "serves {mark:?}, and {before} entries had been acknowledged"
            ));
        }
        self.held("reads")
    }

    /// Returns whether the member's log lacks the latest completed repair.
    fn was_abandoned(&self, id: Id) -> bool {
        let member = &self.ring.members[id];
        !self.ring.repairs.is_empty() && !repair::knows_the_latest(&self.ring, member)
    }

    fn entry(&mut self, seen: &SeenEntry) -> Result<Entry, String> {
        let content = match &seen.content {
            SeenContent::Blank => Content::Blank,
            SeenContent::Write(digest) => Content::Write(*digest),
            SeenContent::Voters(sets, digest) => {
                let sets: Vec<Members> = sets
                    .iter()
                    .map(|set| set.iter().map(|member| self.id(*member)).collect())
                    .collect();
                // The trace does not list members without a vote.
                Content::Membership(Membership {
                    members: Members::default(),
                    sets,
                    wording: *digest,
                })
            }
        };
        Ok(Entry {
            term: term_of(seen.op_id.term)?,
            content,
        })
    }
}

/// The number of latest leaderships that a late answer may belong to.
const RECENT: usize = 8;

/// Returns the member as a follower, because the election rules apply to followers.
fn follower(member: &Member) -> Member {
    Member {
        role: Role::Follower,
        log: member.log.clone(),
        ..*member
    }
}

fn kept(last: Option<OpId>) -> usize {
    last.map_or(0, |last| end_at(last).1)
}

fn term_of(term: u64) -> Result<Term, String> {
    Term::try_from(term)
        .map_err(|_| format!("has term {term}, later than any that is distinguished here"))
}
