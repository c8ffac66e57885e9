//! TLS on a socket: the session of `kp-tls` with the ciphertext that waits for the kernel.
//!
//! Decides when ciphertext is read, how much plaintext is encrypted at once, and what is kept where. What is encrypted is
//! never encrypted again: what the kernel does not take stays here as ciphertext. Ciphertext that was read passes through
//! the worker's scratch buffer; only the beginning of a record or message stays with the session. So an idle connection
//! holds no buffer. It does not decide about deadlines or virtual hosts.

use crate::buffers::Buffers;
use crate::transport::{Received, Sent, Transport};
use kp_config::model::{ServerId, TlsIdentityId};
use kp_proxy::tls::UpstreamTls;
use kp_proxy::{ClientVerdict, TlsFacts};
use kp_sys::io;
use kp_tls::{ClientHello, Hello, HelloReader, Session, TlsError};
use std::io::{ErrorKind, IoSlice};
use std::rc::Rc;

/// A record with the longest plaintext (RFC 8446 §5.2). To read less may mean to make no headway.
const RECORD_MAX: usize = 5 + 16 * 1024 + 256;
/// Plaintext that is encrypted before the kernel is asked to take it.
const SEAL_MAX: usize = 64 * 1024;
/// Stretches of one write, as many as an output has.
const STRETCHES_MAX: usize = 16;
/// EPROTO: what a broken record is to those who only know errors of sockets.
const PROTOCOL_ERROR: i32 = 71;

/// The TLS part of a transport.
#[derive(Debug)]
pub(crate) struct Secure {
    stage: Stage,
    /// Ciphertext that the kernel has not taken.
    outgoing: Vec<u8>,
    /// Bytes of it that it took.
    sent: usize,
    /// What of the ciphertext that came the pool was told to be kept here.
    kept: u32,
    /// The kernel said that there is nothing more to read.
    dry: bool,
    /// The session has more to give without more ciphertext.
    pending: bool,
    /// The socket's write side is to be ended behind what is outgoing.
    fin: bool,
    /// No close_notify is sent: the other side must see that something is missing.
    broken_off: bool,
    /// The kernel takes nothing any more, with its error number; the next write says so.
    write_broken: Option<i32>,
    /// Why it failed; told to the error log once.
    failure: Option<TlsError>,
    /// A client's handshake waits for certificates; what is known of it so far.
    waiting: Option<Box<TlsFacts>>,
    /// Waits in the queue of handshakes, or for its certificate; an upstream's only, a client has marks of its own.
    pub(crate) queued: bool,
    /// What an exchange may know of it; a client's only, from its hello on.
    facts: Option<Rc<TlsFacts>>,
    /// Whom it is spoken with, towards an upstream.
    pub(crate) partner: Option<Box<Partner>>,
}

/// Whom TLS is spoken with, and how. Connections are used again only where all of it is equal.
#[derive(Debug)]
pub(crate) struct Partner {
    pub(crate) identity: TlsIdentityId,
    /// The same, and what of it differs from request to request: name, certificate.
    pub(crate) tls: UpstreamTls,
    /// The address, as a number: sessions are resumed with the peer they were made with.
    pub(crate) peer: u64,
    /// All of it as a number, for the pool; never 0.
    pub(crate) number: u64,
}

/// How far it is.
#[derive(Debug)]
enum Stage {
    /// Towards an upstream: connected at most.
    Planned,
    /// The client's hello is being read; all bytes so far.
    Hello(HelloReader, Vec<u8>),
    /// A handshake, or open.
    Session(Session),
}

/// What a step of a handshake led to.
#[derive(Debug)]
pub(crate) enum Shake {
    /// The client said what it wants: a session has to be begun.
    Hello(Box<ClientHello>),
    /// The handshake is over; plaintext may have come behind it.
    Opened,
    /// An event will come.
    Blocked,
    /// The client does not speak TLS; these bytes came.
    Plain(Vec<u8>),
    /// It cannot go on; the other side was told.
    Failed(TlsError),
    /// The socket ended or broke, with the system's error number.
    Ended(Option<i32>),
}

/// What the socket gave.
enum Fed {
    Bytes,
    Nothing,
    End,
    Broken(i32),
}

impl Secure {
    /// For a client that was accepted.
    pub(crate) fn accepting() -> Self {
        Self::at(Stage::Hello(HelloReader::default(), Vec::new()))
    }

    /// For an upstream that is being connected to.
    pub(crate) fn connecting(partner: Partner) -> Self {
        Self {
            partner: Some(Box::new(partner)),
            ..Self::at(Stage::Planned)
        }
    }

    fn at(stage: Stage) -> Self {
        Self {
            stage,
            outgoing: Vec::new(),
            sent: 0,
            kept: 0,
            dry: false,
            pending: false,
            fin: false,
            broken_off: false,
            write_broken: None,
            failure: None,
            waiting: None,
            queued: false,
            facts: None,
            partner: None,
        }
    }

    /// The session, once the hello is read.
    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.stage {
            Stage::Planned | Stage::Hello(..) => None,
            Stage::Session(session) => Some(session),
        }
    }

    /// Whether a handshake with an upstream has to be begun.
    pub(crate) fn is_planned(&self) -> bool {
        matches!(self.stage, Stage::Planned)
    }

    /// What a handshake waited with for certificates.
    pub(crate) fn stop_waiting(&mut self) -> Option<TlsFacts> {
        self.waiting.take().map(|facts| *facts)
    }

    /// The handshake is over: what it agreed upon, and what is made of the client's certificate.
    pub(crate) fn complete_facts(
        &mut self,
        verdict: impl FnOnce(ServerId, &Session) -> ClientVerdict,
    ) {
        let (Stage::Session(session), Some(known)) = (&self.stage, &mut self.facts) else {
            return;
        };
        let agreed = session.facts();
        let facts = TlsFacts {
            protocol: agreed.protocol,
            cipher: agreed.cipher,
            curve: agreed.curve.unwrap_or_default(),
            alpn: agreed.alpn.map(|name| String::from_utf8_lossy(name).into()),
            reused: agreed.reused,
            session_id: session.session_id().into(),
            client: verdict(known.server, session),
            ..TlsFacts::clone(known)
        };
        *known = Rc::new(facts);
    }

    /// What an exchange may know of it; `None` before its hello.
    pub(crate) fn facts(&self) -> Option<&Rc<TlsFacts>> {
        self.facts.as_ref()
    }

    /// Whether an earlier session was resumed.
    pub(crate) fn is_resumed(&self) -> bool {
        self.session().is_some_and(|session| session.facts().reused)
    }

    /// Ciphertext that the kernel has not taken.
    pub(crate) fn held(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// Tells the pool what is kept of records and messages that are not complete.
    fn tell_kept(&mut self, pool: &mut Buffers) {
        let now = match &self.stage {
            Stage::Planned => 0,
            // The reader has its own copy of them.
            Stage::Hello(_, bytes) => 2 * bytes.capacity(),
            Stage::Session(session) => session.kept_bytes(),
        };
        let now = u32::try_from(now).unwrap_or(u32::MAX);
        if now != self.kept {
            pool.note_kept(now, std::mem::replace(&mut self.kept, now));
        }
    }

    /// Whether it keeps some.
    pub(crate) fn keeps(&self) -> bool {
        self.kept > 0
    }

    /// It is over: nothing is kept here any more.
    pub(crate) fn forget_kept(&mut self, pool: &mut Buffers) {
        pool.note_kept(0, std::mem::take(&mut self.kept));
    }

    pub(crate) fn note_readable(&mut self) {
        self.dry = false;
    }

    pub(crate) fn break_off(&mut self) {
        self.broken_off = true;
    }

    /// Why it failed, once.
    pub(crate) fn take_failure(&mut self) -> Option<TlsError> {
        self.failure.take()
    }

    /// Whether not a byte of a hello has come.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(&self.stage, Stage::Hello(_, bytes) if bytes.is_empty())
    }

    /// Whether nothing of a record is there that waits for its rest.
    pub(crate) fn is_between_records(&self) -> bool {
        !self.pending && self.session().is_some_and(Session::is_idle)
    }
}

impl Transport {
    /// Goes on with a handshake: reads what is there and answers it. Plaintext that came behind its end is appended to
    /// `plain`.
    pub(crate) fn shake(&mut self, plain: &mut Vec<u8>, pool: &mut Buffers) -> Shake {
        if self
            .secure
            .as_deref()
            .is_some_and(|secure| secure.waiting.is_some())
        {
            return Shake::Blocked;
        }
        let shake = match self.secure.as_deref().map(|secure| &secure.stage) {
            Some(Stage::Hello(..)) => self.read_hello(pool),
            Some(Stage::Session(_)) => self.shake_on(plain, pool),
            Some(Stage::Planned) => Shake::Blocked,
            None => Shake::Opened,
        };
        self.tell_kept(pool);
        shake
    }

    fn tell_kept(&mut self, pool: &mut Buffers) {
        if let Some(secure) = self.secure.as_deref_mut() {
            secure.tell_kept(pool);
        }
    }

    /// The handshake goes on when certificates have come.
    pub(crate) fn wait_for_pairs(&mut self, facts: TlsFacts) {
        if let Some(secure) = self.secure.as_deref_mut() {
            secure.waiting = Some(Box::new(facts));
        }
    }

    /// Begins the session that fits the hello, with its bytes.
    pub(crate) fn answer_hello(
        &mut self,
        session: Session,
        facts: TlsFacts,
        plain: &mut Vec<u8>,
        pool: &mut Buffers,
    ) -> Shake {
        let Some(secure) = self.secure.as_deref_mut() else {
            return Shake::Opened;
        };
        secure.facts = Some(Rc::new(facts));
        let before = std::mem::replace(&mut secure.stage, Stage::Session(session));
        let Stage::Hello(_, mut bytes) = before else {
            return Shake::Blocked;
        };
        let shake = match self.take_in(&mut bytes, plain, pool) {
            Some(ended) => ended,
            None => self.shake_on(plain, pool),
        };
        self.tell_kept(pool);
        shake
    }

    /// Sends the first flight to an upstream.
    pub(crate) fn begin_shake(&mut self, mut session: Session, pool: &mut Buffers) -> Shake {
        let Some(secure) = self.secure.as_deref_mut() else {
            return Shake::Opened;
        };
        let started = session.start(&mut secure.outgoing);
        secure.stage = Stage::Session(session);
        if let Err(error) = started {
            return Shake::Failed(error);
        }
        match self.flush_sealed(pool) {
            Sent::Broken(errno) => Shake::Ended(Some(errno)),
            _ => Shake::Blocked,
        }
    }

    /// A handshake that is refused before it has a session: `alert` is sent.
    pub(crate) fn refuse_hello(&mut self, facts: TlsFacts, alert: &[u8], pool: &mut Buffers) {
        if let Some(secure) = self.secure.as_deref_mut() {
            secure.facts = Some(Rc::new(facts));
            secure.outgoing.extend_from_slice(alert);
            self.flush_sealed(pool);
        }
    }

    fn read_hello(&mut self, pool: &mut Buffers) -> Shake {
        let mut sealed = std::mem::take(&mut pool.sealed);
        sealed.clear();
        let shake = loop {
            if let Some(Stage::Hello(_, bytes)) = self.stage_mut() {
                sealed.append(bytes);
            }
            let fed = self.feed(&mut sealed, RECORD_MAX);
            let Some(secure) = self.secure.as_deref_mut() else {
                break Shake::Blocked;
            };
            let Stage::Hello(reader, bytes) = &mut secure.stage else {
                break Shake::Blocked;
            };
            match fed {
                Fed::Bytes => {}
                Fed::Nothing => {
                    // What there is waits in memory of its own size.
                    *bytes = sealed.to_vec();
                    break Shake::Blocked;
                }
                Fed::End => {
                    bytes.append(&mut sealed);
                    break Shake::Ended(None);
                }
                Fed::Broken(errno) => {
                    bytes.append(&mut sealed);
                    break Shake::Ended(Some(errno));
                }
            }
            match reader.read(&sealed, &mut secure.outgoing) {
                Ok(Hello::Incomplete) => {}
                Ok(Hello::Complete(hello)) => {
                    *bytes = sealed.to_vec();
                    break Shake::Hello(hello);
                }
                Ok(Hello::NotTls) => break Shake::Plain(sealed.to_vec()),
                Err(error) => {
                    self.flush_sealed(pool);
                    break Shake::Failed(error);
                }
            }
        };
        pool.sealed = sealed;
        shake
    }

    fn stage_mut(&mut self) -> Option<&mut Stage> {
        self.secure.as_deref_mut().map(|secure| &mut secure.stage)
    }

    /// Reads and answers until the handshake is over or nothing more is there.
    fn shake_on(&mut self, plain: &mut Vec<u8>, pool: &mut Buffers) -> Shake {
        loop {
            if matches!(self.flush_sealed(pool), Sent::Broken(_)) {
                // What the other side said before it left is read to its end: it may be an alert with the reason.
                (self.readable, self.ending) = (true, true);
            }
            let open = self.secure.as_deref().and_then(Secure::session);
            if open.is_none_or(|session| session.stage() == kp_tls::Stage::Open) {
                return Shake::Opened;
            }
            let mut sealed = std::mem::take(&mut pool.sealed);
            sealed.clear();
            let fed = self.feed(&mut sealed, RECORD_MAX);
            let progressed = match fed {
                Fed::Bytes => self.take_in(&mut sealed, plain, pool),
                Fed::Nothing => Some(Shake::Blocked),
                Fed::End => Some(Shake::Ended(None)),
                Fed::Broken(errno) => Some(Shake::Ended(Some(errno))),
            };
            pool.sealed = sealed;
            if let Some(ended) = progressed {
                return ended;
            }
        }
    }

    /// Decrypts onto the end of `buffer`.
    pub(crate) fn receive_sealed(
        &mut self,
        buffer: &mut Vec<u8>,
        max: usize,
        pool: &mut Buffers,
    ) -> Received {
        let before = buffer.len();
        loop {
            let Some(secure) = self.secure.as_deref() else {
                return Received::Nothing;
            };
            if secure.failure.is_some() {
                self.readable = false;
                return Received::Broken(PROTOCOL_ERROR);
            }
            if secure.session().is_none_or(Session::has_ended) {
                self.readable = false;
                return Received::End;
            }
            let mut sealed = std::mem::take(&mut pool.sealed);
            sealed.clear();
            let pending = secure.pending;
            let fed = if pending {
                Fed::Bytes
            } else {
                self.feed(&mut sealed, max.max(RECORD_MAX))
            };
            let received = match fed {
                Fed::Bytes => {
                    self.open_sealed(&mut sealed, buffer, max, pool);
                    None
                }
                Fed::Nothing => Some(Received::Nothing),
                Fed::End => Some(Received::Cut),
                Fed::Broken(errno) => Some(Received::Broken(errno)),
            };
            pool.sealed = sealed;
            self.tell_kept(pool);
            let count = buffer.len() - before;
            if count > 0 {
                return Received::Bytes(count);
            }
            if let Some(received) = received {
                self.readable = false;
                return received;
            }
        }
    }

    /// Hands ciphertext to the session; an error is kept for the next read.
    fn open_sealed(
        &mut self,
        sealed: &mut Vec<u8>,
        plain: &mut Vec<u8>,
        max: usize,
        pool: &mut Buffers,
    ) {
        let Some(secure) = self.secure.as_deref_mut() else {
            return;
        };
        let Stage::Session(session) = &mut secure.stage else {
            return;
        };
        match session.receive(sealed, plain, &mut secure.outgoing, max) {
            Ok(progress) => {
                secure.pending = progress.pending;
                self.ending |= progress.end;
            }
            Err(error) => {
                secure.pending = false;
                secure.failure = Some(error);
                self.ending = true;
            }
        }
        self.readable = secure.pending || !secure.dry || self.ending;
        if secure.held() > 0 {
            self.flush_sealed(pool);
        }
    }

    /// Hands ciphertext of a handshake to the session; what ends the handshake comes back.
    fn take_in(
        &mut self,
        sealed: &mut Vec<u8>,
        plain: &mut Vec<u8>,
        pool: &mut Buffers,
    ) -> Option<Shake> {
        self.open_sealed(sealed, plain, RECORD_MAX, pool);
        let secure = self.secure.as_deref_mut()?;
        secure.take_failure().map(Shake::Failed)
    }

    /// One read of the socket.
    fn feed(&mut self, sealed: &mut Vec<u8>, max: usize) -> Fed {
        let Some(secure) = self.secure.as_deref_mut() else {
            return Fed::Nothing;
        };
        if secure.dry && !self.ending {
            self.readable = false;
            return Fed::Nothing;
        }
        loop {
            match io::recv_into(&self.fd, sealed, max) {
                Ok(0) => {
                    (self.readable, self.ending) = (false, true);
                    return Fed::End;
                }
                Ok(count) => {
                    secure.dry = count < max && !self.ending;
                    self.readable = !secure.dry;
                    return Fed::Bytes;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    secure.dry = true;
                    self.readable = false;
                    return Fed::Nothing;
                }
                Err(error) => {
                    (self.readable, self.ending) = (false, true);
                    return Fed::Broken(error.raw_os_error().unwrap_or(0));
                }
            }
        }
    }

    /// Encrypts the stretches and sends them, until all are taken or the kernel takes no more.
    pub(crate) fn send_sealed(
        &mut self,
        stretches: &[IoSlice<'_>],
        total: usize,
        pool: &mut Buffers,
    ) -> Sent {
        let moved = self.flush_sealed(pool);
        let broken = self
            .secure
            .as_deref()
            .and_then(|secure| secure.write_broken);
        if let Some(errno) = broken {
            self.writable = false;
            return Sent::Broken(errno);
        }
        let mut taken = 0;
        while taken < total && self.held() == 0 {
            let (list, count, bytes) = window(stretches, taken);
            let mut sealed = std::mem::take(&mut pool.sealed);
            sealed.clear();
            let done = self.seal(&list[..count], &mut sealed, pool);
            let sent = done.and_then(|()| self.send_fresh(&sealed, pool));
            pool.sealed = sealed;
            match sent {
                Ok(()) => taken += bytes,
                Err(errno) => return Sent::Broken(errno),
            }
        }
        if taken > 0 { Sent::Bytes(taken) } else { moved }
    }

    fn seal(
        &mut self,
        stretches: &[IoSlice<'_>],
        sealed: &mut Vec<u8>,
        pool: &mut Buffers,
    ) -> Result<(), i32> {
        let Some(Stage::Session(session)) = self.stage_mut() else {
            return Err(PROTOCOL_ERROR);
        };
        session
            .send(stretches, &mut pool.joined, sealed)
            .map_err(|_| PROTOCOL_ERROR)
    }

    /// Sends ciphertext while none waits; keeps what the kernel does not take.
    fn send_fresh(&mut self, sealed: &[u8], pool: &mut Buffers) -> Result<(), i32> {
        let count = match self.write(sealed) {
            Sent::Bytes(count) => count,
            Sent::Moved => 0,
            Sent::Broken(errno) => return Err(errno),
        };
        let rest = sealed.get(count..).unwrap_or_default();
        if let Some(secure) = self.secure.as_deref_mut().filter(|_| !rest.is_empty()) {
            pool.fill(&mut secure.outgoing);
            secure.outgoing.extend_from_slice(rest);
        }
        Ok(())
    }

    /// Sends the ciphertext that waits.
    pub(crate) fn flush_sealed(&mut self, pool: &mut Buffers) -> Sent {
        let Some(secure) = self.secure.as_deref_mut() else {
            return Sent::Bytes(0);
        };
        if secure.held() == 0 || !self.writable || secure.write_broken.is_some() {
            return Sent::Bytes(0);
        }
        let outgoing = std::mem::take(&mut secure.outgoing);
        let from = secure.sent;
        let sent = self.write(outgoing.get(from..).unwrap_or_default());
        let Some(secure) = self.secure.as_deref_mut() else {
            return sent;
        };
        secure.outgoing = outgoing;
        match sent {
            Sent::Bytes(count) => secure.sent += count,
            Sent::Moved => {}
            Sent::Broken(errno) => {
                secure.sent = secure.outgoing.len();
                secure.write_broken = Some(errno);
                self.writable = true;
            }
        }
        if secure.held() == 0 {
            secure.sent = 0;
            pool.give(&mut secure.outgoing);
            if std::mem::take(&mut secure.fin) {
                // A connection that is already gone has nothing left to end.
                let _ = kp_sys::socket::shutdown_write(&self.fd);
            }
        }
        match sent {
            Sent::Bytes(count) if count > 0 => Sent::Moved,
            sent => sent,
        }
    }

    /// close_notify, behind what waits; then, with `fin`, the end of the socket's write side.
    pub(crate) fn end_sealed(&mut self, fin: bool, pool: &mut Buffers) {
        let Some(secure) = self.secure.as_deref_mut() else {
            return;
        };
        let open = secure.failure.is_none() && !secure.broken_off;
        if let Stage::Session(session) = &mut secure.stage
            && open
            && session.stage() == kp_tls::Stage::Open
        {
            session.close(&mut secure.outgoing);
        }
        secure.fin = fin;
        self.flush_sealed(pool);
    }
}

/// The stretches from `taken` bytes on, as many as are encrypted at once: the list, its length, its bytes.
fn window<'a>(
    stretches: &'a [IoSlice<'_>],
    taken: usize,
) -> ([IoSlice<'a>; STRETCHES_MAX], usize, usize) {
    let mut list = [IoSlice::new(&[]); STRETCHES_MAX];
    let (mut count, mut bytes, mut skip) = (0, 0, taken);
    for stretch in stretches {
        let rest = stretch.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(stretch.len());
        let rest = rest.get(..SEAL_MAX - bytes).unwrap_or(rest);
        let Some(place) = list.get_mut(count).filter(|_| !rest.is_empty()) else {
            continue;
        };
        *place = IoSlice::new(rest);
        count += 1;
        bytes += rest.len();
    }
    (list, count, bytes)
}

#[cfg(test)]
mod tests;
