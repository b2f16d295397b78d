//! What a source could do and a server that follows it cannot do by itself, whoever applies: one sentence for each.

/// What an error most likely means when a statement of the log ends with it that its source could do, and what helps. `None`:
/// the server's own words have to do.
#[must_use]
pub fn not_followed(code: u16) -> Option<&'static str> {
    Some(match code {
        1812 => {
            "ALTER TABLE … IMPORT TABLESPACE takes files that no log brings: copy the table's .ibd (and .cfg) file from the \
             source's data directory into the same folder of this server's"
        }
        3121 => {
            "A DATA DIRECTORY has to be allowed on each server: add it to innodb_directories here, which takes a restart of \
             mysqld"
        }
        1031 => {
            "A session with innodb_strict_mode = OFF may have made the table, which the log does not say: SET GLOBAL \
             innodb_strict_mode = OFF here until this is applied"
        }
        1048 => {
            "A session with explicit_defaults_for_timestamp = OFF may have meant the time by NULL, which a statement in the \
             log does not say: let the source log rows (binlog_format = ROW), and copy its data here again"
        }
        182 => {
            "InnoDB takes values of FTS_DOC_ID in growing order only, and the source's transactions took theirs in another order \
             than they committed in: drop the table's FULLTEXT indexes here, with sql_log_bin = 0, and add them again when this \
             is applied; to be rid of it, drop the column at the source, for which InnoDB then has a hidden one"
        }
        1452 => {
            "The parent's row is not there yet, or not at all. Where the source's statement changed a child's row both by itself \
             and by a cascade, MySQL 9.6 and later log the child before its parent: mysql.apply = \"rows\" applies that, and \
             innodb_native_foreign_keys = ON at the source avoids it"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_followed_has_a_sentence_that_says_what_helps() {
        for (code, helps) in [
            (1812, ".ibd"),
            (3121, "innodb_directories"),
            (1031, "innodb_strict_mode = OFF"),
            (1048, "binlog_format = ROW"),
            (182, "FULLTEXT"),
            (1452, "mysql.apply = \"rows\""),
        ] {
            let sentence = not_followed(code).unwrap();
            assert!(sentence.contains(helps), "{code}: {sentence}");
        }
        assert_eq!(not_followed(1062), None);
    }
}
