# SPDX-License-Identifier: Apache-2.0
"""The scripts of --admit, with the server's clock in the test's hand; and the one that sets the stock."""
import math
import pathlib
import random
from fractions import Fraction

import lua_scripts
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "service" / "lua"
ITEM = "inventory:{phone}"
SET, BUCKET, WINDOW, RECORD = (f"{ITEM}:{name}" for name in ("set", "bucket", "window", "key:k"))
NOW = 1795747840605123
SECOND, HOUR, MOST = 10**6, 3600 * 10**6, 10**9

# TIME is the test's: the last argument. A time to live is noted in the key `px`, and is not given: it runs by another clock.
CLOCK = """
local real = redis
local redis = {pcall = real.pcall, error_reply = real.error_reply, call = function(command, ...)
    local words = {...}
    if command == 'TIME' then
        return {tostring(math.floor(ARGV[#ARGV] / 1000000)), tostring(ARGV[#ARGV] % 1000000)}
    elseif command == 'SET' and words[3] == 'PX' then
        real.call('SET', 'px', words[4])
        return real.call('SET', words[1], words[2])
    end
    return real.call(command, ...)
end}
"""


@pytest.fixture
def bucket(server):
    """Asks for admissions, at a time in microseconds."""
    server("FLUSHALL")
    text = CLOCK + (FOLDER / "admit_bucket.lua").read_text()

    def ask(now_us, rate, burst="", *record):
        return server("EVAL", text, 2 + len(record), BUCKET, SET, *record, rate, burst, now_us)
    return ask


@pytest.fixture
def window(server):
    server("FLUSHALL")
    text = CLOCK + (FOLDER / "admit_window.lua").read_text()
    return lambda now_us, rate, *record: server("EVAL", text, 1 + len(record), WINDOW, *record, rate, now_us)


def admitted(ask, count, *how):
    return sum(ask(*how) == ["admitted"] for _ in range(count))


# ---- The bucket ----------------------------------------------------------------------------------

def test_a_burst_and_then_the_rate(bucket):
    assert admitted(bucket, 7, NOW, 10, 5) == 5
    assert bucket(NOW, 10, 5) == ["refused", 100000]
    assert bucket(NOW + 99999, 10, 5) == ["refused", 1]
    assert bucket(NOW + 100000, 10, 5) == ["admitted"]
    assert bucket(NOW + 100000, 10, 5) == ["refused", 100000]
    assert admitted(bucket, 9, NOW + 450000, 10, 5) == 3  # 3.5 have come in
    assert bucket(NOW + 450000, 10, 5) == ["refused", 50000]
    assert admitted(bucket, 9, NOW + HOUR, 10, 5) == 5  # it holds no more


@pytest.mark.parametrize("seed", range(8))
def test_it_counts_as_whole_numbers_do(bucket, seed):
    """Against a model that cannot round. No refusal writes, so the level is that of the last admission."""
    chance = random.Random(seed)
    rate, burst = (chance.choice((1, 3, 7, 1000, 999983, MOST)) for _ in "rb")
    now, level = NOW, Fraction(burst)
    for _ in range(300):
        step = chance.choice((0, 0, 1, 2, 333333, SECOND // rate, SECOND // rate + 1, SECOND, HOUR))
        now, level = now + step, min(Fraction(burst), level + Fraction(step * rate, SECOND))
        if level >= 1:
            level -= 1
            expected = ["admitted"]
        else:
            expected = ["refused", math.ceil((1 - level) / rate * SECOND)]
        assert bucket(now, rate, burst) == expected, (rate, burst, now)


def test_it_is_kept_until_it_is_full(server, bucket):
    """Then a missing bucket is the same."""
    for rate, burst, taken, ms in (10, 5, 1, 100), (10, 5, 5, 500), (3, 5, 1, 334), (MOST, 5, 1, 1), (1, MOST, 2, 2000):
        server("FLUSHALL")
        assert admitted(bucket, taken, NOW, rate, burst) == taken
        assert int(server("GET", "px")) in (ms, ms + 1), (rate, burst)  # Redis counts whole milliseconds


def test_it_expires_by_itself(server):
    text = (FOLDER / "admit_bucket.lua").read_text()
    assert server("EVAL", text, 2, BUCKET, SET, 1, 60) == ["admitted"] and 0 < server("PTTL", BUCKET) <= 1001


@pytest.mark.parametrize("back", [1, SECOND, HOUR])
def test_a_clock_that_is_set_back_adds_nothing(bucket, back):
    """Neither does it stop the bucket until that clock is where it was: time counts from the new one."""
    assert admitted(bucket, 9, NOW, 10, 5) == 5
    assert admitted(bucket, 9, NOW - back, 10, 5) == 0
    assert bucket(NOW - back + 99999, 10, 5) == ["refused", 1]
    assert admitted(bucket, 9, NOW - back + 100000, 10, 5) == 1
    assert admitted(bucket, 9, NOW - 2 * back, 10, 5) == 0


def test_a_clock_that_is_set_back_takes_nothing_away(bucket):
    assert admitted(bucket, 2, NOW, 10, 5) == 2
    assert admitted(bucket, 9, NOW - HOUR, 10, 5) == 3


def test_a_bucket_from_the_future_does_not_stop_sales(server, bucket):
    server("SET", BUCKET, f"0 {NOW}000")
    assert bucket(NOW, 10, 5)[0] == "refused" and bucket(NOW + 100000, 10, 5) == ["admitted"]


# ---- How many fit --------------------------------------------------------------------------------

@pytest.mark.parametrize("set_to,burst", [("15", 15), ("1", 1), ("0", 1), (None, 3)])
def test_as_many_fit_as_the_stock_was_set_to(server, bucket, set_to, burst):
    if set_to is not None:
        server("SET", SET, set_to)
    assert admitted(bucket, 30, NOW, 3) == burst


@pytest.mark.parametrize("set_to", [10**12, "9" * 400])
def test_a_bucket_holds_a_thousand_million_at_most(server, bucket, set_to):
    server("SET", SET, set_to)
    assert bucket(NOW, 1) == ["admitted"] and server("GET", BUCKET) == f"{(MOST - 1) * SECOND} {NOW}"


def test_a_given_burst_asks_for_no_stock(server, bucket):
    server("SET", SET, "no number")
    assert admitted(bucket, 9, NOW, 3, 4) == 4


def test_another_policy_goes_on_with_the_same_bucket(bucket):
    assert admitted(bucket, 5, NOW, 10, 5) == 5
    assert admitted(bucket, 9, NOW, 1, 100) == 0  # a greater bucket is not filled
    assert admitted(bucket, 9, NOW + 2 * SECOND, 1, 100) == 2
    assert admitted(bucket, 200, NOW + 100 * SECOND, 1, 100) == 98
    assert admitted(bucket, 1, NOW + 300 * SECOND, 1, 100) == 1
    assert admitted(bucket, 200, NOW + 300 * SECOND, 10, 5) == 5  # a smaller one holds less


# ---- A sale that was decided ---------------------------------------------------------------------

def test_a_stored_answer_takes_no_token(server, bucket):
    server("SET", RECORD, "200 1 4 a")
    assert [bucket(NOW, 1, 2, RECORD) for _ in range(5)] == [["kept"]] * 5 and server("EXISTS", BUCKET) == 0
    assert admitted(bucket, 5, NOW, 1, 2) == 2
    assert bucket(NOW, 1, 2, RECORD) == ["kept"]


def test_an_empty_record_is_none(server, bucket):
    """sell_once.lua leaves one if a sale was refused after all."""
    server("SET", RECORD, "")
    assert [bucket(NOW, 1, 1, RECORD)[0] for _ in range(2)] == ["admitted", "refused"]


def test_a_record_of_another_type_is_for_the_sale_to_report(server, bucket):
    server("LPUSH", RECORD, "x")
    assert bucket(NOW, 1, 1, RECORD) == ["kept"]


# ---- What is no bucket ---------------------------------------------------------------------------

NO_PAIR = ["x", "1", "1 2 3", "-1 2", "1 -2", "1.5 2", " 1 2", "1 2 ", "1  2", "1e3 2", "nan 1"]


@pytest.mark.parametrize("text", NO_PAIR)
def test_something_else_is_reported_and_kept(server, bucket, window, text):
    server("MSET", BUCKET, text, WINDOW, text)
    assert bucket(NOW, 1, 2) == ["invalid", 1] and window(NOW, 1) == ["invalid", 1]
    assert server("MGET", BUCKET, WINDOW) == [text, text]


@pytest.mark.parametrize("text", ["x", "", "-1", "1.5", "1e3", " 1"])
def test_a_stock_that_was_set_to_no_number(server, bucket, text):
    server("SET", SET, text)
    assert bucket(NOW, 1) == ["invalid", 2] and server("EXISTS", BUCKET) == 0


# ---- The window ----------------------------------------------------------------------------------

def test_the_flaw_of_a_window(window, bucket):
    """Twice the rate within a microsecond or two; the bucket lets through what fits."""
    end = NOW - NOW % SECOND + SECOND - 1
    assert admitted(window, 30, end, 10) == 10 and admitted(window, 30, end + 1, 10) == 10
    assert admitted(bucket, 30, end, 10, 10) == 10 and admitted(bucket, 30, end + 1, 10, 10) == 0


def test_a_window_counts_within_its_second(server, window):
    begin = NOW - NOW % SECOND
    assert admitted(window, 30, begin, 10) == 10
    assert window(begin + 250000, 10) == ["refused", 750000] and window(begin + SECOND - 1, 10) == ["refused", 1]
    assert server("GET", WINDOW) == f"10 {begin // SECOND}" and server("GET", "px") == "2000"
    server("SET", RECORD, "200 1 4 a")
    assert window(begin, 10, RECORD) == ["kept"]


# ---- Setting the stock ---------------------------------------------------------------------------

TOKEN, MARK, EPOCH_KEY, IDENTITY_KEY = "dlock:token:lock:{phone}", f"{ITEM}:fence", "inventory:epoch", "dlock:identity"
OLD, NEW, EPOCH = 1763690000123455, 1763690000123456, 1763680000000000
FENCES = [(), (MARK,), (TOKEN, EPOCH_KEY), (MARK, TOKEN, EPOCH_KEY, IDENTITY_KEY)]


@pytest.fixture
def put(server):
    """Sets the stock; before that all is as a holder of the token NEW left it."""
    server("FLUSHALL")
    server("HSET", EPOCH_KEY, "epoch", EPOCH, "identity", "x:1")
    server("MSET", ITEM, 4, BUCKET, "7 7", TOKEN, NEW, IDENTITY_KEY, "x:1")

    def call(fence, value, token=NEW, epoch=EPOCH):
        if fence[:1] == (MARK,):
            server("SET", MARK, NEW if len(fence) == 1 else f"{EPOCH} {NEW}")
        answer = server("EVAL", lua_scripts.text(FOLDER / "set_stock.lua"), 3 + len(fence), ITEM, SET, BUCKET, *fence, value, token, epoch)
        return str(answer) if isinstance(answer, Exception) else answer
    return call


@pytest.mark.parametrize("fence", FENCES)
def test_the_stock_is_set_and_kept_and_the_bucket_is_full(server, bucket, put, fence):
    server("MSET", ITEM, 4, BUCKET, f"0 {NOW}", TOKEN, NEW, IDENTITY_KEY, "x:1")
    server("HSET", EPOCH_KEY, "epoch", EPOCH, "identity", "x:1")
    assert put(fence, 9) == "4" and server("MGET", ITEM, SET) == ["9", "9"]
    assert server("GET", BUCKET) in ("", None) and admitted(bucket, 30, NOW, 1) == 9


@pytest.mark.parametrize("fence", FENCES)
@pytest.mark.parametrize("kind", ["none", "list"])
def test_whatever_the_keys_hold(server, put, fence, kind):
    server("DEL", ITEM, BUCKET)
    if kind == "list":
        for key in (ITEM, SET, BUCKET):
            server("LPUSH", key, "x")
    assert put(fence, 9) is None and server("MGET", ITEM, SET) == ["9", "9"] and server("TYPE", BUCKET) != "list"


@pytest.mark.parametrize("fence", FENCES[1:])
def test_an_old_token_sets_and_fills_nothing(server, put, fence):
    assert put(fence, 9, token=OLD).startswith(f"STALE {OLD}")
    assert server("MGET", ITEM, SET, BUCKET) == ["4", None, "7 7"]


@pytest.mark.parametrize("fence", FENCES[2:])
@pytest.mark.parametrize("other", [EPOCH - 1, EPOCH + 1])
def test_another_epoch_sets_and_fills_nothing(server, put, fence, other):
    assert put(fence, 9, epoch=other) == f"EPOCH {other}: the stock is in {EPOCH}"
    assert server("MGET", ITEM, SET, BUCKET) == ["4", None, "7 7"]


def test_a_token_that_was_issued_since_excludes_the_reader(server, put):
    """Where the lock is on the stock's server; elsewhere its key is another lock's."""
    server("SET", TOKEN, NEW + 1)
    assert put(FENCES[3], 9) == f"STALE {NEW}: the last that read is {NEW + 1}" and server("GET", ITEM) == "4"
    server("SET", IDENTITY_KEY, "y:1")
    assert put(FENCES[3], 9) == "4" and server("GET", ITEM) == "9"


@pytest.mark.parametrize("fence,why", [(FENCES[2], "the newest is unknown"), (FENCES[3], "the last that read is unknown")])
def test_a_lost_token_sets_nothing(server, put, fence, why):
    server("DEL", TOKEN)
    assert put(fence, 9) == f"STALE {NEW}: {why}" and server("MGET", ITEM, SET) == ["4", None]
