# SPDX-License-Identifier: Apache-2.0
"""Limits: the queue, the deadline, the number of connections."""
import json
import signal
import socket
import struct
import time

import pytest

from waiting import freeze
from world import PATIENCE_S, Background, hold_lock, is_closed, read_answers, read_history, release_lock, wait_until

SALE = b"POST /inventory/phone/sale HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\n\r\n"


KEEPS_THREADS = ("--lock", "reentrant_tls")  # counts in the thread's memory: there alone the business keeps a worker


def test_queue_full(redis, start):
    shop = start(redis, *KEEPS_THREADS, "--workers", 1, "--queue", 2, "--work-ms", 1500)
    shop.stock(value=10)
    waiting = [Background(shop.sell)]
    wait_until(lambda: shop.metric("lock_acquired_total") == 2 and shop.metric("inventoryd_queue_depth") == 0,
               "the worker has the first sale")
    waiting += [Background(shop.sell) for _ in range(2)]
    wait_until(lambda: shop.metric("inventoryd_queue_depth") == 2, "the queue is full")
    reply = shop.sell()
    assert reply.status == 503 and reply.problem == "queue-full" and "--queue" in reply.json["detail"]
    assert [sale.result().status for sale in waiting] == [200] * 3
    assert shop.stock().json["stock"] == 7


def test_so_many_wait_for_their_lock(redis, start):
    """They keep no worker, but are no more than may stand in the queue."""
    shop = start(redis, "--workers", 1, "--queue", 2)
    shop.stock(value=10)
    hold_lock(redis)
    waiting = [Background(shop.sell) for _ in range(2)]
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 2, "two wait")
    assert shop.metric("inventoryd_queue_depth") == 0
    reply = shop.sell()
    assert reply.status == 503 and reply.problem == "queue-full" and "--queue" in reply.json["detail"]
    release_lock(redis)
    assert [sale.result().status for sale in waiting] == [200] * 2
    assert shop.stock().json["stock"] == 8


def test_the_lock_was_not_had_in_time(redis, start):
    shop = start(redis, "--wait-ms", 200)
    shop.stock(value=10)
    hold_lock(redis)
    reply = shop.sell()
    assert reply.status == 503 and reply.problem == "lock-timeout" and reply.headers["retry-after"] == "1"
    assert shop.stock().json["stock"] == 10


@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
def test_a_request_past_its_deadline_never_sells(redis, start, write):
    shop = start(redis, "--wait-ms", 100, "--work-ms", 300, "--write", write)
    redis("SET", "inventory:{phone}", 10)
    reply = shop.sell()
    assert reply.status == 503 and reply.problem == "deadline"
    assert redis("GET", "inventory:{phone}") == "10" and redis("EXISTS", "lock:{phone}") == 0


def test_who_waits_in_the_queue_for_too_long_is_told_so(redis, start, tmp_path):
    """The one worker is busy for longer than the others may wait."""
    shop = start(redis, *KEEPS_THREADS, "--workers", 1, "--wait-ms", 300, "--work-ms", 1500, "--history",
                 tmp_path / "h.jsonl")
    redis("SET", "inventory:{phone}", 10)
    busy = Background(shop.sell, request="busy")
    wait_until(lambda: shop.metric("lock_acquired_total") == 1, "the worker works")
    reply = shop.sell(request="late")
    assert reply.status == 503 and reply.problem == "deadline" and "queue" in reply.json["detail"]
    assert shop.metric("inventoryd_sales_in_flight") == 1  # answered while the worker was busy
    assert busy.result().problem == "deadline"
    events = [json.loads(line) for line in open(tmp_path / "h.jsonl", encoding="utf-8")]
    late = [(event["event"], event.get("reason")) for event in events if event.get("request") == "late"]
    assert late == [("invoke", None), ("refused", "deadline")]


def test_the_admin_listener_answers_while_sales_wait(redis, start):
    shop = start(redis, "--workers", 2)
    shop.stock(value=10)
    hold_lock(redis)
    waiting = [Background(shop.sell) for _ in range(20)]
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 20, "all sales are accepted")
    for path in ("/livez", "/readyz", "/version", "/config", "/metrics", "/lock"):
        assert shop.admin("GET", path).status == 200
    assert shop.metric("inventoryd_queue_depth") == 0 and shop.metric("inventoryd_sales_waiting") == 20
    assert shop.ask("GET", "/healthz").status == 200 and shop.stock().json["stock"] == 10
    release_lock(redis)
    assert sorted(sale.result().status for sale in waiting) == [200] * 10 + [409] * 10


def test_a_burst_wakes_as_many_workers_as_there_is_work(redis, start):
    shop = start(redis, *KEEPS_THREADS, "--workers", 64, "--work-ms", 3000)
    for i in range(64):
        redis("SET", f"inventory:{{i{i}}}", 1)
    clients = [shop.connection() for _ in range(64)]
    for i, client in enumerate(clients):
        client.sendall((SALE % b"r").replace(b"phone", b"i%d" % i))
    wait_until(lambda: shop.metric("lock_acquired_total") == 64, "each one has a worker")
    assert shop.metric("inventoryd_sales_in_flight") == 64  # and none is through
    assert [read_answers(client)[0][0] for client in clients] == [200] * 64
    for client in clients:
        client.close()


def test_two_thousand_connections_at_once(redis, start):
    shop = start(redis, "--lock", "none", "--write", "atomic")
    shop.stock(value=1500)
    clients = [shop.connection() for _ in range(2000)]
    for i, client in enumerate(clients):
        client.sendall(SALE % b"r%d" % i)
    answers = [read_answers(client)[0] for client in clients]
    assert [headers["x-request-id"] for _, headers, _ in answers] == [f"r{i}" for i in range(2000)]
    units = sorted(json.loads(body)["unit"] for code, _, body in answers if code == 200)
    assert units == list(range(1, 1501))
    assert sum(code == 409 for code, _, _ in answers) == 500
    for client in clients:
        client.close()
    wait_until(lambda: shop.clients() == 0, "the connections are closed")


def test_two_thousand_wait_for_the_lock_at_once(redis, start):
    """All of them are accepted and none costs a thread."""
    shop = start(redis, "--lock", "set_nx_ex", "--retry-ms", 1, "--workers", 4, "--wait-ms", 60000)
    shop.stock(value=100)
    hold_lock(redis, rung="set_nx_ex")
    clients = [shop.connection() for _ in range(2000)]
    for i, client in enumerate(clients):
        client.sendall(SALE % b"r%d" % i)
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 2000, "all are accepted")
    assert shop.threads() < 40
    release_lock(redis)
    codes = [read_answers(client)[0][0] for client in clients]
    assert codes.count(200) == 100 and codes.count(409) == 1900
    for client in clients:
        client.close()


def test_more_connections_than_the_limit_wait_to_be_accepted(redis, start):
    shop = start(redis, "--connections", 4)
    shop.stock(value=10)
    clients = [shop.connection() for _ in range(20)]
    for i, client in enumerate(clients):
        client.sendall(SALE % b"r%d" % i)
    served = 0
    for client in clients:  # each one that leaves makes room
        answers = read_answers(client)
        served += answers[0][0] in (200, 409)
        client.close()
    assert served == 20


def test_what_comes_at_once_is_answered_at_once(redis, start):
    """128 requests for each of the two loops, which is as many as libmicrohttpd fetches in a go, and then nothing
    more: its own threads would fetch them and sleep."""
    shop = start(redis, "--connections", 256)
    clients = [shop.connection() for _ in range(256)]
    health = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    for client in clients:
        client.sendall(health)
        assert read_answers(client)[0][0] == 200
    freeze(shop.process)
    for client in clients:
        client.sendall(health)
    shop.signal(signal.SIGCONT)
    assert [read_answers(client)[0][0] for client in clients] == [200] * 256


# ---- Buyers that hang up -----------------------------------------------------------------------


@pytest.mark.parametrize("more", [b"", b"\r\n", SALE % b"behind"])
@pytest.mark.parametrize("way", ["close", "reset", "half"])
def test_who_hangs_up_before_his_turn_is_sold_nothing(redis, start, way, more, tmp_path):
    history = tmp_path / "h.jsonl"
    shop = start(redis, "--history", history)
    shop.stock(value=5)
    hold_lock(redis)
    buyer = shop.connection()
    buyer.sendall(SALE % b"gone")
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "he waits for his turn")
    buyer.sendall(more)
    if way == "half":
        buyer.shutdown(socket.SHUT_WR)
    elif way == "reset":
        buyer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if way != "half":
        buyer.close()
    release_lock(redis)
    wait_until(lambda: shop.metric('inventory_sales_total{outcome="client_closed"}') >= 1, "his turn came")
    assert redis("GET", "inventory:{phone}") == "5" and shop.sell().json["unit"] == 5
    events = [event for event in read_history(history) if event.get("request") == "gone"]
    assert [event["reason"] for event in events if event["event"] == "refused"] == ["client-closed"]


def test_two_requests_at_once_are_no_hang_up(redis, start):
    shop = start(redis)
    shop.stock(value=5)
    hold_lock(redis)
    with shop.connection() as buyer:
        buyer.sendall(SALE % b"one" + SALE % b"two")
        wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "the first waits for its turn")
        release_lock(redis)
        assert [answer[0] for answer in read_answers(buyer, 2)] == [200, 200]


# ---- Requests that come byte by byte -----------------------------------------------------------

def drip(sock, data):
    """Bytes that never make a whole request, until the instance ends the connection."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            sock.sendall(data)
            sock.settimeout(0.02)
            if sock.recv(1) == b"":
                return True
        except TimeoutError:
            pass
        except OSError:
            return True
    return False


@pytest.mark.parametrize("first", [b"", SALE % b"first"])
@pytest.mark.parametrize("begin,more", [(b"GET /", b"x"), (b"GET / HTTP/1.1\r\nX: ", b"x"), ((SALE % b"x")[:-2], b"X: x\r\n"),
                                        (b"PUT /inventory/phone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4096\r\n\r\n",
                                         b" ")])
def test_a_request_that_drips(redis, start, first, begin, more):
    """libmicrohttpd alone would keep it for as long as a byte comes now and then."""
    shop = start(redis, "--request-ms", 300)
    shop.stock(value=5)
    with shop.connection() as dripping, shop.connection() as used:
        used.sendall(SALE % b"x")
        assert read_answers(used, 1)[0][0] == 200
        if first:
            dripping.sendall(first)
            assert read_answers(dripping, 1)[0][0] == 200
        dripping.sendall(begin)
        assert drip(dripping, more)
        used.sendall(SALE % b"x")  # nothing came of this one meanwhile: it is as good as before
        assert read_answers(used, 1)[0][0] == 200


def test_an_answer_may_take_its_time(redis, start):
    shop = start(redis, "--request-ms", 100, "--lock", "none", "--work-ms", 500)
    shop.stock(value=5)
    with shop.connection() as sock:
        sock.sendall(SALE % b"x")
        assert read_answers(sock, 1)[0][0] == 200


# ---- Connections that are kept for nothing -----------------------------------------------------


def test_connections_that_send_nothing_keep_nobody_out(redis, start):
    """They fill the admin listener, until their time for the first byte is over."""
    shop = start(redis, "--request-ms", 1000)
    silent = [shop.connection(shop.admin_port) for _ in range(64)]
    assert shop.admin("GET", "/livez").status == 200
    for sock in silent:
        assert is_closed(sock)
        sock.close()


LIVE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


def test_idle_connections_keep_no_operator_out(redis, start):
    """The one that has been idle for longest makes room, and no other."""
    shop = start(redis)
    idle = [shop.connection(shop.admin_port) for _ in range(64)]
    for sock in idle:
        sock.sendall(LIVE)
        assert read_answers(sock)[0][0] == 200
    idle[0].sendall(LIVE)
    assert read_answers(idle[0])[0][0] == 200
    assert shop.admin("GET", "/readyz").status == 200
    assert is_closed(idle[1])
    for sock in idle[:1] + idle[2:]:
        sock.sendall(LIVE)
        assert read_answers(sock)[0][0] == 200
    for sock in idle:
        sock.close()


def test_idle_connections_keep_no_buyer_out(redis, start):
    """None makes room before it has to: the four are shared by two loops."""
    shop = start(redis, "--connections", 4)
    shop.stock(value=24)
    clients = []

    def buy(client):
        client.sendall(SALE % b"x")
        assert read_answers(client)[0][0] == 200

    for _ in range(4):
        clients.append(shop.connection())
        buy(clients[-1])
    for client in clients[:4]:
        buy(client)
    for _ in range(16):  # each stays
        clients.append(shop.connection())
        buy(clients[-1])
    assert shop.clients() <= 4
    for client in clients:
        client.close()


def test_a_connection_that_waits_for_its_answer_makes_no_room(redis, start):
    shop = start(redis, "--connections", 2)
    shop.stock(value=10)
    hold_lock(redis)
    waiting = [shop.connection() for _ in range(2)]
    for client in waiting:
        client.sendall(SALE % b"x")
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 2, "both wait")
    late = Background(shop.sell)
    wait_until(lambda: shop.clients() == 3, "another is to be accepted")
    release_lock(redis)
    assert [read_answers(client)[0][0] for client in waiting] == [200] * 2
    assert late.result().status == 200  # one of the two was idle then
    for client in waiting:
        client.close()


def test_a_first_byte_begins_the_time_of_its_request(redis, start):
    """A connection that begins just before its time is over has the whole time of a request."""
    shop = start(redis, "--request-ms", 1500, "--lock", "none")
    shop.stock(value=5)
    request = SALE % b"x"
    with shop.connection() as sock, shop.connection() as silent:
        sock.sendall(request[:1])
        assert is_closed(silent)
        sock.sendall(request[1:])
        assert read_answers(sock)[0][0] == 200


def send_until_full(sock):
    """Requests whose answers nobody reads, until the instance takes no more of them."""
    sock.settimeout(1)
    try:
        while True:
            sock.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
    except TimeoutError:
        pass


def small(shop):
    """A connection with little room for answers."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.connect(("127.0.0.1", shop.port))
    return sock


def test_the_end_does_not_wait_for_clients_that_read_nothing(redis, start):
    shop = start(redis)
    with small(shop) as sock:
        send_until_full(sock)
        shop.end()  # asserts that all was answered
    assert not shop.logged("drain")


def test_clients_that_read_nothing_keep_nobody_out(redis, start):
    shop = start(redis, "--connections", 2, "--request-ms", 500)
    shop.stock(value=5)
    with small(shop) as one, small(shop) as another:
        filling = [Background(send_until_full, sock) for sock in (one, another)]
        assert shop.sell().status == 200  # takes a place that one of them had
        for each in filling:
            each.join(PATIENCE_S)
