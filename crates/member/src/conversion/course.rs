//! A plan and its execution, step by step; the journal records each step before it begins.

use std::fmt::Display;
use std::time::Duration;

use futures::future::BoxFuture;
use mysqld_controller::conversion::{Obstacle, Planned};
use tokio::time::Instant;

use crate::conversion::one_at_a_time::OneAtATime;
use crate::conversion::{Conversion, ConversionFailure, Journal};

/// A command's execution of its plan.
pub trait Work: Send {
    /// A step of its plan.
    type Step: Display + Clone + Send + Sync;

    /// The conversion that it works on.
    fn conversion(&self) -> &Conversion<'_>;

    /// Executes one step.
    ///
    /// # Errors
    /// When it is not complete; it can be repeated.
    fn carry_out<'a>(
        &'a mut self,
        step: &'a Self::Step,
    ) -> BoxFuture<'a, Result<(), ConversionFailure>>;

    /// How long clients could not write, if a step measured it.
    fn write_pause(&self) -> Option<Duration>;
}

/// A plan and its execution.
pub struct Course<W: Work> {
    /// The steps, or the obstacles.
    pub planned: Result<Vec<Planned<W::Step>>, Vec<Obstacle>>,
    /// Remarks for the operator.
    pub remarks: Vec<String>,
    journal: Journal,
    work: W,
}

impl<W: Work> Course<W> {
    /// For a new plan.
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

    /// All steps, completed ones included; none if there are obstacles.
    pub fn steps(&self) -> &[Planned<W::Step>] {
        self.planned.as_ref().map(Vec::as_slice).unwrap_or_default()
    }

    /// Obstacles of the plan.
    pub fn obstacles(&self) -> &[Obstacle] {
        let obstacles = self.planned.as_ref().err();
        obstacles.map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether all steps are complete.
    pub fn is_done(&self) -> bool {
        self.planned.is_ok() && self.steps().iter().all(|planned| planned.done)
    }

    /// Executes the remaining steps, as far as possible. Reports each step to `told`, with its duration in seconds. Returns how long
    /// clients could not write, in seconds, if this run or an earlier one measured it.
    ///
    /// # Errors
    /// When another run is in progress, and those of the steps.
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
        // An earlier run may have measured it.
        Ok(self.journal.entries.write_pause_seconds)
    }

    /// Executes one step, and records it.
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
