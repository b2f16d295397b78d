//! `GET /runbooks/NAME`: this version's runbooks from `docs/`, so that the page and `witness status` can refer to them
//! where only the member is reachable.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

macro_rules! runbooks {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../docs/runbooks/", $name, ".md")))),*]
    };
}

const RUNBOOKS: [(&str, &str); 22] = runbooks!(
    "adding-a-region"
    "archive-behind"
    "archive-gap"
    "certificates"
    "consumer-behind"
    "data-directory-put-back"
    "errant-transactions"
    "full-disk"
    "hooks"
    "leader-flapping"
    "lost-member"
    "lost-quorum"
    "lost-region"
    "mysqld-down"
    "pause"
    "replica-lag"
    "restore"
    "ring-not-scraped"
    "slow-disk"
    "stalled-primary"
    "two-serve"
    "unprotected-primary"
);

pub(super) async fn runbook(Path(name): Path<String>) -> Response {
    let found = RUNBOOKS.iter().find(|(known, _)| *known == name);
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    match found {
        Some((_, text)) => (headers, *text).into_response(),
        None => {
            let known: Vec<_> = RUNBOOKS.iter().map(|(known, _)| *known).collect();
            let known = known.join(" ");
            let text = format!("no runbook has that name; there are {known}\n");
            (StatusCode::NOT_FOUND, headers, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_runbook_of_the_documentation_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runbooks");
        let pages = std::fs::read_dir(folder).unwrap();
        let names = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
        let mut names: BTreeSet<String> = names
            .filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()))
            .collect();
        names.remove("README");
        let served = RUNBOOKS.iter().map(|(name, _)| (*name).to_owned());
        assert_eq!(served.collect::<BTreeSet<_>>(), names);
    }

    /// Checks the phrase by which the page finds a link, in every message of the program.
    #[test]
    fn every_runbook_that_a_sentence_names_is_served() {
        let sources = [
            include_str!("../operator/sentences.rs"),
            include_str!("../operator/differences.rs"),
            include_str!("../operator/ring_report.rs"),
        ];
        let mut named = 0;
        for source in sources {
            let source = source.replace("\\\n", "");
            let calls = source.split("see(").skip(1);
            // The name is the last argument, following a sentence or a variable.
            let is_name = |text: &&str| text.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            let calls = calls.filter_map(|call| {
                let arguments = arguments_of(call);
                arguments.split('"').skip(1).step_by(2).find(is_name)
            });
            let words = source.split("the runbook ").skip(1);
            let words = words.filter_map(|rest| {
                rest.split(|c: char| !c.is_ascii_lowercase() && c != '-')
                    .next()
            });
            for name in calls.chain(words).filter(|name| !name.is_empty()) {
                let is_served = RUNBOOKS.iter().any(|(known, _)| *known == name);
                assert!(is_served, "{name}");
                named += 1;
            }
        }
        assert!(named > 10, "{named}");
    }

    /// The arguments after a call's opening parenthesis, up to the closing one.
    fn arguments_of(call: &str) -> &str {
        let mut open = 1;
        let end = call.find(|c| {
            open += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            open == 0
        });
        &call[..end.unwrap_or(call.len())]
    }
}
