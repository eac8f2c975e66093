# SPDX-License-Identifier: Apache-2.0
"""--write cas: a sale reads the stock and its version, and writes only if the version is unchanged."""
import pytest

from failpoints import arm, paused
from test_resolve import LatePost
from world import Background, LossyProxy, check_history, read_history, wait_until

KEY = "inventory:{phone}"


def state(redis):
    """(stock, version)"""
    return redis("HGET", KEY, "stock"), redis("HGET", KEY, "version")


def add(shop, units=1):
    return shop.admin("POST", "/inventory/phone/restock", b'{"add":%d}' % units, {"Content-Type": "application/json"})


def set_stock(shop, stock):
    assert shop.admin("PUT", "/inventory/phone", b'{"stock":%d}' % stock).status == 200


@pytest.fixture
def shop(redis, start, tmp_path):
    shop = start(redis, "--lock", "none", "--write", "cas", "--enable-failpoints", "--admin-writes", "--history",
                 tmp_path / "h.jsonl")
    set_stock(shop, 5)
    return shop


def test_it_sells_and_raises_the_version(shop, redis):
    assert state(redis) == ("5", "1")
    answer = shop.sell(quantity=2).json
    assert (answer["sold"], answer["left"], answer["unit"]) == (2, 3, 4)
    assert state(redis) == ("3", "2")
    assert shop.ask("GET", "/inventory/phone").json["stock"] == 3
    assert shop.sell(quantity=4).problem == "insufficient-stock"
    assert shop.sell(quantity=3).status == 200 and shop.sell().problem == "sold-out"
    assert state(redis) == ("0", "3")


def test_who_finds_the_version_changed_reads_again(shop, redis, tmp_path):
    """Both read 5; the second one to write reads again, and sells the next unit."""
    arm(shop, "sale.before_write", "1*pause")
    first = Background(shop.sell)
    wait_until(lambda: paused(shop, "sale.before_write") == 1, "it has read")
    assert shop.sell().json["left"] == 4
    arm(shop, "sale.before_write", "off")
    assert first.result().json["left"] == 3
    assert state(redis) == ("3", "3") and shop.metric("inventory_sales_aborts_total") == 1
    shop.end()
    events = read_history(tmp_path / "h.jsonl")
    check_history(events)
    assert [event["event"] for event in events].count("abort") == 1


def test_the_same_stock_is_not_the_same_version(shop, redis):
    """A sale and a restock leave the number that was read: a compare of numbers would see no change."""
    arm(shop, "sale.before_write", "1*pause")
    first = Background(shop.sell)
    wait_until(lambda: paused(shop, "sale.before_write") == 1, "it has read")
    shop.sell()
    assert add(shop).json["stock"] == 5
    arm(shop, "sale.before_write", "off")
    assert first.result().json["left"] == 4
    assert shop.metric("inventory_sales_aborts_total") == 1 and state(redis) == ("4", "4")


def test_who_is_beaten_too_often_is_told_so(shop, redis):
    """Somebody writes between each of its reads and its writes."""
    arm(shop, "sale.before_write", "pause")
    sale = Background(shop.sell)
    for beaten in range(32):
        wait_until(lambda: shop.metric("inventory_sales_aborts_total") == beaten
                   and paused(shop, "sale.before_write") == 1, "it has read")
        redis("HINCRBY", KEY, "version", 1)
        arm(shop, "sale.before_write", "pause")  # lets it go on; the next time it is paused again
    answer = sale.result()
    assert answer.status == 503 and answer.problem == "contended" and "32 times" in answer.json["detail"]
    assert redis("HGET", KEY, "stock") == "5"
    assert shop.metric('inventory_sales_total{outcome="contended"}') == 1


def test_many_at_once_sell_each_unit_once(redis, start, tmp_path):
    shops = [start(redis, "--lock", "none", "--write", "cas", "--work-ms", 1, "--history", tmp_path / f"{name}.jsonl",
                   name=name) for name in "ab"]
    set_stock(shops[0], 25)
    answers = [sale.result() for sale in [Background(shop.sell) for _ in range(20) for shop in shops]]
    units = sorted(answer.json["unit"] for answer in answers if answer.status == 200)
    assert len(set(units)) == len(units) and {answer.status for answer in answers} <= {200, 409, 503}
    assert int(state(redis)[0]) == 25 - len(units)


# ---- How a stock is laid out --------------------------------------------------------------------


@pytest.mark.parametrize("write", ["decr", "set", "atomic", "fenced"])
def test_an_instance_that_writes_otherwise_refuses_to_sell(redis, start, write):
    other = start(redis, "--write", write, *(["--lock", "fair"] if write == "fenced" else []), name="b")
    shop = start(redis, "--write", "cas", "--lock", "none")
    redis("SET", KEY, 5)
    for ask in (shop.sell, lambda: shop.ask("GET", "/inventory/phone"),
                lambda: add(shop)):
        answer = ask()
        assert answer.problem == "other-layout" and "is laid out as one number" in answer.json["detail"], answer
    set_stock(shop, 5)
    for ask in (other.sell, lambda: other.ask("GET", "/inventory/phone"),
                lambda: add(other)):
        answer = ask()
        assert answer.problem == "other-layout" and "is laid out with a version" in answer.json["detail"], answer
    assert state(redis)[0] == "5" and shop.sell().status == 200
    set_stock(other, 3)
    assert redis("GET", KEY) == "3" and other.sell().status == 200
    assert shop.sell().problem == "other-layout"


def test_the_version_only_grows_while_the_stock_is_laid_so(shop, redis):
    versions = []
    for stock in (9, 0, 7):
        set_stock(shop, stock)
        versions.append(int(state(redis)[1]))
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("command", [("RPUSH", KEY, "x"), ("HSET", KEY, "stock", "5"), ("HSET", KEY, "version", "5"),
                                     ("HSET", KEY, "stock", "many", "version", "1"),
                                     ("HSET", KEY, "stock", "5", "version", "new")])
def test_what_is_no_stock_is_told_and_set_anew(shop, redis, command):
    redis("DEL", KEY)
    redis(*command)
    assert shop.sell().problem == "stock-invalid"
    set_stock(shop, 4)
    assert shop.sell().json["left"] == 3


def test_without_a_stock_there_is_no_item(shop, redis):
    redis("DEL", KEY)
    assert shop.sell().problem == "unknown-item"
    assert add(shop).status == 404


def test_a_key_is_refused(shop):
    assert shop.sell(key="k").problem == "idempotency-key-unsupported"


def test_the_switch_goes_both_ways(shop, redis):
    assert shop.admin("PUT", "/lock", b'{"rung":"watchdog","write":"set"}').status == 200
    assert shop.sell().problem == "other-layout"
    set_stock(shop, 6)
    assert redis("GET", KEY) == "6" and shop.sell().status == 200
    assert shop.admin("PUT", "/lock", b'{"rung":"none","write":"cas"}').status == 200
    assert shop.sell().problem == "other-layout"
    set_stock(shop, 6)
    assert shop.sell().json["left"] == 5


# ---- Lost replies -------------------------------------------------------------------------------


@pytest.fixture
def between(redis):
    proxy = LossyProxy(redis)
    yield proxy
    proxy.end()


def behind(redis, start, between, lock="none"):
    """A shop whose stock is reached through the proxy, and that has sold one of 5."""
    shop = start(redis, "--stock-redis", between.url, "--lock", lock, "--write", "cas")
    set_stock(shop, 5)
    assert shop.sell().json["left"] == 4
    return shop


@pytest.mark.parametrize("lock", ["none", "watchdog"])
def test_a_write_that_was_carried_out_without_a_reply_is_unknown(redis, start, between, lock):
    """The version was raised, and perhaps by another sale."""
    shop = behind(redis, start, between, lock)
    between.lose = b"EVALSHA"
    assert shop.sell().problem == "outcome-unknown"
    assert state(redis)[0] == "3"
    assert shop.sell().json["left"] == 2


@pytest.mark.parametrize("lock", ["none", "watchdog"])
def test_a_write_that_never_arrived_is_known(redis, start, lock):
    """The connection was cut before the command arrived, and Redis ends what is left of it."""
    post = LatePost(redis)
    shop = behind(redis, start, post, lock)
    post.keep = b"EVALSHA"
    assert shop.sell().problem == "stock-unavailable"
    assert not post.deliver().startswith(b":")
    assert state(redis)[0] == "4" and shop.sell().json["left"] == 3
    post.end()
