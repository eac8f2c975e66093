# SPDX-License-Identifier: Apache-2.0
"""What scripts/torture refuses before it builds or starts anything."""
import pytest

from bench import ROOT, run
from tools import path_without

TORTURE = ROOT / "scripts" / "torture"


@pytest.mark.parametrize("rung, tool, says", [
    ("etcd", "etcd", "there is no etcd: scripts/setup --for etcd installs Debian's package etcd-server"),
    ("zookeeper", "java", "not found on PATH: java. scripts/setup --for run installs what is missing"),
])
def test_a_rung_whose_servers_are_not_installed(tmp_path, rung, tool, says):
    done = run(TORTURE, "--rung", rung, env={"PATH": path_without(tmp_path, tool), "LADDER_BUILD": tmp_path})
    assert done.returncode == 2 and says in done.stderr, done


def test_a_rung_whose_client_cannot_be_built(tmp_path):
    """pkg-config finds no libcurl."""
    done = run(TORTURE, "--rung", "etcd", env={"PKG_CONFIG_LIBDIR": tmp_path, "LADDER_BUILD": None})
    assert done.returncode == 2 and done.stderr.endswith(
        "the program of --rung etcd cannot be built without libcurl4-openssl-dev: scripts/setup --for etcd installs that\n"), done


@pytest.mark.parametrize("words, says", [
    (["--servers", 3, "--rung", "etcd"], '--servers needs --rung redlock, and --rung is "etcd": leave one of the two out'),
    (["--servers", 3, "--sentinel"], "--sentinel needs rungs of one server, and redlock has several: leave --sentinel out"),
    (["--rung", "etcd", "--flawed"], "with --rung etcd only these are allowed: --minutes, --histories"),
    (["--rung", "zookeeper", "--many"], "with --rung zookeeper only these are allowed: --minutes, --histories"),
    (["--repeat", 7], "--repeat needs --rung or --servers, to know which history to play"),
])
def test_options_that_do_not_fit_together(words, says):
    done = run(TORTURE, *words)
    assert done.returncode == 2 and says in done.stderr, done
