# SPDX-License-Identifier: Apache-2.0
"""A whole shop for one burst: nginx, two instances, and one or two Redis for locks and stocks. Each Redis has a Post
in front of it. Also the faults of the parts."""
import contextlib
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "service"), str(ROOT / "flaws")]

from post import Post  # noqa: E402
from ports import free_ports  # noqa: E402
from waiting import freeze  # noqa: E402
from world import Inventoryd, Redis, wait_until  # noqa: E402

ITEM = "phone"
STOCK_KEY = "inventory:{phone}"
KEEP = ("--appendonly", "yes", "--appendfsync", "always")  # Redis loses no acknowledged write
NAMES = "ab"


def shell(*words):
    """Calls a function of scripts/lib."""
    source = "; ".join(f"source '{ROOT}/scripts/lib/{name}.sh'" for name in ("common", "nginx"))
    done = subprocess.run(["bash", "-c", f'{source}; "$@"', "torture", *map(str, words)], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, (words, done.stderr)


class Shop:
    def __init__(self, folder, lock, write, apart, profile, flags):
        self.folder, self.profile = pathlib.Path(folder), profile
        self.conf = self.folder / "nginx" / "nginx.conf"
        self.instances, self.ends = {}, []
        try:
            self.open(lock, write, apart, flags)
        except BaseException:
            self.end()
            raise

    def open(self, lock, write, apart, flags):
        self.stock_redis = Redis(self.folder / "stock", *KEEP)
        self.ends.append(self.stock_redis.kill)
        self.lock_redis = self.stock_redis
        if apart:
            self.lock_redis = Redis(self.folder / "lock", *KEEP)
            self.ends.append(self.lock_redis.kill)
        self.stock_post, self.lock_post = Post(self.stock_redis.port), Post(self.lock_redis.port)
        self.ends += [self.stock_post.end, self.lock_post.end]
        self.flags = ("--lock", lock, "--write", write, "--stock-redis", self.stock_post.url,
                      "--lock-redis", self.lock_post.url, *flags)
        self.ports = free_ports(2 * len(NAMES) + 2)
        self.port, self.operators = self.ports.pop(), self.ports.pop()
        self.ports = {name: (self.ports.pop(), self.ports.pop()) for name in NAMES}
        for name in NAMES:
            self.start(name)
        self.configure()
        shell("nginx_start", self.conf)

    # ---- parts ----

    def start(self, name):
        port, admin = self.ports[name]
        self.instances[name] = Inventoryd(
            str(self.folder), None, "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{admin}",
            "--history", self.history(name), *self.flags, name=name)

    def history(self, name):
        return self.folder / f"history-{name}.jsonl"

    def configure(self, down=None):
        servers = [word for name in NAMES for word in (
            "--upstream", f"{name}=127.0.0.1:{self.ports[name][0]}",
            "--admin", f"{name}=127.0.0.1:{self.ports[name][1]}")]
        shell("nginx_render", "--out", self.conf, "--listen", f"127.0.0.1:{self.port}", "--operators",
              f"127.0.0.1:{self.operators}", "--log", self.folder / "nginx" / "access.log", "--profile",
              self.profile, *(("--down", down) if down else ()), *servers)

    def redis(self, role):
        return self.lock_redis if role == "lock" else self.stock_redis

    # ---- faults; the returned function ends the fault ----

    def kill_instance(self, name):
        self.instances[name].kill()
        return lambda: self.start(name)

    def stop_instance(self, name):
        process = self.instances[name].process
        freeze(process)
        return lambda: process.send_signal(18)

    def roll_over(self, name):
        """Restarts the instance, as scripts/shop restart does."""
        self.configure(down=name)
        shell("nginx_reload", self.conf)
        instance = self.instances[name]
        instance.signal()
        instance.process.wait(60)
        self.start(name)
        self.configure()
        shell("nginx_reload", self.conf)

    def reload_nginx(self, _):
        shell("nginx_reload", self.conf)

    def fill_disk(self, name):
        history = self.history(name)
        history.rename(f"{history}.{time.monotonic_ns()}")
        history.symlink_to("/dev/full")
        self.instances[name].signal(1)

        def undo():
            history.unlink()
            self.instances[name].signal(1)
            wait_until(history.exists, "the instance has a history again")
        return undo

    def freeze_redis(self, role):
        self.redis(role).freeze()
        return self.redis(role).thaw

    def restart_redis(self, role):
        redis = self.redis(role)
        redis.kill()
        return redis.start

    def forget_locks(self, _):
        """The locks' Redis restarts without data."""
        redis = self.lock_redis
        redis.kill()
        shutil.rmtree(redis.folder)
        return redis.start

    def cut_connections(self, role):
        (self.lock_post if role == "lock" else self.stock_post).cut_all()

    def flush_scripts(self, role):
        self.redis(role)("SCRIPT", "FLUSH")

    def forbid_writes(self, role):
        """Makes it a replica of a master that does not exist."""
        self.redis(role)("REPLICAOF", "127.0.0.1", "1")
        return lambda: self.redis(role)("REPLICAOF", "NO", "ONE")

    def fill_memory(self, role):
        self.redis(role)("CONFIG", "SET", "maxmemory", "1")
        return lambda: self.redis(role)("CONFIG", "SET", "maxmemory", "0")

    # ---- the end ----

    def heal(self):
        """Ends all faults, and waits until both instances are ready."""
        for post in (self.stock_post, self.lock_post):
            post.plan.clear()
            post.deliver(float("inf"))
        for name in NAMES:
            if self.instances[name].process.poll() is not None:
                self.start(name)
        for instance in self.instances.values():
            wait_until(lambda i=instance: i.admin("GET", "/readyz").status == 200, "the instance is ready")

    def end(self):
        errors = []
        with contextlib.suppress(Exception):
            shell("nginx_stop", self.conf)
        for instance in self.instances.values():
            try:
                instance.end()
            except (AssertionError, subprocess.TimeoutExpired) as error:
                errors.append(error)
                instance.kill()
        for end in reversed(self.ends):
            end()
        if errors:
            raise errors[0]
