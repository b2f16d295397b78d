//! The configuration file of the private `apt-get`. Pure.

use std::fmt::Write as _;
use std::path::Path;

/// Settings of the machine that say how to reach an archive. Nothing else of its configuration is taken over, above all
/// no hook: container images have ones that empty the machine's own package cache after every update.
const INHERITED: [&str; 6] = [
    "Acquire::http::",
    "Acquire::https::",
    "Acquire::Retries",
    "Acquire::ForceIPv4",
    "Acquire::ForceIPv6",
    "Acquire::Check-Valid-Until",
];

/// The file's text, for everything under `folder`. `machine` is what `apt-config dump` says.
pub(super) fn private(folder: &Path, architecture: &str, machine: &str) -> String {
    let folder = folder.display();
    let mut text = String::new();
    for line in machine
        .lines()
        .filter(|line| INHERITED.iter().any(|prefix| line.starts_with(prefix)))
    {
        let _ = writeln!(text, "{line}");
    }
    let _ = write!(
        text,
        r#"
// The machine's own configuration stays out of it.
Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{folder}/sources";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "{folder}";
Dir::State::Lists "{folder}/lists";
Dir::State::Status "{folder}/status";
Dir::State::Extended_States "{folder}/extended_states";
Dir::Cache "{folder}/cache";
Dir::Log "{folder}";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
// Its unprivileged download account need not be able to enter the checkout. Signatures are verified all the same.
APT::Sandbox::User "root";
// A list that cannot be fetched is an error, not a warning.
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::PDiffs "false";
Acquire::http::Timeout "30";
"#
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_the_archive_is_inherited_and_hooks_are_not() {
        let machine = "\
Acquire::http::Proxy \"proxy:3128\";
Acquire::Retries \"5\";
APT::Update::Post-Invoke:: \"rm -f the-cache\";
Dir::State::status \"/var/lib/dpkg/status\";
";
        let text = private(Path::new("/checkout/.mysql/w/apt"), "arm64", machine);
        assert!(
            text.contains("Acquire::http::Proxy \"proxy:3128\";")
                && text.contains("Acquire::Retries \"5\";")
        );
        assert!(!text.contains("rm -f") && !text.contains("/var/lib"));
        assert!(text.contains("APT::Architectures { \"arm64\"; };"));
        assert!(text.contains("Dir::State::Status \"/checkout/.mysql/w/apt/status\";"));
    }
}
