//! The program's command line accepts each `witness …` command in the shell blocks of the documentation.

use testkit::documentation::witness_commands;

#[test]
fn every_documented_command_parses() {
    let commands = witness_commands().expect("the pages can be read");
    assert!(commands.len() > 60, "only {} were found", commands.len());
    for command in commands {
        let parsed = witness_bin::cli::command().try_get_matches_from(&command.words);
        if let Err(error) = parsed {
            panic!("{}: {error}", command.page.display());
        }
    }
}

#[test]
fn an_unknown_command_is_rejected() {
    for words in [
        ["witness", "explode", "db-1"],
        ["witness", "switchover", "--no-such-flag"],
    ] {
        let parsed = witness_bin::cli::command().try_get_matches_from(words);
        assert!(parsed.is_err(), "{words:?}");
    }
}
