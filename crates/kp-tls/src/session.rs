//! One TLS connection as a machine without I/O: ciphertext in, plaintext and ciphertext out, for both roles (RFC 8446,
//! RFC 5246).
//!
//! A session keeps what it cannot process yet, the beginning of a record or of a handshake message, and nothing else: an
//! idle one holds no buffer. It decides nothing about sockets, deadlines or who may connect.

use crate::error::TlsError;
use crate::facts::Facts;
use crate::session_id::{self, SessionId};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedStatus, WriteTraffic,
};
use rustls::{CommonState, Error, HandshakeKind};
use std::io::IoSlice;

/// The most that is kept of a message that is not complete: the library takes no message above 64 KiB, and its records
/// have headers. Nobody honest sends it in slices so thin that this is too little.
const KEPT_MAX: usize = 96 * 1024;
/// Ciphertext of an open session that may come without a byte of plaintext: tickets, changes of keys. Who reads until
/// plaintext comes must not be kept reading by them.
const BARREN_MAX: usize = 128 * 1024;
/// How many records one call processes at most.
const RECORDS_PER_CALL: u32 = 64;
/// What a record of any version and suite is longer than its plaintext, at most.
const RECORD_OVERHEAD: usize = 32;
/// The longest plaintext of a record (RFC 8446 §5.1).
const RECORD_MAX: usize = 16 * 1024;
/// The header of a record.
const HEADER: usize = 5;
/// Stretches of plaintext shorter than this are joined into one record with their neighbours.
const JOIN_BELOW: usize = 4 * 1024;

/// One TLS connection.
pub struct Session {
    connection: Connection,
    /// Ciphertext that was received and not processed yet.
    kept: Vec<u8>,
    /// Bytes that were received since the last plaintext.
    barren: usize,
    /// What is kept begins with whole records of data.
    pending: bool,
    stage: Stage,
    /// A server's.
    id: Option<SessionId>,
    /// The peer said that it sends nothing more.
    ended: bool,
    /// close_notify was sent.
    closed: bool,
    /// The most plaintext of one record.
    record: usize,
}

enum Connection {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The handshake goes on.
    Handshake,
    /// Data flows.
    Open,
    /// It failed; nothing but the alert is sent.
    Failed,
}

/// What one call of [`Session::receive`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// More can be had without more ciphertext: call again.
    pub pending: bool,
    /// The peer sent close_notify: what was received is complete.
    pub end: bool,
}

/// Room for joining small stretches of plaintext; one for all sessions of a worker.
#[derive(Debug, Default)]
pub struct Scratch(Vec<u8>);

/// What the library said after one step.
enum Step {
    /// Something was done, there may be more.
    Again,
    /// A record of plaintext was taken.
    Record,
    /// Nothing more can be done.
    Quiet {
        /// Plaintext may be sent.
        open: bool,
    },
    /// close_notify came.
    End,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Session")
            .field("stage", &self.stage)
            .field("kept", &self.kept.len())
            .field("ended", &self.ended)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn server(connection: UnbufferedServerConnection, record: usize) -> Self {
        Self::new(Connection::Server(Box::new(connection)), record)
    }

    pub(crate) fn client(connection: UnbufferedClientConnection, record: usize) -> Self {
        Self::new(Connection::Client(Box::new(connection)), record)
    }

    fn new(connection: Connection, record: usize) -> Self {
        Self {
            connection,
            kept: Vec::new(),
            barren: 0,
            pending: false,
            stage: Stage::Handshake,
            id: None,
            ended: false,
            closed: false,
            record: record.clamp(1, RECORD_MAX),
        }
    }

    /// Starts a handshake: the client's first flight is appended to `out`. A server waits.
    ///
    /// # Errors
    ///
    /// Nothing can be offered.
    pub fn start(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.receive(&mut Vec::new(), &mut Vec::new(), out, 0)
            .map(|_| ())
    }

    /// Processes ciphertext from the socket: `ciphertext` is empty afterwards, plaintext is appended to `plaintext`,
    /// what must be sent (handshake, tickets, alerts) to `out`.
    ///
    /// Stops before a record that would take this call's plaintext above `max`, but gives at least one; what is left is
    /// kept here and [`Progress::pending`] says so. So receive no more than there is room for.
    ///
    /// # Errors
    ///
    /// The connection cannot go on. An alert for the peer stands in `out`; plaintext received before stays valid, but is
    /// not known to be complete.
    pub fn receive(
        &mut self,
        ciphertext: &mut Vec<u8>,
        plaintext: &mut Vec<u8>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<Progress, TlsError> {
        if self.stage == Stage::Failed {
            ciphertext.clear();
            return Err(TlsError::NotOpen);
        }
        let mut turn = Turn {
            room_ends: plaintext.len().saturating_add(max),
            steps: 0,
            records: 0,
            over: false,
        };
        let before = (plaintext.len(), ciphertext.len(), self.stage);
        let result = self.feed(ciphertext, plaintext, out, &mut turn);
        let result = result.and_then(|()| self.count_barren(before, plaintext.len()));
        ciphertext.clear();
        if let Err(error) = result {
            self.stage = Stage::Failed;
            self.kept = Vec::new();
            self.pending = false;
            self.drain_waiting(out);
            return Err(error);
        }
        Ok(Progress {
            pending: self.pending,
            end: self.ended,
        })
    }

    /// `before` the call: how much plaintext there was and how much ciphertext came, and the stage.
    fn count_barren(
        &mut self,
        before: (usize, usize, Stage),
        plaintext: usize,
    ) -> Result<(), TlsError> {
        if plaintext > before.0 || before.2 == Stage::Handshake {
            self.barren = 0;
            return Ok(());
        }
        self.barren = self.barren.saturating_add(before.1);
        if self.barren > BARREN_MAX {
            return Err(TlsError::TooLong);
        }
        Ok(())
    }

    /// Encrypts all of `stretches`, in order, and appends the records to `out`. Never call it twice with the same bytes:
    /// what is in `out` has to be sent.
    ///
    /// # Errors
    ///
    /// The session is not open, or its keys are used up.
    pub fn send(
        &mut self,
        stretches: &[IoSlice<'_>],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        if self.stage != Stage::Open || self.closed {
            return Err(TlsError::NotOpen);
        }
        let joined = &mut scratch.0;
        joined.clear();
        for stretch in stretches {
            let mut rest: &[u8] = stretch;
            while !rest.is_empty() {
                if joined.is_empty() && rest.len() >= JOIN_BELOW {
                    self.encrypt(rest, out)?;
                    break;
                }
                // Something waits, or this is short: they share a record.
                let (head, tail) = rest.split_at(rest.len().min(self.record - joined.len()));
                joined.extend_from_slice(head);
                rest = tail;
                if joined.len() == self.record {
                    self.encrypt(joined, out)?;
                    joined.clear();
                }
            }
        }
        if !joined.is_empty() {
            self.encrypt(joined, out)?;
        }
        Ok(())
    }

    /// Says that nothing more will be sent (RFC 8446 §6.1); once, and only of an open session. Receiving goes on until the
    /// peer says so too.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.closed || self.stage != Stage::Open {
            return;
        }
        // A connection that cannot even say this is as good as closed.
        let _ = self.seal(Sealed::End, out);
        self.closed = true;
    }

    /// How far it has come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether the peer sent close_notify. A stream that ends without is cut short (RFC 8446 §6.1).
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether it holds no ciphertext: nothing of a record or message is there that waits for its rest.
    pub fn is_idle(&self) -> bool {
        self.kept.is_empty()
    }

    /// Memory of what was received and waits for the rest of its record or message, bytes.
    pub fn kept_bytes(&self) -> usize {
        self.kept.capacity()
    }

    /// What was agreed on; meaningful once [`Stage::Open`].
    pub fn facts(&self) -> Facts<'_> {
        Facts::of(self.common())
    }

    /// What a server calls the session: 32 bytes, the same each time it is resumed. Empty before [`Stage::Open`] and for a
    /// client.
    pub fn session_id(&self) -> &[u8] {
        match &self.id {
            Some(SessionId::Offered(id) | SessionId::Known(id)) => id,
            None => &[],
        }
    }

    /// Processes first what was kept, record by record, then the rest where it lies.
    fn feed(
        &mut self,
        ciphertext: &mut [u8],
        plaintext: &mut Vec<u8>,
        out: &mut Vec<u8>,
        turn: &mut Turn,
    ) -> Result<(), TlsError> {
        let mut kept = std::mem::take(&mut self.kept);
        let mut at = 0;
        while !kept.is_empty() && !turn.over {
            let rest = ciphertext.get(at..).unwrap_or_default();
            let more = missing(&kept).min(rest.len());
            if more == 0 && turn.steps > 0 {
                break;
            }
            // As below: where a record is not complete, no message before it is waiting for its rest.
            if !starts_with_a_record(&kept) && turn.is_full(plaintext.len(), &kept) {
                turn.over = true;
                break;
            }
            kept.extend_from_slice(rest.get(..more).unwrap_or_default());
            at += more;
            let used = self.run(&mut kept, plaintext, out, turn)?;
            kept.drain(..used.min(kept.len()));
        }
        let rest = ciphertext.get_mut(at..).unwrap_or_default();
        if kept.is_empty() && turn.is_full(plaintext.len(), rest) {
            turn.over = true;
        }
        if kept.is_empty() && !turn.over {
            let used = self.run(rest, plaintext, out, turn)?;
            kept.extend_from_slice(rest.get(used..).unwrap_or_default());
        } else {
            kept.extend_from_slice(rest);
        }
        if self.ended || kept.is_empty() {
            // What follows close_notify is nobody's (RFC 8446 §6.1). An empty buffer holds no memory.
            kept = Vec::new();
        }
        self.pending = turn.over && !kept.is_empty();
        if !self.pending && kept.len() > KEPT_MAX {
            return Err(TlsError::TooLong);
        }
        self.kept = kept;
        Ok(())
    }

    /// Steps until nothing more can be done, or enough was; returns how many bytes are used up.
    fn run(
        &mut self,
        ciphertext: &mut [u8],
        plaintext: &mut Vec<u8>,
        out: &mut Vec<u8>,
        turn: &mut Turn,
    ) -> Result<usize, TlsError> {
        let mut at = 0;
        loop {
            turn.steps += 1;
            let rest = ciphertext.get_mut(at..).unwrap_or_default();
            let (discard, step) = match &mut self.connection {
                Connection::Server(connection) => session_id::during(&mut self.id, || {
                    step(&mut **connection, rest, plaintext, out)
                }),
                Connection::Client(connection) => step(&mut **connection, rest, plaintext, out),
            }?;
            self.forget_other_session();
            at += discard;
            match step {
                Step::Again => {}
                Step::Record => {
                    self.open();
                    turn.records += 1;
                    // Only here: between two records of data the library has no place in a message that it would want
                    // to find again.
                    let rest = ciphertext.get(at..).unwrap_or_default();
                    if turn.is_full(plaintext.len(), rest) {
                        turn.over = true;
                        return Ok(at);
                    }
                }
                Step::End => self.ended = true,
                Step::Quiet { open } => {
                    if open {
                        self.open();
                    }
                    return Ok(at);
                }
            }
        }
    }

    /// The handshake is over. A session that went into no ticket has an id all the same, as in nginx.
    fn open(&mut self) {
        if self.stage == Stage::Handshake
            && self.id.is_none()
            && matches!(self.connection, Connection::Server(_))
        {
            self.id = session_id::fresh().map(SessionId::Known);
        }
        self.stage = Stage::Open;
    }

    /// A session that was offered and is not resumed is not this one.
    fn forget_other_session(&mut self) {
        let kind = self.common().handshake_kind();
        if matches!(self.id, Some(SessionId::Offered(_)))
            && kind.is_some_and(|kind| kind != HandshakeKind::Resumed)
        {
            self.id = None;
        }
    }

    fn encrypt(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.seal(Sealed::Data(plaintext, self.record), out)
    }

    fn seal(&mut self, what: Sealed<'_>, out: &mut Vec<u8>) -> Result<(), TlsError> {
        // The library's place in a message that is not complete refers to these bytes; complete records would be
        // decrypted in passing.
        let kept: &mut [u8] = if self.pending {
            &mut []
        } else {
            &mut self.kept
        };
        let result = match &mut self.connection {
            Connection::Server(connection) => seal(&mut **connection, kept, what, out),
            Connection::Client(connection) => seal(&mut **connection, kept, what, out),
        };
        if result.is_err() {
            self.stage = Stage::Failed;
        }
        result
    }

    /// Moves what waits to be sent to `out`. The library gives it before it looks at any ciphertext.
    fn drain_waiting(&mut self, out: &mut Vec<u8>) {
        let mut nothing = Vec::new();
        while self.common().wants_write() {
            let stepped = match &mut self.connection {
                Connection::Server(connection) => {
                    step(&mut **connection, &mut [], &mut nothing, out)
                }
                Connection::Client(connection) => {
                    step(&mut **connection, &mut [], &mut nothing, out)
                }
            };
            if stepped.is_err() {
                return;
            }
        }
    }

    fn common(&self) -> &CommonState {
        match &self.connection {
            Connection::Server(connection) => connection,
            Connection::Client(connection) => connection,
        }
    }
}

/// The bounds of one call.
struct Turn {
    /// How long the plaintext may become.
    room_ends: usize,
    steps: u32,
    records: u32,
    /// Stopped because it was enough, not because nothing was left.
    over: bool,
}

impl Turn {
    /// Whether a record that begins `rest` is to wait for the next call. The first one never is.
    fn is_full(&self, plaintext: usize, rest: &[u8]) -> bool {
        let next = record_length(rest).unwrap_or(0);
        self.records > 0
            && (self.records >= RECORDS_PER_CALL || plaintext.saturating_add(next) > self.room_ends)
    }
}

/// What the record at the start of `bytes` says about its length, without the header.
fn record_length(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [_, _, _, high, low, ..] => Some(usize::from(u16::from_be_bytes([*high, *low]))),
        _ => None,
    }
}

fn starts_with_a_record(bytes: &[u8]) -> bool {
    record_length(bytes).is_some_and(|length| bytes.len() >= HEADER + length)
}

/// How many bytes are needed to complete the header or the record at the end of `kept`; at least one.
fn missing(kept: &[u8]) -> usize {
    let mut rest = kept;
    loop {
        let Some(length) = record_length(rest) else {
            return HEADER - rest.len();
        };
        match rest.get(HEADER + length..) {
            Some(next) => rest = next,
            None => return HEADER + length - rest.len(),
        }
    }
}

/// What both kinds of the library's connections do.
trait Engine {
    type Data;

    fn process<'c, 'i>(
        &'c mut self,
        ciphertext: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Engine for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        ciphertext: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(ciphertext)
    }
}

impl Engine for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        ciphertext: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(ciphertext)
    }
}

/// One step; returns how many bytes at the front of `ciphertext` are used up.
fn step<E: Engine>(
    engine: &mut E,
    ciphertext: &mut [u8],
    plaintext: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(usize, Step), TlsError> {
    let UnbufferedStatus {
        mut discard, state, ..
    } = engine.process(ciphertext);
    let step = match state? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                discard += record.discard;
                plaintext.extend_from_slice(record.payload);
            }
            Step::Record
        }
        ConnectionState::EncodeTlsData(data) => encode(data, out)?,
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Step::Again
        }
        ConnectionState::PeerClosed => Step::End,
        ConnectionState::WriteTraffic(_) => Step::Quiet { open: true },
        ConnectionState::BlockedHandshake | ConnectionState::Closed => Step::Quiet { open: false },
        // Early data is never accepted.
        _ => return Err(TlsError::Protocol(Error::HandshakeNotComplete)),
    };
    Ok((discard, step))
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, out: &mut Vec<u8>) -> Result<Step, TlsError> {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) =
        data.encode(&mut [])
    {
        out.resize(start + required_size, 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let written = data.encode(room).unwrap_or(0);
        out.truncate(start + written);
    }
    Ok(Step::Again)
}

/// What is to be encrypted.
#[derive(Clone, Copy)]
enum Sealed<'a> {
    /// Plaintext, in records of at most so many bytes.
    Data(&'a [u8], usize),
    /// close_notify.
    End,
}

fn seal<E: Engine>(
    engine: &mut E,
    kept: &mut [u8],
    what: Sealed<'_>,
    out: &mut Vec<u8>,
) -> Result<(), TlsError> {
    loop {
        match engine.process(kept).state? {
            ConnectionState::WriteTraffic(traffic) => return write(traffic, what, out),
            ConnectionState::EncodeTlsData(data) => {
                encode(data, out)?;
            }
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => {}
            _ => return Err(TlsError::NotOpen),
        }
    }
}

fn write<D>(
    mut traffic: WriteTraffic<'_, D>,
    what: Sealed<'_>,
    out: &mut Vec<u8>,
) -> Result<(), TlsError> {
    match what {
        // Record by record, so that the room for one is still in the processor's cache when it is written to.
        Sealed::Data(plaintext, record) => plaintext
            .chunks(record)
            .try_for_each(|part| write_record(part.len(), out, |room| traffic.encrypt(part, room))),
        Sealed::End => write_record(2, out, |room| traffic.queue_close_notify(room)),
    }
}

/// Appends a record with so much plaintext.
fn write_record(
    plaintext: usize,
    out: &mut Vec<u8>,
    mut seal: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), TlsError> {
    let start = out.len();
    let mut room = plaintext + RECORD_OVERHEAD;
    loop {
        out.resize(start + room, 0);
        match seal(out.get_mut(start..).unwrap_or_default()) {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(());
            }
            // A message of the library's own, a change of keys, goes first.
            Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size }))
                if required_size > room =>
            {
                room = required_size;
            }
            Err(_) => {
                out.truncate(start);
                return Err(TlsError::NotOpen);
            }
        }
    }
}
