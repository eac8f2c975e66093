# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import shutil
import tempfile

import pytest

from bench import ROOT


@pytest.fixture
def clone():
    """A clone without a past, which every user may read: its scripts, and a folder `open` to write
    in. The test's own folder is its user's alone."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ladder-clone-"))
    folder.chmod(0o755)
    for part in ("scripts", "jmeter", "deploy/nginx"):
        shutil.copytree(ROOT / part, folder / part)
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_nobody():
    """Words that run a command without root; none when the test has no root to begin with."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
