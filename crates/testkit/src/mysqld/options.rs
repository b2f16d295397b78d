//! What a mysqld of a test is started with.

use std::path::PathBuf;

/// How a mysqld of a test is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqldOptions {
    /// `--server-id`.
    pub server_id: u32,
    /// Appended to the command line, so that they win over the fixture's own.
    pub arguments: Vec<String>,
    /// Where its data directory shall be, and stay when the fixture goes; `None`: in a temporary folder that goes with it.
    pub data_dir: Option<PathBuf>,
    /// A stopped server's data directory to start from; `None`: a freshly initialised one.
    pub copy_of: Option<PathBuf>,
}

impl Default for MysqldOptions {
    fn default() -> Self {
        Self {
            server_id: 1,
            arguments: Vec::new(),
            data_dir: None,
            copy_of: None,
        }
    }
}

impl MysqldOptions {
    /// The defaults with this server id.
    #[must_use]
    pub fn with_server_id(server_id: u32) -> Self {
        Self {
            server_id,
            ..Self::default()
        }
    }

    /// With further arguments.
    #[must_use]
    pub fn with_arguments<I: IntoIterator<Item: Into<String>>>(mut self, arguments: I) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The part of the command line that does not depend on where the server lives.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut all = vec![
            format!("--server-id={}", self.server_id),
            "--log-bin=binlog".into(),
            "--gtid-mode=ON".into(),
            "--enforce-gtid-consistency=ON".into(),
            // Durable commits are what the project is about; they are the defaults, and stated so that a test can rely on them.
            "--sync-binlog=1".into(),
            "--innodb-flush-log-at-trx-commit=1".into(),
            // The X protocol would need a port and a socket of its own.
            "--mysqlx=OFF".into(),
            "--secure-file-priv=".into(),
        ];
        all.extend(self.arguments.iter().cloned());
        all
    }
}

/// mysqld refuses to run as root unless it is told that this is meant.
pub(super) fn account_option() -> Option<String> {
    rustix::process::geteuid()
        .is_root()
        .then(|| "--user=root".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_arguments_come_last() {
        let options = MysqldOptions::with_server_id(7).with_arguments(["--gtid-mode=OFF"]);
        let arguments = options.arguments();
        assert_eq!(arguments.first().map(String::as_str), Some("--server-id=7"));
        assert_eq!(
            arguments.last().map(String::as_str),
            Some("--gtid-mode=OFF")
        );
    }
}
