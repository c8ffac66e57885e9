"""The TLS clients of scripts/bench, and their certificate.

A client of its own is needed because wrk takes up its last session on each new connection: what it counts on new
connections are resumed handshakes. Here each handshake is checked for what it is said to be.
"""

import collections
import os
import select
import socket
import ssl
import subprocess
import sys
import time

# Connections of the handshake cases that are open at a time.
SLOTS = 32
# Handshakes that begin at once, and the plain requests a second beside them and their connections.
CROWD, RATE, SPREAD = 1000, 1000, 64
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def certificate(directory):
    """Makes cert.pem and key.pem (ECDSA P-256), and both.pem, as HAProxy wants them."""
    cert, key = (os.path.join(directory, name) for name in ("cert.pem", "key.pem"))
    command = "openssl req -x509 -nodes -days 30 -subj /CN=localhost -newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
    command = command.split() + ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    with open(os.path.join(directory, "both.pem"), "w") as both:
        for path in (cert, key):
            with open(path) as file:
                both.write(file.read())


def client_context():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def connect(port, context=None):
    """A connection, over TLS where there is a context."""
    sock = socket.create_connection(("127.0.0.1", port), 10)
    return context.wrap_socket(sock, server_hostname="localhost") if context else sock


def negotiated(port):
    """Version and cipher that this server and the clients here agree on."""
    with connect(port, client_context()) as sock:
        return f"{sock.version()} {sock.cipher()[0]}"


class Slot:
    """Makes connections one after another: handshake, request, answer, end."""

    def __init__(self, port, context, poll, resume):
        self.port, self.context, self.poll, self.resume = port, context, poll, resume
        self.session = None
        self.begin()

    def begin(self):
        sock = socket.create_connection(("127.0.0.1", self.port), 10)
        sock.setblocking(False)
        self.sock = self.context.wrap_socket(
            sock, server_hostname="localhost", do_handshake_on_connect=False, session=self.session
        )
        self.established = False
        self.poll.register(self.sock.fileno(), select.EPOLLIN)
        self.proceed()

    def proceed(self):
        """Goes on as far as what has come allows; whether that was to the end."""
        try:
            if not self.established:
                self.sock.do_handshake()
                self.established = True
                if self.sock.session_reused != (self.session is not None):
                    sys.exit(f"a handshake was {'' if self.sock.session_reused else 'not '}resumed")
                self.sock.sendall(LAST_REQUEST)
            while self.sock.recv(4096):
                pass
        except ssl.SSLWantReadError:
            return False
        return True

    def end(self):
        if self.resume:
            self.session = self.sock.session
        self.poll.unregister(self.sock.fileno())
        self.sock.close()


def handshakes(port, seconds, resume):
    """Connections made in this time, each with a full handshake or, after the first ones, a resumed one."""
    poll = select.epoll()
    slots = {}
    for _ in range(SLOTS):
        slot = Slot(port, client_context(), poll, resume)
        slots[slot.sock.fileno()] = slot
    made = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ready = poll.poll(10)
        if not ready:
            sys.exit("handshakes do not go on")
        for number, _ in ready:
            slot = slots[number]
            if slot.proceed():
                made += 1
                del slots[number]
                slot.end()
                slot.begin()
                slots[slot.sock.fileno()] = slot
    for slot in slots.values():
        slot.sock.close()
    return made


class Guest:
    """One of the crowd: its ClientHello is ready before the crowd sets off."""

    def __init__(self, port, context):
        self.sock = socket.create_connection(("127.0.0.1", port), 10)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.step()
        self.hello = self.outgoing.read()

    def step(self):
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def receive(self):
        data = self.sock.recv(65536)
        if not data:
            sys.exit("a handshake of the crowd was cut off")
        self.incoming.write(data)

    def finish(self):
        while not self.step():
            self.receive()
        self.sock.sendall(self.outgoing.read())
        self.sock.close()


def crowd(port, told, tell):
    """The process that makes the handshakes: ready, waits for its word, all hellos, first answers of all, the rest."""
    # Where it computes it leaves the processor to the origin and to the client whose times count.
    os.nice(19)
    context = client_context()
    guests = {}
    poll = select.epoll()
    for _ in range(CROWD):
        guest = Guest(port, context)
        guests[guest.sock.fileno()] = guest
        poll.register(guest.sock.fileno(), select.EPOLLIN | select.EPOLLONESHOT)
    os.write(tell, b"r")
    os.read(told, 1)
    for guest in guests.values():
        guest.sock.sendall(guest.hello)
    answered = 0
    while answered < CROWD:
        ready = poll.poll(10)
        if not ready:
            sys.exit("the crowd gets no answers")
        for number, _ in ready:
            guests[number].receive()
            answered += 1
    os.write(tell, b"a")
    for guest in guests.values():
        guest.finish()


class Steady:
    """Plain requests at a fixed rate. A time counts from the moment the request was due, sent or not."""

    def __init__(self, port):
        self.poll = select.epoll()
        self.socks = {}
        for _ in range(SPREAD):
            sock = connect(port)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socks[sock.fileno()] = sock
            self.poll.register(sock.fileno(), select.EPOLLIN)
        self.idle = list(self.socks.values())
        self.waiting, self.sent = collections.deque(), {}
        self.times = []
        self.next = time.perf_counter()

    def run(self, enough):
        """Sends what is due until enough() says so, then takes the answers that are still to come."""
        ending = None
        while ending is None or self.waiting or self.sent:
            now = time.perf_counter()
            if ending is None and enough():
                ending = now
            while ending is None and self.next <= now:
                self.waiting.append(self.next)
                self.next += 1 / RATE
            while self.waiting and self.idle:
                sock = self.idle.pop()
                self.sent[sock.fileno()] = self.waiting.popleft()
                sock.sendall(REQUEST)
            left = 0.01 if ending else max(self.next - time.perf_counter(), 0)
            for number, _ in self.poll.poll(left):
                if not self.socks[number].recv(4096):
                    sys.exit("a kept connection was closed")
                self.times.append((self.sent[number], time.perf_counter() - self.sent.pop(number)))
                self.idle.append(self.socks[number])
            if ending and time.perf_counter() > ending + 10:
                sys.exit("a plain request gets no answer")

    def close(self):
        for sock in self.socks.values():
            sock.close()


def beside_crowd(plain, port):
    """Seconds that plain requests took which were due between the first hello and the last first answer."""
    told, go = os.pipe()
    heard, tell = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            crowd(port, told, tell)
            code = 0
        finally:
            os._exit(code)
    os.close(told)
    os.close(tell)
    if os.read(heard, 1) != b"r":
        sys.exit("the crowd does not come together")
    steady = Steady(plain)
    quiet = time.perf_counter() + 0.1
    steady.run(lambda: time.perf_counter() > quiet)
    began = steady.next = time.perf_counter()
    os.write(go, b"g")
    steady.run(lambda: select.select([heard], [], [], 0)[0])
    if os.read(heard, 1) != b"a" or os.waitpid(child, 0)[1] != 0:
        sys.exit("handshakes of the crowd failed")
    os.close(go)
    os.close(heard)
    steady.close()
    return [took for due, took in steady.times if due >= began]


def p99_ms(plain, port, times):
    """The 99th percentile of all plain requests beside so many crowds."""
    took = sorted(each for _ in range(times) for each in beside_crowd(plain, port))
    return took[len(took) * 99 // 100] * 1e3
