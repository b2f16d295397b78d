//! The compiler that lints what it compiles: clippy's driver in the place of rustc, for the packages of this workspace. The lints cost
//! next to nothing then, where a run of their own would check everything once more, the dependencies too.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Clippy's driver, as cargo calls it.
#[derive(Clone, Debug)]
pub(super) struct LintingCompiler(PathBuf);

impl LintingCompiler {
    /// That of the toolchain of this run.
    ///
    /// # Errors
    /// When it has no clippy.
    pub(super) fn find() -> Result<Self> {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let said = rustc.args(["--print", "sysroot"]).output();
        let said = said.context("cannot run rustc")?;
        let sysroot = String::from_utf8(said.stdout).context("rustc's sysroot")?;
        let driver = PathBuf::from(sysroot.trim_end()).join("bin/clippy-driver");
        ensure!(
            driver.is_file(),
            "{} is missing: install it with `rustup component add clippy`",
            driver.display()
        );
        Ok(Self(driver))
    }

    /// Has a cargo compile with it, any warning being an error. Whatever is compiled with another compiler is compiled anew, so
    /// that all cargos of a run need it.
    pub(super) fn used_by(&self, cargo: &mut Command) {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", &self.0);
        // As `cargo clippy -- -D warnings` hands it on.
        let arguments = ["-D", "warnings"];
        cargo.env(
            "CLIPPY_ARGS",
            arguments
                .map(|one| format!("{one}__CLIPPY_HACKERY__"))
                .concat(),
        );
    }
}
