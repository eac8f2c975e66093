# SPDX-License-Identifier: Apache-2.0
"""Named points of the code at which an instance is stopped."""
import json

from world import Background, wait_until


def arm(shop, point, action):
    """What the shop answers."""
    reply = shop.admin("PUT", "/failpoints", json.dumps({"point": point, "action": action}))
    assert reply.status == 200, reply
    return reply.json


def paused(shop, point):
    """How many requests are paused there."""
    return next(one["paused"] for one in shop.admin("GET", "/failpoints").json["failpoints"] if one["point"] == point)


def park(shop, point, call, *words, count=1, **named):
    """One that is paused there, with those that are: to arm the point again would let them go."""
    if count == 1:
        arm(shop, point, "pause")
    one = Background(call, *words, **named)
    wait_until(lambda: paused(shop, point) == count, f"{count} at {point}")
    return one


def park_a_sale(shop, point, **named):
    """A sale that is paused there; the point is armed already."""
    sale = Background(shop.sell, **named)
    wait_until(lambda: paused(shop, point) == 1, f"a sale is at {point}")
    assert sale.is_alive()
    return sale
