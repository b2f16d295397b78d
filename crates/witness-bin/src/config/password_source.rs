//! A password: given, or in a file.

use std::fmt;
use std::path::PathBuf;

/// Where a password comes from. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// It stands in the configuration or the environment.
    Given(String),
    /// The first line of a file, read when the member starts.
    File(PathBuf),
}

impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl PasswordSource {
    /// The password as it is now.
    ///
    /// # Errors
    /// When the password file cannot be read.
    pub fn read(&self) -> std::io::Result<String> {
        match self {
            Self::Given(password) => Ok(password.clone()),
            Self::File(path) => {
                let text = std::fs::read_to_string(path)?;
                Ok(text.lines().next().unwrap_or_default().to_owned())
            }
        }
    }
}
