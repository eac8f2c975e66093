# SPDX-License-Identifier: Apache-2.0
"""The stage of a demonstration with a service beside the shop: one Redis for its data and its locks, and instances of it.
What is of one service alone is in a class of its own; services.py has them all."""
import json
import pathlib
import shutil

import lock_watch
from base_stage import CHANGES_MAX, WAIT_MS, BaseStage
from instance import Instance, Program
from records import clients_clock
from waiting import Inconclusive, wait_until
from witness import WitnessedRedis


class ServiceStage(BaseStage):
    """Of each service: its name, its program, the item whose lock is watched, its settings as its flags and run.json have
    them, the items at the start, the last columns of load.jtl, the class of its instances, and what a request does that is
    at a point."""
    service = program = item = None
    settings, items, columns, points = {}, {}, (), {}
    instances_are = Instance

    def __init__(self, rung, flaw, inventoryd, auditor, runs, expect=None):
        super().__init__(rung, flaw.name, auditor, runs, f"lock:{{{self.item}}}", expect)
        self.file = self.program_beside(inventoryd)
        self.settings = {**self.settings, **{key: value for key, value in flaw.settings.items() if key != "fault"}, **rung.settings}
        self.fault = flaw.settings.get("fault", "none")

    @classmethod
    def program_beside(cls, inventoryd):
        """Its program, in the same build as the shop's, or on PATH; None: there is none."""
        built = pathlib.Path(inventoryd).resolve().parents[1] / cls.service / cls.program
        return built if built.exists() else shutil.which(cls.program)

    # ---- setting up ----

    def open(self):
        """Redis, and the data."""
        self.redis = self.lock_redis = WitnessedRedis(self.folder / "redis", key=self.lock_key, spawn=self.spawn)
        self.lock_servers = [self.redis]
        self.lay()
        self.before = self.redis_side()

    def lay(self):
        """The data from before the run."""
        raise NotImplementedError

    def by_operator(self, path, body, *flags):
        """Puts it by an instance that is no part of the run: what it does is in no record."""
        operator = Program(self, "operator", [str(self.file), "--redis", self.redis.url, "--lock", "none", *flags])
        status, answer = operator.ask("PUT", path, operator.admin_port, json.dumps(body), {"Content-Type": "application/json"})
        operator.end()
        operator.log_path.unlink()
        if status != 200:
            raise Inconclusive(f"PUT {path} was refused: {answer}")
        self.redis.wait_told()
        self.redis.forget()

    def flags(self):
        """Of each instance."""
        return [word for setting, value in self.settings.items() for word in (f"--{setting.replace('_', '-')}", str(value))]

    def instance(self, name, ttl_ms, *flags):
        self.ttl_ms = ttl_ms if not self.instances else self.ttl_ms  # the first instance's hold is the one that expires
        self.instances[name] = self.instances_are(self, self.file, name, ttl_ms, [
            "--redis", self.redis.url, "--wait-ms", str(WAIT_MS), *self.flags(), *flags])
        return self.instances[name]

    # ---- directing ----

    def enter(self, instance, point, ask):
        """A request that pauses at the point, or waits for the lock, and the transcript says which. Returns the request, and
        whether it is at the point."""
        request, inside = self.begin_request(instance, point, ask)
        self.note(f"{request.name} {self.points[point]} and pauses" if inside else f"{request.name} waits for the lock")
        return request, inside

    def begin(self, instance, ask):
        """A request that is answered, or waits for the lock, and the transcript says so. Returns the request, and whether it
        was answered."""
        is_kept_out, request = self.kept_out(instance), ask()
        wait_until(lambda: request.answered or is_kept_out(), f"{request.name} is answered, or waits")
        if not request.answered:
            self.note(f"{request.name} waits for the lock")
        return request, request.answered

    def wait_at(self, request, point):
        """Waits until a request that goes on, or waited for the lock, is paused at the point; no other one of its instance is."""
        wait_until(lambda: request.instance.paused(point) == 1, f"{request.name} comes to {point}")
        self.note(f"{request.name} {self.points[point]} and pauses")

    def go_on_to(self, request, point, target):
        """A request that is paused at the point continues, and is paused again at the other one. Noted before: another one may
        wait for what it does."""
        request.instance.arm(target)
        self.note(f"{request.name} goes on, until it {self.points[target]}")
        request.instance.resume(point)
        wait_until(lambda: request.instance.paused(target) == 1, f"{request.name} comes to {target}")

    def finish(self, request, inside, point):
        """A request that is paused, or waits for the lock, to its end."""
        if inside:
            self.resume(request, point)
        else:
            request.instance.resume(point)
        self.wait_answered(request)

    def kill_at(self, instance, points, ask, how):
        """A request whose process dies at the first of these points."""
        for point in points:
            instance.set_point(point, "1*crash")
        request = ask()
        instance.wait_dead(how)
        self.wait_answered(request)

    def freeze(self, instance):
        """It stands still, until its lock has expired."""
        instance.freeze()
        self.note(f"{instance.name} is frozen (SIGSTOP)")
        if self.has_ttl():
            self.wait_expired()

    def wake(self, instance, point):
        self.note(f"{instance.name} wakes (SIGCONT), and knows nothing")
        instance.resume(point)
        instance.thaw()

    # ---- judging ----

    def lock_sides(self):
        """Each item's lock, as redis.json has it."""
        keys = {item: f"lock:{{{item}}}" for item in self.items}
        return {item: {"type": self.redis("TYPE", key), "pttl_ms": self.redis("PTTL", key)} for item, key in keys.items()}

    def run_json(self):
        changes = [] if self.rung.shared and not self.rung.expires else self.change_teller()(self.redis)
        return {"run": self.folder.name, "service": self.service, "rung": self.rung.lock.name, "fault": self.fault,
                **self.settings, "instances": list(self.instances), "workers": 4, "ttl_ms": self.ttl_ms, "wait_ms": WAIT_MS,
                "items": self.items, "requests": len(self.requests), "clients": clients_clock(), "scenario": self.scenario,
                "min_share": 0, "expect": self.expect, "direct": True, "annotations": self.seen,
                "lock_changes": lock_watch.thinned(changes, CHANGES_MAX)}

    def row_of(self, request):
        """What the sample variables say of its answer, behind request, item and instance."""
        raise NotImplementedError

    def write_rows(self, rows):
        rows.writerow(["timeStamp", "elapsed", "label", "responseCode", "success", "failureMessage",
                       "request", "item", "instance", *self.columns])
        for request in self.requests:
            code = request.status or "Non HTTP response code: java.net.SocketException"
            answered = request.status == 200
            rows.writerow([int(request.at_s * 1000), request.took_ms, request.label, code,
                           "true" if request.status in (200, 409, 503) else "false", "", request.name, request.item,
                           request.instance.name if request.status else "",
                           *(request.body.get(column, "") if answered else "" for column in self.columns)])
