# SPDX-License-Identifier: Apache-2.0
"""The shop with its lock on three ZooKeeper servers: one may be lost, the leader, too; two may not."""
import pytest

from test_lock_servers import Buyers
from world import wait_until
from zookeepers import Ensemble

STOCK = 100001


@pytest.fixture
def ensemble(tmp_path):
    made = Ensemble(tmp_path)
    made.start()
    yield made
    made.end()


@pytest.fixture
def shops(redis, ensemble, start):
    """Waits do not end while the others elect a leader."""
    made = [start(redis, "--lock", "zookeeper", "--lock-servers", ensemble.url(path="/shop"), "--write", "set", "--work-ms", 1,
                  "--fail-fast-ms", 20000, "--ttl-ms", 20000, name=name) for name in "ab"]
    assert made[0].stock(value=STOCK).status == 200
    return made


def test_a_follower_and_the_leader_are_lost_one_after_the_other(redis, ensemble, shops):
    buyers = Buyers(4, *shops)
    buyers.wait_sold()
    follower = ensemble.followers()[0]
    follower.kill()
    buyers.wait_sold()
    follower.start()
    wait_until(follower.mode, "it is back")
    ensemble.leader().kill()
    buyers.wait_sold()
    buyers.stop()
    buyers.check(redis, STOCK)
    assert all(shop.admin("GET", "/readyz").status == 200 for shop in shops)


def test_without_a_majority_nothing_is_sold(redis, ensemble, shops):
    assert shops[0].sell().status == 200
    last = ensemble.nodes[0]
    for node in ensemble.nodes[1:]:
        node.kill()
    wait_until(lambda: last.mode() is None, "it does not serve alone")
    ready = [shop.admin("GET", "/readyz") for shop in shops]
    assert [reply.problem for reply in ready] == ["not-ready"] * 2
    assert all("could not be connected to" in reply.json["detail"] or "did not answer" in reply.json["detail"] for reply in ready)
    ensemble.nodes[1].start()
    wait_until(lambda: shops[1].sell().status == 200, "two of them are a majority")
