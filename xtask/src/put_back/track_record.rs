//! The rows of `docs/track-record.md`, and which mutations of the simulator they name.

use anyhow::{Context, Result, bail};

/// One fault that was found and cured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// When it was cured, as `2026-11-25`.
    pub(crate) date: String,
    pub(crate) fault: String,
    /// What a user would have seen of it.
    seen: String,
    /// What finds it should it come back, in the words of the row.
    pub(crate) pinned_by: String,
}

impl Row {
    /// Whether the product was sound, and what looks at it was not.
    pub(crate) fn is_none_of_the_product(&self) -> bool {
        ["nothing:", "none"]
            .iter()
            .any(|beginning| self.seen.starts_with(beginning))
    }

    /// Those of these mutations that the row says to find it.
    pub(crate) fn mutations<'a>(
        &'a self,
        all: impl IntoIterator<Item = &'a str>,
    ) -> impl Iterator<Item = &'a str> {
        let words: Vec<_> = code(&self.pinned_by).collect();
        all.into_iter().filter(move |mutation| {
            words
                .iter()
                .any(|word| word.split_whitespace().any(|part| part == *mutation))
        })
    }

    /// Its first words, as many as fit.
    pub(crate) fn first_words(&self, longest: usize) -> String {
        let mut text = String::new();
        for word in self.fault.split_whitespace() {
            if text.chars().count() + word.chars().count() >= longest {
                return text + " …";
            }
            if !text.is_empty() {
                text.push(' ');
            }
            text += word;
        }
        text
    }
}

/// What stands between backquotes.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// All rows of the page.
///
/// # Errors
/// When there is none, or a line of the table is no row.
pub(crate) fn rows(page: &str) -> Result<Vec<Row>> {
    let lines = page.lines().filter(|line| line.starts_with("| 2"));
    let rows: Vec<_> = lines
        .map(|line| row(line).with_context(|| format!("no row of the track record: {line}")))
        .collect::<Result<_>>()?;
    if rows.is_empty() {
        bail!("the track record has no rows");
    }
    Ok(rows)
}

/// The one row whose fault begins so.
///
/// # Errors
/// When there is none, or more than one.
pub(crate) fn only<'a>(rows: &'a [Row], beginning: &str) -> Result<&'a Row> {
    let mut meant = rows.iter().filter(|row| row.fault.starts_with(beginning));
    match (meant.next(), meant.next()) {
        (Some(row), None) => Ok(row),
        (None, _) => bail!("no row of the track record begins with `{beginning}`"),
        _ => bail!("more than one row of the track record begins with `{beginning}`"),
    }
}

fn row(line: &str) -> Result<Row> {
    let inside = line
        .strip_prefix("| ")
        .and_then(|rest| rest.trim_end().strip_suffix(" |"))
        .context("a row stands between bars")?;
    let cells: Vec<_> = inside.split(" | ").collect();
    let [date, fault, seen, pinned_by] = cells[..] else {
        bail!("a row has 4 cells and not {}", cells.len());
    };
    let own = str::to_owned;
    Ok(Row {
        date: own(date),
        fault: own(fault),
        seen: own(seen),
        pinned_by: own(pinned_by),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Track record\n\n| date | fault | what a user would have seen | pinned by |\n|---|---|---|---|\n\
        | 2026-11-20 | A ring could be founded by a member (seeds 68 and 138) | no leader | consensus `a_founder` |\n\
        | 2026-11-25 | No seed had a mysqld | none known: no seed found a fault | simulator `--scenario mysqlds`, `--mutate keep-the-tail` |\n";

    #[test]
    fn rows_have_four_cells() {
        let rows = rows(PAGE).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].date, "2026-11-20");
        assert_eq!(rows[0].pinned_by, "consensus `a_founder`");
        assert!(!rows[0].is_none_of_the_product());
        assert!(rows[1].is_none_of_the_product());
        assert!(super::rows("# Track record\n").is_err());
        let error = super::rows("| 2026-11-20 | a fault | seen |\n").unwrap_err();
        assert!(format!("{error:#}").contains("4 cells and not 3"));
    }

    #[test]
    fn a_mutation_is_named_as_a_whole_word_of_what_pins() {
        let mut row = rows(PAGE).unwrap().remove(1);
        let all = ["keep-the-tail", "keep", "forget-the-lease"];
        let named = |row: &Row| row.mutations(all).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(named(&row), ["keep-the-tail"]);
        row.pinned_by = "simulator mutations `forget-the-lease`, keep".to_owned();
        assert_eq!(named(&row), ["forget-the-lease"]);
    }

    #[test]
    fn a_long_fault_is_told_by_its_first_words() {
        let row = &rows(PAGE).unwrap()[0];
        assert_eq!(row.first_words(20), "A ring could be …");
        assert_eq!(row.first_words(200), row.fault);
    }
}
