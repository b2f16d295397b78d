//! After the show: the log of a witness, which has no database, is applied to a database in memory by several workers at once,
//! while readers look on. Money only moves, so a reader that saw anything but a prefix of the log would see another sum.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use applier::keys::Fold;
use applier::run::{Options, Steering, apply};
use applier::schema::{ColumnShape, KeyShape, TableName, TableShape};
use applier::source::FileSource;
use binlog_format::gtid::GtidSet;
use binlog_store::LogDirectory;
use testkit::memory_database::{MemoryBackend, MemoryOptions, Snapshot};

use super::bank::{TABLES, WEALTH};
use crate::demo::story::Story;
use crate::terminal::{Exit, Failure};

const WORKERS: usize = 4;
/// Between two readers' looks.
const LOOK: Duration = Duration::from_millis(2);

/// Applies the log of the member whose files are in `data_dir`, and tells the story what came of it.
///
/// # Errors
/// Exit 7 when a reader saw what no prefix of the log has, or rows are missing at the end.
pub(super) async fn replay(story: &mut Story, data_dir: &Path) -> Result<(), Failure> {
    let error = |error: &dyn std::fmt::Display| Failure::error(error.to_string());
    let files = files(data_dir).map_err(|refused| error(&refused))?;
    let source = FileSource::open(files, GtidSet::new(), u64::from(u32::MAX)).await;
    let source = source.map_err(|refused| error(&refused))?;
    let target = MemoryBackend::new(MemoryOptions::default());
    for (name, columns) in TABLES {
        target.put_table(shape(name, columns));
    }
    let steering = Steering::unattended();
    let options = Options {
        workers: WORKERS,
        ..Options::default()
    };
    let began = Instant::now();
    let applying = {
        let (target, steering) = (Arc::new(target.clone()), steering.clone());
        tokio::spawn(async move { apply(source, target, &options, steering).await })
    };
    let mut looks = 0;
    let mut wrong = None;
    while !applying.is_finished() {
        looks += 1;
        wrong = wrong.or(what_is_wrong(&target.current()));
        tokio::time::sleep(LOOK).await;
    }
    let took = began.elapsed();
    let applied = applying.await.map_err(|broken| error(&broken))?;
    applied.map_err(|stopped| error(&stopped))?;
    let end = target.current();
    let transfers = end.rows(&table_name(TABLES[1].0)).len();
    wrong = wrong.or(what_is_wrong(&end));
    if let Some(wrong) = wrong {
        let advice = "this is a fault of the applier; keep the log (--data-dir) and report it";
        return Err(Failure::new(Exit::Corrupt, wrong, advice));
    }
    let rate = transfers as f64 / took.as_secs_f64().max(1e-6);
    story.happened(
        &format!("a witness's log applied by {WORKERS} workers"),
        format!(
            "{transfers} transfers, {rate:.0} a second; {looks} readers saw all the money each time"
        ),
        took,
    );
    Ok(())
}

fn files(data_dir: &Path) -> Result<Vec<PathBuf>, binlog_store::DirectoryError> {
    let directory = LogDirectory::on_disk(data_dir)?;
    let files = directory.files()?;
    Ok(files
        .iter()
        .map(|file| directory.path().join(file.file.to_string()))
        .collect())
}

/// What a reader sees that it should not, in words.
fn what_is_wrong(seen: &Snapshot) -> Option<String> {
    let accounts = seen.rows(&table_name(TABLES[0].0));
    let balances = accounts.iter().filter_map(|row| {
        let bytes: [u8; 8] = row.value(1)?.try_into().ok()?;
        Some(i64::from_le_bytes(bytes))
    });
    let sum: i64 = balances.sum();
    let whole = accounts.is_empty() || sum == WEALTH;
    (!whole).then(|| {
        let count = accounts.len();
        format!("a reader saw {count} accounts with {sum} in all, where there are {WEALTH}")
    })
}

fn table_name(table: &str) -> TableName {
    TableName::new("bank", table)
}

/// The first column is the primary key; all keys are numbers.
fn shape(name: &str, columns: &[&str]) -> TableShape {
    let column = |name: &&str| ColumnShape {
        name: (*name).into(),
        fold: Fold::Bytes,
    };
    TableShape {
        primary_key: Some(KeyShape::of(&[0])),
        ..TableShape::new(table_name(name), columns.iter().map(column).collect())
    }
}
