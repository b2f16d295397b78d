//! Chooses failed tests that run again, from cargo's output. Pure.
//!
//! A test with real processes has time limits, and a machine with two cores runs several tests at the same time. So a failed test runs
//! again, alone. If it fails again, it has failed. If it passes, the summary lists it as unsteady. An unsteady test is a defect of the test
//! or of the program, and must be investigated. A failed test does not run again in these cases:
//! - The test uses no other processes, so that only its own code determines its result.
//! - The test reports harm to data, even if that is rare.
//! - More than [`MOST`] tests have failed.

/// Maximum number of failed tests that run again. More failures have a common cause.
pub(crate) const MOST: usize = 8;

/// Words in the output of a test that reports harm: an acknowledged transaction is missing, duplicated, or not the same everywhere.
const HARM: [&str; 7] = [
    "lost",
    "twice",
    "doubled",
    "differ",
    "diverge",
    "corrupt",
    "never committed",
];

/// MySQL's message for a session that a member has ended, in lower case. This is no harm to data.
const LOST_CONNECTION: &str = "lost connection to mysql server";

/// A failed test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The test's path within its program.
    pub(crate) name: String,
    /// The arguments with which cargo runs the test's program.
    pub(crate) program: Vec<String>,
    /// The test's output.
    pub(crate) words: String,
}

impl Failure {
    /// Returns the arguments to run the test again. They have the features of the whole workspace, so that cargo does not compile again.
    pub(crate) fn once_more(&self) -> Vec<&str> {
        let test = self.program.iter().skip_while(|word| *word != "--test");
        let mut arguments = vec!["test", "--workspace"];
        arguments.extend(test.map(String::as_str));
        arguments.extend(["--", "--exact", &self.name]);
        arguments
    }

    /// Returns the line of the output that describes the failure.
    pub(crate) fn first_words(&self) -> &str {
        let mut lines = self.words.lines();
        let told = lines.by_ref().find(|line| line.contains("panicked at"));
        let after = told.and_then(|_| lines.next());
        after.or(self.words.lines().next()).unwrap_or_default()
    }

    fn may_be_an_accident(&self) -> bool {
        let of_its_own = self.program.iter().any(|argument| argument == "--test");
        // The output also contains the logs of the processes, which may mention lost connections.
        let said = self.words.lines().filter(|line| !is_logged(line));
        // A backtrace contains the test's name, which may contain one of the words.
        let words = said.collect::<Vec<_>>().join("\n").replace(&self.name, "");
        let words = words.to_lowercase().replace(LOST_CONNECTION, "");
        of_its_own && !HARM.iter().any(|word| words.contains(word))
    }
}

/// Returns the failed tests in the outputs of failed runs of `cargo test --no-fail-fast`. `None`: at least one of them must not run again.
pub(crate) fn second_chances<'a>(
    printed: impl IntoIterator<Item = &'a str>,
) -> Option<Vec<Failure>> {
    let mut all = Vec::new();
    for printed in printed {
        // A failed run without a failed test may be a failed build.
        all.extend(failures(printed).filter(|failures| !failures.is_empty())?);
    }
    let accidents = all.iter().all(Failure::may_be_an_accident);
    (accidents && !all.is_empty() && all.len() <= MOST).then_some(all)
}

/// Returns a line for each failed test, for readers of only the last lines.
pub(crate) fn summary<'a>(printed: impl IntoIterator<Item = &'a str>) -> String {
    let mut lines = Vec::new();
    for printed in printed {
        let Some(failures) = failures(printed).filter(|failures| !failures.is_empty()) else {
            lines.push("  a program ended, or was not built, and names no test".to_owned());
            continue;
        };
        let line = |failure: &Failure| format!("  {}: {}", failure.name, failure.first_words());
        lines.extend(failures.iter().map(line));
    }
    lines.join("\n")
}

/// Returns the failed tests in an output. `None`: a program ended without a list of its failed tests.
fn failures(printed: &str) -> Option<Vec<Failure>> {
    let mut failures = Vec::new();
    let mut details: Vec<(String, String)> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut lines = printed.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("Running ") {
            details.clear();
            names.clear();
        } else if let Some(name) = detail_of(line) {
            details.push((name.to_owned(), String::new()));
        } else if line == "failures:" {
            while let Some(name) = lines.next_if(|line| line.starts_with("    ")) {
                names.push(name.trim().to_owned());
            }
        } else if let Some(program) = program_of(line) {
            if names.is_empty() {
                return None;
            }
            for name in names.drain(..) {
                let words = details.iter().find(|(of, _)| *of == name)?.1.clone();
                failures.push(Failure {
                    name,
                    program: program.clone(),
                    words,
                });
            }
        } else if let Some((_, words)) = details.last_mut() {
            words.push_str(line);
            words.push('\n');
        }
    }
    Some(failures)
}

/// Returns whether a line begins with a time, and so is from the log of a member or a mysqld.
fn is_logged(line: &str) -> bool {
    let time = line.split_whitespace().next().unwrap_or_default();
    time.len() >= 20 && time.contains('T') && time.ends_with('Z')
}

/// Returns the test's name in a line such as `---- a::b stdout ----`.
fn detail_of(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// Returns cargo's arguments in a line such as ``error: test failed, to rerun pass `-p a --test b` ``.
fn program_of(line: &str) -> Option<Vec<String>> {
    let arguments = line.strip_prefix("error: test failed, to rerun pass `")?;
    let arguments = arguments.trim_end().strip_suffix('`')?;
    Some(arguments.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tests that run again after one run with this output.
    fn chances(printed: &str) -> Option<Vec<Failure>> {
        second_chances([printed])
    }

    /// Returns an output of cargo with a failed test that has other processes and has printed `words`.
    fn printed(words: &str) -> String {
        format!(
            "     Running tests/whole/main.rs (target/debug/deps/whole-1)\n\n\
             running 2 tests\n\
             test one ... ok\n\
             2026-11-21T02:33:43Z ERROR another test writes in between\n\
             test a_scene::two ... FAILED\n\n\
             failures:\n\n\
             ---- a_scene::two stdout ----\n\n\
             thread 'a_scene::two' (1) panicked at tests/whole/a_scene.rs:1:1:\n\
             {words}\n\
             stack backtrace:\n\n\n\
             failures:\n    a_scene::two\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n\n\
             error: test failed, to rerun pass `-p witness-tests --test whole`\n"
        )
    }

    #[test]
    fn a_test_with_real_processes_is_run_again() {
        let given = chances(&printed("it took too long")).unwrap();
        assert_eq!(given.len(), 1);
        assert_eq!(given[0].name, "a_scene::two");
        assert_eq!(given[0].program, ["-p", "witness-tests", "--test", "whole"]);
        assert_eq!(given[0].first_words(), "it took too long");
        let again = "test --workspace --test whole -- --exact a_scene::two";
        assert_eq!(given[0].once_more().join(" "), again);
        let told = summary([&*printed("it took too long"), "error: could not compile"]);
        assert!(
            told.starts_with("  a_scene::two: it took too long\n"),
            "{told}"
        );
        assert_eq!(chances("test result: ok. 1 passed"), None);
        let logged =
            "it took too long\n2026-11-21T02:34:42.345097Z  WARN worker: a session is lost";
        assert!(chances(&printed(logged)).is_some());
    }

    #[test]
    fn there_is_no_second_chance_for_harm_nor_for_many_nor_for_what_decides_alone() {
        let harm = printed("acknowledged and lost: [7]");
        assert_eq!(chances(&harm), None);
        let unit = printed("5 is not 6").replace("-p witness-tests --test whole", "-p a --lib");
        assert_eq!(chances(&unit), None);
        let slow = printed("it took too long");
        let named = printed("it took too long").replace("a_scene::two", "a_scene::nothing_is_lost");
        assert!(chances(&named).is_some(), "{named}");
        let session = printed("ERROR 2013 (HY000): Lost connection to MySQL server during query");
        assert!(chances(&session).is_some(), "{session}");
        assert_eq!(chances(&slow.repeat(MOST)).unwrap().len(), MOST);
        assert_eq!(chances(&slow.repeat(MOST + 1)), None);
        assert_eq!(second_chances([&*slow; MOST]).unwrap().len(), MOST);
        assert_eq!(second_chances([&*slow; MOST + 1]), None);
        // One run failed without a failed test. The failure of the other run alone would run again.
        assert_eq!(second_chances([&slow, "error: could not compile"]), None);
        // One test reports harm. The other test alone would run again.
        assert_eq!(chances(&(slow + &harm)), None);
    }

    #[test]
    fn a_program_that_dies_has_no_second_chance() {
        let died = "     Running tests/whole/main.rs (target/debug/deps/whole-1)\n\
             running 1 test\n\
             error: test failed, to rerun pass `-p witness-tests --test whole`\n\
             Caused by:\n  process didn't exit successfully (signal: 6, SIGABRT)\n";
        assert_eq!(chances(died), None);
        // If a program died, the failed test of another program does not run again either.
        assert_eq!(chances(&(printed("late") + died)), None);
    }
}
