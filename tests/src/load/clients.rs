//! What the clients of a load do: one loop, six kinds of requests, and the websocket.

use std::time::{Duration, Instant};

use crate::load::Shared;
use crate::load::content::{Content, Draws, PIECE};
use crate::load::report::{Kind, Loss, Stage};
use crate::load::wire::{Answer, Failed, Wire};

/// The longest body of a POST.
const POST_MAX: u64 = 2000;
/// Between two messages of a websocket.
const TUNNEL_PAUSE: Duration = Duration::from_millis(40);
/// After a loss, so that a server that is gone is not asked a thousand times a second.
const LOSS_PAUSE: Duration = Duration::from_millis(100);

/// Runs one client until the load stops.
pub(super) fn run(shared: &Shared, kind: Kind, number: u64) {
    let mut client = Client {
        shared,
        kind,
        number,
        draws: Draws::new(shared.mix.seed ^ (kind.index() as u64) << 32 ^ number << 40),
        wire: None,
        turn: number,
    };
    while !shared.stopping() {
        client.turn();
    }
}

struct Client<'a> {
    shared: &'a Shared,
    kind: Kind,
    number: u64,
    draws: Draws,
    wire: Option<Wire>,
    turn: u64,
}

impl Client<'_> {
    /// One request, or one message, and the pause after it.
    fn turn(&mut self) {
        let id = self.shared.next_id();
        let began = Instant::now();
        self.turn += 1;
        match self.exchange(id) {
            Ok(true) => self.shared.answer(self.kind, began),
            Ok(false) => {}
            Err(failed) if self.may_end(&failed) => {
                self.wire = None;
                self.shared.ended_idle(self.kind);
            }
            Err(failed) => {
                let wire = self.wire.take();
                self.shared.lost(self.loss(id, began, failed, wire));
                self.shared.pause(LOSS_PAUSE);
            }
        }
        let pause = match self.kind {
            Kind::Post | Kind::Close | Kind::Unix => self.draw(self.shared.mix.pace * 2),
            Kind::Pausing => self.draw(self.shared.mix.pause_max),
            Kind::Tunnel => TUNNEL_PAUSE,
            Kind::Upload | Kind::Download => Duration::ZERO,
        };
        self.shared.pause(pause);
    }

    fn draw(&mut self, longest: Duration) -> Duration {
        let micros = u64::try_from(longest.as_micros()).expect("a short time");
        Duration::from_micros(self.draws.below(micros + 1))
    }

    fn loss(&self, id: u64, began: Instant, failed: Failed, wire: Option<Wire>) -> Loss {
        let wire = wire.as_ref();
        Loss {
            kind: self.kind,
            id,
            stage: failed.stage,
            what: failed.what,
            local: wire.map(|wire| wire.local.clone()).unwrap_or_default(),
            worker: wire.and_then(|wire| wire.worker),
            answered: wire.map_or(0, |wire| wire.answered),
            opened: wire.map_or(began, |wire| wire.opened),
            began,
            ended: Instant::now(),
            load_began: self.shared.began,
        }
    }

    /// Sends a request and checks its response; `false` when there was nothing to do after all.
    fn exchange(&mut self, id: u64) -> Result<bool, Failed> {
        if !self.connection()? {
            return Ok(false);
        }
        match self.kind {
            Kind::Post | Kind::Close | Kind::Pausing | Kind::Unix => self.post(id)?,
            Kind::Upload => self.upload(id)?,
            Kind::Download => self.download(id)?,
            Kind::Tunnel => self.tunnel(id)?,
        }
        Ok(true)
    }

    /// Makes sure that there is a connection. False: a tunnel has ended, and there is a new one next turn.
    fn connection(&mut self) -> Result<bool, Failed> {
        if let Some(wire) = &mut self.wire {
            if wire.is_open()? {
                return Ok(true);
            }
            if self.kind == Kind::Tunnel && !self.shared.mix.tunnels_may_end {
                return Err(Failed::new(Stage::Idle, "the tunnel was ended"));
            }
            self.wire = None;
            self.shared.ended_idle(self.kind);
            if self.kind == Kind::Tunnel {
                return Ok(false);
            }
        }
        self.wire = Some(Wire::connect(&self.shared.target(self.kind, self.turn))?);
        self.shared.connected();
        Ok(true)
    }

    /// A tunnel that may be cut may be cut with a message in it.
    fn may_end(&self, failed: &Failed) -> bool {
        let is_tunnel =
            self.kind == Kind::Tunnel && self.wire.as_ref().is_some_and(|wire| wire.answered > 0);
        is_tunnel && self.shared.mix.tunnels_may_end && failed.stage != Stage::Checking
    }

    fn wire(&mut self) -> &mut Wire {
        self.wire.as_mut().expect("connected before")
    }

    /// Whether this request says that it is the last one of its connection.
    fn closes(&self) -> bool {
        match self.kind {
            Kind::Close => true,
            Kind::Unix => self.number % 2 == 1,
            _ => false,
        }
    }

    fn post(&mut self, id: u64) -> Result<(), Failed> {
        let length = usize::try_from(1 + self.draws.below(POST_MAX)).expect("a short body");
        let wait_ms = match self.draws.below(4) {
            0 => self.draws.below(self.shared.mix.wait_max_ms + 1),
            _ => 0,
        };
        let connection = if self.closes() {
            "Connection: close\r\n"
        } else {
            ""
        };
        let body = Content(id).whole(length);
        let mut request = format!(
            "POST /wait/{wait_ms} HTTP/1.1\r\nHost: load\r\nX-Load: {id}\r\n{connection}Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.extend_from_slice(&body);
        let wire = self.wire();
        // A server that answers before it has read everything is heard.
        let sent = wire.send(&request);
        let mut answer = wire
            .answer()
            .map_err(|failed| sent.err().unwrap_or(failed))?;
        let came = wire.small_body(&mut answer, POST_MAX as usize)?;
        check(id, &answer)?;
        if came != body {
            let text = format!("{} bytes came back, not the {length} sent", came.len());
            return Err(Failed::new(Stage::Checking, text));
        }
        self.finish(&answer)
    }

    fn upload(&mut self, id: u64) -> Result<(), Failed> {
        let length = self.shared.mix.transfer_bytes;
        let shared = self.shared;
        let began = Instant::now();
        let wire = self.wire();
        wire.send(
            format!("PUT /upload HTTP/1.1\r\nHost: load\r\nX-Load: {id}\r\nContent-Length: {length}\r\n\r\n")
                .as_bytes(),
        )?;
        let mut offset = 0;
        while offset < length {
            let left = usize::try_from(length - offset).unwrap_or(PIECE);
            let piece = Content(id).piece(offset, left);
            if let Err(failed) = wire.send(piece) {
                // What was answered instead says more than the reset behind it.
                let answer = wire.answer().map_err(|_| failed)?;
                return check(id, &answer);
            }
            offset += piece.len() as u64;
            throttle(shared, began, offset);
        }
        let mut answer = wire.answer()?;
        let said = wire.small_body(&mut answer, 1000)?;
        check(id, &answer)?;
        if said != format!("{length} bytes").as_bytes() {
            let text = String::from_utf8_lossy(&said).into_owned();
            return Err(Failed::new(Stage::Checking, text));
        }
        self.finish(&answer)
    }

    fn download(&mut self, id: u64) -> Result<(), Failed> {
        let length = self.shared.mix.transfer_bytes;
        let shared = self.shared;
        let began = Instant::now();
        let wire = self.wire();
        wire.send(
            format!("GET /download/{length} HTTP/1.1\r\nHost: load\r\nX-Load: {id}\r\n\r\n")
                .as_bytes(),
        )?;
        let mut answer = wire.answer()?;
        check(id, &answer)?;
        let mut offset = 0;
        let mut piece = Vec::new();
        loop {
            let more = wire.body(&mut answer, &mut piece)?;
            if let Some(at) = Content(id).differs(offset, &piece) {
                return Err(Failed::new(Stage::Checking, format!("byte {at} is wrong")));
            }
            offset += piece.len() as u64;
            piece.clear();
            if !more {
                break;
            }
            throttle(shared, began, offset);
        }
        if offset != length {
            return Err(Failed::new(
                Stage::Checking,
                format!("{offset} bytes of {length}"),
            ));
        }
        self.finish(&answer)
    }

    /// A message there and back, after the handshake where the tunnel is new (RFC 6455).
    fn tunnel(&mut self, id: u64) -> Result<(), Failed> {
        let wire = self.wire();
        if wire.answered == 0 {
            wire.send(
                format!(
                    "GET /websocket HTTP/1.1\r\nHost: load\r\nX-Load: {id}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: bG9hZCBsb2FkIGxvYWQgbA==\r\n\r\n"
                )
                .as_bytes(),
            )?;
            let answer = wire.answer()?;
            if answer.head.status() != 101 {
                return Err(Failed::new(Stage::Checking, answer.head.line));
            }
        }
        let message = format!("message {id}");
        let mask = id.to_le_bytes();
        let length = u8::try_from(message.len()).expect("a short message");
        let mut frame = vec![0x82, 0x80 | length];
        frame.extend_from_slice(&mask[..4]);
        let masked = message.bytes().zip(mask[..4].iter().cycle());
        frame.extend(masked.map(|(byte, mask)| byte ^ mask));
        wire.send(&frame)?;
        let came = wire.exactly(2 + message.len())?;
        if came[..2] != [0x82, length] || &came[2..] != message.as_bytes() {
            let text = format!("{came:?} came back");
            return Err(Failed::new(Stage::Checking, text));
        }
        wire.answered += 1;
        if wire.answered >= self.shared.mix.tunnel_messages {
            self.wire = None;
        }
        Ok(())
    }

    /// Gives the connection up where the response says so, and sees it end.
    fn finish(&mut self, answer: &Answer) -> Result<(), Failed> {
        let said = answer.head.field("connection");
        if said.is_some_and(|said| said.eq_ignore_ascii_case("close")) {
            self.wire().closed()?;
            self.wire = None;
        } else if self.closes() {
            return Err(Failed::new(
                Stage::Checking,
                "no Connection: close as asked",
            ));
        }
        Ok(())
    }
}

/// Status and number must be those of the request.
fn check(id: u64, answer: &Answer) -> Result<(), Failed> {
    let number = answer.head.field("x-load");
    if answer.head.status() == 200 && number == Some(id.to_string().as_str()) {
        return Ok(());
    }
    Err(Failed::new(
        Stage::Checking,
        format!("{:?} for request {id}", answer.head),
    ))
}

/// Keeps a transfer to its pace.
fn throttle(shared: &Shared, began: Instant, offset: u64) {
    let share = offset as f64 / shared.mix.transfer_bytes as f64;
    let due = shared.mix.transfer_time.mul_f64(share);
    let ahead = due.saturating_sub(began.elapsed());
    // Short waits are not worth their wake-up: a pause is taken once it is 20 ms long.
    if ahead >= Duration::from_millis(20) {
        shared.pause(ahead);
    }
}
