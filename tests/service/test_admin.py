# SPDX-License-Identifier: Apache-2.0
"""The admin listener: what it tells, and how it switches the lock under load."""
import json
import re
import subprocess
import threading

import pytest

from failpoints import arm, park
from world import Background, check_history, hold_lock, read_answers, read_history, release_lock, running, server_sockets, wait_until

JSON = {"Content-Type": "application/json"}


def test_pages(shop):
    assert shop.admin("GET", "/livez").json == {"live": True, "instance": "a"}
    ready = {"ready": True, "instance": "a"}
    wait_until(lambda: shop.admin("GET", "/readyz").json == ready, "it is ready")  # a busy machine's Redis may be late
    version = shop.admin("GET", "/version").json
    assert version["name"] == "inventoryd" and version["libmicrohttpd"] and version["hiredis"]
    config = shop.admin("GET", "/config").json
    assert config["lock"] == "watchdog" and config["workers"] == 16 and config["redis"] == shop.redis.url
    lock = shop.admin("GET", "/lock").json
    assert (lock["rung"], lock["write"], lock["check_hold"], lock["run"]) == ("watchdog", "decr", False, None)


@pytest.mark.parametrize("path", ["/healthz", "/inventory/phone/sale", "/"])
def test_the_shop_is_not_here(shop, path):
    reply = shop.admin("GET", path)
    assert reply.status == 404 and "GET /livez" in reply.json["detail"]


def test_head_options_and_wrong_methods(shop):
    assert shop.admin("HEAD", "/livez").status == 200
    assert shop.admin("OPTIONS", "/lock").headers["allow"] == "GET, HEAD, PUT, OPTIONS"
    assert shop.admin("POST", "/metrics").status == 405


def test_metrics(redis, start):
    shop = start(redis, "--wait-ms", 2000)
    shop.stock(value=3)
    for _ in range(4):
        shop.sell()
    shop.sell("other")
    shop.sell("BAD")
    hold_lock(redis)
    shop.sell()
    reply = shop.admin("GET", "/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4"
    lint = subprocess.run(["promtool", "check", "metrics"], input=reply.body, capture_output=True, timeout=60)
    assert lint.returncode == 0 and not lint.stdout + lint.stderr, lint
    expected = {
        'inventory_sales_total{outcome="sold"}': 3, 'inventory_sales_total{outcome="sold_out"}': 1,
        'inventory_sales_total{outcome="unknown_item"}': 1, 'inventory_sales_total{outcome="lock_timeout"}': 1,
        'inventory_stock{item="phone"}': 0, "lock_acquired_total": 6, "lock_lost_total": 0,
        "lock_acquire_time_seconds_count": 6, "lock_hold_time_seconds_count": 6,
        'lock_acquire_time_seconds_bucket{le="+Inf"}': 6, "inventoryd_queue_depth": 0, "inventoryd_sales_in_flight": 0,
        'http_requests_total{route="/inventory/{item}/sale",method="POST",code="200"}': 3,
        'http_requests_total{route="/inventory/{item}/sale",method="POST",code="409"}': 1,
        'http_requests_total{route="/inventory/{item}/sale",method="POST",code="400"}': 1,
        'http_requests_total{route="/inventory/{item}",method="PUT",code="200"}': 1,
        'inventoryd_info{version="0.2.0",instance="a",rung="watchdog",write="decr",on_conflict="wait",local_first="off",admit="off",segments="1"}': 1,
    }
    assert {name: shop.metric(name) for name in expected} == expected


def test_items_beyond_the_metrics_places_are_counted_together(redis, start):
    shop = start(redis, "--lock", "none")
    for number in range(300):  # an item that does not exist takes no place
        assert shop.sell(f"no-{number}").status == 404
    assert shop.metric("inventory_stock_untracked_total") == 0
    for number in range(256):
        shop.stock(f"i{number}", 7)
    shop.stock("other", 7)  # an item may have that name
    shop.sell("other")
    shop.sell("i255")
    text = shop.admin("GET", "/metrics").body
    shown = [line for line in text.decode().splitlines() if line.startswith("inventory_stock{")]
    assert len(shown) == 256 and 'inventory_stock{item="i255"} 6' in shown and not any("other" in line for line in shown)
    assert shop.metric("inventory_stock_untracked_total") == 2
    lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
    assert lint.returncode == 0 and not lint.stdout + lint.stderr, lint


def test_the_gauge_of_the_stock_is_set_under_the_lock(redis, start):
    """After the release it could overwrite the next sale's."""
    point = "owner_check.between_get_and_del"
    shop = start(redis, "--lock", "owner_check", "--enable-failpoints", "--failpoints", f"{point}=1*pause")
    redis("SET", "inventory:{phone}", 5)
    sale = Background(shop.sell)
    wait_until(lambda: shop.admin("GET", "/failpoints").json["failpoints"][0]["paused"] == 1, "the lock is still held")
    assert shop.metric('inventory_stock{item="phone"}') == 4
    assert shop.admin("PUT", "/failpoints", json.dumps({"point": point, "action": "off"})).status == 200
    assert sale.result().status == 200


def test_writes_are_forbidden_unless_allowed(shop):
    reply = shop.switch(rung="none")
    assert reply.status == 403 and reply.problem == "admin-writes-off" and "--admin-writes" in reply.json["detail"]
    assert shop.admin("GET", "/lock").json["rung"] == "watchdog"


def test_switch(redis, start, tmp_path):
    shop = start(redis, "--admin-writes", "--history", tmp_path / "h.jsonl")
    shop.stock(value=10)
    shop.sell(request="before")
    reply = shop.switch(rung="none", write="set", run="run-1.x", check_hold=True)
    assert reply.status == 200
    assert reply.json == {"rung": "none", "write": "set", "on_conflict": "wait", "local_first": False, "check_hold": True, "guard_reads": False, "admit": "off", "segments": "1", "run": "run-1.x",
                          "history": str(tmp_path / "run-1.x" / "h.jsonl"), "servers": [], "ttl_ms": 30000, "valid_ms": None, "epoch": None, "switching": False,
                          "instance": "a"}
    assert shop.admin("GET", "/lock").json == reply.json
    shop.sell(request="after")
    assert shop.switch(write="atomic").json["rung"] == "none"
    assert shop.switch().json["write"] == "atomic"
    assert shop.switch(run="run-2").json["rung"] == "none"
    shop.end()
    first = read_history(tmp_path / "h.jsonl")
    second = read_history(tmp_path / "run-1.x" / "h.jsonl")
    third = read_history(tmp_path / "run-2" / "h.jsonl")
    for events in (first, second, third):
        check_history(events)
        assert events[-1]["event"] == "end"
    assert "before" in {event.get("request") for event in first}
    assert "after" not in {event.get("request") for event in first + third}
    begin = second[0]
    assert (begin["run"], begin["rung"], begin["write"], begin["check_hold"]) == ("run-1.x", "none", "set", True)
    assert [event["event"] for event in second if event.get("request") == "after"][-2:] == ["exit", "release"]
    assert third[0]["write"] == "atomic"


def test_a_run_that_is_asked_for_again_goes_on_in_its_file(redis, start, tmp_path):
    shop = start(redis, "--admin-writes", "--history", tmp_path / "h.jsonl")
    for _ in range(2):
        assert shop.switch(run="r").status == 200
    shop.switch(run="other")
    assert shop.switch(run="r").status == 200
    shop.end()
    events = read_history(tmp_path / "r" / "h.jsonl")
    check_history(events)
    assert [event["event"] for event in events if event["event"] != "stall"] == ["begin", "end"] * 3


def test_a_switch_without_a_run_is_told_in_the_history(redis, start, tmp_path):
    """Else sales that were written without a fence pass for fenced ones."""
    shop = start(redis, "--lock", "fenced", "--admin-writes", "--history", tmp_path / "h.jsonl")
    shop.stock(value=10)
    shop.sell(request="fenced")
    assert shop.switch(rung="fair", write="fenced").status == 200  # nothing changes, nothing is told
    for wanted in {"write": "decr"}, {"rung": "none"}, {"check_hold": True}, {"guard_reads": True}:
        assert shop.switch(**wanted).status == 200
    shop.sell(request="plain")
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    check_history(events)
    begins = [event for event in events if event["event"] == "begin"]
    assert [(b["rung"], b["write"], b["check_hold"], b["guard_reads"], b["part"]) for b in begins] == [
        ("fair", "fenced", False, False, 1), ("fair", "decr", False, False, 1), ("none", "decr", False, False, 1),
        ("none", "decr", True, False, 1), ("none", "decr", True, True, 1)]
    assert [event["event"] for event in events].count("end") == len(begins)
    names = [event.get("request") for event in events]
    assert names.index("fenced") < events.index(begins[1]) and names.index("plain") > events.index(begins[-1])


@pytest.mark.parametrize("body,status,problem,word", [
    ('{"rung":"nope"}', 422, "invalid-value", "watchdog"), ('{"rung":5}', 422, "invalid-value", "watchdog"),
    ('{"write":"guess"}', 422, "invalid-value", "decr|set|atomic|cas|fenced_textbook|fenced"), ('{"run":""}', 422, "invalid-value", "run"),
    ('{"run":"../x"}', 422, "invalid-value", "run"), ('{"run":".x"}', 422, "invalid-value", "run"),
    ('{"run":"%s"}' % ("a" * 65), 422, "invalid-value", "64"), ('{"check_hold":1}', 422, "invalid-value", "true"),
    ('{"lock":"none"}', 422, "invalid-value", "rung, write, run, on_conflict, local_first, check_hold, guard_reads, admit"), ("[]", 400, "invalid-json", "object"),
    ("", 400, "invalid-json", "body"), ('{"run":"r"}', 409, "no-history", "--history")])
def test_what_cannot_be_switched(switchable, body, status, problem, word):
    reply = switchable.admin("PUT", "/lock", body, JSON)
    assert reply.status == status and reply.problem == problem and word in reply.json["detail"]
    assert switchable.admin("GET", "/lock").json["rung"] == "watchdog"


def test_a_switch_that_cannot_write_its_history_changes_nothing(redis, start, tmp_path):
    shop = start(redis, "--admin-writes", "--history", tmp_path / "h.jsonl")
    (tmp_path / "file").write_text("")
    reply = shop.switch(rung="none", run="file")
    assert reply.status == 500 and "file" in reply.json["detail"]
    lock = shop.admin("GET", "/lock").json
    assert lock["rung"] == "watchdog" and lock["run"] is None
    shop.stock(value=1)
    assert shop.sell().status == 200
    shop.end()
    check_history(read_history(tmp_path / "h.jsonl"))


def test_a_switch_lets_sales_in_flight_finish_and_holds_the_others(redis, start, tmp_path):
    shop = start(redis, "--admin-writes", "--history", tmp_path / "h.jsonl", "--workers", 2)
    shop.stock(value=10)
    hold_lock(redis)
    old = [Background(shop.sell, request=f"old{i}") for i in range(4)]
    wait_until(lambda: shop.metric("inventoryd_sales_in_flight") == 4, "the old sales are accepted")
    switch = Background(shop.switch, rung="set_nx_ex", run="new")
    wait_until(lambda: shop.admin("GET", "/lock").json["switching"], "the switch is under way")
    reply = shop.switch(rung="none")
    assert reply.status == 409 and reply.problem == "switch-in-progress"
    new = [Background(shop.sell, request=f"new{i}") for i in range(4)]
    wait_until(lambda: shop.metric("inventoryd_queue_depth") >= 4, "the new sales have arrived")
    assert shop.admin("GET", "/lock").json["rung"] == "watchdog"
    release_lock(redis)
    assert switch.result().status == 200
    assert [sale.result().status for sale in old + new] == [200] * 8
    shop.end()
    for path, rung, prefix in ((tmp_path / "h.jsonl", "watchdog", "old"),
                               (tmp_path / "new" / "h.jsonl", "set_nx_ex", "new")):
        events = read_history(path)
        check_history(events)
        sales = [event for event in events if event.get("request", "").startswith(("old", "new"))]
        assert {event["request"][:3] for event in sales} == {prefix} and {event["rung"] for event in sales} == {rung}
        assert len(sales) == 4 * 7


def test_who_is_refused_during_a_switch_is_recorded_under_the_old_lock(redis, start, tmp_path):
    shop = start(redis, "--admin-writes", "--enable-failpoints", "--history", tmp_path / "h.jsonl", "--write", "atomic",
                 "--queue", 1, "--wait-ms", 2000)
    shop.stock(value=10)
    held = park(shop, "sale.entered", shop.sell, request="held", key="k")
    switch = Background(shop.switch, rung="set_nx_ex", run="new")
    wait_until(lambda: shop.admin("GET", "/lock").json["switching"], "the switch is under way")
    reasons = {"again": shop.sell(request="again", key="k").problem}
    late = Background(shop.sell, request="late")
    wait_until(lambda: shop.metric("inventoryd_queue_depth") == 1, "one waits for the switch")
    reasons["full"] = shop.sell(request="full").problem
    reasons["late"] = late.result().problem
    assert reasons == {"again": "request-in-flight", "full": "queue-full", "late": "deadline"}
    arm(shop, "sale.entered", "off")
    held.result()
    assert switch.result().status == 200
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    check_history(events)
    for request, reason in reasons.items():
        invoke, refused = [event for event in events if event.get("request") == request]
        assert (invoke["event"], invoke.get("key")) == ("invoke", "k" if request == "again" else None)
        assert (refused["event"], refused["reason"]) == ("refused", reason)
        assert invoke["rung"] == refused["rung"] == "watchdog"


def test_who_is_refused_while_runs_follow_each_other_is_in_one_of_them(redis, start, tmp_path):
    """A refusal has both its lines in one file, that of its lock."""
    shop = start(redis, "--admin-writes", "--history", tmp_path / "h.jsonl", "--queue", 1)
    shop.stock(value=100000)
    stop = threading.Event()
    replies = {}

    def sell(seller):
        while not stop.is_set():
            request = f"s{seller}-{len(replies)}"
            replies[request] = shop.sell(request=request)

    sellers = [Background(sell, i) for i in range(12)]
    rungs = {f"r{i}": ("setnx", "set_nx_ex")[i % 2] for i in range(8)}
    for run, rung in rungs.items():
        count = len(replies)
        wait_until(lambda: len(replies) > count + 20, "some more sales")
        assert shop.switch(rung=rung, run=run).status == 200
    stop.set()
    for seller in sellers:
        seller.result()
    shop.end()
    assert {reply.status for reply in replies.values()} == {200, 503}
    written = []
    for path, rung in [(tmp_path / "h.jsonl", "watchdog")] + [(tmp_path / run / "h.jsonl", rungs[run]) for run in rungs]:
        events = read_history(path)
        check_history(events)
        sales = [event for event in events if event.get("request", "").startswith("s")]
        assert {event["rung"] for event in sales} <= {rung}
        begun = [event["request"] for event in sales if event["event"] == "invoke"]
        assert sorted(begun) == sorted(event["request"] for event in sales if event["event"] in ("write", "refused"))
        written += begun
    assert sorted(written) == sorted(replies)


def test_switching_under_load_loses_nothing(redis, start, tmp_path):
    shop = start(redis, "--admin-writes", "--history", tmp_path / "h.jsonl", "--retry-ms", 1, "--write", "set")
    shop.stock(value=100000)
    stop = threading.Event()
    replies = []

    def sell(seller):
        i = 0
        while not stop.is_set():
            replies.append((f"s{seller}-{i}", shop.sell(request=f"s{seller}-{i}")))
            i += 1

    sellers = [Background(sell, i) for i in range(12)]
    runs = [("setnx", "r1"), ("watchdog", "r2"), ("owner_lua", "r3"), ("reentrant", "r4"), ("local", "r5")]
    for rung, run in runs:
        count = len(replies)
        wait_until(lambda: len(replies) > count + 20, "some more sales")
        assert shop.switch(rung=rung, run=run).status == 200
    count = len(replies)
    wait_until(lambda: len(replies) > count + 20, "some more sales")
    stop.set()
    for seller in sellers:
        seller.result()
    assert {reply.status for _, reply in replies} == {200}
    assert shop.stock().json["stock"] == 100000 - len(replies)
    shop.end()
    written = []
    for path in [tmp_path / "h.jsonl"] + [tmp_path / run / "h.jsonl" for _, run in runs]:
        events = read_history(path)
        check_history(events)
        assert events[-1]["event"] == "end"
        by_request = {}
        for event in events:
            if event.get("request", "").startswith("s"):
                by_request.setdefault(event["request"], []).append(event["event"])
        for names in by_request.values():  # each one is whole, in one file
            assert [name for name in names if name != "renew"] == [
                "invoke", "granted", "enter", "read", "write", "exit", "release"]
        written += by_request
    assert sorted(written) == sorted(request for request, _ in replies)


@pytest.fixture(scope="module")
def switchable(tmp_path_factory):
    with running(tmp_path_factory.mktemp("switchable"), "--admin-writes") as instance:
        yield instance


# ---- Many that ask at once -----------------------------------------------------------------------


def test_readyz_looks_once_for_all_who_ask(redis, start):
    """A server that hangs keeps one thread, so that PUT /lock is served meanwhile."""
    shop = start(redis, "--admin-writes", "--redis-timeout-ms", 60000)
    assert shop.admin("GET", "/readyz").status == 200
    redis("CONFIG", "RESETSTAT")
    redis.freeze()
    asking = [shop.connection(shop.admin_port) for _ in range(20)]
    try:
        for sock in asking:
            sock.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert shop.switch(check_hold=True).status == 200  # its turn came after theirs
        redis.thaw()
        assert [read_answers(sock)[0][0] for sock in asking] == [200] * 20
    finally:
        redis.thaw()
        for sock in asking:
            sock.close()
    looks = int(re.search(r"cmdstat_setrange:calls=(\d+)", redis("INFO", "commandstats")).group(1))
    assert looks == 2  # at the stock's key, and at the lock's


def test_buyers_who_look_keep_no_operator_waiting(redis, start):
    """Reads of a Redis that hangs keep as many threads as read, and no other."""
    shop = start(redis, "--admin-writes", "--redis-timeout-ms", 60000)
    redis.freeze()
    looking = [shop.connection() for _ in range(8)]
    try:
        for sock in looking:
            sock.sendall(b"GET /inventory/phone HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: sum(unread > 0 for _, unread in server_sockets(redis.port)) >= 2, "two of them are sent")
        assert shop.switch(check_hold=True).status == 200
        redis.thaw()
        assert [read_answers(sock)[0][0] for sock in looking] == [404] * len(looking)
    finally:
        redis.thaw()
        for sock in looking:
            sock.close()


def test_a_switch_that_comes_at_the_very_end(redis, start):
    """When the workers take nothing any more, the reason is the end and no queue."""
    put = b"PUT /lock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    told = set()

    def ask(sock):
        try:
            while True:
                sock.sendall(put)
                answers = read_answers(sock)
                if not answers:
                    return
                told.add((answers[0][0], json.loads(answers[0][2]).get("type", "").rsplit(":", 1)[-1]))
        except OSError:
            pass

    for number in range(8):
        shop = start(redis, "--admin-writes", name=f"i{number}")
        with shop.connection(shop.admin_port) as sock:
            asking = Background(ask, sock)
            wait_until(lambda: told, "it asks")
            shop.end()
            asking.result()
    assert told <= {(200, ""), (503, "draining")}
