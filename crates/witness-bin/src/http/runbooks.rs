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

    #[test]
    fn every_runbook_of_a_sentence_is_served() {
        let sentences = include_str!("../text/sentences.txt");
        let mut named = 0;
        for rest in sentences.split("See the runbook ").skip(1) {
            let name = rest
                .split(|c: char| !c.is_ascii_lowercase() && c != '-')
                .next();
            let is_served = RUNBOOKS.iter().any(|(known, _)| Some(*known) == name);
            assert!(is_served, "{name:?}");
            named += 1;
        }
        assert!(named > 10, "{named}");
    }
}
