# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=scripts/lib/common.sh
#
# What the jobs that fire a load share: where JMeter is, and the folder runs/, which belongs to the caller again
# before a job ends.
LADDER_CACHE=/tmp/ladder
LADDER_COMMIT=$(</ladder/commit)
export LADDER_CACHE LADDER_COMMIT
source /ladder/scripts/lib/common.sh

give_runs_back() {
    : >/ladder/runs/.load-is-over
    wait_until 60 test ! -e /ladder/runs/.load-is-over || say "the job \`runs\` did not give runs/ back"
}

# JMeter was checked when the image was made, so it is not tried again before each row.
mkdir -p "$LADDER_CACHE"
ln -sfn /opt/jmeter "$LADDER_CACHE/jmeter"

# docker-compose 1.29 run does not wait for the job `runs`.
wait_until 60 test -w /ladder/runs || fail "the job \`runs\` did not make runs/ writable"
at_exit give_runs_back
