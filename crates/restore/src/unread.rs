//! Pieces of the log with unreadable manifests. They count as missing, and are reported where their transactions are needed. Pure.

use archive::manifest::Manifest;
use archive::name::PieceName;

/// A piece known only by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// The piece.
    pub piece: PieceName,
    /// The fault of its manifest.
    pub why: String,
}

/// The first of these between the piece of this index and its predecessor. If the index equals the number of pieces, the first one
/// after all of them.
#[must_use]
pub fn before<'a>(unread: &'a [Unread], pieces: &[Manifest], number: usize) -> Option<&'a Unread> {
    let last = number.checked_sub(1).and_then(|last| pieces.get(last));
    let from = last.map(|last| last.piece.goes_on());
    let to = pieces.get(number).map(|next| next.piece.begins());
    unread.iter().find(|Unread { piece, .. }| {
        let begins = piece.begins();
        from.is_none_or(|from| from <= begins) && to.is_none_or(|to| begins < to)
    })
}

/// The index of a piece.
pub(crate) fn number_of(piece: &PieceName, pieces: &[Manifest]) -> Option<usize> {
    pieces.iter().position(|one| one.piece == *piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::tests::file;

    #[test]
    fn what_cannot_be_read_is_told_of_where_it_lies() {
        let log = [file(2, 11, 20), file(4, 31, 40), file(5, 41, 50)];
        let of_file = |number: u64| Unread {
            piece: file(number, 1, 10).piece,
            why: "it is not JSON".to_owned(),
        };
        let found = |files: &[u64], number| {
            let unread: Vec<Unread> = files.iter().map(|file| of_file(*file)).collect();
            before(&unread, &log, number).map(|one| one.piece.file.get())
        };
        for (number, file) in [(0, Some(1)), (1, Some(3)), (2, None), (3, Some(6))] {
            assert_eq!(found(&[1, 3, 6], number), file, "{number}");
            assert_eq!(found(&[], number), None);
        }
        // No manifest is readable.
        assert_eq!(before(&[of_file(7)], &[], 0), Some(&of_file(7)));
    }
}
