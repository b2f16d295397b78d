//! A plan, and how it is carried out: one step after the other, each in the journal before it begins.

use std::fmt::Display;
use std::time::Duration;

use futures::future::BoxFuture;
use mysqld_controller::conversion::{Obstacle, Planned};
use tokio::time::Instant;

use crate::conversion::one_at_a_time::OneAtATime;
use crate::conversion::{Conversion, ConversionFailure, Journal};

/// How a command carries its plan out.
pub trait Work: Send {
    /// One step of its plan.
    type Step: Display + Clone + Send + Sync;

    /// With what it works.
    fn conversion(&self) -> &Conversion<'_>;

    /// Carries one step out.
    ///
    /// # Errors
    /// When it is not done; all of it can be run again.
    fn carry_out<'a>(
        &'a mut self,
        step: &'a Self::Step,
    ) -> BoxFuture<'a, Result<(), ConversionFailure>>;

    /// For how long clients could not write, if a step has seen that.
    fn write_pause(&self) -> Option<Duration>;
}

/// A plan, and for whom.
pub struct Course<W: Work> {
    /// The steps, or what stands in their way.
    pub planned: Result<Vec<Planned<W::Step>>, Vec<Obstacle>>,
    /// What the operator should know.
    pub remarks: Vec<String>,
    journal: Journal,
    work: W,
}

impl<W: Work> Course<W> {
    /// Of a plan that was just made.
    ///
    /// # Errors
    /// When there is a journal that cannot be read.
    pub(super) fn new(
        planned: Result<Vec<Planned<W::Step>>, Vec<Obstacle>>,
        remarks: Vec<String>,
        work: W,
    ) -> Result<Self, ConversionFailure> {
        let conversion = work.conversion();
        let journal = Journal::open(&conversion.data_dir, conversion.direction)?;
        Ok(Self {
            planned,
            remarks,
            journal,
            work,
        })
    }

    /// The steps, those that are done among them; none where something stands in their way.
    pub fn steps(&self) -> &[Planned<W::Step>] {
        self.planned.as_ref().map(Vec::as_slice).unwrap_or_default()
    }

    /// What stands in their way.
    pub fn obstacles(&self) -> &[Obstacle] {
        let obstacles = self.planned.as_ref().err();
        obstacles.map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.planned.is_ok() && self.steps().iter().all(|planned| planned.done)
    }

    /// Goes it to its end, or as far as it goes. Each step is `told` with the seconds that it took. Says for how long clients could
    /// not write, in seconds, if this run or an earlier one has seen that.
    ///
    /// # Errors
    /// When another run is under way, and those of the steps.
    pub async fn carry_out(
        &mut self,
        mut told: impl FnMut(&W::Step, f64) + Send,
    ) -> Result<Option<f64>, ConversionFailure> {
        let conversion = self.work.conversion();
        let lock = OneAtATime::take(&conversion.data_dir, &conversion.connect).await?;
        let to_do = self.steps().iter().filter(|planned| !planned.done);
        let to_do: Vec<W::Step> = to_do.map(|planned| planned.step.clone()).collect();
        for step in to_do {
            let seconds = self.step(&step).await?;
            told(&step, seconds);
        }
        drop(lock);
        if let Some(pause) = self.work.write_pause() {
            self.journal.entries.write_pause_seconds = Some(pause.as_secs_f64());
        }
        self.journal.keep()?;
        // An earlier run may have seen it.
        Ok(self.journal.entries.write_pause_seconds)
    }

    /// Carries one step out, and writes it down.
    ///
    /// # Errors
    /// Its own, with the way back.
    async fn step(&mut self, step: &W::Step) -> Result<f64, ConversionFailure> {
        self.journal.begins(step.to_string())?;
        let began = Instant::now();
        if let Err(mut failure) = self.work.carry_out(step).await {
            let direction = self.work.conversion().direction;
            failure.what = format!("{step}: {}", failure.what);
            if !failure.advice.is_empty() {
                failure.advice += "\n  ";
            }
            failure.advice += &format!(
                "`witness {}` continues where it stopped; `witness {}` goes back",
                direction.name(),
                direction.back().name(),
            );
            return Err(failure);
        }
        let seconds = began.elapsed().as_secs_f64();
        self.journal.ends(seconds)?;
        Ok(seconds)
    }
}
