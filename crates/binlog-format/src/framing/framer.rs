//! Cuts a dump stream into transactions.

use bytes::{Bytes, BytesMut};

use crate::canonical::append_canonical;
use crate::checksum::{CHECKSUM_LEN, ChecksumAlgorithm};
use crate::event::{EventFlags, EventHeader, EventRef, RawEvent};
use crate::event_type::EventType;
use crate::events::{FormatDescription, GtidEvent, Heartbeat, PreviousGtids, Rotate};
use crate::framing::boundary::{Place, Step, TransactionEnd, role, step};
use crate::framing::error::FramingError;
use crate::framing::item::{FramedTransaction, StreamItem};
use crate::framing::position::SourcePosition;

/// Memory taken at once for a transaction that announces to be at least as large; it grows on as
/// events arrive.
const FIRST_RESERVATION: u64 = 64 << 10;

/// Takes the events of a dump stream in order and gives its transactions.
///
/// After an error it refuses everything until [`Self::reset`], so that no transaction can be taken
/// for the successor of one that was not taken.
#[derive(Debug)]
pub struct TransactionFramer {
    max_transaction_bytes: u64,
    /// As the last format description announced it; before the first, as the replica asked for it.
    checksum: ChecksumAlgorithm,
    position: SourcePosition,
    open: Option<OpenTransaction>,
    failed: bool,
}

/// A transaction whose end has not come yet. Its payload is that of `framed`, still growing.
#[derive(Debug)]
struct OpenTransaction {
    place: Place,
    framed: FramedTransaction,
    payload: BytesMut,
    announced_length: Option<u64>,
    /// Bytes of its events as they came.
    received: u64,
}

impl TransactionFramer {
    /// A framer for a new stream. `checksum` is what the replica announced to the source as
    /// `@source_binlog_checksum`: it holds for the rotate event that comes before the first format
    /// description. `max_transaction_bytes` bounds the canonical payload of one transaction, and
    /// with it the memory held here.
    pub fn new(checksum: ChecksumAlgorithm, max_transaction_bytes: u64) -> Self {
        Self {
            max_transaction_bytes,
            checksum,
            position: SourcePosition::default(),
            open: None,
            failed: false,
        }
    }

    /// Forgets the open transaction and everything else of the stream, for one that begins anew.
    pub fn reset(&mut self, checksum: ChecksumAlgorithm) {
        *self = Self::new(checksum, self.max_transaction_bytes);
    }

    /// Whether a transaction has begun and not ended.
    pub fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// The position on the source behind the last event.
    pub fn position(&self) -> &SourcePosition {
        &self.position
    }

    /// Takes the next event; `None` when it is a part of a transaction that goes on.
    ///
    /// # Errors
    /// When the event is damaged or cannot stand where it does, or the transaction is too large. The
    /// framer must be reset then.
    pub fn push(&mut self, event: &RawEvent) -> Result<Option<StreamItem>, FramingError> {
        if self.failed {
            return Err(FramingError::NeedsReset);
        }
        let result = self.take(event);
        if result.is_err() {
            self.failed = true;
            self.open = None;
        }
        result
    }

    fn take(&mut self, event: &RawEvent) -> Result<Option<StreamItem>, FramingError> {
        // A format description has a CRC32 whatever it says of the others.
        let checksum = match event.event_type() {
            EventType::FormatDescription => ChecksumAlgorithm::Crc32,
            _ => self.checksum,
        };
        let verified = event.verified(checksum)?;
        match event.event_type() {
            EventType::Heartbeat | EventType::HeartbeatV2 => self.heartbeat(verified).map(Some),
            EventType::FormatDescription
            | EventType::Rotate
            | EventType::PreviousGtids
            | EventType::Stop => {
                self.refuse_inside(event.event_type())?;
                self.between_transactions(verified).map(Some)
            }
            EventType::Incident => Err(FramingError::Incident),
            EventType::AnonymousGtid => Err(FramingError::AnonymousTransaction),
            EventType::Gtid | EventType::GtidTagged => {
                self.refuse_inside(event.event_type())?;
                self.advance(event.header());
                self.begin(verified)?;
                self.append(event, verified, Place::Begun)?;
                Ok(None)
            }
            event_type if self.open.is_none() => {
                if event.header().flags.contains(EventFlags::IGNORABLE)
                    || event_type == EventType::Ignorable
                {
                    self.advance(event.header());
                    Ok(Some(StreamItem::Ignored(event_type)))
                } else {
                    Err(FramingError::OutsideTransaction { event_type })
                }
            }
            _ => {
                self.advance(event.header());
                self.go_on(event, verified)
            }
        }
    }

    fn refuse_inside(&self, event_type: EventType) -> Result<(), FramingError> {
        match &self.open {
            Some(open) => Err(FramingError::Interrupted {
                gtid: open.framed.gtid,
                event_type,
            }),
            None => Ok(()),
        }
    }

    /// Follows the position of an event, unless the source made it up.
    fn advance(&mut self, header: &EventHeader) {
        if !is_made_up(header) {
            self.position.advance_to_low_bits(header.log_pos);
        }
    }

    fn heartbeat(&mut self, event: EventRef<'_>) -> Result<StreamItem, FramingError> {
        let heartbeat = Heartbeat::decode(event)?;
        if heartbeat.version_2 {
            self.position.offset = heartbeat.position;
        } else if event.header().log_pos != 0 {
            self.position.advance_to_low_bits(event.header().log_pos);
        }
        if self.position.file != *heartbeat.file {
            self.position.file = Bytes::copy_from_slice(&heartbeat.file);
        }
        Ok(StreamItem::Heartbeat(self.position.clone()))
    }

    fn between_transactions(&mut self, event: EventRef<'_>) -> Result<StreamItem, FramingError> {
        self.advance(event.header());
        Ok(match event.event_type() {
            EventType::FormatDescription => {
                let description = FormatDescription::decode(event)?;
                self.checksum = description.checksum;
                StreamItem::FormatDescription {
                    canonical: FormatDescription::canonical_event(event)?.into(),
                    server_version: String::from_utf8_lossy(&description.server_version)
                        .into_owned(),
                    checksum: description.checksum,
                }
            }
            EventType::Rotate => {
                let rotate = Rotate::decode(event)?;
                self.position = SourcePosition {
                    file: Bytes::copy_from_slice(&rotate.next_file),
                    offset: rotate.position,
                };
                StreamItem::Rotate {
                    to: self.position.clone(),
                    artificial: is_made_up(event.header()),
                }
            }
            EventType::PreviousGtids => {
                StreamItem::PreviousGtids(PreviousGtids::decode(event)?.gtids)
            }
            event_type => StreamItem::Ignored(event_type),
        })
    }

    fn begin(&mut self, event: EventRef<'_>) -> Result<(), FramingError> {
        let gtid_event = GtidEvent::decode(event)?;
        let announced_length = gtid_event.transaction_length.filter(|length| *length > 0);
        let limit = self.max_transaction_bytes;
        // The announced length counts checksums, which are a fraction of it; a transaction just above
        // the limit is found when its events come.
        if let Some(size) = announced_length
            .map(|length| length / 2)
            .filter(|size| *size > limit)
        {
            return Err(FramingError::TransactionTooLarge {
                gtid: gtid_event.gtid,
                size,
                limit,
            });
        }
        let reserved = announced_length
            .unwrap_or(0)
            .min(FIRST_RESERVATION)
            .min(limit);
        self.open = Some(OpenTransaction {
            place: Place::Begun,
            framed: FramedTransaction {
                gtid: gtid_event.gtid,
                payload: Bytes::new(),
                event_count: 0,
                end_position: SourcePosition::default(),
                end: TransactionEnd::Statement,
                server_id: event.header().server_id,
                timestamp: event.header().timestamp,
                immediate_commit: gtid_event.immediate_commit,
                original_commit: gtid_event.original_commit,
                clock: gtid_event.clock,
            },
            payload: BytesMut::with_capacity(reserved as usize),
            announced_length,
            received: 0,
        });
        Ok(())
    }

    fn go_on(
        &mut self,
        event: &RawEvent,
        verified: EventRef<'_>,
    ) -> Result<Option<StreamItem>, FramingError> {
        let Some(open) = &self.open else {
            return Err(FramingError::OutsideTransaction {
                event_type: event.event_type(),
            });
        };
        match step(open.place, role(verified)?) {
            Step::GoOn(place) => {
                self.append(event, verified, place)?;
                Ok(None)
            }
            Step::Finish(end) => {
                self.append(event, verified, open.place)?;
                self.finish(end)
            }
            Step::Refuse => Err(FramingError::Misplaced {
                gtid: open.framed.gtid,
                event_type: event.event_type(),
            }),
        }
    }

    fn append(
        &mut self,
        event: &RawEvent,
        verified: EventRef<'_>,
        place: Place,
    ) -> Result<(), FramingError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let size = (open.payload.len() + verified.bytes().len()) as u64;
        if size > self.max_transaction_bytes {
            return Err(FramingError::TransactionTooLarge {
                gtid: open.framed.gtid,
                size,
                limit: self.max_transaction_bytes,
            });
        }
        append_canonical(verified, &mut open.payload);
        open.place = place;
        open.framed.event_count += 1;
        open.received += event.bytes().len() as u64;
        Ok(())
    }

    fn finish(&mut self, end: TransactionEnd) -> Result<Option<StreamItem>, FramingError> {
        let Some(open) = self.open.take() else {
            return Ok(None);
        };
        open.check_length()?;
        let mut framed = open.framed;
        framed.payload = open.payload.freeze();
        framed.end = end;
        framed.end_position = self.position.clone();
        Ok(Some(StreamItem::Transaction(framed)))
    }
}

/// Whether an event stands in no file: it has the flag, or no position.
fn is_made_up(header: &EventHeader) -> bool {
    header.log_pos == 0 || header.flags.contains(EventFlags::ARTIFICIAL)
}

impl OpenTransaction {
    /// The announced length is that in the source's file, with a checksum on every event or on none;
    /// the stream may have dropped them on the way.
    fn check_length(&self) -> Result<(), FramingError> {
        let bare = self.payload.len() as u64;
        let with_checksums = bare + u64::from(self.framed.event_count) * CHECKSUM_LEN as u64;
        match self.announced_length {
            Some(announced) if announced != bare && announced != with_checksums => {
                Err(FramingError::LengthMismatch {
                    gtid: self.framed.gtid,
                    announced,
                    received: self.received,
                })
            }
            _ => Ok(()),
        }
    }
}
