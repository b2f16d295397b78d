//! A compiler for the crates of this workspace that also checks them. It runs clippy's driver instead of rustc, and then rustdoc. So the
//! lints cost almost nothing, and the documentation uses compiled dependencies. Separate runs of clippy and rustdoc would check everything
//! again, including the dependencies.
//!
//! Cargo runs it instead of rustc (`RUSTC_WORKSPACE_WRAPPER`). It is a copy of this program with another name.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use testkit::figures::target_folder;

/// The name of the copy that cargo runs instead of rustc.
const NAME: &str = "checking-compiler";
/// The variable with the path of clippy's driver. rustdoc is in the same folder.
const DRIVER_VARIABLE: &str = "WITNESS_CLIPPY_DRIVER";
/// Options of rustc with a value that rustdoc does not have.
const FOR_PROGRAMS: [&str; 2] = ["-C", "--out-dir"];

/// The compiler that cargo runs.
#[derive(Clone, Debug)]
pub(super) struct CheckingCompiler {
    program: PathBuf,
    driver: PathBuf,
}

impl CheckingCompiler {
    /// Finds the compiler of the current toolchain.
    ///
    /// # Errors
    /// The toolchain has no clippy or no rustdoc, or this program cannot be copied into the target folder.
    pub(super) fn find() -> Result<Self> {
        let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        let said = rustc.args(["--print", "sysroot"]).output();
        let said = said.context("cannot run rustc")?;
        let sysroot = String::from_utf8(said.stdout).context("rustc's sysroot")?;
        let driver = PathBuf::from(sysroot.trim_end()).join("bin/clippy-driver");
        for (program, component) in [
            (&driver, "clippy"),
            (&rustdoc_next_to(&driver), "rust-docs"),
        ] {
            ensure!(
                program.is_file(),
                "{} is missing: install it with `rustup component add {component}`",
                program.display()
            );
        }
        Ok(Self {
            program: program()?,
            driver,
        })
    }

    /// Makes cargo use this compiler. Each warning is an error. Cargo compiles code of another compiler again, so that all runs of cargo
    /// must use it.
    pub(super) fn used_by(&self, cargo: &mut Command) {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", &self.program);
        cargo.env(DRIVER_VARIABLE, &self.driver);
        // Without line numbers in backtraces, which are not used here, the compiler needs an eighth less time.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "none");
        // The arguments that `cargo clippy -- -D warnings` would pass.
        let arguments = ["-D", "warnings"];
        cargo.env(
            "CLIPPY_ARGS",
            arguments
                .map(|one| format!("{one}__CLIPPY_HACKERY__"))
                .concat(),
        );
    }
}

/// Copies this program. Cargo compiles the original again, and then replaces it.
fn program() -> Result<PathBuf> {
    static TURN: Mutex<()> = Mutex::new(());
    // Several runs of cargo may start at the same time and need the copy.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = target_folder();
    let program = folder.join(NAME);
    // This path can be read even after the program's file was removed.
    let own = Path::new("/proc/self/exe");
    let is_there = || -> Option<bool> {
        let (own, copy) = (fs::metadata(own).ok()?, fs::metadata(&program).ok()?);
        Some(own.len() == copy.len() && own.modified().ok()? <= copy.modified().ok()?)
    };
    if is_there() != Some(true) {
        let new = folder.join(format!("{NAME}.{}", std::process::id()));
        let copied = fs::create_dir_all(&folder).and_then(|()| fs::copy(own, &new));
        copied
            .and_then(|_| fs::rename(&new, &program))
            .with_context(|| format!("cannot copy this program to {}", program.display()))?;
    }
    Ok(program)
}

fn rustdoc_next_to(driver: &Path) -> PathBuf {
    driver.with_file_name("rustdoc")
}

/// If cargo runs this program instead of rustc, compiles, lints and documents. Returns the exit code; `None` in all other cases.
pub(crate) fn as_rustc() -> Option<ExitCode> {
    let mut arguments = env::args_os();
    let own = PathBuf::from(arguments.next()?);
    (own.file_name() == Some(OsStr::new(NAME))).then(|| {
        let driver = PathBuf::from(env::var_os(DRIVER_VARIABLE).unwrap_or_default());
        let arguments: Vec<OsString> = arguments.collect();
        let mut compiling = Command::new(&driver);
        compiling.args(&arguments);
        let has_library = |main: &Path| main.with_file_name("lib.rs").is_file();
        let documented = documentation_of(&arguments, &target_folder().join("doc"), has_library);
        let documenting = documented.map(|arguments| {
            let mut documenting = Command::new(rustdoc_next_to(&driver));
            documenting.args(arguments);
            documenting
        });
        for mut step in [compiling].into_iter().chain(documenting) {
            match step.status() {
                Ok(status) if status.success() => {}
                Ok(status) => {
                    let code = status.code().and_then(|code| u8::try_from(code).ok());
                    return code.map_or(ExitCode::FAILURE, ExitCode::from);
                }
                Err(error) => {
                    eprintln!(
                        "error: cannot run {}: {error}",
                        step.get_program().display()
                    );
                    return ExitCode::FAILURE;
                }
            }
        }
        ExitCode::SUCCESS
    })
}

/// Returns the arguments of rustdoc for a compiler call by cargo. `None` for code that `cargo doc` does not document: tests, examples,
/// benches, build scripts, and a program next to a library.
fn documentation_of(
    rustc: &[OsString],
    folder: &Path,
    is_beside_a_library: impl Fn(&Path) -> bool,
) -> Option<Vec<OsString>> {
    // The first argument is the compiler that cargo would have run.
    let arguments = rustc.get(1..)?;
    let value_of = |option: &str| {
        let place = arguments.iter().position(|argument| argument == option);
        arguments.get(place? + 1)
    };
    let source = arguments
        .iter()
        .map(Path::new)
        .find(|argument| argument.extension().is_some_and(|end| end == "rs"))?;
    let is_a_program = value_of("--crate-type").is_some_and(|kind| kind == "bin");
    if !source.iter().any(|folder| folder == "src")
        || arguments.iter().any(|argument| argument == "--test")
        || is_a_program && is_beside_a_library(source)
    {
        return None;
    }
    let mut documenting: Vec<OsString> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if FOR_PROGRAMS.iter().any(|option| argument == option) {
            rest.next();
        } else if !argument.to_string_lossy().starts_with("--emit=") {
            documenting.push(argument.clone());
        }
    }
    let how = ["--document-private-items", "-D", "warnings", "--out-dir"];
    documenting.extend(how.map(OsString::from));
    documenting.push(folder.into());
    Some(documenting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documented(compiled: &str) -> Option<String> {
        let arguments: Vec<OsString> = compiled.split(' ').map(OsString::from).collect();
        let has_library = |source: &Path| source == "both/src/main.rs";
        let said = documentation_of(&arguments, Path::new("doc"), has_library)?;
        let words = said.iter().map(|word| word.to_str().unwrap());
        Some(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_crate_is_documented_as_it_is_compiled() {
        assert_eq!(
            documented(
                "rustc --crate-name a --edition=2024 crates/a/src/lib.rs --crate-type lib \
                 --emit=dep-info,metadata,link -C opt-level=1 --cfg feature=\"f\" -C metadata=1 --out-dir deps \
                 -L dependency=deps --extern b=deps/libb.rmeta"
            )
            .unwrap(),
            "--crate-name a --edition=2024 crates/a/src/lib.rs --crate-type lib --cfg feature=\"f\" -L dependency=deps \
             --extern b=deps/libb.rmeta --document-private-items -D warnings --out-dir doc"
        );
    }

    #[test]
    fn packages_omitted_by_cargo_doc_are_omitted() {
        for compiled in [
            "rustc -vV",
            "rustc - --crate-name ___ --print=file-names",
            "rustc --crate-name a --crate-type lib crates/a/src/lib.rs --test",
            "rustc --crate-name e crates/a/examples/e.rs --crate-type bin",
            "rustc --crate-name append benches/benches/append.rs --cfg test",
            "rustc --crate-name build_script_build crates/a/build.rs --crate-type bin",
            "rustc --crate-name both both/src/main.rs --crate-type bin",
        ] {
            assert_eq!(documented(compiled), None, "{compiled}");
        }
        for compiled in [
            "rustc --crate-name alone alone/src/main.rs --crate-type bin",
            "rustc --crate-name witness_benches benches/src/lib.rs --crate-type lib",
        ] {
            assert!(documented(compiled).is_some(), "{compiled}");
        }
    }
}
