//! A documentation page whose code blocks a test runs. The blocks are unchanged, except that the test replaces words of the example by its
//! own. Each block is either run, or left out for a reason that the test states.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::bounded_run::{Finished, run, write_program};
use testkit::documentation::{Block, blocks};

/// The blocks of a page that the test has neither run nor left out yet.
#[derive(Debug)]
pub struct Page {
    name: String,
    left: Vec<Block>,
    words: Vec<Word>,
}

/// A word of the example, and the test's replacement.
#[derive(Debug)]
struct Word {
    example: String,
    own: String,
    was_used: bool,
}

impl Page {
    /// Opens the page with this path in the checkout.
    ///
    /// # Errors
    /// If the page cannot be read, or has no blocks.
    pub fn open(name: &str) -> Result<Self> {
        Ok(Self {
            left: blocks(name)?,
            name: name.to_owned(),
            words: Vec::new(),
        })
    }

    /// Replaces words of the example in blocks that are taken from now on. If two examples begin at the same place, the longer one is
    /// replaced.
    pub fn replace(&mut self, example: &str, own: impl Into<String>) {
        let own = own.into();
        match self.words.iter_mut().find(|word| word.example == example) {
            Some(word) => word.own = own,
            None => self.words.push(Word {
                example: example.to_owned(),
                own,
                was_used: false,
            }),
        }
    }

    /// Returns the block of this language that contains these words, with the replacements.
    ///
    /// # Errors
    /// If not exactly one of the remaining blocks contains them.
    pub fn take(&mut self, language: &str, words: &str) -> Result<String> {
        let block = self.only(language, words)?;
        Ok(self.in_own_words(&block.text))
    }

    /// Leaves out the block of this language that contains these words, for a reason.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn leave_out(&mut self, language: &str, words: &str, why: &str) -> Result<()> {
        let block = self.only(language, words)?;
        println!(
            "{} is not run to its word, {why}: {}",
            self.name, block.text
        );
        Ok(())
    }

    /// Checks that every block was taken or left out, and that every replaced word occurred.
    ///
    /// # Errors
    /// If blocks or words remain; with these blocks or words.
    pub fn ends(self) -> Result<()> {
        let Self { name, left, words } = self;
        ensure!(left.is_empty(), "no step has run this of {name}: {left:?}");
        let unused = words.iter().filter(|word| !word.was_used);
        let unused: Vec<&String> = unused.map(|word| &word.example).collect();
        ensure!(unused.is_empty(), "{name} does not say {unused:?}");
        Ok(())
    }

    fn only(&mut self, language: &str, words: &str) -> Result<Block> {
        let has = |block: &Block| block.language == language && block.text.contains(words);
        let found = self.left.iter().filter(|block| has(block)).count();
        ensure!(
            found == 1,
            "{found} blocks of {} that are left are in {language} and have `{words}`",
            self.name
        );
        let at = self.left.iter().position(has).context("there is one")?;
        Ok(self.left.remove(at))
    }

    /// Replaces the words in one pass, so that replaced text is not replaced again.
    fn in_own_words(&mut self, text: &str) -> String {
        self.words
            .sort_by_key(|word| std::cmp::Reverse(word.example.len()));
        let (mut rest, mut said) = (text, String::new());
        while let Some(next) = rest.chars().next() {
            let mut words = self.words.iter_mut();
            let taken = match words.find(|word| rest.starts_with(&word.example)) {
                Some(word) => {
                    word.was_used = true;
                    said.push_str(&word.own);
                    word.example.len()
                }
                None => {
                    said.push(next);
                    next.len_utf8()
                }
            };
            rest = &rest[taken..];
        }
        said
    }
}

/// The environment of blocks: a folder, and programs that take precedence over the machine's programs.
#[derive(Debug)]
pub struct Shell {
    folder: PathBuf,
    programs: PathBuf,
    variables: Vec<(String, OsString)>,
}

impl Shell {
    /// Creates a shell without added programs. Its time zone is UTC.
    ///
    /// # Errors
    /// If the folder of the programs cannot be created.
    pub fn in_folder(folder: &Path) -> Result<Self> {
        let programs = folder.join("programs");
        fs::create_dir(&programs)?;
        Ok(Self {
            folder: folder.to_owned(),
            programs,
            variables: vec![("TZ".to_owned(), "UTC".into())],
        })
    }

    /// Adds a program, with the arguments of [`write_program`].
    ///
    /// # Errors
    /// If the program cannot be written.
    pub fn add(&self, name: &str, before: &[OsString], after: &[String]) -> Result<PathBuf> {
        write_program(&self.programs, name, before, after)
    }

    /// Sets an environment variable from now on.
    pub fn set(&mut self, variable: &str, value: impl Into<OsString>) {
        self.variables.retain(|(name, _)| name != variable);
        self.variables.push((variable.to_owned(), value.into()));
    }

    /// Runs a block in a folder below this one (`.` for this one), up to the first command that fails.
    ///
    /// # Errors
    /// If the block does not end in time. If a command fails, that is in the result.
    pub fn run_in(&self, folder: &str, block: &str, limit: Duration) -> Result<Finished> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path);
        let path = std::iter::once(self.programs.clone()).chain(folders);
        let mut shell = Command::new("sh");
        shell
            .args(["-e", "-c", block])
            .current_dir(self.folder.join(folder))
            .env("PATH", std::env::join_paths(path)?);
        for (name, value) in &self.variables {
            shell.env(name, value);
        }
        println!("$ {block}");
        run(block, shell, Vec::new(), limit)
    }

    /// Runs a block in this folder; returns its standard output.
    ///
    /// # Errors
    /// If the block does not end in time, or fails.
    pub fn run(&self, block: &str, limit: Duration) -> Result<String> {
        let said = self.run_in(".", block, limit)?.into_text(block)?;
        println!("{said}");
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn page() -> Page {
        let block = |language: &str, text: &str| Block {
            language: language.to_owned(),
            text: text.to_owned(),
        };
        Page {
            name: "page.md".to_owned(),
            left: vec![
                block("sh", "ls /var/lib/mysql-restored /var/lib/mysql"),
                block("sh", "witness status"),
                block("toml", "a = 1"),
            ],
            words: Vec::new(),
        }
    }

    #[test]
    fn the_longer_word_of_an_example_is_replaced_once() {
        let mut page = page();
        page.replace("/var/lib/mysql", "/home/mysql-restored");
        page.replace("mysql-restored", "new");
        page.replace("/var/lib/mysql-restored", "/home/b");
        let taken = page.take("sh", "ls ").unwrap();
        assert_eq!(taken, "ls /home/b /home/mysql-restored");
        page.take("toml", "a = 1").unwrap();
        let ends = page.ends().unwrap_err().to_string();
        assert!(ends.contains("witness status"), "{ends}");
    }

    #[test]
    fn missing_commands_of_a_page_are_reported() {
        let mut page = page();
        assert!(page.take("sh", "a = 1").is_err());
        assert!(page.take("sh", "").is_err(), "two have it");
        page.replace("witness-9", "witness-1");
        for (language, words) in [("sh", "ls"), ("sh", "witness"), ("toml", "")] {
            page.leave_out(language, words, "it is a test").unwrap();
        }
        let ends = page.ends().unwrap_err().to_string();
        assert!(ends.contains("witness-9"), "{ends}");
    }

    #[test]
    fn a_block_runs_with_the_programs_of_its_folder_up_to_what_fails() {
        let home = tempfile::tempdir().unwrap();
        let mut shell = Shell::in_folder(home.path()).unwrap();
        shell
            .add(
                "greet",
                &["echo".into(), "it's".into()],
                &["all".to_owned()],
            )
            .unwrap();
        shell.set("WHOM", "you");
        let said = shell.run("greet $WHOM", LIMIT).unwrap();
        assert_eq!(said, "it's you all\n");
        assert!(shell.run("false\ngreet nobody", LIMIT).is_err());
    }
}
