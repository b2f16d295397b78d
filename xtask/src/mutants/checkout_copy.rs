//! A copy of the checkout, in which cargo-mutants changes things. It stays where it is between two runs, so that only what has
//! changed is compiled again.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Makes the copy hold what the checkout holds beside what git ignores. Files that are the same are not touched.
///
/// # Errors
/// When git does not list the files, or one of them cannot be copied.
pub(super) fn bring_up_to_date(checkout: &Path, copy: &Path) -> Result<()> {
    let files = files(checkout)?;
    fs::create_dir_all(copy)?;
    for file in &files {
        let (from, to) = (checkout.join(file), copy.join(file));
        // One that is deleted and not committed yet is listed as well.
        let Ok(content) = fs::read(&from) else {
            continue;
        };
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    remove_others(checkout, copy, Path::new(""), &files)
}

fn files(checkout: &Path) -> Result<BTreeSet<PathBuf>> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(checkout)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .context("git does not run")?;
    if !listed.status.success() {
        bail!("git does not list the files of {}", checkout.display());
    }
    let names = listed.stdout.split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty());
    Ok(names.map(|name| OsStr::from_bytes(name).into()).collect())
}

fn remove_others(
    checkout: &Path,
    copy: &Path,
    folder: &Path,
    files: &BTreeSet<PathBuf>,
) -> Result<()> {
    for entry in fs::read_dir(copy.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(checkout, copy, &path, files)?;
        } else if !files.contains(&path) || !checkout.join(&path).exists() {
            fs::remove_file(copy.join(path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(folder: &Path, arguments: &[&str]) {
        let mut git = Command::new("git");
        let done = git.arg("-C").arg(folder).args(arguments).status().unwrap();
        assert!(done.success(), "{arguments:?}");
    }

    #[test]
    fn the_copy_follows_and_does_not_touch_what_is_the_same() {
        let (checkout, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (checkout, copy) = (checkout.path(), copy.path());
        git(checkout, &["init", "--quiet"]);
        fs::create_dir(checkout.join("src")).unwrap();
        for (file, content) in [("src/a", "1"), ("src/b", "1"), (".gitignore", "/target\n")] {
            fs::write(checkout.join(file), content).unwrap();
        }
        fs::create_dir(checkout.join("target")).unwrap();
        fs::write(checkout.join("target/x"), "").unwrap();
        bring_up_to_date(checkout, copy).unwrap();
        assert!(!copy.join("target").exists());
        let written = |file: &str| fs::metadata(copy.join(file)).unwrap().modified().unwrap();
        let before = written("src/a");

        // A mutant that was left there goes, and so does what is deleted.
        fs::write(copy.join("src/b"), "mutant").unwrap();
        git(checkout, &["add", "src"]);
        fs::write(checkout.join("src/c"), "new").unwrap();
        fs::remove_file(checkout.join(".gitignore")).unwrap();
        fs::remove_dir_all(checkout.join("target")).unwrap();
        bring_up_to_date(checkout, copy).unwrap();
        assert_eq!(fs::read(copy.join("src/b")).unwrap(), b"1");
        assert_eq!(fs::read(copy.join("src/c")).unwrap(), b"new");
        assert_eq!(written("src/a"), before);
        assert!(!copy.join(".gitignore").exists());
        fs::remove_file(checkout.join("src/b")).unwrap();
        bring_up_to_date(checkout, copy).unwrap();
        assert!(!copy.join("src/b").exists());
    }
}
