# SPDX-License-Identifier: Apache-2.0
"""A service whose instances and Redis are killed now and then, for queue_kills.py, policy_kills.py, tasks_kills.py
and account_kills.py."""
import http.client

from world import Inventoryd

SAFE = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
ITEMS = ("phone", "tablet", "watch", "radio")
LOST = (OSError, http.client.HTTPException)
KINDS = ("instance", "instance", "point", "point", "point", "redis")  # of harm, as often as they come


class KilledShop:
    """Instances a and b. Each is killed now and then, and starts again. points: where one may kill itself."""

    def __init__(self, folder, redis, flags, points):
        self.folder, self.redis, self.flags, self.points = folder, redis, flags, points
        self.instances = {name: self.start(name) for name in "ab"}

    def start(self, name):
        return Inventoryd(self.folder, self.redis, *self.flags, name=name)

    def kill(self, name):
        self.instances[name].kill()
        self.instances[name] = self.start(name)

    def has_dead(self):
        return any(instance.process.poll() is not None for instance in self.instances.values())

    def restart_dead(self):
        dead = [name for name, instance in self.instances.items() if instance.process.poll() is not None]
        for name in dead:
            self.kill(name)
        return len(dead)

    def calm(self):
        """From now on nobody dies."""
        for name, instance in self.instances.items():
            try:
                for point in self.points:
                    instance.admin("PUT", "/failpoints", '{"point":"%s","action":"off"}' % point)
            except LOST:  # it has died at one of them; the next one has none
                self.kill(name)

    def any(self, chance):
        return self.instances[chance.choice("ab")]

    def hurt(self, chance, kinds=KINDS):
        """Kills one thing, or arms a point at which an instance kills itself."""
        what = chance.choice(kinds)
        if what == "redis":
            self.redis.kill()
            self.redis.start()
        elif what == "instance":
            self.kill(chance.choice("ab"))
        elif what == "point":
            try:
                point = chance.choice(self.points)
                self.any(chance).admin("PUT", "/failpoints", '{"point":"%s","action":"1*crash"}' % point)
            except LOST:
                pass
        return what
