# SPDX-License-Identifier: Apache-2.0
"""Who sets the stock: operators, on the admin listener. Buyers are told that they are not; units can be added in one step."""
import socket

import pytest

from failpoints import arm, park
from test_fenced import ALONE, LOCK, STOCK
from world import Background, Redis, hold_lock, read_answers, read_history, release_lock, wait_until

JSON = {"Content-Type": "application/json"}
ROUTES = [("PUT", "/inventory/phone", '{"stock":9}', "GET, HEAD, OPTIONS"),
          ("POST", "/inventory/phone/restock", '{"add":9}', "OPTIONS")]


# ---- The doors -----------------------------------------------------------------------------------

@pytest.mark.parametrize("method,path,body,allowed", ROUTES)
def test_buyers_cannot_set_the_stock(shop, method, path, body, allowed):
    shop.stock(value=4)
    for data in (body, None, "no JSON"):
        reply = shop.ask(method, path, data, JSON)
        assert reply.status == 405 and reply.problem == "operators-only"
        assert reply.headers["allow"] == allowed
        assert "an address of their own" in reply.json["detail"]
        for word in ("127.0.0.1", "admin", "nginx", "800", "888"):
            assert word not in reply.body.decode()
    assert shop.stock().json["stock"] == 4
    assert shop.ask("OPTIONS", path).headers["allow"] == allowed
    assert shop.admin(method, path, body, JSON).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_what_nobody_does_to_a_restock_is_no_operators_business(shop, method):
    reply = shop.ask(method, "/inventory/phone/restock")
    assert reply.status == 405 and (method == "HEAD" or reply.problem == "method-not-allowed")


@pytest.mark.parametrize("path,allowed", [("/inventory/phone", "PUT, OPTIONS"), ("/inventory/phone/restock", "POST, OPTIONS")])
def test_operators_do_not_buy_or_look_there(shop, path, allowed):
    for method in ("GET", "DELETE"):
        reply = shop.admin(method, path)
        assert reply.status == 405 and reply.problem == "method-not-allowed" and reply.headers["allow"] == allowed
    assert shop.admin("POST", "/inventory/phone/sale").status == 404


# ---- Adding --------------------------------------------------------------------------------------

@pytest.mark.parametrize("write", ["decr", "set", "atomic"])
def test_adding_answers_the_stock_after(redis, start, write):
    shop = start(redis, "--write", write)
    shop.stock(value=5)
    shop.sell()
    reply = shop.restock(3)
    assert reply.status == 200 and reply.json == {"item": "phone", "stock": 7, "instance": "a"}
    assert shop.sell().json == {"sold": 1, "left": 6, "unit": 7, "item": "phone", "instance": "a"}
    assert shop.metric('inventory_stock{item="phone"}') == 6


def test_it_is_one_step_and_recorded(redis, start, tmp_path):
    """What is sold between a reading and a writing would be set back otherwise."""
    shop = start(redis, "--history", tmp_path / "h.jsonl", "--history-commands")
    shop.stock(value=5)
    redis("SET", STOCK, -2)  # oversold, as some rungs do
    assert shop.restock(10).json["stock"] == 8
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    writes = [event["sent"] for event in events if event["event"] == "command" and
              any(word in event["sent"] for word in ("SET inv", "INCR", "DECR"))]
    assert writes == ["INCRBY inventory:{phone} 10"]
    restocks = [(event.get("stock_before"), event["stock_after"]) for event in events if event["event"] == "restock"]
    assert restocks == [(None, 5), (-2, 8)]


def test_nothing_is_set_back_even_without_a_lock(redis, start):
    """Two instances sell and add at once under no lock at all: both are steps of Redis."""
    shops = [start(redis, "--lock", "none", name=name) for name in "ab"]
    shops[0].stock(value=1000)

    def work(shop):
        return [(shop.sell().status, shop.restock(2).status) for _ in range(50)]
    workers = [Background(work, shop) for shop in shops * 3]
    assert {answer for worker in workers for answer in worker.result()} == {(200, 200)}
    assert redis("GET", STOCK) == str(1000 + 6 * 50 * (2 - 1))


def test_adding_waits_for_the_lock(redis, start):
    shop = start(redis)
    shop.stock(value=5)
    hold_lock(redis)
    restock = Background(shop.restock, 4)
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 1, "the restock waits")
    assert redis("GET", STOCK) == "5"
    release_lock(redis)
    assert restock.result().json["stock"] == 9


@pytest.mark.parametrize("method,path,body", [route[:3] for route in ROUTES])
def test_an_operator_who_hangs_up_before_the_lock_is_there_changes_nothing(redis, start, method, path, body):
    """He asks again: units would be added twice."""
    shop = start(redis)
    shop.stock(value=5)
    hold_lock(redis)
    with shop.connection(shop.admin_port) as operator:
        operator.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 1, "the request waits for the lock")
        operator.shutdown(socket.SHUT_WR)
        release_lock(redis)
        for code, _, answer in read_answers(operator):  # none where libmicrohttpd has seen the end first
            assert code == 503 and b"problem:client-closed" in answer
    wait_until(lambda: shop.metric("inventoryd_sales_waiting") == 0, "the request is over")
    assert redis("GET", STOCK) == "5" and shop.restock(1).json["stock"] == 6


def test_an_item_that_is_not_there_is_not_made(redis, start):
    shop = start(redis)
    reply = shop.restock(5, "phnoe")
    assert reply.status == 404 and reply.problem == "unknown-item"
    assert redis("KEYS", "inventory:*") == []
    redis("LPUSH", STOCK, "x")
    assert shop.restock(5).problem == "stock-invalid" and redis("TYPE", STOCK) == "list"


@pytest.mark.parametrize("body", ["{}", "5", '{"add":0}', '{"add":-1}', '{"add":1.5}', '{"add":"5"}', '{"stock":5}',
                                  '{"add":1000000000001}', '{"add":5,"stock":5}'])
def test_what_cannot_be_added(shop, body):
    shop.stock(value=4)
    reply = shop.admin("POST", "/inventory/phone/restock", body, JSON)
    assert reply.status == 422 and reply.problem == "invalid-value"
    assert '{"add":N}' in reply.json["detail"] and "from 1 to 1000000000000" in reply.json["detail"]
    assert shop.stock().json["stock"] == 4
    assert shop.admin("POST", "/inventory/phone/restock", '{"add":5}x', JSON).problem == "invalid-json"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_page_in_an_operators_browser_cannot_add(shop, kind):
    """It may send these without the server's leave, to loopback too."""
    shop.stock(value=4)
    reply = shop.admin("POST", "/inventory/phone/restock", '{"add":5}', {"Content-Type": kind} if kind else {})
    assert reply.status == 415 and reply.problem == "unsupported-media-type" and "none" not in reply.json["detail"]
    assert shop.stock().json["stock"] == 4
    asked = shop.admin("OPTIONS", "/inventory/phone/restock", headers={
        "Origin": "http://evil.example", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type"})
    assert not any(name.startswith("access-control") for name in asked.headers)


def test_more_than_there_may_be(shop):
    shop.stock(value=10**12 - 5)
    reply = shop.restock(6)
    assert reply.status == 409 and reply.problem == "stock-too-large" and "999999999995 of phone" in reply.json["detail"]
    assert shop.restock(5).json["stock"] == 10**12


@pytest.mark.parametrize("apart", [False, True])
def test_adding_that_was_overtaken_writes_nothing(redis, start, tmp_path, apart):
    server = Redis(tmp_path / "stock") if apart else redis
    try:
        flags = ("--stock-redis", server.url) if apart else ()
        a, b = (start(redis, *ALONE, "--lock", "fenced", *flags, name=name) for name in "ab")
        a.stock(value=5)
        assert a.restock(1).json["stock"] == 6
        restock = park(a, "fair.acquired", a.restock, 100)
        assert redis("DEL", LOCK) == 1
        assert b.sell().json["unit"] == 6
        arm(a, "fair.acquired", "off")
        reply = restock.result()
        assert reply.status == 503 and reply.problem == "lock-lost" and server("GET", STOCK) == "5"
    finally:
        if apart:
            server.kill()


def test_changes_that_wait_leave_room_for_those_who_look(redis, start):
    """As many as the listener has connections: without a bound nobody could look at the instance any more."""
    shop = start(redis)
    shop.stock(value=5)
    hold_lock(redis)
    changes = [Background(shop.restock, 1) for _ in range(64)]
    waiting = wait_until(lambda: sum(change.is_alive() for change in changes) <= 32 and
                         shop.metric("inventoryd_sales_in_flight"), "half of them are refused")
    assert 0 < waiting <= 32
    assert shop.admin("GET", "/livez").status == shop.admin("GET", "/readyz").status == 200
    release_lock(redis)
    replies = [change.result() for change in changes]
    assert {reply.problem for reply in replies if reply.status == 503} == {"queue-full"}
    assert redis("GET", STOCK) == str(5 + sum(reply.status == 200 for reply in replies))


def test_those_who_look_leave_room_for_changes(redis, start):
    """Many may wait to hear whether the instance is ready, while a server hangs."""
    shop = start(redis)
    shop.stock(value=5)
    redis.freeze()
    looks = [socket.create_connection(("127.0.0.1", shop.admin_port)) for _ in range(40)]
    for look in looks:
        look.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert shop.admin("GET", "/livez").status == 200  # behind them
    change = Background(shop.restock, 1)
    wait_until(lambda: not change.is_alive() or shop.metric("inventoryd_sales_in_flight"), "the change has come")
    redis.thaw()
    reply = change.result()
    assert reply.status == 200 or reply.problem != "queue-full", reply
    for look in looks:
        look.close()


# ---- The end -------------------------------------------------------------------------------------

@pytest.mark.parametrize("add", [False, True])
def test_a_drain_awaits_operators_too(redis, start, add):
    """What was written must be answered."""
    shop = start(redis)
    shop.stock(value=5)
    hold_lock(redis)
    restock = Background(shop.restock, 4) if add else Background(shop.stock, value=9)
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 1, "the restock waits")
    shop.signal()
    wait_until(lambda: shop.admin("GET", "/readyz").status == 503, "it drains")
    assert shop.restock(1).problem == shop.stock(value=1).problem == "draining"
    release_lock(redis)
    assert restock.result().json["stock"] == 9
    assert shop.wait() == 0 and redis("GET", STOCK) == "9"
