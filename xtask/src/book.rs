//! `cargo xtask book`: builds the documentation as a website in `target/book`, with mdBook.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use testkit::bounded_run;
use testkit::figures::target_folder;

/// The version of mdBook with which the documentation is tested.
const VERSION: &str = "0.4.52";

#[derive(Args)]
pub(crate) struct Options {
    /// Open it in a browser
    #[arg(long)]
    open: bool,
}

/// Builds the website.
///
/// # Errors
/// A page is missing in `docs/SUMMARY.md`, or mdBook cannot be installed or fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let docs = testkit::checkout().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md"))?;
    let missing = unlisted(&docs, &docs, &summary)?;
    ensure!(
        missing.is_empty(),
        "add these pages to docs/SUMMARY.md: {}",
        missing.join(" ")
    );
    let mut mdbook = Command::new(provide()?);
    mdbook.arg("build").arg(&docs);
    if options.open {
        mdbook.arg("--open");
    }
    let status = mdbook.status().context("cannot run mdbook")?;
    ensure!(status.success(), "mdbook ended with {status}");
    Ok(())
}

/// Returns the pages below a folder to which the summary has no link.
fn unlisted(docs: &Path, folder: &Path, summary: &str) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            missing.extend(unlisted(docs, &path, summary)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let page = path.strip_prefix(docs)?.display().to_string();
            if page != "SUMMARY.md" && !summary.contains(&format!("({page})")) {
                missing.push(page);
            }
        }
    }
    missing.sort();
    Ok(missing)
}

/// Returns the path of mdBook. Compiles it on first use.
fn provide() -> Result<PathBuf> {
    let folder = target_folder().join(format!("mdbook-{VERSION}"));
    let program = folder.join("bin/mdbook");
    if !program.is_file() {
        eprintln!("installing mdbook {VERSION} below the target folder, which takes minutes");
        let mut cargo = bounded_run::cargo();
        cargo.args([
            "install",
            "mdbook",
            "--locked",
            "--version",
            VERSION,
            "--root",
        ]);
        let status = cargo.arg(&folder).status().context("cannot run cargo")?;
        ensure!(status.success(), "mdbook cannot be installed: {status}");
    }
    Ok(program)
}
