# SPDX-License-Identifier: Apache-2.0
"""accountd: updates and transfers that are lost, torn, late or in each other's way; and what prevents it."""
import json
import os
import signal
import subprocess

import pytest

from world import check_history, read_history, wait_until

ACCOUNTD = os.environ["ACCOUNTD"]
JSON = {"Content-Type": "application/json"}
MOST = 2 ** 53 - 1
SHORT = ("--wait-ms", 2000, "--redis-timeout-ms", 200)


@pytest.fixture
def accountd(redis, start, monkeypatch):
    """Starts instances. Accounts a and b have 100 each."""
    monkeypatch.setenv("INVENTORYD", ACCOUNTD)

    def start_one(*flags, over=None, **named):
        return start(over or redis, "--enable-failpoints", *flags, **named)

    for name in "ab":
        redis("HSET", key(name), "balance", 100, "version", 1)
    return start_one


def key(name):
    return "account:{bank}:" + name


def lay(service, name, balance):
    return service.admin("PUT", f"/accounts/{name}", json.dumps({"balance": balance}), JSON)


def look(service, name="a"):
    return service.ask("GET", f"/accounts/{name}")


def add(service, amount, name="a"):
    return service.ask("POST", f"/accounts/{name}/add?amount={amount}")


def transfer(service, amount=5, source="a", to="b"):
    return service.ask("POST", f"/transfers?from={source}&to={to}&amount={amount}")


def there(redis, *names):
    """What Redis has: (balance, version) of each account."""
    return [tuple(int(number) for number in redis("HMGET", key(name), "balance", "version")) for name in names or "ab"]


def point(service, name, action):
    assert service.admin("PUT", "/failpoints", json.dumps({"point": name, "action": action}), JSON).status == 200


def stay(service, name, count=1):
    def paused():
        points = service.admin("GET", "/failpoints").json["failpoints"]
        return sum(point["paused"] for point in points if point["point"] == name)
    wait_until(lambda: paused() == count, f"{count} are at {name}")


def at(service, name, function, *args):
    """Begins a request, and waits until it is paused at that point."""
    point(service, name, "1*pause")
    request = service.in_background(function, service, *args)
    stay(service, name)
    return request


def events(history, request=None):
    return [line for line in read_history(history) if request is None or line.get("request") == request]


def named(history, *names):
    return [line for line in read_history(history) if line["event"] in names]


# ---- What is asked ----

@pytest.mark.parametrize("write", ["two", "script"])
@pytest.mark.parametrize("locks", ["unordered", "many"])
@pytest.mark.parametrize("lock", ["watchdog", "fair"])
def test_accounts_are_laid_read_and_changed(redis, accountd, lock, locks, write):
    service, other = (accountd("--lock", lock, "--locks", locks, "--write", write, name=name) for name in "ab")
    assert look(service, "c").problem == "unknown-account"
    assert lay(service, "c", 7).json == {"account": "c", "balance": 7, "version": 1}
    assert look(other, "c").json == {"account": "c", "balance": 7, "version": 1, "instance": "b"}
    assert add(service, 200).json == {"account": "a", "balance": 300, "version": 2, "instance": "a"}
    assert add(other, -300).json == {"account": "a", "balance": 0, "version": 3, "instance": "b"}
    assert transfer(service, 5, "b", "a").json == {"account": "b", "balance": 95, "version": 2, "to_balance": 5,
                                                   "to_version": 4, "instance": "a"}
    assert transfer(other, 7, "c", "b").json["balance"] == 0
    assert there(redis, "a", "b", "c") == [(5, 4), (102, 3), (0, 2)]
    assert [service.metric(f"account_{what}_total") for what in ("adds", "transfers", "writes_refused")] == [1, 1, 0]
    assert bool(redis("HGET", key("a"), "token")) == (lock == "fair" and write == "script")
    assert lay(service, "a", 9).status == 200
    assert there(redis, "a") == [(9, 1)] and not redis("HGET", key("a"), "token")
    assert service.admin("GET", "/readyz").status == 200


ADD, TRANSFER = "/accounts/a/add", "/transfers"
LONG = 65 * "n"


@pytest.mark.parametrize("method, path, problem, told", [
    ("POST", ADD, "invalid-query", '"amount" is missing; the parameter is amount, -9007199254740991 to 9007199254740991, '
                                   'once; as in ?amount=200'),
    ("POST", ADD + "?", "invalid-query", '"amount" is missing'),
    *(("POST", f"{ADD}?{query}", "invalid-query", "as in ?amount=200") for query in (
        "amount=", "amount=x", "amount=1.5", "amount=1e3", "amount=+1", "amount=%31", "amount=01", "amount=--1", "amount=-",
        "amount=-0", "amount=-01", "amount=9007199254740992", "amount=-9007199254740992", "amount=99999999999999999999",
        "amount=1&amount=1", "amount=1&more=1", "Amount=1", "amount", "amount=1&", "amount= 1", "amount=1%20", "amount=0x1")),
    ("POST", ADD + "?amount=-101", "insufficient-funds", "a has 100, and 101 should be taken"),
    ("POST", f"{ADD}?amount=-{MOST}", "insufficient-funds", ""),
    ("POST", f"{ADD}?amount={MOST}", "balance-too-large", f"a has 100 in its version 1, and neither goes beyond {MOST}"),
    ("POST", f"{ADD}?amount={MOST - 99}", "balance-too-large", ""),
    ("POST", "/accounts/A/add?amount=1", "invalid-name", ""), ("POST", "/accounts//add?amount=1", "invalid-name", ""),
    ("POST", f"/accounts/{LONG}/add?amount=1", "invalid-name", ""),
    ("POST", "/accounts/c/add?amount=1", "unknown-account", "there is no account c"),
    ("GET", ADD + "?amount=1", "method-not-allowed", ""), ("PUT", ADD + "?amount=1", "method-not-allowed", ""),
    ("POST", TRANSFER, "invalid-query", '"from" is missing; the parameters are from, a name of 1 to 64 of a-z 0-9 _ -, to, '),
    *(("POST", f"{TRANSFER}?{query}", "invalid-query", "each once; as in ?from=a&to=b&amount=5") for query in (
        "from=a&to=b", "to=b&amount=5", "from=a&amount=5", "from=a&to=b&amount=0", "from=a&to=b&amount=-5", "from=a&to=B&amount=5",
        "from=a%62&to=b&amount=5", "from=&to=b&amount=5", f"from=a&to={LONG}&amount=5", f"from={LONG}&to=b&amount=5",
        "from=a&to=b&amount=5&to=b", "from=a&to=b&amount=5&x=1", "from=a&to=b c&amount=5", "from=a;to=b;amount=5")),
    ("POST", TRANSFER + "?from=a&to=a&amount=5", "invalid-query", "from and to are both a; they must be two accounts, as in "
                                                                  "?from=a&to=b&amount=5"),
    ("POST", TRANSFER + "?from=a&to=b&amount=101", "insufficient-funds", "a has 100, and 101 should be taken"),
    ("POST", f"{TRANSFER}?from=rich&to=a&amount={MOST}", "balance-too-large", "a has 100"),
    ("POST", TRANSFER + "?from=a&to=c&amount=5", "unknown-account", "there is no account c"),
    ("POST", TRANSFER + "?from=c&to=a&amount=5", "unknown-account", "there is no account c"),
    ("GET", TRANSFER, "method-not-allowed", ""), ("POST", TRANSFER + "/a", "no-such-resource", "POST /transfers"),
    ("GET", "/accounts/A", "invalid-name", ""), ("GET", "/accounts/c", "unknown-account", ""),
    ("GET", "/accounts/a?x=1", "invalid-query", "GET /accounts/{name} takes no parameters"),
    ("PUT", "/accounts/a", "operators-only", ""),
])
def test_what_is_refused(redis, shared, method, path, problem, told):
    before = there(shared.redis, "a", "b", "rich")
    answer = shared.ask(method, path.replace(" ", "%20") if "b c" in path or "= 1" in path else path)
    assert answer.problem == problem and told in answer.json["detail"], answer
    assert there(shared.redis, "a", "b", "rich") == before and not shared.redis("EXISTS", key("c"))


@pytest.mark.parametrize("body, problem", [
    ("", "invalid-json"), ("5", "invalid-value"), ("{}", "invalid-value"), ('{"balance":-1}', "invalid-value"),
    ('{"balance":"5"}', "invalid-value"), ('{"balance":1.0}', "invalid-value"), ('{"balance":1e3}', "invalid-value"),
    ('{"balance":5,"version":1}', "invalid-value"), ('{"stock":5}', "invalid-value"), ('{"balance":5}x', "invalid-json"),
    ('{"balance":9007199254740992}', "invalid-value"), ('{"balance":9007199254740993}', "invalid-value"),
    ('{"balance":null}', "invalid-value"), ('{"balance":[5]}', "invalid-value"), ('{"balance":5,"balance":6}', "invalid-json"),
])
def test_what_operators_are_refused(shared, body, problem):
    assert shared.admin("PUT", "/accounts/c", body, JSON).problem == problem
    assert shared.admin("PUT", "/accounts/C", '{"balance":5}', JSON).problem == "invalid-name"
    assert not shared.redis("EXISTS", key("c"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One instance for all tests that change nothing."""
    from world import running
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INVENTORYD", ACCOUNTD)
        with running(tmp_path_factory.mktemp("accounts")) as instance:
            for name, balance in ("a", 100), ("b", 100), ("rich", MOST):
                assert lay(instance, name, balance).status == 200
            yield instance


WRONG = {
    "a text": ("SET", "x"), "a set": ("SADD", "x"), "no version": ("HSET", "balance", 5), "no balance": ("HSET", "version", 5),
    "words": ("HSET", "balance", "many", "version", 5), "a fraction": ("HSET", "balance", "1.5", "version", 5),
    "below 0": ("HSET", "balance", "-5", "version", 5), "a blank": ("HSET", "balance", " 5", "version", 5),
    "too large": ("HSET", "balance", MOST + 1, "version", 5), "far too large": ("HSET", "balance", 30 * "9", "version", 5),
    "an empty text": ("HSET", "balance", "", "version", 5), "a version in words": ("HSET", "balance", 5, "version", "new"),
    "a version too large": ("HSET", "balance", 5, "version", MOST + 1),
    "a token in words": ("HSET", "balance", 5, "version", 5, "token", "x"),
}


def content(redis, name):
    """What nobody may change; a reader may leave its token there."""
    if redis("TYPE", key(name)) != "hash":
        return redis("DUMP", key(name))
    token = redis("HGET", key(name), "token")
    return [*redis("HMGET", key(name), "balance", "version"), token if token == "x" else None]


@pytest.mark.parametrize("flags", [("--write", "two"), ("--lock", "fair")], ids=["two", "script"])
def test_a_key_that_holds_something_else(redis, accountd, flags):
    service = accountd(*flags)
    for what, (command, *words) in WRONG.items():
        redis(command, key("w"), *words)
        before = content(redis, "w")
        for answer in (look(service, "w"), add(service, 5, "w"), transfer(service, 5, "a", "w"), transfer(service, 5, "w", "a")):
            assert answer.problem == "data-invalid" and answer.json["detail"] == (
                "account:{bank}:w is no hash with a balance and a version: an operator must PUT /accounts/w"), (what, answer)
        assert content(redis, "w") == before and there(redis) == [(100, 1)] * 2, what
        assert lay(service, "w", 5).status == 200 and add(service, 5, "w").json["balance"] == 10, what
        redis("DEL", key("w"))


def test_the_largest_numbers(redis, accountd):
    service = accountd()
    lay(service, "a", MOST - 1)
    assert add(service, 1).json["balance"] == MOST
    assert add(service, 1).problem == "balance-too-large"
    assert transfer(service, 1, "b", "a").problem == "balance-too-large"
    assert transfer(service, MOST, "a", "c").problem == "unknown-account"
    lay(service, "c", 0)
    assert transfer(service, MOST, "a", "c").json["to_balance"] == MOST
    redis("HSET", key("a"), "version", MOST)
    assert add(service, 1).problem == "balance-too-large"
    assert there(redis, "a", "b", "c") == [(0, MOST), (100, 1), (MOST, 2)]


@pytest.mark.parametrize("flags, told", [
    (("--lock", "redlock"), "--lock redlock needs other servers than the one that accountd has"),
    (("--write", "atomic"), "two|script"), (("--locks", "ordered"), "unordered|many"), (("--work-ms", "-1"), "0 to 60000"),
])
def test_settings_that_do_not_fit(redis, flags, told):
    done = subprocess.run([ACCOUNTD, "--listen", "127.0.0.1:0", "--admin-listen", "off", "--redis", redis.url, *flags],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and told.replace("|", " or ") in done.stderr.replace("|", " or "), done


# ---- A lost update ----

@pytest.mark.parametrize("write", ["two", "script"])
@pytest.mark.parametrize("lock, instances, then", [("none", "a", (300, 2)), ("local", "ab", (300, 2)), ("local", "a", (200, 3)),
                                                   ("watchdog", "ab", (200, 3))], ids=lambda value: str(value))
def test_two_updates_step_by_step(redis, accountd, tmp_path, lock, instances, then, write):
    """A adds 200, B takes 100. Both read 100: A's write undoes B's."""
    history = tmp_path / "h.jsonl"
    service = accountd("--lock", lock, "--write", write, "--history", history)
    other = accountd("--lock", lock, "--write", write, name="b") if instances == "ab" else service
    first = at(service, "account.read", add, 200)
    second = other.in_background(add, other, -100)
    if then == (300, 2):
        assert second.result().json["balance"] == 0
    else:
        wait_until(lambda: other.metric("lock_contended_total") > 0, "the second one waits")
    point(service, "account.read", "off")
    assert first.result().json["balance"] == 300
    assert second.result().json["version"] == then[1]
    assert there(redis, "a") == [then]
    if instances == "a":
        assert len({line["version"] for line in named(history, "wrote")}) == then[1] - 1


# ---- A torn transfer ----

def crash(service, name):
    point(service, name, "1*crash")
    with pytest.raises(OSError):
        transfer(service)
    assert service.process.wait(30) == -signal.SIGKILL


@pytest.mark.parametrize("write, name, then", [
    ("two", "account.between", [(95, 2), (100, 1)]), ("two", "account.read", [(100, 1)] * 2),
    ("two", "account.before_answer", [(95, 2), (105, 2)]), ("script", "account.read", [(100, 1)] * 2),
    ("script", "account.before_answer", [(95, 2), (105, 2)])])
def test_a_process_that_dies_in_a_transfer(redis, accountd, write, name, then):
    service = accountd("--write", write, "--lock", "owner_lua", "--ttl-ms", 500)
    crash(service, name)
    service.end = lambda: None  # it has
    assert there(redis) == then
    successor = accountd("--write", write, "--lock", "owner_lua", name="b")
    assert transfer(successor).json["balance"] == then[0][0] - 5  # once the locks have expired


def test_a_script_is_never_between(redis, accountd):
    service = accountd("--write", "script")
    point(service, "account.between", "1*crash")
    assert transfer(service).status == 200 and there(redis) == [(95, 2), (105, 2)]


def test_the_second_write_is_refused(redis, accountd, tmp_path):
    history = tmp_path / "h.jsonl"
    service = accountd("--write", "two", "--history", history)
    request = at(service, "account.between", transfer)
    redis("SET", key("b"), "x")
    point(service, "account.between", "off")
    answer = request.result()
    assert answer.problem == "outcome-unknown" and answer.status == 500
    assert "half of the transfer is written: a has its new balance, and b has not" in answer.json["detail"]
    assert there(redis, "a") == [(95, 2)]
    assert [line["event"] for line in events(history)][-6:] == ["writing", "exit", "release", "exit", "release", "unknown"]
    assert named(history, "unknown")[0]["reason"] == "outcome-unknown"


# ---- A holder that stands still for too long ----

def frozen(service, redis, *names):
    service.signal(signal.SIGSTOP)
    wait_until(lambda: not any(redis("EXISTS", "lock:{%s}" % name) for name in names), "the locks expire")


@pytest.mark.parametrize("lock, write, then", [
    ("set_nx_ex", "script", (300, 2)), ("owner_lua", "script", (300, 2)), ("fair", "two", (300, 2)), ("fair", "script", (0, 2))])
def test_a_holder_that_is_frozen_beyond_its_time_to_live(redis, accountd, tmp_path, lock, write, then):
    flags, history = ("--lock", lock, "--ttl-ms", 1000, "--write", write), tmp_path / "h.jsonl"
    service, other = accountd(*flags, "--history", history), accountd(*flags, name="b")
    first = at(service, "account.read", add, 200)
    frozen(service, redis, "a")
    assert add(other, -100).json == {"account": "a", "balance": 0, "version": 2, "instance": "b"}
    service.signal(signal.SIGCONT)
    point(service, "account.read", "off")
    answer = first.result()
    assert there(redis, "a") == [then]
    if then == (300, 2):
        assert answer.json["balance"] == 300
        return
    assert answer.status == 409 and answer.problem == "stale-token"
    refused, = named(history, "write_refused")
    assert refused["account"] == "a" and refused["token"] < refused["newest"] == int(redis("HGET", key("a"), "token"))
    assert not named(history, "wrote") and service.metric("account_writes_refused_total") == 1
    end, = named(history, "refused")
    assert (end["code"], end["reason"]) == (409, "stale-token")


@pytest.mark.parametrize("newer", ["a", "b"])
def test_a_late_transfer_is_refused_by_any_of_its_accounts(redis, accountd, tmp_path, newer):
    flags, history = ("--lock", "fair", "--ttl-ms", 1000), tmp_path / "h.jsonl"
    service, other = accountd(*flags, "--history", history), accountd(*flags, name="b")
    first = at(service, "account.read", transfer)
    frozen(service, redis, "a", "b")
    assert add(other, 1, newer).json["balance"] == 101
    before = there(redis)
    service.signal(signal.SIGCONT)
    point(service, "account.read", "off")
    assert first.result().problem == "stale-token"
    assert there(redis) == before
    refused, = named(history, "write_refused")
    assert (refused["account"], refused["lock"], refused["item"]) == (newer, "lock:{%s}" % newer, "a")


@pytest.mark.parametrize("newer", ["a", "b"])
def test_a_late_write_between_a_read_and_a_write(redis, accountd, tmp_path, newer):
    """The later holder has read, and has not written yet: its read has claimed the account."""
    flags, history = ("--lock", "fair", "--ttl-ms", 1000), tmp_path / "h.jsonl"
    service, other = accountd(*flags, "--history", history), accountd(*flags, name="b")
    first = at(service, "account.read", transfer)
    frozen(service, redis, "a", "b")
    second = at(other, "account.read", add, 1, newer)
    service.signal(signal.SIGCONT)
    point(service, "account.read", "off")
    assert first.result().problem == "stale-token"
    point(other, "account.read", "off")
    assert second.result().json["balance"] == 101
    assert named(history, "write_refused")[0]["account"] == newer


def test_a_late_reader_claims_nothing(redis, accountd, tmp_path):
    flags, history = ("--lock", "fair", "--ttl-ms", 1000, "--locks", "unordered"), tmp_path / "h.jsonl"
    service, other = accountd(*flags, "--history", history), accountd(*flags, name="b")
    first = at(service, "account.one_lock", transfer)
    frozen(service, redis, "a")
    assert add(other, 1).json["balance"] == 101
    token = redis("HGET", key("a"), "token")
    service.signal(signal.SIGCONT)
    point(service, "account.one_lock", "off")
    assert first.result().problem == "stale-token"
    assert redis("HGET", key("a"), "token") == token and not named(history, "read")


# ---- Two locks at once ----

RELEASING = "owner_check.between_get_and_del"


def test_two_transfers_that_wait_for_each_other(redis, accountd, tmp_path):
    """Neither releases before both have waited in vain: until then they stay in their release."""
    history = tmp_path / "h.jsonl"
    service = accountd("--locks", "unordered", "--lock", "owner_check", "--wait-ms", 1500, "--history", history)
    point(service, "account.one_lock", "2*pause")
    point(service, RELEASING, "2*pause")
    both = [service.in_background(transfer, service, 5, *names) for names in ("ab", "ba")]
    stay(service, "account.one_lock", 2)
    point(service, "account.one_lock", "off")
    stay(service, RELEASING, 2)
    point(service, RELEASING, "off")
    assert [one.result().problem for one in both] == ["lock-timeout"] * 2
    assert there(redis) == [(100, 1)] * 2
    wants = named(history, "wants")
    assert sorted((line["lock"], line["wants"]) for line in wants) == [("lock:{a}", "lock:{b}"), ("lock:{b}", "lock:{a}")]
    assert {line["hold"] for line in wants} == {line["hold"] for line in named(history, "granted")}
    assert max(line["seq"] for line in wants) < min(line["seq"] for line in named(history, "exit"))
    assert [line["reason"] for line in named(history, "refused")] == ["lock-timeout"] * 2
    assert transfer(service).status == 200  # both locks are free


@pytest.mark.parametrize("lock", ["owner_check", "watchdog", "fair"])
def test_two_transfers_that_take_both_locks_or_none(redis, accountd, tmp_path, lock):
    history = tmp_path / "h.jsonl"
    service, other = accountd("--locks", "many", "--lock", lock, "--history", history), accountd("--locks", "many", "--lock", lock, name="b")
    first = at(service, "account.read", transfer)
    second = other.in_background(transfer, other, 7, "b", "a")
    wait_until(lambda: other.metric("lock_contended_total") > 0, "the second one waits")
    point(service, "account.read", "off")
    assert [one.result().status for one in (first, second)] == [200, 200]
    assert there(redis) == [(102, 3), (98, 3)]
    assert not named(history, "wants")


@pytest.mark.parametrize("locks", ["unordered", "many"])
@pytest.mark.parametrize("taken", ["a", "b"])
def test_a_lock_that_is_not_granted_leaves_no_other(redis, accountd, taken, locks):
    service = accountd("--locks", locks, "--lock", "owner_lua", *SHORT)
    redis("SET", "lock:{%s}" % taken, "somebody")
    assert transfer(service).problem == "lock-timeout"
    assert redis("KEYS", "lock:{?}") == ["lock:{%s}" % taken]
    assert there(redis) == [(100, 1)] * 2
    redis("DEL", "lock:{%s}" % taken)
    assert transfer(service).status == 200


def test_both_locks_are_renewed(redis, accountd):
    service = accountd("--lock", "watchdog", "--ttl-ms", 600)
    first = at(service, "account.read", transfer)
    wait_until(lambda: service.metric("lock_renewals_total") >= 6, "renewals")
    assert redis("EXISTS", "lock:{a}", "lock:{b}") == 2
    point(service, "account.read", "off")
    assert first.result().status == 200 and redis("EXISTS", "lock:{a}", "lock:{b}") == 0


# ---- Lost replies ----

def known(service):
    """Redis has its script, so that it is sent once."""
    lay(service, "c", 1), add(service, 1, "c")
    return service


@pytest.mark.parametrize("write, lost, then, sent", [
    ("two", b"account:{bank}:a", [(95, 2), (100, 1)], ["a"]),
    ("two", b"account:{bank}:b", [(95, 2), (105, 2)], ["a", "b"]),
    ("script", b"account:{bank}:b", [(95, 2), (105, 2)], ["a", "b"])])
def test_a_lost_reply_of_a_write(redis, proxy, accountd, tmp_path, write, lost, then, sent):
    """It may have been carried out: nobody is told that it was not, and nothing follows it."""
    history = tmp_path / "h.jsonl"
    service = known(accountd("--write", write, "--history", history, over=proxy.url))
    request = at(service, "account.read", transfer)
    proxy.lose = lost
    point(service, "account.read", "off")
    answer = request.result()
    assert answer.status == 500 and answer.problem == "outcome-unknown" and proxy.lost == 1
    assert there(redis) == then
    assert [line["account"] for line in named(history, "writing")] == ["c", *sent]
    assert len(named(history, "wrote")) == 1 + (lost.endswith(b"b") and write == "two")
    end, = named(history, "unknown")
    assert (end["code"], end["reason"]) == (500, "outcome-unknown") and end["request"] not in {line["request"] for line in named(history, "answered")}
    assert {line["status"] for line in named(history, "release")} == {"OK"}
    assert transfer(service).status == 200


@pytest.mark.parametrize("write, late, then", [("two", "a", 100), ("two", "b", 95), ("script", "a", 100)])
def test_a_late_write_meets_no_later_holder(redis, proxy, accountd, write, late, then):
    """It stays on the way to Redis, which is told to end its connection before the locks are released."""
    service, other = known(accountd("--write", write, *SHORT, over=proxy.url)), accountd(*SHORT, name="b")
    request = at(service, "account.read", transfer)
    proxy.hold = key(late).encode()
    point(service, "account.read", "off")
    assert request.result().problem == "outcome-unknown"
    assert proxy.held == 1
    assert [add(other, 11, name).json["balance"] for name in "ab"] == [then + 11, 111]
    proxy.hold = None
    wait_until(lambda: proxy.held == 0, "it is sent on")
    assert add(service, 1).json["balance"] == then + 12
    assert [balance for balance, _ in there(redis)] == [then + 12, 111]


@pytest.mark.parametrize("locks", ["unordered", "many"])
def test_both_locks_expire_if_the_late_write_cannot_be_stopped(redis, proxy, accountd, tmp_path, locks):
    history = tmp_path / "h.jsonl"
    assert redis("ACL", "SETUSER", "default", "-client|kill") == "OK"
    service = known(accountd("--lock", "owner_lua", "--locks", locks, *SHORT, "--history", history, over=proxy.url))
    request = at(service, "account.read", transfer)
    proxy.hold = b"account:{bank}:a"
    point(service, "account.read", "off")
    assert request.result().problem == "outcome-unknown"
    assert [line["status"] for line in named(history, "release")] == ["OK", "ABANDONED", "ABANDONED"]
    assert redis("EXISTS", "lock:{a}", "lock:{b}") == 2
    other = accountd("--lock", "owner_lua", *SHORT, name="b")
    assert [add(other, 1, name).problem for name in "ab"] == ["lock-timeout"] * 2
    proxy.hold = None
    wait_until(lambda: there(redis) == [(95, 2), (105, 2)], "the late write is carried out under its lock")


@pytest.mark.parametrize("locks", ["unordered", "many"])
@pytest.mark.parametrize("lock", ["set_nx_ex", "local", "watchdog_timer", "setnx"])
def test_a_lock_that_cannot_be_left_to_expire_is_released(redis, proxy, accountd, tmp_path, lock, locks):
    """A flawed rung has no such end. The hold must end all the same, and not be looked at when its time is over."""
    history = tmp_path / "h.jsonl"
    assert redis("ACL", "SETUSER", "default", "-client|kill") == "OK"
    service = known(accountd("--lock", lock, "--locks", locks, "--ttl-ms", 300, *SHORT, "--history", history, over=proxy.url))
    request = at(service, "account.read", transfer)
    proxy.hold = b"account:{bank}:a"
    point(service, "account.read", "off")
    assert request.result().problem == "outcome-unknown"
    assert "ABANDONED" not in [line["status"] for line in named(history, "release")]
    proxy.hold = None
    wait_until(lambda: proxy.held == 0, "it is sent on")
    wait_until(lambda: redis("EXISTS", "lock:{a}", "lock:{b}") == 0, "no lock is left")
    assert [add(service, 1, name).status for name in "abab"] == [200] * 4
    redis("SET", "a while", 1, "PX", 600)  # longer than the time to live
    wait_until(lambda: redis("EXISTS", "a while") == 0, "the hold would have expired")
    assert transfer(service).status == 200


@pytest.mark.parametrize("write", ["two", "script"])
def test_who_has_lost_its_lock_writes_nothing(redis, accountd, write):
    service = accountd("--lock", "owner_lua", "--ttl-ms", 200, "--work-ms", 500, "--write", write)
    assert [transfer(service).problem, add(service, 1).problem] == ["lock-lost"] * 2
    assert there(redis) == [(100, 1), (100, 1)]


def test_an_account_that_is_laid_anew_while_a_request_has_read_it(redis, accountd):
    service = accountd("--lock", "fair")
    request = at(service, "account.read", transfer)
    assert lay(service, "b", 7).status == 200
    point(service, "account.read", "off")
    assert request.result().problem == "stale-token"
    assert there(redis) == [(100, 1), (7, 1)]


def test_who_may_not_write_deletes_nothing(redis, accountd):
    service = accountd("--lock", "none")
    assert redis("ACL", "SETUSER", "default", "-hset") == "OK"
    assert lay(service, "a", 7).problem == "data-unavailable"
    assert transfer(service).problem == "data-unavailable"
    assert there(redis) == [(100, 1), (100, 1)]


@pytest.mark.parametrize("token", ["inf", "0x10", " 5", "-1", "1e3", "some"])
def test_a_token_that_is_no_number(redis, accountd, token):
    service = accountd("--lock", "fair")
    redis("HSET", key("a"), "token", token)
    assert add(service, 1).problem == "data-invalid"
    assert transfer(service, source="b", to="a").problem == "data-invalid"
    assert there(redis) == [(100, 1), (100, 1)]


def test_a_thread_that_can_have_one_lock(accountd):
    with pytest.raises(AssertionError, match="two locks at once"):
        accountd("--lock", "reentrant_tls")


def test_a_lost_reply_of_an_operators_put(redis, proxy, accountd):
    service = accountd(*SHORT, over=proxy.url)
    assert lay(service, "a", 5).status == 200
    proxy.lose = key("a").encode()
    assert lay(service, "a", 6).problem == "outcome-unknown"
    proxy.hold = key("a").encode()
    assert lay(service, "a", 7).problem == "outcome-unknown"
    assert redis("HSET", key("a"), "balance", 8) == 0
    proxy.hold = None
    wait_until(lambda: proxy.held == 0, "it is sent on")
    assert look(service).json["balance"] == 8


# ---- Redis is away ----

@pytest.mark.parametrize("lock, problem", [("none", "data-unavailable"), ("watchdog", "lock-unavailable")])
def test_redis_is_away(redis, accountd, lock, problem):
    service = accountd("--lock", lock, *SHORT)
    assert transfer(service).status == 200
    redis.kill()
    assert look(service).problem == "data-unavailable"
    assert lay(service, "a", 1).problem == "data-unavailable"
    assert [add(service, 1).problem, transfer(service).problem] == [problem] * 2
    assert service.admin("GET", "/readyz").problem == "not-ready"
    redis.start()
    wait_until(lambda: {lay(service, name, 7).status for name in "ab"} == {200}, "operators reach Redis")
    wait_until(lambda: look(service).status == 200, "workers reach Redis")
    assert (answer := transfer(service, 7)).json.get("to_balance") == 14, answer


@pytest.mark.parametrize("write", ["two", "script"])
def test_redis_dies_before_the_write(redis, accountd, write):
    service = accountd("--lock", "none", "--write", write, *SHORT)
    request = at(service, "account.read", transfer)
    redis.kill()
    point(service, "account.read", "off")
    assert request.result().problem == "data-unavailable"


def test_redis_dies_between_two_writes(redis, accountd):
    service = accountd("--lock", "none", "--write", "two", *SHORT)
    request = at(service, "account.between", transfer)
    redis.kill()
    point(service, "account.between", "off")
    assert request.result().problem == "outcome-unknown"


# ---- The history ----

COMMON = {"t_ns", "seq", "instance", "event", "thread", "request", "item", "rung", "lock"}
FIELDS = {
    "granted": {"hold", "mode", "owner", "token", "waited_ns"}, "enter": {"hold"}, "exit": {"hold"}, "release": {"hold", "status"},
    "wants": {"hold", "wants"}, "read": {"hold", "account", "balance", "version"},
    "writing": {"hold", "account", "before", "balance", "version", "token"}, "wrote": {"hold", "account", "version", "sent_ns"}}
LOCKED = ["granted", "enter"]
LEFT = ["exit", "release"]


def lines_of_look(requests, line):
    return requests[line["request"]][0]["does"] == "look"


def whole(history, count):
    """The lines of each request, once its fields are seen to be right."""
    lines = read_history(history)
    check_history(lines)
    requests = {}
    for line in (line for line in lines if "request" in line):
        requests.setdefault(line["request"], []).append(line)
        fields = FIELDS.get(line["event"], set()) - ({"hold"} if lines_of_look(requests, line) else set())
        assert line["event"] not in FIELDS or set(line) == COMMON | fields, line
    assert len(requests) == count
    return lines[0], [[line["event"] for line in of_one] for of_one in requests.values()], list(requests.values())


@pytest.mark.parametrize("lock", ["none", "watchdog", "fair"])
@pytest.mark.parametrize("locks, write, in_transfer", [
    ("many", "script", [*LOCKED, *LOCKED, "read", "read", "writing", "writing", "wrote", "wrote"]),
    ("unordered", "two", [*LOCKED, "wants", *LOCKED, "read", "read", "writing", "wrote", "writing", "wrote"])])
def test_its_history(accountd, tmp_path, lock, locks, write, in_transfer):
    history = tmp_path / "h.jsonl"
    service = accountd("--lock", lock, "--locks", locks, "--write", write, "--history", history, "--run", "r1", "--work-ms", 1)
    assert [answer.status for answer in (look(service), add(service, -1), transfer(service, 5, "b", "a"), transfer(service, 96, "b", "a"))
            ] == [200, 200, 200, 409]
    service.end()
    begin, order, (looked, added, moved, refused) = whole(history, 4)
    assert {name: begin[name] for name in ("service", "run", "rung", "write", "locks", "work_ms")} == {
        "service": "account", "run": "r1", "rung": lock, "write": write, "locks": locks, "work_ms": 1}
    assert order == [["invoke", "read", "answered"], ["invoke", *LOCKED, "read", "writing", "wrote", "answered", *LEFT],
                     ["invoke", *in_transfer, "answered", *LEFT, *LEFT],
                     ["invoke", *in_transfer[:in_transfer.index("read") + 1], *LEFT, *LEFT, "refused"]]

    def said(line):
        return {name: value for name, value in line.items() if name not in COMMON | {"hold", "token", "sent_ns"}}
    assert said(looked[0]) == {"does": "look"} and said(looked[1]) == {"account": "a", "balance": 100, "version": 1}
    assert said(looked[2]) == {"code": 200, "balance": 100, "version": 1}
    assert said(added[0]) == {"does": "add", "amount": -1}
    assert said(moved[0]) == {"does": "transfer", "amount": 5, "to": "a"}
    assert [said(line) for line in moved if line["event"] == "writing"] == [
        {"account": "b", "before": 100, "balance": 95, "version": 2}, {"account": "a", "before": 99, "balance": 104, "version": 3}]
    assert [said(line) for line in moved if line["event"] == "wrote"] == [
        {"account": "b", "version": 2}, {"account": "a", "version": 3}]
    assert [said(line) for line in moved if line["event"] == "answered"] == [
        {"code": 200, "balance": 95, "version": 2, "to_balance": 104, "to_version": 3}]
    assert {line["item"] for line in moved} == {"b"}
    assert all(line["lock"] == "lock:{%s}" % line["account"] for line in moved if "account" in line)
    of_holds = {line["hold"]: (line["lock"], line["token"]) for line in moved if line["event"] == "granted"}
    assert len(of_holds) == 2
    assert all((line["lock"], line["token"]) == of_holds[line["hold"]] for line in moved if line["event"] == "writing")
    assert all(line["lock"] == of_holds[line["hold"]][0] for line in moved if line["event"] in ("read", "wrote"))
    assert all((token > 0) == (lock == "fair") for _, token in of_holds.values())
    assert all(line["sent_ns"] <= line["t_ns"] for line in moved if line["event"] == "wrote")
    assert said(refused[-1]) == {"code": 409, "reason": "insufficient-funds"}


def test_a_request_that_no_worker_serves_is_in_the_history(redis, accountd, tmp_path):
    history = tmp_path / "h.jsonl"
    service = accountd("--workers", 1, "--wait-ms", 300, "--history", history)
    first = at(service, "account.read", transfer)
    assert transfer(service, 7, "b", "a").problem == "deadline"
    assert add(service, 7, "b").problem == "deadline"
    point(service, "account.read", "off")
    assert first.result().status == 200
    refused = named(history, "refused")
    assert [(line["code"], line["reason"], line["item"]) for line in refused] == [(503, "deadline", "b")] * 2
    invoked = [line for line in named(history, "invoke") if line["request"] in {line["request"] for line in refused}]
    assert [(line["does"], line["amount"], line.get("to"), line["item"]) for line in invoked] == [
        ("transfer", 7, "a", "b"), ("add", 7, None, "b")]


def test_an_operators_put_is_not_in_the_history(accountd, tmp_path):
    service = accountd("--history", tmp_path / "h.jsonl")
    lay(service, "a", 5)
    assert [line["event"] for line in read_history(tmp_path / "h.jsonl")] == ["begin"]
