//! Transfers the leadership from a leader whose mysqld cannot be the primary, when [`AutomaticDemotion`] decides so.

use std::sync::Arc;
use std::time::Duration;

use mysqld_controller::plan::demotion::{AutomaticDemotion, Demotion, DemotionFacts};
use mysqld_controller::primary_health::{PrimaryHealth, health_changed};
use raft_types::MemberId;
use ring_admin::{Member, PromotionError, SOON_THERE};
use tokio::sync::watch;
use tokio::time::Instant;

use super::management::MysqldManagement;
use crate::ring_history::note_promotion;

/// Longest interval between two checks. It is needed because the log's room and its disk report no changes.
const LOOK: Duration = Duration::from_secs(1);

/// Watches a leader's mysqld.
pub(crate) struct DemotionTask {
    member: Member,
    management: Arc<MysqldManagement>,
    patience: Duration,
    /// Receives the next action, as text.
    told: watch::Sender<Option<String>>,
}

impl DemotionTask {
    /// Connects this mysqld to the member's leadership: writes are paused before a switchover, and other members can request the cost of a
    /// promotion. Returns the task of the automatic demotion, which must be polled while the member takes part in its ring. The task sends
    /// its next action to `told`. Returns `None` if automatic demotion is disabled.
    pub(crate) fn of(
        management: &Arc<MysqldManagement>,
        told: watch::Sender<Option<String>>,
    ) -> Option<Self> {
        let member = management.setup.ring.member.clone();
        member.set_writer(management.clone());
        member.set_database(management.clone());
        Some(Self {
            member,
            management: management.clone(),
            patience: management.setup.settings.demote_after?,
            told,
        })
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(self) {
        let mut demotion = AutomaticDemotion::new(self.patience, SOON_THERE);
        let mut primacy = self.member.primacy();
        loop {
            let leads = primacy.borrow_and_update().leadership.serving_term();
            if leads.is_none() {
                demotion.does_not_serve(Instant::now());
                self.tell(None);
                if primacy.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let mut observer = self.management.health_observer();
            let mut pause = LOOK;
            match demotion.decide(&self.see(), Instant::now()) {
                Demotion::Stay => self.tell(None),
                Demotion::Wait { why, left } => {
                    pause = left.min(LOOK);
                    self.tell(Some(format!(
                        "automatic demotion in {} s, if another mysqld can be the primary: {why}",
                        left.as_secs()
                    )));
                }
                Demotion::Transfer { why, at_most } => {
                    let given_away = self.demote(&why, at_most).await;
                    demotion.attempted(given_away, Instant::now());
                }
            }
            tokio::select! {
                () = health_changed(&mut observer) => {}
                changed = primacy.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns the facts for a decision. Without a term in which it serves, nothing else is checked.
    fn see(&self) -> DemotionFacts {
        let primacy = self.member.primacy_now();
        let leads = primacy.leadership.serving_term();
        DemotionFacts {
            leads,
            paused: primacy.paused,
            health: leads.map_or(PrimaryHealth::Fit, |_| self.management.health()),
        }
    }

    /// Transfers the leadership to a member whose mysqld lacks at most `at_most` transactions. Returns true if it succeeded.
    async fn demote(&self, why: &str, at_most: u64) -> bool {
        // The target is the best of all members that could lead and whose mysqld could be the primary.
        let none = match self.member.transfer_target().await {
            Err(none) => none.to_string(),
            Ok((target, None)) => {
                format!("member {target} does not report the state of its mysqld")
            }
            Ok((target, Some(state))) => match state.unfit {
                Some(unfit) => format!("the best of them is member {target}, and {unfit}"),
                None if state.lag.is_some_and(|lag| lag > at_most) => return false,
                None => return self.transfer(target, why).await,
            },
        };
        self.tell(Some(format!(
            "its mysqld cannot be the primary ({why}), and neither can any other: {none}"
        )));
        false
    }

    async fn transfer(&self, target: MemberId, why: &str) -> bool {
        tracing::warn!(to = %target, "the leadership is transferred, because this member's mysqld cannot be the primary: {why}");
        let told = format!("it is transferring the leadership to member {target}: {why}");
        self.tell(Some(told));
        let management = Arc::clone(&self.management);
        // A slow server may have become fit before the quorum has moved.
        let is_broken = move || management.health() != PrimaryHealth::Fit;
        let unseen = watch::Sender::default();
        match self.member.promote_while(target, unseen, is_broken).await {
            Ok(promoted) => {
                note_promotion(&self.member, &promoted, "", why.to_owned());
                tracing::info!(leader = %promoted.leader, "transferred the leadership");
                true
            }
            Err(PromotionError::NotNeeded(_)) => {
                tracing::info!(
                    "this member's mysqld can be the primary again: it keeps the leadership"
                );
                false
            }
            Err(error) => {
                tracing::warn!(to = %target, %error, "the leadership could not be transferred");
                false
            }
        }
    }

    fn tell(&self, words: Option<String>) {
        self.told.send_replace(words);
    }
}
