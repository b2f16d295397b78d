//! Fuzzing entry points for the statements to a target mysqld, and for its metadata about tables. The product does not call them.

use std::sync::Arc;

use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{IntVar, Query, Rand, Rows, SessionContext, TableMap, UserVar};
use binlog_format::row_image::{Columns, RowReader};
use bytes::Bytes;
use mysql_link::Row;

use crate::batch::{Batch, BatchSeq, Commits};
use crate::fuzzing::{event, keys_fit};
use crate::mysql::foreign_keys::{ForeignKeys, cascading, key_columns};
use crate::mysql::row_run::{append_run, first_run, single_row, statement_runs};
use crate::mysql::statement_context::{
    append_user_variable, before_all, context_statement, int_var_statement, rand_statement,
    use_statement,
};
use crate::mysql::table_shape::ShapeQuery;
use crate::schema::TableName;
use crate::transaction::{Barrier, Body, Step, Transaction};

/// Reads a server's answer as one about tables and as one about foreign keys. Returns whether it is a valid answer about a table.
pub fn table_shapes(rows: &[Row]) -> bool {
    let mut keys = ForeignKeys::default();
    keys.take(key_columns(rows), &cascading(rows));
    assert_eq!(keys.unread(), None);
    let names = [
        TableName::new("s", "t"),
        TableName::new("s", "T"),
        TableName::new("s", "u"),
        TableName::new("other", "t"),
    ];
    let queries = ShapeQuery::of(&names);
    // `lower_case_table_names` may make `t` and `T` one table, so that they need separate queries.
    assert_eq!(queries.len(), 3);
    let mut found = false;
    for query in &queries {
        assert!(query.sql().contains("information_schema"));
        for (place, shape) in query.read(rows, &keys) {
            assert_eq!(shape.name, names[place]);
            keys_fit(&shape);
            found = true;
        }
    }
    found
}

/// Writes a transaction's rows as statements of many and of few rows. The statements must contain the log's rows in the log's order.
pub(crate) fn written_by_statements(transaction: Transaction) {
    let Body::Rows(changes) = &transaction.body else {
        return;
    };
    let images = changes.rows.iter().map(|row| {
        let event = &changes.events[row.event as usize].event;
        event[row.images.start as usize..row.images.end as usize].to_vec()
    });
    let logged: Vec<Vec<u8>> = images.collect();
    let transaction = Arc::new(transaction);
    for commits in [Commits::OneByOne, Commits::AsOne] {
        let batch = Batch::new(BatchSeq(1), commits, vec![Arc::clone(&transaction)]);
        for bound in [100, 64 << 10] {
            let (mut next, mut written) = (0, Vec::new());
            while next < batch.rows() {
                let run = first_run(&batch, next..batch.rows(), bound);
                assert!(run.start == next && run.end > next && run.end <= batch.rows());
                next = run.end;
                let mut events = Vec::new();
                append_run(&batch, run.clone(), &mut events);
                written.extend(rows_of(&events));
            }
            match commits {
                Commits::OneByOne => assert_eq!(written, logged),
                // Several writes of one row are merged.
                Commits::AsOne => assert!(written.len() <= logged.len()),
            }
        }
        if let Some(last) = batch.rows().checked_sub(1) {
            let alone = rows_of(&single_row(&batch, last).concat());
            assert_eq!(alone, logged[last..]);
        }
    }
}

/// The row images in the events of a statement.
fn rows_of(mut events: &[u8]) -> Vec<Vec<u8>> {
    let mut maps: Vec<TableMap<'_>> = Vec::new();
    let mut images = Vec::new();
    while let Some(event) = EventRef::split_from(&mut events).expect("whole events") {
        if event.event_type() == EventType::TableMap {
            maps.push(TableMap::decode(event).expect("a table's map"));
            continue;
        }
        let rows = Rows::decode(event).expect("an event of rows");
        let map = maps.iter().find(|map| map.table_id == rows.table_id);
        let columns = Columns::of(map.expect("its table is mapped")).expect("known types");
        let mut reader = RowReader::new(&rows, &columns).expect("as many columns");
        while let Some(row) = reader.next_row().expect("a whole row") {
            images.push(rows.images[row.range].to_vec());
        }
    }
    images
}

/// Creates those statements of a barrier that depend on no answer of the server.
pub(crate) fn statements_of_a_barrier(barrier: &Barrier) {
    for step in &barrier.steps {
        let statement = match step {
            Step::Rows(events) => {
                let (all, maps) = (bytes_of(events), bytes_of_maps(events));
                for bound in [1, 64 << 10] {
                    // Each run contains all table maps, and no row is in two runs.
                    let runs = statement_runs(events, bound);
                    let rows = runs.iter().map(|run| bytes_of(run) - maps);
                    assert!(runs.is_empty() || rows.sum::<usize>() == all - maps);
                }
                continue;
            }
            Step::Statement(statement) => statement,
        };
        for variable in &statement.variables {
            let variable = event(variable);
            if let Ok(number) = IntVar::decode(variable) {
                let _ = int_var_statement(&number);
            }
            if let Ok(rand) = Rand::decode(variable) {
                let _ = rand_statement(&rand);
            }
            if let Ok(user) = UserVar::decode(variable) {
                let names = Some(("utf8mb4", "utf8mb4_bin"));
                let _ = append_user_variable(&user, names, &mut Vec::new());
            }
        }
        let header = event(&statement.query);
        let Ok(query) = Query::decode(header) else {
            continue;
        };
        if let Some(used) = use_statement(header.header(), &query) {
            // The quoted name must end where the statement ends, whatever characters it contains.
            let name = used
                .strip_prefix(b"USE `")
                .and_then(|rest| rest.strip_suffix(b"`"));
            let quotes = |text: &[u8]| text.iter().filter(|byte| **byte == b'`').count();
            let name = name.expect("a name between backquotes");
            assert_eq!(quotes(name), 2 * quotes(&query.schema));
        }
        if let Ok(context) = SessionContext::decode(&query.status_variables) {
            let set = context_statement(header.header(), &query, &context);
            assert!(set.starts_with(b"SET timestamp="));
            let _ = before_all(std::iter::once(context));
        }
    }
}

fn bytes_of(events: &[Bytes]) -> usize {
    events.iter().map(Bytes::len).sum()
}

fn bytes_of_maps(events: &[Bytes]) -> usize {
    let is_map = |bytes: &&Bytes| event(bytes).event_type() == EventType::TableMap;
    events.iter().filter(is_map).map(Bytes::len).sum()
}
