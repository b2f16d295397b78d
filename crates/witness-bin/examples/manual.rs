//! Writes manual pages and shell completions for the packages into a folder, from the definition of the command line:
//! `cargo run -p witness-bin --example manual -- FOLDER`.

use std::io;
use std::path::PathBuf;

use clap_complete::Shell;

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("which folder? manual FOLDER"))?;
    let pages = folder.join("man1");
    std::fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(witness_bin::cli::command(), &pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut witness_bin::cli::command(), "witness", &folder)?;
    }
    Ok(())
}
