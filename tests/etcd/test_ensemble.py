# SPDX-License-Identifier: Apache-2.0
"""libdlock-etcd on a cluster of three: what is lost, cut off, or frozen, and what becomes of the holds."""
import signal

import pytest

from etcds import Cluster
from party import Party
from waiting import wait_until

TTL_MS = 3000


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("etcd"))
    made.start()
    yield made
    made.end()


@pytest.fixture
def cluster(shared):
    shared.mend()
    return shared


@pytest.fixture
def parties():
    made = []

    def make(url, ttl_ms=TTL_MS, **options):
        made.append(Party(url, ttl_ms, **options))
        return made[-1]
    yield make
    for party in made:
        party.end()


def test_the_leader_is_lost_and_the_hold_is_not(cluster, parties):
    leader = cluster.leader()
    holder, waiter = parties(cluster.url(), ttl_ms=20000), parties(cluster.url(*cluster.followers()), ttl_ms=20000)
    token = int(holder.ask("acquire 60000").split()[1])
    waiter.say("acquire 60000")
    leader.kill()
    assert holder.ask("extend").startswith("OK") and holder.valid()
    assert holder.ask("release").startswith("OK")
    assert int(waiter.answer()[2].split()[1]) > token
    assert not holder.told("LOST")


@pytest.fixture
def uneven(tmp_path):
    """Its first member gives its leadership up six times as late as the others elect another leader."""
    made = Cluster(tmp_path, election_ms=(3000, 500, 500), links=True)
    made.start()
    yield made
    made.end()


def test_a_deposed_leader_keeps_no_hold_valid(uneven, parties):
    """It answers keep-alives all the while. The hold ends before another client is granted the lock."""
    cluster = uneven
    first, *others = cluster.nodes
    cluster.lead(first)
    holder, waiter = parties(cluster.url(first), ttl_ms=5000), parties(cluster.url(*others), ttl_ms=5000)
    assert holder.ask("acquire 60000").startswith("OK")
    waiter.say("acquire 60000")
    cluster.cut_off(first)
    granted_ms = waiter.answer()[0]
    lost = wait_until(lambda: holder.told("LOST"), "the loss")
    assert not holder.valid()
    assert lost[0] <= granted_ms


def test_a_minority_is_lost_and_the_others_work(cluster, parties):
    cluster.followers()[0].kill()
    party = parties(cluster.url())
    assert party.ask("acquire 60000").startswith("OK") and party.ask("release").startswith("OK")


def test_without_a_majority_nothing_is_granted(cluster, parties):
    follower = cluster.followers()[0]
    holder, other = parties(cluster.url(follower)), parties(cluster.url(follower), answer_ms=500)
    assert holder.ask("acquire 60000").startswith("OK") and other.ask("acquire 0").split()[0] != "OK"
    for member in cluster.nodes:
        if member is not follower:
            member.kill()
    said = other.ask("acquire 500")
    assert said.split()[0] in ("UNREACHABLE", "UNKNOWN", "TIMED_OUT") and "etcd://127.0.0.1" in said
    wait_until(lambda: holder.told("LOST"), "the loss")


def test_a_frozen_holder_finds_that_it_has_lost(cluster, parties):
    holder, waiter = parties(cluster.url(), ttl_ms=1000), parties(cluster.url(), ttl_ms=1000)
    token = int(holder.ask("acquire 60000").split()[1])
    waiter.say("acquire 60000")
    holder.process.send_signal(signal.SIGSTOP)
    assert int(waiter.answer()[2].split()[1]) > token
    holder.process.send_signal(signal.SIGCONT)
    assert not holder.valid()
    wait_until(lambda: holder.told("LOST"), "the loss")
    assert holder.ask("release").startswith("LOST")
    assert waiter.ask("release").startswith("OK") and holder.ask("acquire 60000").startswith("OK")


def test_a_frozen_member_holds_nobody_up(cluster, parties):
    """Its clients ask another one: the hold is renewed there, and the waiter's watch begins anew there."""
    holder, waiter = parties(cluster.url(), ttl_ms=6000), parties(cluster.url(), ttl_ms=6000)
    token = int(holder.ask("acquire 60000").split()[1])
    waiter.say("acquire 60000")
    asked = cluster.asked_by(holder.process.pid)
    asked.process.send_signal(signal.SIGSTOP)
    assert holder.ask("extend").startswith("OK") and holder.ask("release").startswith("OK")
    assert int(waiter.answer()[2].split()[1]) > token
    assert not holder.told("LOST")
