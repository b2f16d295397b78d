//! Extracts the commands from the documentation, so that tests run them as a reader would.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A command in a shell block of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedCommand {
    /// The page with the command.
    pub page: PathBuf,
    /// The words of the command, up to its end in the shell.
    pub words: Vec<String>,
}

/// Returns every `witness …` command in the shell blocks of README.md and of all pages below
/// `docs/`, page by page.
///
/// # Errors
/// If a page cannot be read, or a quote in it is not closed.
pub fn witness_commands() -> Result<Vec<DocumentedCommand>> {
    let root = crate::checkout();
    let mut pages = vec![root.join("README.md")];
    find_pages(&root.join("docs"), &mut pages)?;
    pages.sort();
    let mut commands = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page)?;
        let lines = shell_lines(&text);
        for line in lines.iter().filter(|line| line.starts_with("witness ")) {
            let words = words(line).with_context(|| format!("{}: `{line}`", page.display()))?;
            let page = page.clone();
            commands.push(DocumentedCommand { page, words });
        }
    }
    Ok(commands)
}

/// Returns the shell blocks below a heading of a page, up to the next heading of the same level.
///
/// # Errors
/// If the page cannot be read, or has no shell block there.
pub fn shell_blocks(page: &str, heading: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(crate::checkout().join(page))?;
    let below = text
        .split("\n## ")
        .find_map(|part| part.strip_prefix(heading));
    let below = below.with_context(|| format!("{page} has no heading `{heading}`"))?;
    let blocks = fenced(below).into_iter();
    let blocks: Vec<String> = blocks
        .filter(|block| block.language == "sh")
        .map(|block| block.text)
        .collect();
    ensure!(
        !blocks.is_empty(),
        "{page} has no commands below `{heading}`"
    );
    Ok(blocks)
}

/// A block of a page between two fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The info string of the first fence, such as `sh`.
    pub language: String,
    /// The lines of the block, without the indentation of the fence.
    pub text: String,
}

/// Returns all fenced blocks of a page, in order.
///
/// # Errors
/// If the page cannot be read, or has no fenced block.
pub fn blocks(page: &str) -> Result<Vec<Block>> {
    let text = fs::read_to_string(crate::checkout().join(page))?;
    let blocks = fenced(&text);
    ensure!(!blocks.is_empty(), "{page} has no blocks");
    Ok(blocks)
}

fn fenced(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((indentation, language)) = line.split_once("```") else {
            continue;
        };
        if !indentation.trim().is_empty() {
            continue;
        }
        let within = lines.by_ref();
        let within = within.take_while(|line| line.trim() != "```");
        let within = within.map(|line| line.strip_prefix(indentation).unwrap_or(line));
        blocks.push(Block {
            language: language.to_owned(),
            text: within.collect::<Vec<_>>().join("\n"),
        });
    }
    blocks
}

fn find_pages(folder: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_pages(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// Returns the lines of the shell blocks. Lines that end with a backslash are joined with the next
/// one.
fn shell_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut in_block, mut goes_on) = (false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            in_block = line == "```sh";
            continue;
        }
        if !in_block {
            continue;
        }
        let part = line.trim_end_matches('\\');
        match lines.last_mut() {
            Some(begun) if goes_on => begun.push_str(part),
            _ => lines.push(part.to_owned()),
        }
        goes_on = line.ends_with('\\');
    }
    lines
}

/// Returns the words of a command up to a pipe, a redirection or the next command.
fn words(line: &str) -> Result<Vec<String>> {
    const ENDS: [&str; 5] = ["|", ">", ">>", "&&", ";"];
    let words = shlex::split(line).context("a quote is not closed")?;
    let words = words.into_iter();
    Ok(words.take_while(|word| !ENDS.contains(&&**word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_blocks_are_read_and_nothing_else() {
        let text =
            "witness status\n```\nwitness a\n```\n  ```sh\n  witness b \\\n    --c\n  ls\n  ```\n";
        assert_eq!(shell_lines(text), ["witness b --c", "ls"]);
    }

    #[test]
    fn blocks_are_read_with_their_languages() {
        let text = "`a`\n```sh\nb \\\n  c\n```\n* ```toml\n  ```toml\n  d = 1\n\n  ```\n```\n```\n";
        let block = |language: &str, text: &str| Block {
            language: language.to_owned(),
            text: text.to_owned(),
        };
        let expected = [
            block("sh", "b \\\n  c"),
            block("toml", "d = 1\n"),
            block("", ""),
        ];
        assert_eq!(fenced(text), expected);
    }

    #[test]
    fn a_command_ends_where_the_shell_ends_it() {
        let line = "witness config init > witness.toml # \"comment\"";
        assert_eq!(words(line).unwrap(), ["witness", "config", "init"]);
        let quoted = words("witness pause --reason \"new disk\" # why").unwrap();
        assert_eq!(quoted[3], "new disk");
        assert!(words("witness 'pause").is_err());
    }
}
