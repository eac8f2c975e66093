# SPDX-License-Identifier: Apache-2.0
"""Checks what a test needs from the machine before the test uses it. If it is missing, the test is skipped, with
a reason."""
import os
import resource
import shutil
import socket
import subprocess

import pytest

NAMES = {"net": "a network", "mount": "mounts"}


def own(*kinds):
    """Returns the words that run a command in its own namespaces of these kinds: net, mount."""
    words = ["unshare", *(f"--{kind}" for kind in kinds), *(["--map-root-user"] if os.geteuid() != 0 else [])]
    done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        wanted = " and ".join(NAMES[kind] for kind in kinds)
        pytest.skip(f"needs {wanted} of its own, which this machine does not allow: {done.stderr.strip()}")
    return words


def descriptors(count):
    """Lets this process and its children open that many descriptors."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"needs {count} descriptors, and this machine allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def ipv6():
    """Requires an IPv6 address on the loopback interface."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"needs the address ::1, which this machine lacks: {error.strerror}")


def memory_folder(size):
    """A folder in memory with room for `size` bytes; None (the default folder, on disk) if there is none."""
    folder = "/dev/shm"
    if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= size:
        return folder
    return None
