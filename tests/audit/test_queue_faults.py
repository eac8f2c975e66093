# SPDX-License-Identifier: Apache-2.0
"""--on-conflict queue: an accepted sale without an outcome, or with two; one that nobody accepted; a buyer who was told
something else; one that was processed before an older one. Each is found."""
import planted
import pytest
import shop
from judge import SEEDS
from queued import Sale, end_of, kill, last_of, queued, sort
from shop import MS
from test_queued import decided_and_not_recorded

FEW = min(SEEDS, 40)


def without_an_outcome(world, told=None):
    sale = last_of(world)
    sale.undo()
    if told is not None:
        for side, count in (("before", 0), ("after", told)):
            world.redis[side]["queues"] = {item: 0 for item in world.run["items"]}
            world.redis[side]["queues"][sale.item] = count
    return sort(world)


def stays(world):
    return without_an_outcome(world, 1)


def vanishes(world):
    """Someone has deleted it: it is neither in the queue nor decided."""
    return without_an_outcome(world, 0)


def no_queue_is_told(world):
    for side in world.redis.values():
        side.pop("queues", None)
    return without_an_outcome(world)


def its_acceptor_died(world):
    """An instance was killed, and its queue is not empty."""
    world = without_an_outcome(world, 1)
    kill(world, "a", end_of(world))
    return world


def an_instance_died_that_had_not_taken_it(world):
    world = no_queue_is_told(world)
    kill(world, "a", end_of(world))
    return world


def it_was_given_back(world):
    """It was tried, and nobody tried again."""
    sale = last_of(world)
    sale.undo()
    sale.requeue("a", end_of(world))
    return sort(world)


def is_still_in_the_queue(world):
    """Its lines are in no history."""
    for side, count in (("before", 0), ("after", 1)):
        world.redis[side]["queues"] = {item: count for item in world.run["items"]}
    return world


def check_found(make, result, reason, agrees):
    planted.check_found(make, result, reason, agrees, FEW)


UNFINISHED = r"accepted sales \(202\) without an outcome at the end: 1; first: request \w+ for item-\d"


@pytest.mark.parametrize("fault", [stays, vanishes, no_queue_is_told, its_acceptor_died,
                                   an_instance_died_that_had_not_taken_it, it_was_given_back],
                         ids=lambda fault: fault.__name__)
def test_a_202_without_an_outcome_is_found(fault):
    check_found(lambda seed: fault(queued(seed)), "unfinished", UNFINISHED, None if "died" in fault.__name__ else False)


def test_what_is_left_in_a_queue_is_found():
    check_found(lambda seed: is_still_in_the_queue(queued(seed)), "unfinished",
                r"item-\d: 1 accepted sales are still in its queue after the run; 0 of them", False)


def sold_twice(keys, **asked):
    def twice(world):
        """The first worker was slow, or died before it acknowledged the sale."""
        sale = last_of(world, sold=True)
        if sale is None or world.stock[sale.item] < sale.quantity:
            return None
        sale.work_off("b" if sale.worker == "a" else "a", end_of(world))
        return sort(world)
    return lambda seed: twice(queued(seed, keys=keys, **asked))


def refused_after_its_sale(world):
    sale = last_of(world, sold=True)
    if sale is None or world.stock[sale.item] >= sale.quantity:
        return None
    sale.refuse(sale.take(sale.worker, end_of(world)), world.stock[sale.item])
    return sort(world)


def refused_twice(world):
    sale = last_of(world, sold=False)
    if sale is None or not sale.read:
        return None
    sale.refuse(sale.take(sale.worker, end_of(world)), world.stock[sale.item])
    return sort(world)


@pytest.mark.parametrize("keys", [False, True])
def test_one_request_that_is_sold_to_twice_is_found(keys):
    check_found(sold_twice(keys), "oversold", r"accepted sales that were sold more than once: 1; first: request \w+ for item-\d got "
                r"unit \d+ of instance [ab] and unit \d+ of instance [ab]", False)


@pytest.mark.parametrize("write", ["decr", "set"])
def test_that_is_expected_of_a_shop_that_acknowledges_in_a_step_of_its_own(write):
    check_found(sold_twice(False, write=write), "oversold", r"accepted sales that were sold more than once: 1", True)


@pytest.mark.parametrize("fault", [refused_after_its_sale, refused_twice], ids=lambda fault: fault.__name__)
def test_two_outcomes_are_found(fault):
    check_found(lambda seed: fault(queued(seed)), "oversold", r"accepted sales with more than one outcome: 1", False)


def refused_by_its_instance(world):
    """Its buyer was told that nothing was sold."""
    sale = world.random.choice(world.queue)
    line = sale.accepted
    world.remove(line)
    world.add(line["instance"], line["t_ns"], "refused", **{
        name: line[name] for name in ("thread", "request", "item", "rung", "lock")}, code=503, reason="queue-full")
    sale.sample.update(responseCode=503, sale="")
    world.passed_of(sale.request)["status"] = 503
    for sample in sale.asks:
        world.samples.remove(sample)
    return sort(world)


def in_no_history(world):
    """The queues were empty before the run, so it was accepted by none of these instances."""
    sale = last_of(world)
    left = world.stock[sale.item]
    request = {"id": "nobody", "item": sale.item, "instance": "a", "quantity": 1, "t_ns": end_of(world)}
    extra = Sale(world, request, request["t_ns"])
    extra.place = "%d-99" % (shop.EPOCH_MS + 86_400_000)
    if left < 1:
        return None
    extra.work_off("b", request["t_ns"])
    return sort(world)


@pytest.mark.parametrize("fault", [refused_by_its_instance, in_no_history], ids=lambda fault: fault.__name__)
def test_an_outcome_without_an_acceptance_is_found(fault):
    check_found(lambda seed: fault(queued(seed, told=True)), "oversold", r"sales of a queue that no instance had accepted: 1", False)


def told(**fields):
    def otherwise(seed):
        world = queued(seed)
        sold = [sale for sale in world.queue if sale.write]
        if not sold:
            return None
        sale = world.random.choice(sold)
        answer = {"code": 200, "unit": sale.write["unit"], "left": sale.write["stock_after"]}
        for name, value in fields.items():
            answer[name] = value if name == "code" or value == "" else answer[name] + value
        for sample in [sample for sample in sale.asks if sample["responseCode"] != 202]:
            world.samples.remove(sample)
        sale.ask(end_of(world) + MS, **answer)
        return world
    return otherwise


def told_another_stock(seed):
    world = queued(seed)
    refused = [sale for sale in world.queue if sale.read and sale.refused]
    if not refused:
        return None
    sale = world.random.choice(refused)
    for sample in [sample for sample in sale.asks if sample["responseCode"] != 202]:
        world.samples.remove(sample)
    sale.ask(end_of(world) + MS, 409, "", sale.read["stock_before"] + 1)
    return world


def told_in_two_ways(seed):
    """Nobody recorded the outcome, and its buyer was told two."""
    world = queued(seed)
    sale = last_of(world, sold=True)
    if sale is None:
        return None
    sale.ask(end_of(world) + MS)
    sale.ask(end_of(world) + MS, 409, "", 0)
    return world


@pytest.mark.parametrize("make", [told(unit=1, left=1), told(code=409, unit="", left=0), told_another_stock, told_in_two_ways],
                         ids=["another_unit", "sold_out", "another_stock", "two_ways"])
def test_a_buyer_who_was_told_something_else_is_found(make):
    check_found(make, "oversold", r"accepted sales whose buyer was told another outcome than there is: 1", False)


def the_same_unit(world):
    """The stock fits; two buyers have one unit, and the histories say so."""
    pairs = [(one, two) for one, two in neighbours(world) if one.write and two.write and one.quantity == two.quantity]
    if not pairs:
        return None
    one, two = world.random.choice(pairs)
    for line in (one.read, one.write):
        two_line = two.read if line is one.read else two.write
        two_line.update({name: line[name] for name in ("stock_before", "stock_after", "unit") if name in line})
    for sample in [sample for sample in two.asks if sample["responseCode"] == 200]:
        sample.update(unit=two.write["unit"], left=two.write["stock_after"])
    return world


def test_a_unit_that_two_accepted_sales_got_is_found():
    check_found(lambda seed: the_same_unit(queued(seed)), "oversold", r"unit \d+ of item-\d was sold twice: to request \w+", False)


def a_stored_answer_with_a_sold_unit(seed):
    """The worker died before it recorded the sale. What its key is told later is the sale of another one."""
    world = decided_and_not_recorded(replayed=True)(seed)
    if world is None:
        return None
    sold = [sale for sale in world.queue[:-1] if sale.write and sale.write in world.events[sale.worker]]
    lines = [line for lines in world.events.values() for line in lines if line["event"] == "replay"]
    if not sold:
        return None
    unit = sold[0].write["unit"]
    lines[0].update(unit=unit, stock_after=unit - 1)
    world.samples[-1].update(unit=unit, left=unit - 1)
    return world


def test_a_stored_answer_of_a_dead_worker_proves_a_sale():
    check_found(a_stored_answer_with_a_sold_unit, "oversold", r"unit \d+ of item-0 was sold twice", None)


def told_and_in_no_history(seed):
    """All instances ended in order, and none has the sale that its buyer was told of."""
    world = queued(seed)
    sale = last_of(world, sold=True)
    if sale is None:
        return None
    write = sale.write
    sale.undo()
    sale.ask(end_of(world) + MS, 200, write["unit"], write["stock_after"])
    return sort(world)


def test_an_outcome_that_no_instance_recorded_proves_nothing():
    check_found(told_and_in_no_history, "inconclusive", r"requests without an end: 1", False)


def neighbours(world):
    pairs = []
    for item in world.run["items"]:
        queue = [sale for sale in world.queue if sale.item == item]
        pairs += zip(queue, queue[1:])
    return pairs


def change_places(world, pairs):
    """The older one of the two was processed after the younger one."""
    if not pairs:
        return None
    one, two = world.random.choice(pairs)
    one.place, two.place = two.place, one.place
    for sale in (one, two):
        for line in [sale.accepted, *sale.lines]:
            if "entry" in line:
                line["entry"] = sale.place
    return world


def both_were_sold(world):
    return change_places(world, [(one, two) for one, two in neighbours(world) if one.write and two.write])


def one_was_refused(world):
    return change_places(world, [(one, two) for one, two in neighbours(world) if bool(one.write) != bool(two.write)])


def both_were_refused(world):
    return change_places(world, [(one, two) for one, two in neighbours(world) if not one.write and not two.write])


def is_there_still(world):
    """A younger one was processed, and Redis says that the older one is still in the queue."""
    pairs = neighbours(world)
    old = [one for one, _ in pairs if not one.write]
    if not old:
        return None
    sale = world.random.choice(old)
    sale.undo()
    for side, count in (("before", 0), ("after", 1)):
        world.redis[side]["queues"] = {item: 0 for item in world.run["items"]}
        world.redis[side]["queues"][sale.item] = count
    return sort(world)


@pytest.mark.parametrize("fault", [both_were_sold, one_was_refused, both_were_refused, is_there_still],
                         ids=lambda fault: fault.__name__)
def test_a_sale_that_was_worked_off_before_an_older_one_is_found(fault):
    check_found(lambda seed: fault(queued(seed)), "overtaken", r"processed before an older one of their item: \d+; first: request \w+ "
                r"for item-\d, entry \d+-\d+", False)


def test_units_show_the_order_even_if_times_do_not():
    """The script's order is what counts: a worker may write its line late."""
    def make(seed):
        world = queued(seed, quantities=False, items={"item-0": 30}, workers="a")
        one, two = world.random.choice(neighbours(world))
        if one.read["stock_before"] != two.read["stock_before"] + 1:
            return None
        for field in ("stock_before", "stock_after", "unit"):
            for sale, line in ((one, one.write), (two, two.write)):
                line[field] += 1 if sale is two else -1
        for sale, change in ((one, -1), (two, 1)):
            sale.read["stock_before"] += change
            for sample in [sample for sample in sale.asks if sample["responseCode"] == 200]:
                sample.update(unit=sale.write["unit"], left=sale.write["stock_after"])
        return world
    check_found(make, "overtaken", r"processed before an older one", False)


def test_what_is_decided_was_taken():
    """Otherwise the records contradict each other, and nobody is accused."""
    def make(seed):
        world = queued(seed)
        sale = world.random.choice(world.queue)
        world.remove(sale.taken)
        return world
    check_found(make, "inconclusive", r"(write|refused) of request \w+, which was not taken out of a queue", False)


def test_an_end_that_is_there_twice_accuses_nobody():
    """Each attempt begins with its taken, so a line was written twice."""
    def make(seed):
        world = queued(seed)
        refused = [sale for sale in world.queue if sale.refused]
        if not refused:
            return None
        line = world.random.choice(refused).refused
        world.events[line["instance"]].append({**line, "t_ns": line["t_ns"] + 1})
        return sort(world)
    check_found(make, "inconclusive", r"request \w+ ends a second time, with refused; each end must have its own taken", False)
