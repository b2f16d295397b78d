//! One file's bytes: those that the process sees, those that are durable, and the operations between.

#[derive(Debug, Clone)]
enum ByteOp {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { len: usize },
}

/// The bytes of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// What was done since the last sync, in order.
    pending: Vec<ByteOp>,
}

/// What becomes of the write that the power cut hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tear {
    /// Only the first bytes arrive.
    Prefix(usize),
    /// The file has its new length, but where it grew, there are zeros behind the first bytes.
    PrefixThenZeros(usize),
}

impl Inode {
    /// A file whose bytes are all durable.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self {
            visible: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.visible
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let op = ByteOp::Write {
            offset,
            bytes: bytes.to_vec(),
        };
        apply(&mut self.visible, &op);
        self.pending.push(op);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        let op = ByteOp::Truncate { len };
        apply(&mut self.visible, &op);
        self.pending.push(op);
    }

    pub(super) fn sync(&mut self) {
        for op in self.pending.drain(..) {
            apply(&mut self.durable, &op);
        }
    }

    /// A sync that failed: what it should have written never reaches the disk.
    pub(super) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    pub(super) fn pending_ops(&self) -> usize {
        self.pending.len()
    }

    /// Bytes of the `op`-th operation that is pending, when it is a write.
    pub(super) fn pending_write_len(&self, op: usize) -> Option<usize> {
        match self.pending.get(op)? {
            ByteOp::Write { bytes, .. } => Some(bytes.len()),
            ByteOp::Truncate { .. } => None,
        }
    }

    /// The first `kept` pending operations arrive, the next one torn; the rest is lost.
    pub(super) fn lose_power(&mut self, kept: usize, tear: Option<Tear>) {
        let ops: Vec<ByteOp> = self.pending.drain(..).collect();
        for op in ops.iter().take(kept) {
            apply(&mut self.durable, op);
        }
        if let (Some(ByteOp::Write { offset, bytes }), Some(tear)) = (ops.get(kept), tear) {
            let (arrived, zeros) = match tear {
                Tear::Prefix(len) => (len, false),
                Tear::PrefixThenZeros(len) => (len, true),
            };
            let arrived = bytes[..arrived.min(bytes.len())].to_vec();
            apply(
                &mut self.durable,
                &ByteOp::Write {
                    offset: *offset,
                    bytes: arrived,
                },
            );
            let end = offset + bytes.len();
            if zeros && self.durable.len() < end {
                // Only where the file grew: bytes that were there before keep their old value.
                self.durable.resize(end, 0);
            }
        }
        self.visible = self.durable.clone();
    }
}

fn apply(target: &mut Vec<u8>, op: &ByteOp) {
    match op {
        ByteOp::Truncate { len } => target.resize(*len, 0),
        ByteOp::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if !bytes.is_empty() && target.len() < end {
                target.resize(end, 0);
            }
            if let Some(place) = target.get_mut(*offset..end) {
                place.copy_from_slice(bytes);
            }
        }
    }
}
