//! Which archive this machine uses, and what it is to give. Pure: apt's answers are arguments.

/// Asks apt for every package index that its sources configure, whether its lists have ever been read or not.
pub(super) const LIST_TARGETS: [&str; 5] = [
    "indextargets",
    "--no-release-info",
    "--format",
    "$(REPO_URI)|$(COMPONENT)",
    "Created-By: Packages",
];

/// The address of Debian's main archive (or this machine's mirror or snapshot of it) among apt's index targets. Its
/// neighbours for security updates and other origins have other names.
pub(super) fn archive(targets: &str) -> Option<String> {
    targets
        .lines()
        .filter_map(|line| line.split_once('|'))
        .filter(|(_, component)| *component == "main")
        .map(|(address, _)| address.trim_end_matches('/'))
        .find(|address| names_debian(address))
        .map(str::to_owned)
}

/// `…/debian`, or `…/archive/debian/<time>` of a snapshot.
fn names_debian(address: &str) -> bool {
    let mut parts = address.rsplit('/');
    let last = parts.next();
    last == Some("debian") || (last.is_some_and(is_time) && parts.next() == Some("debian"))
}

/// `20250520T000000Z`
fn is_time(part: &str) -> bool {
    part.len() == 16
        && part.ends_with('Z')
        && part.starts_with(|first: char| first.is_ascii_digit())
}

/// A source that gives `suite` from the archive at `site`.
pub(super) fn source_entry(site: &str, suite: &str, keyring: Option<&str>) -> String {
    let signed = keyring
        .map(|file| format!("Signed-By: {file}\n"))
        .unwrap_or_default();
    format!("Types: deb\nURIs: {site}\nSuites: {suite}\nComponents: main\n{signed}")
}

/// The sizes of the files that `apt-get --print-uris` lists: `'address' name bytes checksum`.
pub(super) fn downloads(listing: &str) -> Vec<u64> {
    listing
        .lines()
        .filter(|line| line.starts_with('\''))
        .filter_map(|line| line.split_whitespace().nth(2)?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_archive_is_told_from_its_neighbours() {
        let cases = [
            (
                "http://m.example/debian-security/|main\nhttp://m.example/debian/|main\n",
                Some("http://m.example/debian"),
            ),
            (
                "http://m.example/debian|contrib\nhttps://n.example/pub/debian|main\n",
                Some("https://n.example/pub/debian"),
            ),
            (
                "http://s.example/archive/debian/20250520T000000Z/|main\n",
                Some("http://s.example/archive/debian/20250520T000000Z"),
            ),
            (
                "http://m.example/ubuntu/|main\nhttp://m.example/debian-ports/|main\n",
                None,
            ),
            ("", None),
        ];
        for (targets, expected) in cases {
            assert_eq!(archive(targets).as_deref(), expected, "{targets}");
        }
    }

    #[test]
    fn a_source_entry_names_its_keyring_if_there_is_one() {
        let entry = source_entry("http://m.example/debian", "unstable", Some("/k.gpg"));
        assert_eq!(
            entry,
            "Types: deb\nURIs: http://m.example/debian\nSuites: unstable\nComponents: main\nSigned-By: /k.gpg\n"
        );
        assert!(!source_entry("http://m.example/debian", "unstable", None).contains("Signed-By"));
    }

    #[test]
    fn downloads_are_counted() {
        let listing = "'http://m/a.deb' a_1_amd64.deb 1200 SHA256:00\nnote\n'http://m/b.deb' b_1%3a2_all.deb 34 SHA256:11\n";
        assert_eq!(downloads(listing), [1200, 34]);
    }
}
