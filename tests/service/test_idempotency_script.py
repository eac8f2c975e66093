# SPDX-License-Identifier: Apache-2.0
"""The script that sells and keeps the Idempotency-Key's record in one step."""
import lua_scripts
import pytest

from idempotency import EPOCH_KEY, IDENTITY_KEY, LUA, MARK, OUT, RECORD, SOLD, STOCK, TOKEN
from world import wait_until

OLD, NEW = 1763690000123455, 1763690000123456
EPOCH = 1763680000000000


@pytest.fixture
def run(server):
    """The script over those keys; its answer, an error in its own words."""
    server("FLUSHALL")
    server("HSET", EPOCH_KEY, "epoch", EPOCH, "identity", "x:1")

    def call(*fence, quantity=1, mine=NEW, epoch=EPOCH, **before):
        server("SET", IDENTITY_KEY, "x:1" if "token" in before else "y:1")  # else the lock is elsewhere
        names = {"stock": STOCK, "record": RECORD, "token": TOKEN, "mark": MARK}
        for name, value in before.items():
            server("SET", names[name], f"{EPOCH} {value}" if name == "mark" else value)
        fence = (*fence, *((), (EPOCH_KEY,), (EPOCH_KEY, IDENTITY_KEY))[len(fence)])
        answer = server("EVAL", lua_scripts.text(LUA), 2 + len(fence), STOCK, RECORD, *fence, quantity, "a", 60000, mine, epoch)
        return str(answer) if isinstance(answer, Exception) else answer
    return call


@pytest.mark.parametrize("fence", [(), (TOKEN,), (MARK, TOKEN)])
def test_it_sells_and_keeps_in_one_step(server, run, fence):
    assert run(*fence, stock=5, token=NEW, mark=NEW) == ["made", SOLD]
    assert server("GET", STOCK) == "4" and server("GET", RECORD) == SOLD and 0 < server("PTTL", RECORD) <= 60000
    assert run(*fence) == ["kept", SOLD] and server("GET", STOCK) == "4"


@pytest.mark.parametrize("fence,why", [((TOKEN,), "the newest is unknown"),
                                       ((MARK, TOKEN), "the last that read is unknown")])
def test_a_fence_that_is_lost_lets_nothing_in(server, run, fence, why):
    assert run(*fence, stock=5) == f"STALE {NEW}: {why}"
    assert server("GET", STOCK) == "5" and server("EXISTS", RECORD) == 0


def test_a_lost_newest_token_lets_nothing_in_where_it_belongs(server, run):
    run(MARK, TOKEN, stock=5, token=NEW, mark=NEW, record=SOLD)
    server("DEL", TOKEN, RECORD)
    server("SET", IDENTITY_KEY, "x:1")
    keys = (STOCK, RECORD, MARK, TOKEN, EPOCH_KEY, IDENTITY_KEY)
    answer = server("EVAL", lua_scripts.text(LUA), len(keys), *keys, 1, "a", 60000, NEW, EPOCH)
    assert str(answer).startswith("STALE") and server("GET", STOCK) == "5" and server("EXISTS", RECORD) == 0


@pytest.mark.parametrize("fence", [(TOKEN,), (MARK, TOKEN)])
@pytest.mark.parametrize("there", [EPOCH + 1, EPOCH - 1, None])
def test_another_epoch_neither_sells_nor_keeps(server, run, fence, there):
    server("DEL", EPOCH_KEY)
    if there:
        server("HSET", EPOCH_KEY, "epoch", there, "identity", "x:1")
    assert run(*fence, stock=5, token=NEW, mark=NEW) == f"EPOCH {EPOCH}: the stock is in {there or 'none'}"
    assert server("GET", STOCK) == "5" and server("EXISTS", RECORD) == 0
    assert run(*fence, record=SOLD) == ["kept", SOLD]  # the record is given all the same


@pytest.mark.parametrize("fence,marks", [((TOKEN,), {"token": NEW}), ((MARK, TOKEN), {"mark": NEW}),
                                         ((MARK, TOKEN), {"mark": OLD, "token": NEW})])
def test_an_old_token_neither_sells_nor_keeps(server, run, fence, marks):
    answer = run(*fence, mine=OLD, stock=5, **marks)
    assert answer.startswith(f"STALE {OLD}") and answer.endswith(str(NEW))
    assert server("GET", STOCK) == "5" and server("EXISTS", RECORD) == 0
    assert run(*fence, mine=OLD, record=SOLD) == ["kept", SOLD]  # an old token too gets the record


@pytest.mark.parametrize("stock,fence,answer,kept", [
    ("0", (), ["made", OUT], OUT), ("-2", (), ["made", "409 1 -2 a"], "409 1 -2 a"),
    ("0", (TOKEN,), ["few", "0"], None),  # it had read enough: somebody wrote without the lock
    ("nine", (), ["few", "nine"], None), ("-0.5", (), ["few", "-0.5"], None), ("", (), ["few", ""], None),
    ("9007199254740993", (), ["few", "9007199254740993"], None),
    ("-9007199254740993", (), ["few", "-9007199254740993"], None),
    ("-99999999999999999999", (), ["few", "-99999999999999999999"], None),
    ("1.5", (), "ERR value is not an integer or out of range", None),
    ("nan", (), "ERR value is not an integer or out of range", None),
    (" 7", (), "ERR value is not an integer or out of range", None)])
def test_what_is_no_sale_keeps_no_sale(server, run, stock, fence, answer, kept):
    assert run(*fence, stock=stock, token=NEW) == answer
    assert server("GET", STOCK) == stock
    wait_until(lambda: server("GET", RECORD) == kept, "nothing but that is kept")


def test_too_few_are_not_kept(server, run):
    assert run(stock=5, quantity=6) == ["few", "5"] and server("EXISTS", RECORD) == 0
    server("DEL", STOCK)
    assert run() is None and server("EXISTS", RECORD) == 0


@pytest.mark.parametrize("refused", [["-decrby"], ["-decrby", "-del"]])
def test_a_decrement_that_is_refused_takes_the_record_back(server, run, refused):
    server("ACL", "SETUSER", "default", *refused)
    try:
        error = run(stock=5)
        assert "can't run this command" in error or "no permissions to run the 'decrby' command" in error  # of Redis 8
    finally:
        server("ACL", "SETUSER", "default", "+@all")
    assert server("GET", STOCK) == "5" and run()[0] == "made"  # a record that is being taken back is none
    assert server("GET", STOCK) == "4"
