//! An upstream that one thread serves to thousands: it sends long answers as fast as they are taken, and reads no bodies.
//! What it may send ahead is 64 KiB for each connection.

use crate::port::Port;
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The upstream.
#[derive(Debug)]
pub struct Crowd {
    port: Port,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Crowd {
    /// Answers each GET with these bytes, and nothing else.
    pub fn start(answer: Vec<u8>) -> Self {
        let port = Port::take();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_send_buffer_size(64 * 1024).expect("a buffer");
        let address: std::net::SocketAddr = port.address().parse().expect("an address");
        socket.set_reuse_address(true).expect("an option");
        socket.bind(&address.into()).expect("binding");
        socket.listen(4096).expect("listening");
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true).expect("a mode");
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || Self::serve(&listener, &answer, &stop)
        });
        Self {
            port,
            stop,
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.port.address()
    }

    fn serve(listener: &TcpListener, answer: &[u8], stop: &AtomicBool) {
        let mut all: Vec<(TcpStream, Vec<u8>, Option<usize>)> = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).expect("a mode");
                all.push((stream, Vec::new(), None));
            }
            all.retain_mut(|(stream, head, sent)| {
                let moved = match sent {
                    Some(sent) if *sent < answer.len() => {
                        stream.write(&answer[*sent..]).map(|count| *sent += count)
                    }
                    Some(_) => Ok(()),
                    None => {
                        let mut piece = [0; 1024];
                        stream.read(&mut piece).map(|count| {
                            head.extend_from_slice(&piece[..count]);
                            if head.windows(4).any(|end| end == b"\r\n\r\n") {
                                let get = head.starts_with(b"GET");
                                *sent = Some(if get { 0 } else { answer.len() });
                            }
                        })
                    }
                };
                moved.is_ok_and(|()| true)
                    || stream
                        .peek(&mut [0])
                        .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
                    || sent.is_some_and(|sent| sent == answer.len())
            });
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
