# SPDX-License-Identifier: Apache-2.0
"""The peers of a bench, built for a test. Without what builds them the test is skipped."""
import shutil
import subprocess

import pytest

import ensembles
import versus

FETCH_S = 240


def built_with_go(peer):
    if shutil.which("go") is None:
        pytest.skip(f"there is no Go, which the peer {peer} is written in")
    if subprocess.run(["go", "list", "-deps", f"./{peer}"], cwd=versus.PEERS, capture_output=True,
                      timeout=FETCH_S).returncode != 0:
        pytest.skip(f"the modules of the peer {peer} cannot be fetched here")
    return versus.build_with_go(peer)


def built_curator():
    for tool in "mvn", "javac":
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}, which builds the peer curator")
    return ensembles.build_curator()
