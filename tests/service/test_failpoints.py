# SPDX-License-Identifier: Apache-2.0
"""Named points that pause, delay, break and kill the process; and what else demonstrations ask of a shop:
a second ask for the lock inside a section, an owner anew for every ask, commands in the history."""
import json
import os
import signal
import subprocess
import time

import pytest

from waiting import freeze
from failpoints import arm, park_a_sale, paused
from world import PATIENCE_S, Background, check_history, hold_lock, read_history, running, wait_until

ON = "--enable-failpoints"
ALONE = ("--workers", 1)


def points(shop):
    """{point: (action, hits, paused)}"""
    reply = shop.admin("GET", "/failpoints").json
    assert reply["instance"] == shop.name
    return {one["point"]: (one["action"], one["hits"], one["paused"]) for one in reply["failpoints"]}


def of(path, request):
    return [event for event in read_history(path) if event.get("request") == request]


def names(events):
    return [event["event"] for event in events]


def one_sale(redis, start, *flags, stock=5, **named):
    """A shop with one worker and some phones."""
    shop = start(redis, ON, *ALONE, *flags, **named)
    shop.stock(value=stock)
    return shop


# ---- The switch ---------------------------------------------------------------------------------

def test_refused_unless_enabled(shop):
    for method, body in (("GET", None), ("PUT", '{"point":"sale.entered","action":"pause"}')):
        reply = shop.admin(method, "/failpoints", body)
        assert reply.status == 403 and reply.problem == "failpoints-off", reply
        assert "--enable-failpoints" in reply.json["detail"]
    assert not shop.logged("failpoints")
    assert shop.ask("GET", "/failpoints").status == 404  # the shop's listener has none


@pytest.mark.parametrize("variable", ["INVENTORYD_FAILPOINTS", "INVENTORYD_FAILPOINT_FILES"])
def test_variables_are_refused_unless_enabled(variable):
    done = subprocess.run([os.environ["INVENTORYD"]], env={variable: "sale.entered=pause"}, capture_output=True,
                          text=True, timeout=PATIENCE_S)
    assert done.returncode == 2 and "need --enable-failpoints" in done.stderr


def test_the_environment_arms(redis, start, tmp_path):
    shop = start(redis, environment={
        "INVENTORYD_ENABLE_FAILPOINTS": "on", "INVENTORYD_FAILPOINT_FILES": str(tmp_path),
        "INVENTORYD_FAILPOINTS": "sale.entered=1*pause;owner_check.between_get_and_del=delay(7);"})
    assert shop.logged("failpoints")[0]["level"] == "warning"
    assert points(shop) == {"sale.entered": ("1*pause", 0, 0),
                            "owner_check.between_get_and_del": ("delay(7)", 0, 0)}
    shop.stock(value=5)
    sale = park_a_sale(shop, "sale.entered")
    (tmp_path / "sale.entered").touch()
    assert sale.result().status == 200


def test_with_nothing_armed_nothing_changes(redis, start, tmp_path):
    histories = []
    for name, flags in (("a", []), ("b", [ON])):
        shop = start(redis, *flags, *ALONE, "--history", tmp_path / f"{name}.jsonl", name=name)
        shop.stock(value=5)
        assert shop.sell(request="r").json["unit"] == 5
        if flags:
            assert points(shop) == {}
        histories.append(names(of(tmp_path / f"{name}.jsonl", "r")))
        shop.end()
    assert histories[0] == histories[1] == ["invoke", "granted", "enter", "read", "write", "exit", "release"]


# ---- Bad input ----------------------------------------------------------------------------------

SHOP_POINTS = "sale.before_upgrade sale.entered sale.between_segments sale.after_read sale.before_write sale.after_write queue.accepted queue.taken queue.before_ack read.entered"
ACTIONS = "off, pause, delay(MS), crash, fail"
BAD = [  # point, action, what is said
    ("sale.nowhere", "pause", [SHOP_POINTS, "sale.nowhere"]), ("read.after_read", "pause", [SHOP_POINTS]),
    ("shop.entered", "pause", [SHOP_POINTS, "of the rungs"]),
    ("best.acquired", "pause", [SHOP_POINTS]), ("sale", "pause", ["owner_check.between_get_and_del"]),
    ("", "pause", ["is no point"]), ("setnx.", "pause", ["is no point"]), ("setnx.A", "pause", ["is no point"]),
    ("setnx.a/../b", "pause", ["is no point"]), ("setnx." + "a" * 91, "pause", ["96"]),
    ("sale.entered", "stop", ['"stop"', ACTIONS]), ("sale.entered", "", [ACTIONS]),
    ("sale.entered", "0*pause", ["1 to 1000000"]), ("sale.entered", "1000001*pause", ["1 to 1000000"]),
    ("sale.entered", "-1*pause", [ACTIONS]), ("sale.entered", "1*1*pause", [ACTIONS]),
    ("sale.entered", "99999999999999999999*off", ["1 to 1000000"]),
    ("sale.entered", "delay(0)", ["1 to 60000"]), ("sale.entered", "delay(60001)", ["1 to 60000"]),
    ("sale.entered", "delay(99999999999999999999)", ["1 to 60000"]),
    ("sale.entered", "delay(x)", [ACTIONS]), ("sale.entered", "delay(5x)", [ACTIONS]),
    ("sale.entered", "delay(1.5)", [ACTIONS]), ("sale.entered", "delay(-5)", [ACTIONS]),
    ("sale.entered", "delay( 5)", [ACTIONS]), ("sale.entered", "delay(5)x)", [ACTIONS]),
    ("sale.entered", "delay", [ACTIONS]), ("sale.entered", "delay(5) ", [ACTIONS]),
    ("sale.entered", "fail", ["sale.entered cannot fail", "sale.after_write can"]),
    ("setnx.acquired", "1*fail", ["setnx.acquired cannot fail"])]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """One instance for all tests that only ask wrongly."""
    with running(tmp_path_factory.mktemp("lab"), ON) as instance:
        yield instance


@pytest.mark.parametrize("point,action,words", BAD)
def test_bad_points_and_actions(lab, point, action, words):
    reply = lab.admin("PUT", "/failpoints", json.dumps({"point": point, "action": action}))
    assert reply.status == 422 and reply.problem == "invalid-value", reply
    for word in words:
        assert word in reply.json["detail"]
    assert points(lab) == {}


@pytest.mark.parametrize("body,status", [
    ("{", 400), ("pause", 400), ("[]", 422), ("{}", 422), ("5", 422), ("null", 422),
    ('{"point":"sale.entered"}', 422), ('{"action":"pause"}', 422), ('{"point":1,"action":"pause"}', 422),
    ('{"point":"sale.entered","action":null}', 422), ('{"point":"sale.entered","action":"pause","more":1}', 422),
    ('{"point":"sale.entered","point":"sale.entered"}', 400)])
def test_bad_bodies(lab, body, status):
    reply = lab.admin("PUT", "/failpoints", body)
    assert reply.status == status and reply.problem == ("invalid-json" if status == 400 else "invalid-value"), reply
    assert '{"point":' in reply.json["detail"] and '"action":' in reply.json["detail"]
    assert points(lab) == {}


def test_at_most_32_points(redis, start):
    shop = start(redis, ON)
    for i in range(32):
        arm(shop, f"setnx.p{i}", "pause")
    reply = shop.admin("PUT", "/failpoints", '{"point":"setnx.p32","action":"pause"}')
    assert reply.status == 422 and "32 points" in reply.json["detail"] and "off" in reply.json["detail"]
    arm(shop, "setnx.p7", "crash")  # one that is there may be set anew
    arm(shop, "setnx.p8", "off")  # and one that is off gives its place away
    arm(shop, "setnx.p32", "pause")
    assert len(points(shop)) == 32 and "setnx.p8" not in points(shop)
    assert points(shop)["setnx.p7"] == ("crash", 0, 0)


@pytest.mark.parametrize("value,words", [
    ("sale.entered", ["POINT=ACTION"]), ("sale.entered=pause;;sale.after_read=pause", ["POINT=ACTION"]),
    (";", ["POINT=ACTION"]), ("sale.entered=pause;sale.here=pause", ["sale.here", SHOP_POINTS]),
    ("sale.entered=stop", [ACTIONS]), ("sale.entered=" + "p" * 200, ["POINT=ACTION"]),
    (";".join(f"setnx.p{i}=pause" for i in range(33)), ["32 points"])])
def test_a_bad_list(redis, tmp_path, value, words):
    done = subprocess.run([os.environ["INVENTORYD"], "--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis",
                           redis.url, ON, "--failpoints", value, "--history", tmp_path / "h.jsonl"],
                          capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1 and "--failpoints: " in done.stderr
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "h.jsonl").exists()


def test_files_need_a_folder(redis, tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file"):
        done = subprocess.run([os.environ["INVENTORYD"], "--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis",
                               redis.url, ON, "--failpoint-files", path], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        assert done.returncode == 1 and "--failpoint-files" in done.stderr and "no folder" in done.stderr


# ---- What the actions do ------------------------------------------------------------------------

@pytest.mark.parametrize("point", ["sale.entered", "sale.after_read", "sale.before_write", "sale.after_write",
                                   "watchdog.acquired", "watchdog.before_release"])
@pytest.mark.parametrize("release", ["off", "1*pause"])
def test_pause_until_set_anew(redis, start, point, release):
    shop = one_sale(redis, start)
    arm(shop, point, "pause")
    sale = park_a_sale(shop, point)
    assert points(shop)[point] == ("pause", 1, 1) and redis("EXISTS", "lock:{phone}") == 1
    written = point in ("sale.after_write", "watchdog.before_release")
    assert redis("GET", "inventory:{phone}") == ("4" if written else "5")
    arm(shop, point, release)
    assert sale.result().status == 200
    assert points(shop)[point] == (release, 1 if release == "off" else 0, 0)
    assert redis("GET", "inventory:{phone}") == "4"


def test_only_the_point_that_was_set_lets_go(redis, start):
    shop = one_sale(redis, start, "--failpoints", "sale.after_read=pause")
    sale = park_a_sale(shop, "sale.after_read")
    arm(shop, "sale.entered", "pause")
    arm(shop, "sale.entered", "off")
    assert paused(shop, "sale.after_read") == 1 and sale.is_alive()
    arm(shop, "sale.after_read", "off")
    assert sale.result().status == 200


@pytest.mark.parametrize("stopped", [False, True])
def test_pause_until_the_file_is_there(redis, start, tmp_path, stopped):
    files = tmp_path / "files"
    files.mkdir()
    shop = one_sale(redis, start, "--failpoint-files", files, "--failpoints", "sale.after_read=pause")
    sale = park_a_sale(shop, "sale.after_read")
    (files / "sale.entered").touch()  # another's
    assert paused(shop, "sale.after_read") == 1
    if stopped:
        freeze(shop.process)
    in_flight = sale.is_alive()
    (files / "sale.after_read").touch()
    if stopped:
        shop.signal(signal.SIGCONT)
    assert in_flight
    assert sale.result().status == 200
    assert paused(shop, "sale.after_read") == 0


def test_the_number_of_times(redis, start):
    shop = one_sale(redis, start, "--failpoints", "sale.entered=2*delay(1)")
    for _ in range(4):
        assert shop.sell().status == 200
    assert points(shop)["sale.entered"] == ("2*delay(1)", 2, 0)
    arm(shop, "sale.entered", "1*pause")  # counts anew
    sale = park_a_sale(shop, "sale.entered")
    arm(shop, "sale.entered", "off")
    assert sale.result().status == 200 and points(shop)["sale.entered"] == ("off", 1, 0)


def test_delay(redis, start):
    shop = one_sale(redis, start, "--failpoints", "sale.after_read=delay(300)")
    began = time.monotonic()
    assert shop.sell().status == 200
    assert time.monotonic() - began >= 0.3
    assert points(shop)["sale.after_read"] == ("delay(300)", 1, 0)


@pytest.mark.parametrize("point,last,left,key", [
    ("sale.after_write", "write", "4", 1), ("sale.after_read", "read", "5", 1),
    ("set_nx_ex.acquired", "invoke", "5", 1), ("set_nx_ex.before_release", "exit", "4", 1)])
def test_crash_loses_no_line(redis, start, tmp_path, point, last, left, key):
    history = tmp_path / "h.jsonl"
    shop = one_sale(redis, start, "--lock", "set_nx_ex", "--history", history)
    arm(shop, point, "crash")
    sale = Background(shop.sell, request="dying")
    assert shop.wait() == -signal.SIGKILL
    with pytest.raises(Exception):
        sale.result()
    events = read_history(history)  # every line is whole
    check_history(events)
    assert names(of(history, "dying"))[-1] == last and names(events)[-1] != "end"
    assert redis("GET", "inventory:{phone}") == left and redis("EXISTS", "lock:{phone}") == key


def test_fail_behind_the_write_forgets_the_lock(redis, start, tmp_path):
    """The sale is answered and goes; its lock stays, and is renewed, until the process ends."""
    history = tmp_path / "h.jsonl"
    shop = one_sale(redis, start, "--history", history, "--ttl-ms", 2000, "--admin-writes",
                    "--failpoints", "sale.after_write=1*fail")
    assert shop.sell(request="hasty").json["unit"] == 5
    assert names(of(history, "hasty"))[:6] == ["invoke", "granted", "enter", "read", "write", "exit"]
    assert redis("EXISTS", "lock:{phone}") == 1
    assert shop.stock("other", 3).status == 200 and shop.sell("other").status == 200  # the worker has another lock now
    assert shop.switch(rung="setnx").status == 200 and shop.sell("other").status == 200  # and another rung
    assert shop.switch(rung="watchdog").status == 200
    wait_until(lambda: "renew" in names(of(history, "hasty")), "the forgotten lock is renewed")
    late = of(history, "hasty")
    assert {event["hold"] for event in late if "hold" in event} == {late[1]["hold"]}
    assert {event["item"] for event in late} == {"phone"}
    shop.end()  # and its log has no complaint
    assert not {"release", "lost"} & set(names(of(history, "hasty")))
    assert redis("EXISTS", "lock:{phone}") == 0 and names(read_history(history))[-1] == "end"


def test_a_forgotten_lock_locks_out_all_others(redis, start):
    shop = start(redis, ON, "--workers", 2, "--wait-ms", 1000, "--lock", "setnx", "--failpoints",
                 "sale.after_write=1*fail")
    shop.stock(value=5)
    assert shop.sell().status == 200
    assert shop.sell().problem == "lock-timeout" and shop.sell().problem == "lock-timeout"
    assert redis("EXISTS", "lock:{phone}") == 1 and redis("GET", "inventory:{phone}") == "4"


@pytest.mark.parametrize("action", ["pause", "delay(60000)"])
def test_a_signal_ends_every_stay(redis, start, action):
    """The drain has less time than the stay."""
    shop = one_sale(redis, start, "--drain-ms", 20000, "--failpoints", f"sale.after_read={action}")
    sale = Background(shop.sell)
    wait_until(lambda: points(shop)["sale.after_read"][1] == 1, "the sale is there")
    shop.signal()
    assert sale.result().status == 200
    assert shop.wait() == 0 and not shop.logged("drain")
    assert redis("GET", "inventory:{phone}") == "4" and redis("EXISTS", "lock:{phone}") == 0


def test_a_point_of_a_rung(redis, start):
    """The lock changes hands between the GET and the DEL, which then deletes the other's."""
    shop = one_sale(redis, start, "--lock", "owner_check", "--failpoints", "owner_check.between_get_and_del=off")
    arm(shop, "owner_check.between_get_and_del", "1*pause")
    sale = park_a_sale(shop, "owner_check.between_get_and_del")
    redis("SET", "lock:{phone}", "another's")
    arm(shop, "owner_check.between_get_and_del", "off")
    assert sale.result().status == 200
    assert redis("EXISTS", "lock:{phone}") == 0


# ---- ?reenter=1: the sale asks for its own lock again ----------------------------------------------

def reenter(shop, query="reenter=1", request="g"):
    return shop.ask("POST", f"/inventory/phone/sale?{query}", headers={"X-Request-Id": request})


def again(path, request="g"):
    return [event["status"] for event in of(path, request) if event["event"] == "reacquire"]


@pytest.mark.parametrize("rung,owner,sold", [("watchdog", "thread", True), ("reentrant", "thread", True),
                                             ("reentrant_tls", "thread", True), ("owner_lua", "thread", False),
                                             ("notify", "thread", True), ("notify", "object", False),
                                             ("read_write", "thread", True), ("rw_counter", "thread", False),
                                             ("watchdog", "object", False)])
def test_reenter(redis, start, tmp_path, rung, owner, sold):
    history = tmp_path / "h.jsonl"
    shop = start(redis, "--lock", rung, "--owner", owner, "--history", history, "--wait-ms", 1000)
    shop.stock(value=5)
    reply = reenter(shop)
    assert (reply.status == 200) is sold
    if not sold:
        assert reply.status == 503 and reply.problem == "lock-timeout"
    assert again(history) == ["OK" if sold else "TIMED_OUT"]
    assert redis("GET", "inventory:{phone}") == ("4" if sold else "5")
    section = ["invoke", "granted", "enter", "read", "reacquire"] + ["write"] * sold + ["exit", "release"]
    assert names(of(history, "g")) == section + ["refused"] * (not sold)
    assert redis("EXISTS", "lock:{phone}") == 0
    assert reenter(shop, "reenter=0", "none").status == 200 and again(history, "none") == []


def test_owners(redis, start, tmp_path):
    """One worker: its lock owner is one, and each acquisition has a name of its own behind it; with --owner object
    every ask is another owner's."""
    for owner, count in (("thread", 1), ("object", 3)):
        history = tmp_path / f"{owner}.jsonl"
        shop = one_sale(redis, start, "--owner", owner, "--history", history, name=owner)
        for _ in range(3):
            shop.sell()
        shop.end()
        names = {event["owner"] for event in read_history(history) if event["event"] == "granted"}
        assert len(names) == 3 and len({name.partition(".")[0] for name in names}) == count


@pytest.mark.parametrize("query", ["reenter=2", "reenter=-1", "reenter=", "reenter", "reenter=x", "reenter=1x", "reenter=1&reenter=1", "reenter=1&",
                                   "&reenter=1", "Reenter=1", "reenter=1&quantity=0", "reenter=%31", "reenter=1&quantity=1&quantity=1",
                                   "reenter=1;quantity=2", "reenter=99999999999999999999"])
def test_bad_reenters(shop, query):
    reply = reenter(shop, query)
    assert reply.status == 400 and reply.problem == "invalid-query", reply
    assert "quantity, 1 to 1000000" in reply.json["detail"] and "reenter, 0 or 1" in reply.json["detail"]


@pytest.mark.parametrize("query", ["reenter=1&quantity=2", "quantity=2&reenter=1"])
def test_reenter_with_several(redis, start, tmp_path, query):
    shop = start(redis, "--history", tmp_path / "h.jsonl")
    shop.stock(value=5)
    reply = reenter(shop, query)
    assert (reply.json["sold"], reply.json["left"], reply.json["unit"]) == (2, 3, 4)
    assert again(tmp_path / "h.jsonl") == ["OK"]


# ---- What else a demonstration records ----------------------------------------------------------

def test_commands_are_recorded(redis, start, tmp_path):
    history = tmp_path / "h.jsonl"
    shop = start(redis, *ALONE, "--history", history, "--history-commands", "--lock", "owner_check", "--write", "set")
    shop.stock(value=5)
    shop.sell(request="first")
    shop.sell(request="r")
    redis("SET", "inventory:{phone}", 'x"\\\n\x01é')
    shop.sell(request="odd")
    shop.end()
    events = read_history(history)  # each is valid JSON
    check_history(events)
    hold = next(event["hold"] for event in of(history, "r") if "hold" in event)
    commands = [event for event in of(history, "r") if event["event"] == "command"]
    assert [(event["sent"], event["reply"]) for event in commands] == [
        (f"SET lock:{{phone}} {hold} NX PX 30000", "OK"), ("GET inventory:{phone}", '"4"'),
        ("SET inventory:{phone} 3", "OK"), ("GET lock:{phone}", f'"{hold}"'), ("DEL lock:{phone}", "(integer) 1")]
    for event in commands:
        assert set(event) == {"t_ns", "seq", "instance", "event", "thread", "request", "item", "sent_ns", "server",
                              "sent", "reply"}
        assert event["server"] == f"{redis.url}/0"
        assert event["item"] == "phone" and isinstance(event["sent_ns"], int) and event["sent_ns"] <= event["t_ns"]
    assert names(of(history, "r")) == ["invoke", "command", "granted", "enter", "command", "read", "command", "write",
                                       "exit", "command", "command", "release"]
    odd = [event["reply"] for event in of(history, "odd") if event.get("sent") == "GET inventory:{phone}"]
    assert odd and odd[0].startswith('"x')


def test_commands_of_the_timekeeper_are_nobodys(redis, start, tmp_path):
    history = tmp_path / "h.jsonl"
    shop = one_sale(redis, start, "--history", history, "--history-commands", "--ttl-ms", 2000, "--failpoints",
                    "sale.after_read=pause")
    sale = park_a_sale(shop, "sale.after_read", request="long")
    wait_until(lambda: "renew" in names(of(history, "long")), "a renewal")
    arm(shop, "sale.after_read", "off")
    assert sale.result().status == 200
    events = read_history(history)
    renewal = names(events).index("renew")
    before = [event for event in events[:renewal] if event["event"] == "command" and "request" not in event]
    assert any("lock:{phone}" in event["sent"] for event in before)


def test_no_password_is_recorded(redis, start, tmp_path):
    redis("ACL", "SETUSER", "keeper", "on", ">s3cret", "~*", "&*", "+@all")
    history = tmp_path / "h.jsonl"
    shop = start(f"redis://keeper:s3cret@127.0.0.1:{redis.port}/0", "--history", history, "--history-commands")
    shop.stock(value=5)
    assert shop.sell(request="r").status == 200
    shop.end()
    assert "inventory:{phone}" in history.read_text()
    assert "s3cret" not in history.read_text() and "AUTH" not in history.read_text()


def test_a_lost_reply_is_recorded(redis, proxy, start, tmp_path):
    history = tmp_path / "h.jsonl"
    shop = start(redis, *ALONE, "--stock-redis", proxy.url, "--history", history, "--history-commands")
    shop.stock(value=5)
    proxy.lose = b"DECR"
    assert shop.sell(request="r").status == 200  # it was found out
    lost = [event["sent"] for event in of(history, "r") if event.get("reply") == "(lost)"]
    assert len(lost) == 1 and lost[0].startswith("DECR")


def test_the_run_is_named_from_the_start(redis, start, tmp_path):
    history = tmp_path / "h.jsonl"
    shop = start(redis, "--run", "20260101-setnx.x_1", "--history", history)
    assert read_history(history)[0]["run"] == "20260101-setnx.x_1"
    assert shop.admin("GET", "/lock").json["run"] == "20260101-setnx.x_1"


def test_contended_acquires_are_counted(redis, start):
    shop = start(redis, "--wait-ms", 1000)
    shop.stock(value=5)
    for _ in range(3):
        shop.sell()
    assert shop.metric("lock_contended_total") == 0
    hold_lock(redis)
    assert shop.sell().problem == "lock-timeout"  # one acquire, many tries
    assert shop.metric("lock_contended_total") == 1 and shop.metric("lock_attempts_total") > 5
