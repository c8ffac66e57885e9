"""The processes of scripts/bench and scripts/experiments: what is measured of them, and how they start and end."""

import atexit
import collections
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import time

# Rate and connections of requests whose time is measured: far from saturation, so that no queue is.
RATE, SPREAD = 1000, 64
REQUEST = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def family(pid):
    """A process and its descendants."""
    found = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    found += family(int(child))
    except OSError:
        pass
    return found


def cpu_seconds(pid):
    total = 0
    for member in family(pid):
        try:
            for task in os.listdir(f"/proc/{member}/task"):
                with open(f"/proc/{member}/task/{task}/schedstat") as file:
                    total += int(file.read().split()[0])
        except OSError:
            pass
    return total / 1e9


def pss_kib(pid):
    total = 0
    for member in family(pid):
        try:
            with open(f"/proc/{member}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:
            pass
    return total


class Server:
    """A process that is bound to processors and listens on a port."""

    started = []

    def __init__(self, name, version, command, port, processors, tls=None, client=None, hybrid=False):
        """`tls` is the port for TLS, `client` the kp that is its client, `hybrid` whether it knows that group."""
        self.name, self.version, self.port = name, version, port
        self.tls, self.client, self.hybrid = tls, client, hybrid
        taskset = ["taskset", "-c", processors]
        self.process = subprocess.Popen(taskset + command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.stop)
        Server.started.append(self)
        self.wait()

    def wait(self):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.02)
        sys.exit(f"{self.name} does not serve")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()


def answer_times(port, seconds):
    """Times of small requests in seconds, RATE a second over SPREAD connections.

    A request's time begins when it was due: one that has to wait for the one before it has waited.
    """
    poll = select.epoll()
    lines = {}
    for _ in range(SPREAD):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(sock.fileno(), select.EPOLLIN)
        lines[sock.fileno()] = (sock, collections.deque())
    turns = list(lines.values())
    took = []

    def answered(left):
        for number, _ in poll.poll(max(left, 0)):
            sock, due = lines[number]
            sock.recv(4096)
            took.append(time.perf_counter() - due.popleft())
            if due:
                sock.send(REQUEST)

    began = time.perf_counter()
    for turn in range(int(seconds * RATE)):
        moment = began + turn / RATE
        while (left := moment - time.perf_counter()) > 0:
            answered(left)
        sock, due = turns[turn % SPREAD]
        due.append(moment)
        if len(due) == 1:
            sock.send(REQUEST)
    while any(due for _, due in turns):
        answered(1)
    for sock, _ in turns:
        sock.close()
    return took


def first_line(command):
    output = subprocess.run(command, capture_output=True, text=True)
    return (output.stdout + output.stderr).strip().splitlines()[0]


def processor():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else platform.machine()
