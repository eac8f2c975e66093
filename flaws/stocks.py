# SPDX-License-Identifier: Apache-2.0
"""The stock of an item in Redis, as inventoryd lays it: a number, or a hash. With --write cas the hash has the stock and a
version. With --segments it has their number, and each is a number under a key of its own."""


def segment_keys(key, segments):
    return [f"{key}:segment:{segment}" for segment in range(1, segments + 1)]


def level(units, segments):
    """What each segment has: they differ by one at most."""
    return [max(0, (units - segment) // segments + 1) for segment in range(1, segments + 1)]


def lay(redis, key, units, segments=1, version=False):
    """Sets the stock. Nobody may sell meanwhile."""
    redis("DEL", key)
    if version:
        redis("HSET", key, "stock", units, "version", 1)
        return
    if segments == 1:
        redis("SET", key, units)
        return
    redis("HSET", key, "segments", segments)
    for segment, part in zip(segment_keys(key, segments), level(units, segments)):
        redis("SET", segment, part)


def parts(redis, key):
    """What each segment has. None: it does not lie in segments."""
    if redis("TYPE", key) != "hash":
        return None
    segments = int(redis("HGET", key, "segments") or 0)
    return [int(redis("GET", segment)) for segment in segment_keys(key, segments)] or None


def left(redis, key):
    """What all of it is; None: there is no stock."""
    if redis("TYPE", key) != "hash":
        number = redis("GET", key)
        return None if number is None else int(number)
    segments = parts(redis, key)
    return int(redis("HGET", key, "stock")) if segments is None else sum(segments)
