# SPDX-License-Identifier: Apache-2.0
"""What the judge says of two that were inside together: which of them, in which order."""
import shop
from judge import judge
from test_picture import read, texts


def two_inside(stock, units, writes):
    """a enters before b; they sell these units at these times."""
    world = shop.World(1)
    shop.start(world, rung="local", instances=["a", "b"], items={"phone": stock}, expect=["oversold"])
    requests = [world.request("phone", name, world.t0, name=f"{name}1") for name in "ab"]
    sections = [world.section(request, (world.t0 + 10 * i + 10, world.t0 + 10 * i + 15)) for i, request in enumerate(requests)]
    for section, unit, write in zip(sections, units, writes):
        world.sell(section, world.t0 + 30, world.t0 + write, stock, unit - 1)
        world.leave(section, world.t0 + 100, world.t0 + 110)
    world.stock["phone"] = min(units) - 1
    return shop.finish(world), [request["id"] for request in requests]


def told(world):
    with judge({0: world}) as verdicts:
        verdict, folder = verdicts[0]
        assert verdict["result"] == "oversold", verdict["reasons"]
        return "\n".join(verdict["reasons"]), " ".join(texts(read(folder)))


def test_two_sales_of_a_unit_stand_in_the_order_of_their_times():
    for writes, order in (((50, 60), (0, 1)), ((60, 50), (1, 0))):
        world, ids = two_inside(5, (5, 5), writes)
        first, second = (f"request {ids[i]} by {'ab'[i]} at" for i in order)
        reasons, _ = told(world)
        assert reasons.index(first) < reasons.index(second), reasons


def test_who_took_the_last_unit():
    """By name, as in a transcript, since the run is small."""
    world, _ = two_inside(1, (0, 1), (60, 50))
    assert "a1 read: 1 left. Before it wrote, b1 took that unit. So it sold unit 0, which does not exist." in told(world)[1]
    world, _ = two_inside(1, (1, 0), (50, 60))
    assert "b1 read: 1 left. Before it wrote, a1 took that unit." in told(world)[1]
