# SPDX-License-Identifier: Apache-2.0
"""1500 connections at once, straight to one instance and through nginx, in a network of their own, so
that the kernel's counters tell of nobody else: nothing is refused, dropped or left open."""
import contextlib
import ctypes
import os
import pathlib
import select
import socket
import subprocess
import sys
import time

import pytest

import needs
from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "service"))
from world import Inventoryd, Redis, wait_until  # noqa: E402

BUYERS = 1500
PATIENCE_S = 60
RSS_MAX_KIB = 64 * 1024
WORKERS, ASIDE = 16, 4  # two of these only read
CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000


@pytest.fixture(scope="module", autouse=True)
def own_network():
    """This process and its children get a network with a loopback and nothing else."""
    needs.descriptors(8192)
    needs.own("net")
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(flags) == 0, os.strerror(ctypes.get_errno())
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def kernel_counters():
    lines = pathlib.Path("/proc/net/netstat").read_text().splitlines()
    names, values = next((a.split(), b.split()) for a, b in zip(lines, lines[1:])
                         if a.startswith("TcpExt:") and b.startswith("TcpExt:"))
    counters = dict(zip(names, values))
    return {name: int(counters[name]) for name in ("ListenOverflows", "ListenDrops")}


def peak_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def buy_at_once(port):
    """Opens all connections first, then buys on each; the statuses, by count."""
    socks = {}
    poll = select.epoll()
    for _ in range(BUYERS):
        sock = socket.socket()
        sock.setblocking(False)
        assert sock.connect_ex(("127.0.0.1", port)) in (0, 115)
        socks[sock.fileno()] = [sock, b""]
        poll.register(sock, select.EPOLLOUT)
    deadline = time.monotonic() + PATIENCE_S
    open_count = 0
    while open_count < BUYERS:
        assert time.monotonic() < deadline, f"{open_count} of {BUYERS} connected"
        for fd, _ in poll.poll(1):
            sock = socks[fd][0]
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            assert error == 0, os.strerror(error)
            poll.modify(fd, 0)
            open_count += 1
    for fd, (sock, _) in socks.items():
        sock.sendall(b"POST /inventory/phone/sale HTTP/1.1\r\nHost: shop\r\n\r\n")
        poll.modify(fd, select.EPOLLIN)
    statuses = {}
    waiting = set(socks)
    while waiting:
        assert time.monotonic() < deadline, f"{len(waiting)} of {BUYERS} were not answered"
        for fd, _ in poll.poll(1):
            entry = socks[fd]
            piece = entry[0].recv(4096)
            assert piece, "the server closed a connection without an answer"
            entry[1] += piece
            if b"\r\n\r\n{" in entry[1] and entry[1].endswith(b"}"):
                status = int(entry[1].split()[1])
                statuses[status] = statuses.get(status, 0) + 1
                waiting.discard(fd)
                poll.unregister(fd)
    for sock, _ in socks.values():
        sock.close()
    return statuses


@pytest.fixture
def shop(tmp_path):
    with contextlib.ExitStack() as ends:
        redis = Redis(tmp_path / "redis")
        ends.callback(redis.kill)
        instances = []
        for name in "ab":
            instances.append(Inventoryd(str(tmp_path), redis, "--lock", "watchdog", name=name))
            ends.callback(instances[-1].end)
        yield redis, instances


def descriptors(instance, redis):
    """Open ones, but for the connections to Redis: workers keep those once they needed them, two
    each at most and the timekeeper's, which is checked here."""
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    to_redis = {line.split()[9] for line in lines
                if int(line.split()[2].split(":")[1], 16) == redis.port}
    others = kept = 0
    for fd in pathlib.Path(f"/proc/{instance.process.pid}/fd").iterdir():
        try:
            target = os.readlink(fd)
        except FileNotFoundError:
            continue
        if target.removeprefix("socket:[").rstrip("]") in to_redis:
            kept += 1
        else:
            others += 1
    assert kept <= 2 * WORKERS + ASIDE + 1
    return others


def warm(instance, redis):
    """Every descriptor that stays is open from here on."""
    instance.stock(value=100_000)

    def some_waited():
        sales = [instance.in_background(instance.sell) for _ in range(64)]
        assert all(sale.result().status == 200 for sale in sales)
        return instance.metric("lock_contended_total") > 0

    wait_until(some_waited, "sales wait for the lock, which takes descriptors of its own")
    before = descriptors(instance, redis)
    wait_until(lambda: descriptors(instance, redis) <= before, "the descriptors settle")
    return descriptors(instance, redis)


def come_back(instance, redis, count):
    wait_until(lambda: descriptors(instance, redis) <= count, "the descriptors are back at the start")


def start_nginx(folder, port, instances):
    conf = folder / "nginx.conf"
    upstreams = " ".join(f"--upstream {i.name}=127.0.0.1:{i.port} --admin {i.name}=127.0.0.1:{i.admin_port}"
                         for i in instances)
    subprocess.run(["bash", "-c", f"source '{ROOT}/scripts/lib/common.sh'; "
                    f"source '{ROOT}/scripts/lib/nginx.sh'; nginx_render --out '{conf}' --listen "
                    f"127.0.0.1:{port} --operators 127.0.0.1:{free_port()} --log '{folder}/access.log' {upstreams}"], check=True)
    process = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(conf), "-g", "daemon off;"])

    def answers():
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    wait_until(answers, "nginx answers")
    return process


def test_straight_to_one_instance(shop):
    redis, (instance, _) = shop
    before, count = kernel_counters(), warm(instance, redis)
    assert buy_at_once(instance.port) == {200: BUYERS}
    assert kernel_counters() == before
    come_back(instance, redis, count)
    assert peak_kib(instance.process.pid) < RSS_MAX_KIB


def test_through_nginx(shop, tmp_path):
    redis, instances = shop
    counts = [warm(instance, redis) for instance in instances]
    before, port = kernel_counters(), free_port()
    nginx = start_nginx(tmp_path, port, instances)
    try:
        assert buy_at_once(port) == {200: BUYERS}
        assert kernel_counters() == before
    finally:
        nginx.terminate()
        nginx.wait(PATIENCE_S)
    for instance, count in zip(instances, counts):
        come_back(instance, redis, count)
        assert peak_kib(instance.process.pid) < RSS_MAX_KIB
