//! What the exchange machine is told ([`Input`]) and what it asks for ([`Action`]).
//!
//! One input gives one action. Everything that used to be in progress at the upstream is over when the action is not one
//! that continues it ([`Action::continues_upstream`]); the driver then releases or closes the connection it held.

use crate::{Answer, Failure, Reason};
use kp_config::model::Page;

/// What an exchange waits for while it has no answer yet and holds no peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// Its turn at a rate limit, after routing.
    Rate,
    /// A while between two attempts.
    Backoff,
    /// A peer with a free place.
    Queue,
    /// The addresses of a name.
    Name,
}

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Its time came.
    Due,
    /// Somebody woke it before: what it waits for may be there.
    Early,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The request head is complete, in `exchange.request.head`.
    Head,
    /// The request head was refused; the failure says how to answer.
    HeadFailed(Failure),
    /// The body was taken whole.
    Collected,
    /// The beginning of the body is here.
    Gathered,
    /// The client's body broke, was too large, or did not come in time.
    ClientFailed(Failure),
    /// The client's connection ended before the answer did.
    ClientGone,
    /// The client's connection ended before its request did.
    ClientCut,
    /// The body that no handler wanted is malformed or too large. The answer was not begun.
    BodyRefused(Failure),
    /// No attempt can be begun yet: what it takes may come until then.
    Held {
        /// What is missing.
        for_: WaitFor,
        /// Monotonic ms of the moment to give up.
        until_ms: u64,
    },
    /// The wait is over.
    Waited(Woken),
    /// A connection to the picked peer stands.
    Connected {
        /// It was idle in the pool before.
        reused: bool,
    },
    /// No peer could be picked, connecting failed, or the upstream broke before its answer was whole.
    UpstreamFailed(Failure),
    /// A response head is complete, in `exchange.response.upstream`: interim, switching or final.
    ResponseHead,
    /// The file for a static answer was opened.
    FileOpened(FileFacts),
    /// It could not be.
    FileFailed(FileError),
}

/// What to do next.
#[derive(Debug)]
pub enum Action {
    /// Take the request body whole, then say [`Input::Collected`].
    Collect,
    /// Wait until so many bytes of the body are here, as they stand in the message, or all of them; then say
    /// [`Input::Gathered`].
    Gather(usize),
    /// Pick a peer of `exchange.machine.target` and connect or reuse, then say [`Input::Connected`].
    Acquire,
    /// Wait without holding a peer, then say [`Input::Waited`]. The client is watched meanwhile and not read.
    Wait {
        /// Monotonic ms of [`Woken::Due`].
        until_ms: u64,
        /// What for.
        for_: WaitFor,
    },
    /// Send the request head and then the body.
    SendHead,
    /// Pass the interim response on, then read the next head.
    ForwardInterim,
    /// Ignore the interim response, read the next head.
    AwaitHead,
    /// Send the response head and relay the body.
    ForwardHead,
    /// Send the 101 and relay bytes both ways.
    Tunnel,
    /// Open the file.
    OpenFile(FileQuery),
    /// Send the head for the opened file and its bytes.
    SendFile(FileFacts),
    /// Render a page about kp itself and answer with it ([`crate::page`]).
    Page(Page),
    /// Answer locally.
    Respond(Answer),
    /// Answer a failure with its built-in page.
    RespondFailure(Failure),
    /// A head was already sent: end the client connection so that the client sees the cut.
    Truncate,
    /// End without an answer.
    Close,
}

impl Action {
    /// Whether the upstream connection goes on being used.
    pub fn continues_upstream(&self) -> bool {
        matches!(
            self,
            Self::SendHead
                | Self::ForwardInterim
                | Self::AwaitHead
                | Self::ForwardHead
                | Self::Tunnel
        )
    }
}

/// Which file answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileQuery {
    /// Path of the file or directory, as bytes of the file system.
    pub path: Vec<u8>,
    /// For a URI that ends in a slash: index names to try in order, relative to `path`. One that starts with `/` is a URI and
    /// ends the search with [`FileError::Elsewhere`].
    pub index: Vec<Vec<u8>>,
}

/// What is known of an opened file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFacts {
    /// Bytes.
    pub length: u64,
    /// Seconds since the epoch.
    pub modified_s: u64,
    /// Which of [`FileQuery::index`] it was; `None`: the path itself.
    pub index: Option<Vec<u8>>,
}

/// Why a file could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileError {
    /// ENOENT, ENOTDIR, ENAMETOOLONG.
    NotFound(String),
    /// EACCES, ELOOP, EMLINK, or a directory without an index.
    Forbidden(String),
    /// The path is a directory and the URI lacks the slash.
    Directory,
    /// The index is this URI of the server, not a file of the directory.
    Elsewhere(Vec<u8>),
    /// The machine or the process has run out of what opening takes: EMFILE, ENFILE, ENOMEM.
    Exhausted(String),
    /// Anything else.
    Other(String),
}

impl FileError {
    /// Why kp answers by itself then; `None` where it looks elsewhere.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::NotFound(_) => Some(Reason::FileNotFound),
            Self::Forbidden(_) => Some(Reason::FileForbidden),
            Self::Exhausted(_) => Some(Reason::Overload),
            Self::Other(_) => Some(Reason::FileError),
            Self::Directory => Some(Reason::DirectoryRedirect),
            Self::Elsewhere(_) => None,
        }
    }
}
