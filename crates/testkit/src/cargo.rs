//! Cargo, called by a program that cargo runs.

use std::env;
use std::ffi::OsStr;
use std::process::Command;

/// What cargo tells the program that it runs about that program's package begins with one of these. It must not reach another
/// cargo: build scripts that look at it (`ring`'s) would run again, and everything above them would be compiled anew, which
/// is a good part of the workspace, each time that somebody calls cargo the other way.
const OF_A_PACKAGE: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// The cargo that this program runs under, in the checkout, as if a person had called it.
#[must_use]
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::checkout());
    for (variable, _) in env::vars_os().filter(|(name, _)| is_of_a_package(name)) {
        cargo.env_remove(variable);
    }
    cargo
}

fn is_of_a_package(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    OF_A_PACKAGE
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo test` sets them for this very program.
    #[test]
    fn another_cargo_is_not_told_of_the_package_that_calls_it() {
        for told in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(env::var_os(told).is_some(), "{told}");
            let cargo = cargo();
            let mut changed = cargo.get_envs();
            assert!(
                changed.any(|(name, value)| name == told && value.is_none()),
                "{told} is handed on"
            );
        }
        assert!(!is_of_a_package(OsStr::new("CARGO_TARGET_DIR")));
        assert!(!is_of_a_package(OsStr::new("CARGO_PROFILE_DEV_DEBUG")));
    }
}
