//! Iterating records: batches are decoded without the interpreter, some at a time, and each record becomes an object when it is
//! asked for.

use crate::convert;
use crate::interrupt::detached;
use crate::raise::OrRaise;
use crate::record::{Fields, Origin, Record};
use offsetlog::format::{BatchHeader, Headers, RecordView};
use offsetlog::{Error, ErrorKind, Interrupt, Log, Scan, memory, sequence_of};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::{Arc, Mutex, TryLockError};

/// How much is decoded ahead at most: enough to hide the cost of letting the interpreter go, little enough to stay in the cache.
const AHEAD_BYTES_MAX: usize = 512 * 1024;
const AHEAD_RECORDS_MAX: usize = 2048;

/// A record's place in [`Ahead::bytes`]: key, value and headers are stored one after the other.
struct Span {
    offset: i64,
    timestamp: i64,
    start: usize,
    /// `None` is null.
    key: Option<usize>,
    value: Option<usize>,
    headers: usize,
    header_count: usize,
    batch: usize,
    sequence: i32,
    timestamp_type: i8,
}

/// Records decoded ahead.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Whose each batch is. The log itself is not held: a scan over many partitions has no more than one open.
    batches: Vec<(Arc<str>, i32, BatchHeader)>,
    /// The topic of the last one.
    topic: Option<Arc<str>>,
}

impl Ahead {
    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.batches.clear();
    }

    fn begin(&mut self, log: &Log, header: &BatchHeader) {
        let known = self.topic.as_ref().filter(|topic| ***topic == *log.topic());
        let topic = known.map_or_else(|| Arc::from(log.topic()), Arc::clone);
        self.topic = Some(Arc::clone(&topic));
        self.batches.push((topic, log.partition(), *header));
    }

    fn push(&mut self, header: &BatchHeader, record: &RecordView<'_>) -> Result<(), Error> {
        let start = self.bytes.len();
        let (key, value) = (
            record.key.unwrap_or_default(),
            record.value.unwrap_or_default(),
        );
        let headers = record.headers.encoded();
        memory::reserve(&mut self.bytes, key.len() + value.len() + headers.len())?;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        if !headers.is_empty() {
            self.bytes.extend_from_slice(headers);
        }
        self.spans.push(Span {
            offset: record.offset,
            timestamp: record.timestamp,
            start,
            key: record.key.map(<[u8]>::len),
            value: record.value.map(<[u8]>::len),
            headers: headers.len(),
            header_count: record.headers.len(),
            batch: self.batches.len().saturating_sub(1),
            sequence: sequence_of(header, record.offset),
            timestamp_type: convert::timestamp_type(record.timestamp_type),
        });
        Ok(())
    }
}

/// An iteration in progress.
pub(crate) struct Records {
    scan: Option<Scan>,
    interrupt: Interrupt,
    ahead: Ahead,
    /// Records to decode at least before the interpreter is taken back: grows, so that the first record comes soon.
    want: usize,
    next: usize,
    origin: Option<(usize, Arc<Origin>)>,
    failure: Option<Error>,
}

impl Records {
    pub(crate) fn new(scan: Scan, interrupt: Interrupt) -> Self {
        Self {
            scan: Some(scan),
            interrupt,
            ahead: Ahead::default(),
            want: 1,
            next: 0,
            origin: None,
            failure: None,
        }
    }

    /// Decodes the next records; leaves none at the end or when an error is all that is left.
    #[inline(never)]
    fn refill(&mut self) {
        self.ahead.clear();
        self.next = 0;
        let Some(scan) = self.scan.as_mut() else {
            return;
        };
        match decode(scan, &mut self.ahead, self.want, &self.interrupt) {
            Ok(true) => self.want = (self.want * 4).min(AHEAD_RECORDS_MAX),
            Ok(false) => self.scan = None,
            Err(error) => {
                self.scan = None;
                if matches!(error.kind(), ErrorKind::Interrupted) {
                    self.ahead.clear();
                }
                self.failure = Some(error);
            }
        }
    }

    /// The next record, or why the engine has none.
    pub(crate) fn next_record(
        &mut self,
        py: Python<'_>,
    ) -> PyResult<Result<Option<Py<Record>>, Error>> {
        while self.next >= self.ahead.spans.len() {
            if let Some(error) = self.failure.take() {
                return Ok(Err(error));
            }
            if self.scan.is_none() {
                return Ok(Ok(None));
            }
            self.origin = None;
            detached(py, || self.refill());
        }
        let Some(span) = self.ahead.spans.get(self.next) else {
            return Ok(Ok(None));
        };
        self.next += 1;
        let origin = match &self.origin {
            Some((batch, origin)) if *batch == span.batch => Arc::clone(origin),
            _ => {
                let Some((topic, partition, header)) = self.ahead.batches.get(span.batch) else {
                    return Ok(Ok(None));
                };
                let origin = Arc::new(Origin {
                    topic: PyString::intern(py, topic).unbind(),
                    partition: *partition,
                    leader_epoch: header.leader_epoch,
                    producer_id: header.producer_id,
                    producer_epoch: header.producer_epoch,
                    is_transactional: header.attributes.is_transactional(),
                    is_control: header.attributes.is_control(),
                });
                self.origin = Some((span.batch, Arc::clone(&origin)));
                origin
            }
        };
        let key_end = span.start + span.key.unwrap_or(0);
        let value_end = key_end + span.value.unwrap_or(0);
        let part = |from: usize, to: usize| self.ahead.bytes.get(from..to).unwrap_or_default();
        let fields = Fields {
            offset: span.offset,
            timestamp: span.timestamp,
            timestamp_type: span.timestamp_type,
            sequence: span.sequence,
            key: span.key.map(|_| part(span.start, key_end)),
            value: span.value.map(|_| part(key_end, value_end)),
            headers: Headers::from_checked(
                part(value_end, value_end + span.headers),
                span.header_count,
            ),
        };
        // Made where it stays: a record that is handed up is copied at each step.
        Py::new(py, Record::of(py, origin, &fields)?).map(|record| Ok(Some(record)))
    }
}

/// Decodes whole batches until `want` records or enough bytes are there; `false` at the end of the scan.
fn decode(
    scan: &mut Scan,
    ahead: &mut Ahead,
    want: usize,
    interrupt: &Interrupt,
) -> Result<bool, Error> {
    while ahead.spans.len() < want && ahead.bytes.len() < AHEAD_BYTES_MAX {
        // The engine asks by bytes of the file; of a few of them a codec can make hours.
        if interrupt() {
            return Err(Error::new(ErrorKind::Interrupted));
        }
        let Some(mut batch) = scan.next_batch()? else {
            return Ok(false);
        };
        let header = *batch.header();
        ahead.begin(batch.log(), &header);
        while let Some(record) = batch.next_record()? {
            ahead.push(&header, &record)?;
        }
    }
    Ok(true)
}

/// Iterates records. One thread at a time.
#[pyclass(frozen, module = "offsetlog._offsetlog")]
pub(crate) struct RecordIterator(Mutex<Records>);

impl RecordIterator {
    pub(crate) fn new(scan: Scan, interrupt: Interrupt) -> Self {
        Self(Mutex::new(Records::new(scan, interrupt)))
    }
}

#[pymethods]
impl RecordIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Record>>> {
        // Waiting for a lock with the interpreter held could wait for a thread that waits for the interpreter.
        let mut records = match self.0.try_lock() {
            Ok(records) => records,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(convert::shared_iterator()),
        };
        records.next_record(py)?.or_raise(py)
    }
}
