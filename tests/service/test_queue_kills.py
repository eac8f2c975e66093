# SPDX-License-Identifier: Apache-2.0
"""queue_kills.py in a small size, with both locks; and that it finds what it is to find."""
import pytest
import queue_kills


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_instances_and_redis(tmp_path, seed):
    faults, counts = queue_kills.run(str(tmp_path), 400, seed, every=25)
    assert not faults, (counts, faults)
    assert counts["accepted"] == 400
