//! A member that rejoins its ring. Before its Raft starts, it asks the other members whether the ring continues from its log. If an
//! operator repaired a lost quorum while it was away, the member truncates its log to the last common entry ([`Rejoin`]). It does not
//! campaign before it has the answers: two members that the repair gave up must not elect each other. If the answers report committed
//! entries that it lacks, it votes only for members with these entries (`vote_gate`), even if it can no longer reach the members that
//! answered.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use consensus::rules::{given_up, judge_restored};
use consensus::{
    Agreement, Answer, Leadership, MemberCalls, Question, RaftMember, Recollection,
    RestoredDirectory, leap_from,
};
use futures::future::join_all;
use raft_types::{DoubtedTail, FileStarts, MemberId, MemberRecord, OpId, StoredMembership, Term};
use tokio::time::Instant;

use crate::member::Member;

/// How long a starting member waits for the answers of the other members.
const FIRST_ANSWERS: Duration = Duration::from_secs(1);
/// Interval at which a member that must not campaign yet queries the members that did not answer.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long an answer about log agreement is valid, which is about the duration of one round of queries. After an older answer, an operator
/// may have repaired the quorum with the members that answered, without this member.
const FRESH: Duration = Duration::from_secs(1);
/// How long a member waits for the answers of all other members before it campaigns. If all members lost power and one of them does not
/// come back, the ring is down for this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The action that a member must take before its Raft may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejoin {
    /// No action: no answer contradicts its log.
    AsItIs,
    /// Truncate the log: the ring continued after entry `to`, without this member's later entries.
    CutBack {
        /// The last entry that the ring kept; `None` if it kept none.
        to: Option<OpId>,
        /// The end of the log of the member that gave this answer.
        ring_last: OpId,
    },
}

/// Evaluates the answers of other members. If two logs have different committed entries, an operator repaired the quorum, and the log with
/// the later term continues. If only a repair can have reached the term of a log, all of that log counts as committed: its member may have
/// restarted and lost its commit index. It can commit again only with the members that must truncate their logs.
pub fn judge(own: &Recollection, answers: impl IntoIterator<Item = Agreement>) -> Rejoin {
    let after = |op_id: Option<OpId>, common: Option<OpId>| {
        op_id.map(|op_id| op_id.index) > common.map(|common| common.index)
    };
    let leap = leap_from(own.last());
    let contradictions = answers.into_iter().filter_map(|answer| {
        let ring_last = answer.last?;
        // Parts of a log that an answer omits or that are purged may be common. Only a proven difference counts.
        let all_runs = own.runs.first().is_none_or(|run| run.first == 0);
        let comparable = answer.common.is_some() || all_runs && answer.purged.is_none();
        let contradicts = comparable
            && after(own.committed, answer.common)
            && (after(answer.committed, answer.common) || ring_last.term >= leap)
            && own.last().is_some_and(|last| last.term < ring_last.term);
        contradicts.then_some((answer.common, ring_last))
    });
    let earliest = contradictions.min_by_key(|(common, _)| common.map(|common| common.index));
    match earliest {
        Some((to, ring_last)) => Rejoin::CutBack { to, ring_last },
        None => Rejoin::AsItIs,
    }
}

/// A member that rejoins its ring, before its Raft starts.
pub struct Returning {
    own: Recollection,
    others: BTreeMap<MemberId, MemberRecord>,
    calls: Arc<dyn MemberCalls>,
    answers: BTreeMap<MemberId, TimedAgreement>,
    /// A member to query again, even if its answer is recent.
    again: Option<MemberId>,
    /// Evidence that this member's data directory was restored to an earlier state, and the resulting doubt about the end of its log.
    restored: Option<(RestoredDirectory, DoubtedTail)>,
}

/// Another member's answer about the agreement of the two logs.
struct TimedAgreement {
    agreement: Agreement,
    /// The time of the query. The answer was given at this time or later.
    asked: Instant,
}

impl TimedAgreement {
    fn is_fresh(&self) -> bool {
        self.asked.elapsed() <= FRESH
    }
}

impl Returning {
    /// Creates the state for a rejoining member. `own` describes its log, and `membership` is the membership in force in that log.
    pub fn new(
        member: MemberId,
        own: Recollection,
        membership: &StoredMembership,
        calls: Arc<dyn MemberCalls>,
    ) -> Self {
        let members = membership.membership().nodes();
        let others = members.filter(|(id, _)| **id != member);
        Self {
            own,
            others: others.map(|(id, record)| (*id, record.clone())).collect(),
            calls,
            answers: BTreeMap::new(),
            again: None,
            restored: None,
        }
    }

    /// Returns the state after the log was truncated to `own`. The received answers remain: the members that gave them may be unreachable
    /// later.
    #[must_use]
    pub fn cut_back(self, own: Recollection) -> Self {
        Self { own, ..self }
    }

    /// Returns the action that is required before this member's Raft starts, according to the members that answer within a second.
    ///
    /// If the log is to be truncated, the doubt about its end is recorded first: the member has acknowledged entries that it will lose.
    ///
    /// # Errors
    /// When the log cannot record the doubt.
    pub async fn before_the_start(&mut self, log: &dyn FileStarts) -> io::Result<Rejoin> {
        self.ask(FIRST_ANSWERS).await;
        if let Some(standing) = log.standing() {
            let doubted = log.doubted_tail().map(|doubt| doubt.term);
            let explained = doubted.max(given_up(ahead(&self.own, self.agreements())));
            let answers = self.answers.iter();
            let told = answers.filter_map(|(id, one)| Some((*id, one.agreement.remembered?)));
            self.restored = judge_restored(standing, explained, &told.collect::<Vec<_>>());
        }
        if let Some((found, doubt)) = &self.restored {
            tracing::error!("of this member: {found}");
            // The doubt must be recorded before entries are accepted: later, received entries cannot be distinguished from earlier ones.
            log.note_doubt(*doubt).await?;
        }
        let rejoin = self.judge();
        if let (Rejoin::CutBack { .. }, Some(standing)) = (&rejoin, log.standing()) {
            // The doubt is recorded before the truncation. Otherwise the truncation could look like a restored data directory: other
            // members may have recorded the truncated entries, and the term of the repair may be less than a leap above this member's
            // term. That is possible if the operator did not reach this member.
            let term = standing.term;
            let restored = false;
            log.note_doubt(DoubtedTail { term, restored }).await?;
        }
        Ok(rejoin)
    }

    /// Returns the evidence, found before this member's Raft started, that its data directory was restored to an earlier state.
    pub fn restored(&self) -> Option<RestoredDirectory> {
        self.restored.map(|(found, _)| found)
    }

    /// Keeps the member from campaigning until it receives a leader's message, all others agree with its log, or the wait expires.
    pub async fn campaign_when_known(mut self, member: Member) {
        if let Some((found, doubt)) = self.restored {
            member.was_restored(found, doubt);
        }
        if self.own.runs.is_empty() {
            return;
        }
        self.heed(&member);
        if !self.all_agree() {
            member.set_campaigning(false);
            if !self.ask_until_known(&member).await {
                return;
            }
            member.set_campaigning(true);
        }
    }

    /// Queries the other members until this member may campaign. Returns false if it must not campaign, because the quorum was repaired
    /// without it.
    async fn ask_until_known(&mut self, member: &RaftMember) -> bool {
        let until = Instant::now() + PATIENCE;
        let mut leadership = member.leadership();
        loop {
            let known = match *leadership.borrow_and_update() {
                Leadership::Follower {
                    leader: Some(leader),
                } => self.was_told_by(leader, member.node().role().term),
                Leadership::Follower { leader: None } | Leadership::Candidate => false,
                Leadership::LeaderNotServing { .. } | Leadership::Serving { .. } => true,
            };
            if known || self.all_agree() {
                return true;
            }
            if Instant::now() >= until {
                let missing: Vec<&MemberId> = self
                    .others
                    .keys()
                    .filter(|id| !self.answers.contains_key(id))
                    .collect();
                tracing::warn!(
                    ?missing,
                    "campaigning without having heard from all other members; if a quorum was repaired without this one, stop it"
                );
                return true;
            }
            self.ask(ASK_AGAIN).await;
            self.heed(member);
            if let Rejoin::CutBack { to, ring_last } = self.judge() {
                tracing::error!(
                    ?to,
                    %ring_last,
                    "the quorum was repaired without this member; it does not campaign: start it again, and it cuts its log back"
                );
                return false;
            }
            tokio::select! {
                _ = leadership.changed() => {}
                () = tokio::time::sleep(ASK_AGAIN) => {}
            }
        }
    }

    /// Returns whether the leader of this term has reported a commit of its term. If not, the leader is queried again: an earlier report
    /// may precede the repair. A leader that joined while this member was away cannot be queried, and counts as having reported.
    fn was_told_by(&mut self, leader: MemberId, term: Term) -> bool {
        let committed = self
            .answers
            .get(&leader)
            .and_then(|answer| answer.agreement.committed);
        let is_told = committed.is_some_and(|committed| committed.term >= term.0);
        self.again = (!is_told).then_some(leader);
        is_told || !self.others.contains_key(&leader)
    }

    /// Prevents this member from voting for members that lack the committed entries in the answers.
    fn heed(&self, member: &RaftMember) {
        if let Some(committed) = ahead(&self.own, self.agreements()) {
            member.elect_from(committed);
        }
    }

    /// Queries the members without a recent answer.
    async fn ask(&mut self, deadline: Duration) {
        let left = self.others.iter().filter(|(id, _)| {
            let fresh = self.answers.get(id).is_some_and(TimedAgreement::is_fresh);
            !fresh || self.again == Some(**id)
        });
        let (calls, own, asked) = (&self.calls, &self.own, Instant::now());
        let answers = left.map(|(id, record)| async move {
            let question = Question::Agreement(own.clone());
            match calls.ask(*id, record, question, deadline).await {
                Ok(Answer::Agreement(agreement)) => {
                    Some((*id, TimedAgreement { agreement, asked }))
                }
                Ok(_) | Err(_) => None,
            }
        });
        let answered = join_all(answers).await;
        self.answers.extend(answered.into_iter().flatten());
    }

    fn all_agree(&self) -> bool {
        let fresh = self.answers.values().filter(|answer| answer.is_fresh());
        fresh.count() == self.others.len() && self.judge() == Rejoin::AsItIs
    }

    fn judge(&self) -> Rejoin {
        judge(&self.own, self.agreements().cloned())
    }

    fn agreements(&self) -> impl Iterator<Item = &Agreement> {
        self.answers.values().map(|answer| &answer.agreement)
    }
}

/// Returns the last entry that other members have committed, if this member's log does not reach it. If only a repair can have reached the
/// term of another log, all of its entries count as committed: an operator ordered the ring to continue from that log, and its member may
/// have restarted and lost its commit index.
pub fn ahead<'a>(
    own: &Recollection,
    answers: impl IntoIterator<Item = &'a Agreement>,
) -> Option<OpId> {
    let leap = leap_from(own.last());
    let counts = answers.into_iter().filter_map(|answer| {
        let repaired = answer.last.filter(|last| last.term >= leap);
        repaired.max(answer.committed)
    });
    counts.max().filter(|last| Some(*last) > own.last())
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;

    use bytes::Bytes;
    use consensus::{CallError, Knock, Remembered, TERM_LEAP};
    use futures::future::BoxFuture;
    use raft_types::{ElectionNotes, FilePart, FileStart, FileStartAnswer, Standing, TermRun};

    use super::*;

    /// A log that ends at `end`, and that records the doubt about its end.
    #[derive(Default)]
    struct Log {
        end: Option<OpId>,
        noted: Mutex<Option<DoubtedTail>>,
    }

    impl FileStarts for Log {
        fn first_start(&self, _: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>> {
            Box::pin(ready(Ok(None)))
        }

        fn check_start(&self, _: &FileStart) -> io::Result<()> {
            Ok(())
        }

        fn begin_at(&self, _: FileStart) -> FileStartAnswer<'_, ()> {
            Box::pin(ready(Ok(())))
        }

        fn standing(&self) -> Option<Standing> {
            self.end.map(at_the_end)
        }

        fn note_doubt(&self, doubt: DoubtedTail) -> FileStartAnswer<'_, ()> {
            *self.noted.lock().unwrap() = Some(doubt);
            Box::pin(ready(Ok(())))
        }

        fn doubted_tail(&self) -> Option<DoubtedTail> {
            None
        }

        fn settle_tail(&self, _: OpId) -> FileStartAnswer<'_, bool> {
            Box::pin(async { Ok(true) })
        }

        fn election_notes(&self) -> ElectionNotes {
            ElectionNotes::default()
        }

        fn note_elections(&self, _: ElectionNotes) -> FileStartAnswer<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn part_of_file(&self, _: FilePart) -> FileStartAnswer<'_, Bytes> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
    }

    /// Returns the standing of a member that has last voted in the term of its log's end.
    fn at_the_end(end: OpId) -> Standing {
        Standing {
            term: end.term,
            end: Some(end),
        }
    }

    /// Calls to members that all give the agreement that the function returns.
    struct Say<F>(F);

    impl<F: Fn() -> Agreement + Send + Sync + 'static> MemberCalls for Say<F> {
        fn ask<'a>(
            &'a self,
            _: MemberId,
            _: &'a MemberRecord,
            _: Question,
            _: Duration,
        ) -> BoxFuture<'a, Result<Answer, CallError>> {
            Box::pin(ready(Ok(Answer::Agreement((self.0)()))))
        }

        fn knock<'a>(
            &'a self,
            _: MemberId,
            _: &'a MemberRecord,
            _: Duration,
        ) -> BoxFuture<'a, Knock> {
            Box::pin(ready(Knock::Answers))
        }
    }

    /// Returns member 1 of a ring of two. Member 2 gives the answer of `says`.
    fn returning(
        own: Recollection,
        says: impl Fn() -> Agreement + Send + Sync + 'static,
    ) -> Returning {
        Returning {
            own,
            others: BTreeMap::from([(MemberId(2), MemberRecord::default())]),
            calls: Arc::new(Say(says)),
            answers: BTreeMap::new(),
            again: None,
            restored: None,
        }
    }

    /// Returns the answers of a member that agrees until `moment`, at which its quorum is repaired.
    fn repaired_at(moment: Instant) -> impl Fn() -> Agreement {
        move || {
            let id = match Instant::now() < moment {
                true => OpId::new(3, 24),
                false => OpId::new(3 + TERM_LEAP, 25),
            };
            Agreement {
                common: Some(OpId::new(3, 22)),
                last: Some(id),
                committed: Some(id),
                purged: None,
                remembered: None,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn records_of_others_detect_a_restored_log() {
        let end = OpId::new(3, 22);
        for (had, is_restored) in [(end, false), (OpId::new(3, 23), true)] {
            let remembered = Remembered {
                standing: at_the_end(had),
                term: had.term,
            };
            let mut returning = returning(Recollection::default(), move || Agreement {
                remembered: Some(remembered),
                ..Agreement::default()
            });
            let log = Log {
                end: Some(end),
                ..Log::default()
            };
            returning.before_the_start(&log).await.unwrap();
            let found = returning.restored();
            let told_by = is_restored.then_some(MemberId(2));
            assert_eq!(found.map(|found| found.told_by), told_by);
            let noted = log.noted.lock().unwrap().map(|doubt| doubt.restored);
            assert_eq!(noted, is_restored.then_some(true));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn old_agreements_are_asked_for_again_before_a_campaign() {
        let run = |term, first, last| TermRun { term, first, last };
        // The log of the survivor of the first repair.
        let own = Recollection {
            runs: vec![run(3, 0, 22), run(9, 23, 25)],
            committed: Some(OpId::new(9, 25)),
        };
        let repaired = Instant::now() + Duration::from_secs(2);
        let mut returning = returning(own, repaired_at(repaired));
        assert_eq!(
            returning.before_the_start(&Log::default()).await.unwrap(),
            Rejoin::AsItIs
        );
        assert!(returning.all_agree());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(
            !returning.all_agree(),
            "the answer is from before the repair"
        );
        returning.ask(ASK_AGAIN).await;
        let cut_back = Rejoin::CutBack {
            to: Some(OpId::new(3, 22)),
            ring_last: OpId::new(3 + TERM_LEAP, 25),
        };
        assert_eq!(returning.judge(), cut_back);
    }

    #[tokio::test(start_paused = true)]
    async fn a_truncated_member_keeps_the_answers_and_doubts_its_log() {
        let run = |term, first, last| TermRun { term, first, last };
        let own = Recollection {
            runs: vec![run(3, 0, 22), run(9, 23, 25)],
            committed: Some(OpId::new(9, 25)),
        };
        let mut returning = returning(own, repaired_at(Instant::now()));
        let log = Log {
            end: Some(OpId::new(9, 25)),
            ..Log::default()
        };
        let Rejoin::CutBack { to, .. } = returning.before_the_start(&log).await.unwrap() else {
            panic!("it holds what the ring has given up");
        };
        let noted = log.noted.lock().unwrap().map(|doubt| doubt.term);
        assert_eq!(noted, Some(9), "the cut is explained");
        let returning = returning.cut_back(Recollection {
            runs: vec![run(3, 0, 22)],
            committed: to,
        });
        let told = ahead(&returning.own, returning.agreements());
        assert_eq!(told, Some(OpId::new(3 + TERM_LEAP, 25)));
        assert_eq!(returning.judge(), Rejoin::AsItIs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_without_a_commit_of_its_term_is_asked_again() {
        let repaired = Instant::now() + Duration::from_millis(500);
        let leader = MemberId(2);
        let mut returning = returning(Recollection::default(), repaired_at(repaired));
        assert!(
            !returning.was_told_by(leader, Term(3)),
            "no member was asked"
        );
        returning.ask(ASK_AGAIN).await;
        assert!(returning.was_told_by(leader, Term(3)));
        tokio::time::advance(Duration::from_millis(600)).await;
        let later = Term(3 + TERM_LEAP);
        // A member with a fresh answer is not queried again, unless it is the leader and has not reported a commit of its term.
        returning.ask(ASK_AGAIN).await;
        assert!(!returning.was_told_by(leader, later));
        returning.ask(ASK_AGAIN).await;
        assert!(returning.was_told_by(leader, later));
        // A member that joined while this member was away is unknown here, so it cannot be queried.
        assert!(returning.was_told_by(MemberId(9), later));
    }

    #[test]
    fn committed_entries_of_others_that_the_log_lacks() {
        let run = TermRun {
            term: 3,
            first: 0,
            last: 24,
        };
        let own = Recollection {
            runs: vec![run],
            committed: Some(OpId::new(3, 20)),
        };
        let answer = |term, index| Agreement {
            committed: Some(OpId::new(term, index)),
            ..Agreement::default()
        };
        let silent = Agreement::default();
        assert_eq!(ahead(&own, []), None);
        assert_eq!(ahead(&own, [&silent, &answer(3, 24)]), None);
        let leapt = 3 + TERM_LEAP;
        let repaired = [&answer(3, 24), &answer(leapt, 26), &answer(leapt, 25)];
        assert_eq!(ahead(&own, repaired), Some(OpId::new(leapt, 26)));
        let restarted = |term| Agreement {
            last: Some(OpId::new(term, 26)),
            ..answer(3, 22)
        };
        assert_eq!(ahead(&own, [&restarted(leapt)]), Some(OpId::new(leapt, 26)));
        // Many elections raise the term, but are not a repair, so the entries of this log may never be committed.
        for term in [4, 3 + 1_000_000] {
            assert_eq!(ahead(&own, [&restarted(term)]), None);
        }
    }

    fn run(term: u64, first: u64, last: u64) -> TermRun {
        TermRun { term, first, last }
    }

    #[test]
    fn only_a_contradiction_of_committed_entries_cuts() {
        const LEAPT: u64 = 1 + TERM_LEAP;
        let own = Recollection {
            runs: vec![run(1, 0, 200)],
            committed: Some(OpId::new(1, 190)),
        };
        let repaired = Agreement {
            common: Some(OpId::new(1, 180)),
            last: Some(OpId::new(LEAPT, 250)),
            committed: Some(OpId::new(LEAPT, 240)),
            purged: None,
            remembered: None,
        };
        let cut = Rejoin::CutBack {
            to: Some(OpId::new(1, 180)),
            ring_last: OpId::new(LEAPT, 250),
        };
        assert_eq!(judge(&own, [repaired.clone()]), cut);
        // The survivor has restarted, and its commit index does not include its repair.
        let restarted = Agreement {
            committed: Some(OpId::new(1, 175)),
            ..repaired.clone()
        };
        assert_eq!(judge(&own, [restarted]), cut);
        assert_eq!(judge(&own, []), Rejoin::AsItIs);

        let harmless = [
            // A lagging follower.
            Agreement {
                last: Some(OpId::new(1, 150)),
                committed: Some(OpId::new(1, 150)),
                common: Some(OpId::new(1, 150)),
                purged: None,
                remembered: None,
            },
            // A later leader after an ordinary election: all committed entries are common.
            Agreement {
                common: Some(OpId::new(1, 195)),
                ..repaired.clone()
            },
            // A later leader that has not committed an entry after the last common entry.
            Agreement {
                last: Some(OpId::new(2, 250)),
                committed: Some(OpId::new(1, 180)),
                ..repaired.clone()
            },
            // The repair gave up the other member, not this one.
            Agreement {
                last: Some(OpId::new(1, 300)),
                ..repaired.clone()
            },
            // The other member has purged the entries that could be compared.
            Agreement {
                common: None,
                purged: Some(OpId::new(LEAPT, 230)),
                ..repaired.clone()
            },
        ];
        for answer in harmless {
            assert_eq!(judge(&own, [answer.clone()]), Rejoin::AsItIs, "{answer:?}");
        }
        let truncated = Recollection {
            runs: vec![run(1, 5, 200)],
            ..own.clone()
        };
        // If the answer has a common entry, purged entries before that entry do not matter.
        let purged = Agreement {
            purged: Some(OpId::new(1, 170)),
            ..repaired.clone()
        };
        assert_eq!(judge(&own, [purged.clone()]), cut);
        assert_eq!(judge(&truncated, [purged]), cut);
        let unknown = Agreement {
            common: None,
            ..repaired.clone()
        };
        assert_eq!(judge(&truncated, [unknown]), Rejoin::AsItIs);
        let earlier = Agreement {
            common: Some(OpId::new(1, 120)),
            ..repaired.clone()
        };
        let Rejoin::CutBack { to, .. } = judge(&own, [repaired, earlier]) else {
            panic!("two contradictions");
        };
        assert_eq!(to, Some(OpId::new(1, 120)));
    }
}
