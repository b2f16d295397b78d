//! Whole transactions in canonical form.

use bytes::Bytes;

use crate::canonical::stamped_len;
use crate::checksum::CHECKSUM_LEN;
use crate::event::EventFlags;
use crate::events::{
    CommitTimestamp, EncodeEvent, EventOrigin, GtidEvent, GtidForm, LogicalClock, Query, Rows,
    RowsChange, ServerVersion, Xid,
};
use crate::gtid::Gtid;
use crate::synthesis::error::SynthesisError;
use crate::synthesis::row_image::put_row;
use crate::synthesis::table::{Table, Value};

/// What a transaction's events say about where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionHead {
    /// Its identifier; with a tag, the GTID event is of the tagged form.
    pub gtid: Gtid,
    /// The writer's server id.
    pub server_id: u32,
    /// The writer's connection.
    pub thread_id: u32,
    /// When it commits; event headers hold its seconds.
    pub commit: CommitTimestamp,
    /// The version that the writer claims.
    pub version: ServerVersion,
    /// What may be applied in parallel.
    pub clock: LogicalClock,
    /// The number in its XID event.
    pub xid: u64,
}

/// The session variables that a mysqld writes in front of BEGIN.
#[rustfmt::skip]
const STATUS_VARIABLES: [u8; 29] = [
    0, 0, 0, 0, 0,                          // options: none
    1, 0x20, 0, 0xa0, 0x45, 0, 0, 0, 0,     // sql_mode of 8.0 and later by default
    6, 3, b's', b't', b'd',                 // catalogue
    4, 255, 0, 255, 0, 255, 0,              // character sets of client, connection, server: utf8mb4
    18, 255, 0,                             // default collation of utf8mb4
];

/// A transaction of changed rows, change by change. Each change is a statement of its own to readers.
#[derive(Debug, Clone)]
pub struct RowTransaction {
    head: TransactionHead,
    /// Everything behind the GTID event.
    body: Vec<u8>,
}

impl RowTransaction {
    /// Begins one.
    pub fn begin(head: TransactionHead) -> Self {
        let mut body = Vec::new();
        head.query("", b"BEGIN")
            .encode_into(head.origin(EventFlags::SUPPRESS_USE), &mut body);
        Self { head, body }
    }

    /// Rows that come into being.
    ///
    /// # Errors
    /// When a row does not fit its table; nothing is added then.
    pub fn insert(&mut self, table: &Table, rows: &[Vec<Value>]) -> Result<(), SynthesisError> {
        let mut images = Vec::new();
        for row in rows {
            put_row(&mut images, table, row)?;
        }
        self.change(table, RowsChange::Write, &images);
        Ok(())
    }

    /// Rows as they were, each with what becomes of it.
    ///
    /// # Errors
    /// When a row does not fit its table; nothing is added then.
    pub fn update(
        &mut self,
        table: &Table,
        rows: &[(Vec<Value>, Vec<Value>)],
    ) -> Result<(), SynthesisError> {
        let mut images = Vec::new();
        for (before, after) in rows {
            put_row(&mut images, table, before)?;
            put_row(&mut images, table, after)?;
        }
        self.change(table, RowsChange::Update, &images);
        Ok(())
    }

    /// Rows that cease to be.
    ///
    /// # Errors
    /// When a row does not fit its table; nothing is added then.
    pub fn delete(&mut self, table: &Table, rows: &[Vec<Value>]) -> Result<(), SynthesisError> {
        let mut images = Vec::new();
        for row in rows {
            put_row(&mut images, table, row)?;
        }
        self.change(table, RowsChange::Delete, &images);
        Ok(())
    }

    fn change(&mut self, table: &Table, change: RowsChange, images: &[u8]) {
        let columns = table.columns.len();
        // All of them, and the unused bits behind the last one too, as the server has it.
        let present = vec![u8::MAX; columns.div_ceil(8)];
        let after = if change.has_two_images() {
            present.clone()
        } else {
            Vec::new()
        };
        let rows = Rows {
            change,
            table_id: table.id,
            flags: Rows::END_OF_STATEMENT,
            extra_data: Some(Default::default()),
            column_count: columns as u64,
            columns: present.into(),
            columns_after: after.into(),
            images: images.into(),
        };
        table
            .map()
            .encode_into(self.head.origin(EventFlags::NONE), &mut self.body);
        rows.encode_into(self.head.origin(EventFlags::NONE), &mut self.body);
    }

    /// The canonical payload.
    pub fn commit(mut self) -> Bytes {
        Xid { xid: self.head.xid }.encode_into(self.head.origin(EventFlags::NONE), &mut self.body);
        self.head.with_gtid(0, &self.body)
    }
}

/// The canonical payload of a statement that is a transaction of its own, such as CREATE TABLE.
pub fn statement_transaction(head: TransactionHead, schema: &str, statement: &str) -> Bytes {
    let body = head
        .query(schema, statement.as_bytes())
        .encode(head.origin(EventFlags::NONE));
    head.with_gtid(GtidEvent::MAY_HAVE_STATEMENTS, &body)
}

impl TransactionHead {
    fn origin(&self, flags: EventFlags) -> EventOrigin {
        // Header timestamps are 32 bits wide.
        let timestamp = u32::try_from(self.commit.0 / 1_000_000).unwrap_or(u32::MAX);
        EventOrigin {
            timestamp,
            server_id: self.server_id,
            flags,
        }
    }

    fn query<'a>(&self, schema: &'a str, statement: &'a [u8]) -> Query<'a> {
        Query {
            thread_id: self.thread_id,
            execution_seconds: 0,
            error_code: 0,
            status_variables: STATUS_VARIABLES.as_slice().into(),
            schema: schema.as_bytes().into(),
            statement: statement.into(),
        }
    }

    /// The GTID event in front of the others. It holds the length of all of them in a file, its own
    /// included, whose length depends on that number.
    fn with_gtid(&self, flags: u8, body: &[u8]) -> Bytes {
        let body_len = stamped_len(body).unwrap_or_default();
        let mut event = GtidEvent {
            form: if self.gtid.tag.is_none() {
                GtidForm::Classic
            } else {
                GtidForm::TAGGED
            },
            flags,
            gtid: self.gtid,
            clock: self.clock,
            immediate_commit: Some(self.commit),
            original_commit: None,
            transaction_length: Some(body_len),
            immediate_version: Some(self.version),
            original_version: None,
            commit_group_ticket: None,
        };
        // Longer numbers make longer events, so that this comes to an end after a few turns.
        loop {
            let mut payload = event.encode(self.origin(EventFlags::NONE));
            let whole = Some(body_len + (payload.len() + CHECKSUM_LEN) as u64);
            if event.transaction_length == whole {
                payload.extend_from_slice(body);
                return payload.into();
            }
            event.transaction_length = whole;
        }
    }
}
