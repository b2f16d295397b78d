//! Tables whose rows a copy of a server lacks: `CLONE` copies InnoDB's files, and creates other tables empty.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mysql_link::{Connection, LinkError};
use spilling_bytes::long_work;

/// At most this many tables are named.
const NAMED: usize = 5;
/// MySQL's own schemas.
pub(crate) const OF_THE_SYSTEM: [&str; 4] =
    ["mysql", "sys", "information_schema", "performance_schema"];
/// Extensions of files with rows of MyISAM, ARCHIVE and CSV.
const WITH_ROWS: [&str; 3] = ["MYD", "ARZ", "CSV"];

/// Returns some of the tables of other engines than InnoDB, from the server and from its data directory. Both are needed: MySQL lists a
/// table only to accounts that may read it, which excludes the account of a member with native replica threads; and a directory on another
/// host is unavailable. MEMORY tables are ignored, since their rows end with the server anyway, and so are tables without rows of their
/// own. The queries open no table.
pub(crate) async fn other_engines(connection: &mut Connection) -> Result<Vec<String>, LinkError> {
    let listed = connection
        .query(format!(
            "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_type = 'BASE TABLE' \
             AND engine NOT IN ('InnoDB', 'MEMORY', 'BLACKHOLE', 'FEDERATED', 'PERFORMANCE_SCHEMA') \
             AND table_schema NOT IN ('{}') ORDER BY 1 LIMIT {NAMED}",
            OF_THE_SYSTEM.join("', '")
        ))
        .await?;
    let mut tables: BTreeSet<String> = listed.values().map(str::to_owned).collect();
    let place = connection.query("SELECT @@GLOBAL.datadir").await?;
    if let Some(place) = place.value() {
        let place = place.to_owned();
        tables.extend(long_work::on_disk(move || with_files(Path::new(&place))).await);
    }
    Ok(tables.into_iter().take(NAMED).collect())
}

/// Returns the tables with such files in this data directory; none if the directory cannot be read.
fn with_files(data_dir: &Path) -> BTreeSet<String> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let mut tables = BTreeSet::new();
    for schema in entries(data_dir) {
        let name = schema.file_name().to_string_lossy().into_owned();
        if OF_THE_SYSTEM.contains(&name.as_str()) {
            continue;
        }
        for file in entries(&schema.path()) {
            let path = file.path();
            let has_rows = path.extension().and_then(|end| end.to_str());
            let has_rows = has_rows.is_some_and(|end| WITH_ROWS.contains(&end));
            if let (true, Some(table)) = (has_rows, path.file_stem()) {
                // The rest of the file name is the partition.
                let table = table.to_string_lossy();
                let table = table.split('#').next().unwrap_or_default();
                tables.insert(format!("{name}.{table}"));
            }
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_engines_name_their_tables() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        };
        for file in [
            "mysql/general_log.CSV",
            "binlog.000001",
            "shop/orders.ibd",
            "shop/old.MYD",
            "shop/old.MYI",
            "shop/parts#p#p0.MYD",
            "shop/parts#p#p1.MYD",
            "logs/2025.ARZ",
        ] {
            at(file);
        }
        let found: Vec<_> = with_files(folder.path()).into_iter().collect();
        assert_eq!(found, ["logs.2025", "shop.old", "shop.parts"]);
        assert!(with_files(&folder.path().join("elsewhere")).is_empty());
    }
}
