# SPDX-License-Identifier: Apache-2.0
"""What a test needs of the machine, asked for before it is used: where it is not given, the test is skipped
and says why."""
import os
import resource
import shutil
import socket
import subprocess

import pytest

NAMES = {"net": "a network", "mount": "mounts"}


def own(*kinds):
    """The words before a command that is to have these of its own: net, mount."""
    words = ["unshare", *(f"--{kind}" for kind in kinds), *(["--map-root-user"] if os.geteuid() != 0 else [])]
    done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        wanted = " and ".join(NAMES[kind] for kind in kinds)
        pytest.skip(f"needs {wanted} of its own, and this machine gives none: {done.stderr.strip()}")
    return words


def descriptors(count):
    """This process, and what it starts, may open so many."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"needs {count} descriptors, and this machine gives {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def ipv6():
    """The loopback has an address of version 6."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"needs the address ::1, and this machine has none: {error.strerror}")


def memory_folder(size):
    """A folder in memory with room for `size` bytes; None, which is the usual one on disk, where there is none."""
    folder = "/dev/shm"
    if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= size:
        return folder
    return None
