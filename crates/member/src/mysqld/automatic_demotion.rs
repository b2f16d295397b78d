//! Transfers the leadership away from a leader whose mysqld cannot be the primary, when [`AutomaticDemotion`] decides that.

use std::sync::Arc;
use std::time::Duration;

use consensus::DatabaseState;
use mysqld_controller::plan::demotion::{AutomaticDemotion, Demotion, DemotionFacts};
use mysqld_controller::primary_health::{HealthObserver, PrimaryHealth, health_changed};
use raft_types::MemberId;
use ring_admin::{Member, PromotionError, SOON_THERE};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ring_history::note_promotion;

/// Longest interval between two checks: the log's room and disk report no changes.
const LOOK: Duration = Duration::from_secs(1);

/// Watches a leader's mysqld.
pub(crate) struct DemotionTask {
    pub(crate) member: Member,
    pub(crate) patience: Duration,
    /// The current health of mysqld.
    pub(crate) health: Arc<dyn Fn() -> PrimaryHealth + Send + Sync>,
    /// Observes its changes from then on, while it is managed.
    pub(crate) observe: Box<dyn Fn() -> Option<HealthObserver> + Send + Sync>,
    /// Reports the next action.
    pub(crate) told: watch::Sender<Option<String>>,
}

/// Why no other mysqld can be the primary.
#[derive(Debug, Error)]
enum NoTarget {
    #[error("{0}")]
    None(String),
    #[error("member {0} does not report the state of its mysqld")]
    Unreported(MemberId),
    #[error("the best of them is member {0}, and {1}")]
    Unfit(MemberId, String),
}

impl DemotionTask {
    /// Runs until dropped.
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
            let mut observer = (self.observe)();
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

    /// Without a term nothing else is checked.
    fn see(&self) -> DemotionFacts {
        let primacy = self.member.primacy_now();
        let leads = primacy.leadership.serving_term();
        DemotionFacts {
            leads,
            paused: primacy.paused,
            health: leads.map_or(PrimaryHealth::Fit, |_| (self.health)()),
        }
    }

    /// Transfers to a member whose mysqld lacks at most `at_most` transactions. Returns whether it succeeded.
    async fn demote(&self, why: &str, at_most: u64) -> bool {
        let target = match self.transfer_target().await {
            Ok((_, state)) if state.lag.is_some_and(|lag| lag > at_most) => return false,
            Ok((target, _)) => target,
            Err(none) => {
                self.tell(Some(format!(
                    "its mysqld cannot be the primary ({why}), and neither can any other: {none}"
                )));
                return false;
            }
        };
        tracing::warn!(to = %target, "the leadership is transferred, because this member's mysqld cannot be the primary: {why}");
        self.tell(Some(format!(
            "it is transferring the leadership to member {target}: {why}"
        )));
        let health = Arc::clone(&self.health);
        // A slow server may have started before the quorum has moved.
        let is_broken = move || health() != PrimaryHealth::Fit;
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

    /// The best of all members that could lead and have a mysqld that could be the primary.
    async fn transfer_target(&self) -> Result<(MemberId, DatabaseState), NoTarget> {
        let best = self.member.transfer_target().await;
        match best.map_err(|why| NoTarget::None(why.to_string()))? {
            (target, None) => Err(NoTarget::Unreported(target)),
            (target, Some(state)) => match state.unfit {
                Some(why) => Err(NoTarget::Unfit(target, why)),
                None => Ok((target, state)),
            },
        }
    }

    fn tell(&self, words: Option<String>) {
        self.told.send_replace(words);
    }
}
