//! An exchange in progress: the pure machine of kp-proxy with the two connections, decoders and buffers that serve it.

use crate::buffers::Buffers;
use crate::files::OpenFile;
use crate::memory::Weight;
use crate::output::Output;
use crate::pace::Pace;
use crate::pages::Sending;
use crate::token::Key;
use crate::waiting::Place;
use kp_config::model::UpstreamId;
use kp_http::{BodyDecoder, Framing, HeadReader};
use kp_proxy::Exchange;
use kp_upstream::PeerId;

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// An exchange and everything the worker holds for it.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) exchange: Exchange,
    pub(crate) key: Key,
    pub(crate) client: Key,
    pub(crate) upstream: Option<Key>,
    /// Waits in the run queue.
    pub(crate) queued: bool,
    /// The peer of the attempt that was made last; `None`: there was none, or it was an address of no group.
    pub(crate) peer: Option<PeerId>,
    /// The group in whose `queue` it stands.
    pub(crate) line: Option<Place>,
    /// The group in whose `retry_budget` its attempt has a place.
    pub(crate) charged: Option<UpstreamId>,
    /// A part of its request head is here.
    pub(crate) reading: bool,
    /// Its request head could not be taken, so the client may be in the middle of what it sends.
    pub(crate) head_refused: bool,
    /// What it waits for may be there before its moment comes.
    pub(crate) woken: bool,
    /// Until when it waits for the first addresses of a group; `NEVER`: it does not.
    pub(crate) name_until_ms: u64,
    /// Where it began among the addresses of a name.
    pub(crate) name_turn: usize,
    /// Finds the end of the request head, then of response heads.
    pub(crate) reader: HeadReader,
    pub(crate) request: RequestFlow,
    pub(crate) response: ResponseFlow,
    pub(crate) to_client: Output,
    pub(crate) to_upstream: Output,
    pub(crate) deadlines: Deadlines,
    /// The part of the response that is kept in a file for a slow client.
    pub(crate) spool: Option<crate::spool::Spool>,
    /// A file that was opened for a static answer.
    pub(crate) file: Option<std::sync::Arc<std::fs::File>>,
    /// The client connection may serve another request afterwards.
    pub(crate) persistent: bool,
    /// The client had ended its side before its request was looked at: it waits for the answer all the same.
    pub(crate) half_closed: bool,
    /// The answer broke off: the client must see it.
    pub(crate) cut: bool,
    /// The access log line was written.
    pub(crate) logged: bool,
    /// What it weighed when it was last parked.
    pub(crate) weight: Weight,
    /// How fast its body comes.
    pub(crate) sends: Pace,
    /// How fast its answer is taken.
    pub(crate) takes: Pace,
}

/// Deadlines of both sides in monotonic ms; [`NEVER`] where nothing is awaited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    pub(crate) client_read: u64,
    pub(crate) client_write: u64,
    pub(crate) upstream_read: u64,
    pub(crate) upstream_write: u64,
    /// End of lingering while a body is discarded.
    pub(crate) discard: u64,
    /// When `proxy_limit_rate` lets the upstream be read again.
    pub(crate) rate: u64,
    /// When `limit_rate` lets more of the response be sent.
    pub(crate) send: u64,
    /// When an exchange that waits goes on.
    pub(crate) wait: u64,
    /// `proxy_try_timeout`: when the attempt must have come to a response head.
    pub(crate) attempt: u64,
}

impl Deadlines {
    pub(crate) const NONE: Self = Self {
        client_read: NEVER,
        client_write: NEVER,
        upstream_read: NEVER,
        upstream_write: NEVER,
        discard: NEVER,
        rate: NEVER,
        send: NEVER,
        wait: NEVER,
        attempt: NEVER,
    };

    /// The first of them that ends something.
    pub(crate) fn nearest_ms(&self) -> u64 {
        self.client_read
            .min(self.client_write)
            .min(self.upstream_read)
            .min(self.upstream_write)
            .min(self.discard)
            .min(self.attempt)
    }
}

/// What becomes of the request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestStage {
    /// Not read yet; nobody knows who wants it.
    Unread,
    /// So many bytes of it are awaited before a peer is asked.
    Gathering(usize),
    /// Being taken whole.
    Collecting,
    /// Goes to the upstream as it comes.
    Streaming,
    /// A collected body is being sent: the cursor in bytes.
    Replaying(u64),
    /// Read and thrown away, so that the connection can go on.
    Discarding,
    /// Read to its end, and sent if anybody wanted it.
    Done,
}

/// The request body.
#[derive(Debug)]
pub(crate) struct RequestFlow {
    pub(crate) stage: RequestStage,
    /// Takes the body apart; `None` before the head is there.
    pub(crate) decoder: BodyDecoder,
    /// How it is sent to the upstream.
    pub(crate) out: Framing,
    /// Body bytes read so far.
    pub(crate) read_bytes: u64,
    /// Whole body read from the client.
    pub(crate) whole: bool,
    /// A collected body.
    pub(crate) collected: Collected,
    /// `proxy_set_body`, evaluated, on its way into the output.
    pub(crate) set_body: Option<Vec<u8>>,
    /// `Expect: 100-continue` still waits for its answer.
    pub(crate) owes_continue: bool,
    /// The client is not read because the upstream has no room.
    pub(crate) held_back: bool,
}

/// Where a collected body is.
#[derive(Debug, Default)]
pub(crate) enum Collected {
    /// Nowhere.
    #[default]
    None,
    /// In memory.
    Memory(Vec<u8>),
    /// In a temporary file of so many bytes.
    File(crate::spill::Spill),
}

/// Where the response is.
#[derive(Debug)]
pub(crate) enum ResponseStage {
    /// Nothing is expected yet.
    Idle,
    /// A response head is awaited from the upstream.
    AwaitHead,
    /// The upstream's body is relayed.
    Relaying,
    /// Bytes flow both ways.
    Tunnel(Tunnel),
    /// A file is being opened, or a page made.
    Opening,
    /// A file is sent.
    File(OpenFile),
    /// A page about kp is sent.
    Page(Sending),
    /// Everything was put into `to_client`.
    Complete,
}

/// Ends of a tunnel.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tunnel {
    /// The client ended its side.
    pub(crate) client_ended: bool,
    /// The upstream ended its side.
    pub(crate) upstream_ended: bool,
    /// That end was passed on.
    pub(crate) upstream_shut: bool,
    /// That end was passed on.
    pub(crate) client_shut: bool,
    /// A side ended without saying that it was all: nothing comes behind it, and its end is not passed on as one.
    pub(crate) cut: bool,
}

/// The response.
#[derive(Debug)]
pub(crate) struct ResponseFlow {
    pub(crate) stage: ResponseStage,
    pub(crate) decoder: BodyDecoder,
    /// How it is sent to the client.
    pub(crate) out: Framing,
    /// Bytes of its body, where its head says how many.
    pub(crate) length: Option<u64>,
    /// How far reads of the upstream go: large while the client keeps up, small after a short write.
    pub(crate) read_max: usize,
    /// Bytes of the response head received so far, for telling a stale connection from a broken one.
    pub(crate) any_byte: bool,
    /// What followed the head in the same read is in the scratch buffer, and is used as soon as the head was.
    pub(crate) ahead: bool,
    /// The upstream takes no more of the request; its answer is still read.
    pub(crate) write_broken: Option<i32>,
    /// It is not read because the client has no room.
    pub(crate) held_back: bool,
}

/// Memory of a head that is kept for the next one.
const HEAD_KEEP_BYTES: usize = 2 * 1024;
/// Longest read of a body. What the other side does not take is kept until it does, so this bounds the memory of a stalled
/// one; longer reads would save a hundredth of the time.
pub(crate) const READ_MAX: usize = 96 * 1024;
/// Reads after a short write; doubled by every full write.
pub(crate) const READ_MIN: usize = 16 * 1024;

impl Active {
    pub(crate) fn new(client: Key) -> Self {
        Self {
            exchange: Exchange::default(),
            key: Key {
                index: 0,
                generation: 0,
            },
            client,
            upstream: None,
            queued: false,
            line: None,
            charged: None,
            reading: false,
            head_refused: false,
            woken: false,
            name_until_ms: NEVER,
            name_turn: 0,
            peer: None,
            reader: HeadReader::default(),
            request: RequestFlow {
                stage: RequestStage::Unread,
                decoder: BodyDecoder::new(Framing::None),
                out: Framing::None,
                read_bytes: 0,
                whole: false,
                collected: Collected::None,
                set_body: None,
                owes_continue: false,
                held_back: false,
            },
            response: ResponseFlow {
                stage: ResponseStage::Idle,
                decoder: BodyDecoder::new(Framing::None),
                out: Framing::None,
                length: None,
                read_max: READ_MAX,
                any_byte: false,
                ahead: false,
                write_broken: None,
                held_back: false,
            },
            to_client: Output::default(),
            to_upstream: Output::default(),
            deadlines: Deadlines::NONE,
            spool: None,
            file: None,
            persistent: false,
            half_closed: false,
            cut: false,
            logged: false,
            weight: Weight::default(),
            sends: Pace::NEW,
            takes: Pace::NEW,
        }
    }

    /// A piece of the collected body that is still being read from its file belongs to an attempt that is over.
    pub(crate) fn forget_replay(&mut self) {
        if let Collected::File(spill) = &mut self.request.collected {
            spill.forget_read();
        }
    }

    /// The rest of the request body is not read: the connection cannot go on behind it.
    pub(crate) fn give_up_body(&mut self) {
        self.persistent = false;
        self.request.stage = RequestStage::Done;
    }

    /// Makes a used one as good as new, keeping the memory that is cheap to keep.
    pub(crate) fn reset(&mut self, client: Key, pool: &mut Buffers) {
        self.exchange.reset();
        forget_large(&mut self.exchange.request.head.bytes);
        forget_large(&mut self.exchange.response.spare.bytes);
        self.client = client;
        self.upstream = None;
        self.queued = false;
        debug_assert!(
            self.line.is_none() && self.charged.is_none(),
            "a place that is never given back"
        );
        debug_assert!(!self.reading, "a head that is read for ever");
        self.head_refused = false;
        self.woken = false;
        self.name_until_ms = NEVER;
        self.peer = None;
        self.reader = HeadReader::default();
        self.request.stage = RequestStage::Unread;
        self.request.read_bytes = 0;
        self.request.whole = false;
        self.request.collected = Collected::None;
        self.request.set_body = None;
        self.request.owes_continue = false;
        self.response.stage = ResponseStage::Idle;
        self.response.read_max = READ_MAX;
        self.response.any_byte = false;
        self.response.ahead = false;
        self.response.write_broken = None;
        self.response.held_back = false;
        self.request.held_back = false;
        self.to_client.clear(pool);
        self.to_upstream.clear(pool);
        self.deadlines = Deadlines::NONE;
        self.spool = None;
        self.file = None;
        self.persistent = false;
        self.half_closed = false;
        self.cut = false;
        self.logged = false;
        self.sends = Pace::NEW;
        self.takes = Pace::NEW;
    }
}

/// Lets go of what an unusually large head took.
fn forget_large(bytes: &mut Vec<u8>) {
    if bytes.capacity() > HEAD_KEEP_BYTES {
        *bytes = Vec::new();
    }
}
