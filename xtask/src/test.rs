//! `cargo xtask test`: runs the checks that a change must pass, in steps.
//!
//! The first step that fails ends the run. `.ci/run` runs this task on a machine that has only Rust and Debian. [`crate::second_chance`]
//! chooses failed tests that run again before their step fails.

mod checking_compiler;
mod programs;
mod scratch_folder;
mod steps;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use testkit::cluster::{BUILT_VARIABLE, Profile, program};

use crate::docker::{Engine, provide_images};
use crate::second_chance::Failure;
pub(crate) use crate::test::checking_compiler::as_rustc;
use crate::test::steps::{Action, Plan, Step};
use crate::{containers, limits, mysql, packages};

/// The lowest priority of a process.
const LEAST_URGENT: i32 = 19;

#[derive(Args)]
pub(crate) struct Options {
    /// Leave out the tests that use a mysqld: programs whose tests all do, and tests with `mysqld` in their name
    #[arg(long)]
    quick: bool,
    /// Run no test a second time: the first failure counts
    #[arg(long)]
    strict: bool,
    /// Begin with this step, as after a run that ended with it; steps in parallel to it run in full
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
}

/// The progress of the run.
#[derive(Default)]
struct Done {
    times: Mutex<Vec<(&'static str, Duration)>>,
    /// Tests that passed only in their second run.
    unsteady: Mutex<Vec<Failure>>,
    /// True after a step has failed. No further step begins then.
    failed: AtomicBool,
    /// Notified when a step has ended.
    over: Condvar,
}

impl Done {
    /// Waits until a step of another lane has ended, or any step has failed.
    fn wait_for(&self, name: &str) {
        let is_over = |times: &mut Vec<(&str, Duration)>| {
            self.failed.load(Ordering::Relaxed) || times.iter().any(|(over, _)| *over == name)
        };
        let times = locked(&self.times);
        drop(self.over.wait_while(times, |times| !is_over(times)));
    }

    /// Makes a panic in this lane count as a failed step, so that other lanes do not wait for this lane.
    fn fail_on_panic(&self) -> FailsOnPanic<'_> {
        FailsOnPanic(self)
    }

    fn ends(&self, name: &'static str, took: Duration, failed: bool) {
        let mut times = locked(&self.times);
        times.push((name, took));
        self.failed.fetch_or(failed, Ordering::Relaxed);
        drop(times);
        self.over.notify_all();
    }
}

struct FailsOnPanic<'a>(&'a Done);

impl Drop for FailsOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
            drop(locked(&self.0.times));
            self.0.over.notify_all();
        }
    }
}

/// Runs the steps and prints a summary.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut plan = Plan::new(options.quick);
    if let Some(from) = &options.from {
        plan = plan.from(from).map_err(|steps| {
            anyhow!(
                "there is no step `{from}`; the steps are: {}",
                steps.join(", ")
            )
        })?;
    }
    let (done, started) = (Done::default(), Instant::now());
    let result = run_plan(&plan, !options.strict, &done);
    let times = locked(&done.times);
    println!("── times ──");
    for (name, time) in times.iter().chain([&("total", started.elapsed())]) {
        println!("{name:<16}{:>8.1} s", time.as_secs_f64());
    }
    result?;
    for test in locked(&done.unsteady).iter() {
        println!(
            "unsteady: {} of {} failed, and passed by itself: {}",
            test.name,
            test.program.join(" "),
            test.first_words()
        );
    }
    println!(
        "all {} steps passed{}",
        times.len(),
        if options.quick {
            " (without the tests that use a mysqld)"
        } else {
            ""
        }
    );
    Ok(())
}

fn run_plan(plan: &Plan, again: bool, done: &Done) -> Result<()> {
    thread::scope(|scope| {
        let computing = thread::Builder::new().name("computing".into());
        let computing = computing.spawn_scoped(scope, || {
            // The priority applies to this thread and all processes that it starts.
            rustix::process::nice(LEAST_URGENT).context("cannot lower the priority")?;
            run_steps(plan, &plan.computing, again, done)
        })?;
        let packaging = thread::Builder::new().name("packaging".into());
        let packaging =
            packaging.spawn_scoped(scope, || run_steps(plan, &plan.packaging, again, done))?;
        let mut result = run_steps(plan, &plan.waiting, again, done);
        for concurrent in [packaging, computing] {
            let ended = concurrent.join().map_err(|_| anyhow!("a step panicked"))?;
            result = result.and(ended);
        }
        result
    })
}

/// Runs the steps of a lane sequentially, until a step in any lane fails.
fn run_steps(plan: &Plan, lane: &[Step], again: bool, done: &Done) -> Result<()> {
    let _fails = done.fail_on_panic();
    for step in lane {
        if let Some(after) = step.after.filter(|after| plan.has(after)) {
            done.wait_for(after);
        }
        if done.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        eprintln!("── {} ──", step.name);
        let began = Instant::now();
        let result = perform(&step.action, again);
        done.ends(step.name, began.elapsed(), result.is_err());
        match result {
            Ok(failures) => locked(&done.unsteady).extend(failures),
            Err(error) => {
                let error = error.context(format!("step `{}` failed", step.name));
                // The error is printed immediately, because steps in other lanes may need minutes to end.
                eprintln!("{error:#}");
                return Err(error);
            }
        }
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Performs an action. Returns the tests that passed only in their second run.
fn perform(action: &Action, again: bool) -> Result<Vec<Failure>> {
    match action {
        Action::Tests => return programs::run_most(again),
        Action::QuickTests => programs::run_quick()?,
        Action::ComputingTests => return programs::run_computing(again),
        Action::TestsAlone => return programs::run_alone(again),
        Action::Programs => programs::build()?,
        Action::Mysql => {
            let tree = mysql::provide(false)?;
            let missing = tree.missing();
            if !missing.is_empty() {
                bail!(
                    "{} comes without {}, which the tests use",
                    tree.mysqld.display(),
                    missing.join(" and ")
                );
            }
            eprintln!("MySQL {} at {}", tree.version, tree.mysqld.display());
            match mysql::provide_oldest(false) {
                Ok(oldest) => eprintln!("MySQL {} at {}", oldest.version, oldest.mysqld.display()),
                // The tests that need it fail with a message.
                Err(error) => eprintln!("warning: {error:#}"),
            }
        }
        Action::Lab(arguments) => run_lab(arguments)?,
        Action::Images => provide_images(&Engine::find_or_start()?)?,
        Action::Packages => packages::run_short(&program(Profile::Dev, "witness"))?,
        Action::Containers => containers::run_short(&program(Profile::Dev, "witness"))?,
        Action::Limits => limits::check()?,
        Action::Format => {
            let status = cargo(&["fmt", "--all", "--check"]).status();
            let status = status.context("cannot run cargo")?;
            ensure!(status.success(), "cargo fmt ended with {status}");
        }
    }
    Ok(Vec::new())
}

/// Runs `cargo lab` with programs that are already built.
fn run_lab(arguments: &[String]) -> Result<()> {
    let mut lab = Command::new(program(Profile::Dev, "lab"));
    lab.args(arguments).env(BUILT_VARIABLE, "1");
    let status = lab.status().context("cannot run the laboratory")?;
    ensure!(status.success(), "`lab {}` failed", arguments.join(" "));
    Ok(())
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = testkit::bounded_run::cargo();
    command.args(arguments).stdin(Stdio::null());
    command
}
