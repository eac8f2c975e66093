# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Watches the memory and the descriptors of a shop's instances while a load runs. Needs common.sh,
# shop.sh and run.sh.

WATCH_PID=
WATCH_FILE=

# watch_part NAME PID START PORT: one line of watch.csv, if the part is an instance.
watch_part() {
    local rss descriptors
    [[ $1 == ["$SHOP_NAMES"] ]] || return 0
    rss=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$2/status")
    descriptors=$(find "/proc/$2/fd" -mindepth 1 | wc -l)
    printf '%s,%s,%s,%s\n' "$SECONDS" "$1" "$rss" "$descriptors"
}

# Until the script, or a part, ends.
watch_until_ended() {
    while process_start "$$" >/dev/null && shop_each watch_part; do
        sleep 1
    done
}

start_watch() {
    WATCH_FILE=$(shop_folder)/watch.csv
    printf 't_s,instance,rss_kib,descriptors\n' >"$WATCH_FILE"
    start_beside watch_until_ended >>"$WATCH_FILE" 2>/dev/null
    WATCH_PID=$BESIDE_PID
    at_exit stop_watch
}

stop_watch() {
    [[ -n $WATCH_PID ]] || return 0
    end_beside "$WATCH_PID"
    WATCH_PID=
}

# end_watch: says for each instance what the second and the last quarter of the time had at most
# (the first is the start). 1 when one had grown: by more than a quarter and 4 MiB, or by more
# than a quarter and 64 descriptors.
end_watch() {
    stop_watch
    mv "$WATCH_FILE" "$RUN_FOLDER/watch.csv"
    awk -F , '
        NR == 2 { from = $1 }
        NR > 1 && NF == 4 { line[++lines] = $0; last = $1 }  # the last one may be cut off
        END {
            for (n = 1; n <= lines; n++) {
                split(line[n], f, ",")
                part = last > from ? int(4 * (f[1] - from) / (last - from + 1)) : 3
                names[f[2]]
                if (f[3] > rss[f[2], part]) rss[f[2], part] = f[3]
                if (f[4] > fds[f[2], part]) fds[f[2], part] = f[4]
            }
            for (name in names) {
                m = rss[name, 1] + 0; M = rss[name, 3] + 0
                d = fds[name, 1] + 0; D = fds[name, 3] + 0
                grown = M > 1.25 * m + 4096 || D > 1.25 * d + 64
                printf "%s: memory %.1f -> %.1f MiB, descriptors %d -> %d: %s\n", name,
                    m / 1024, M / 1024, d, D, grown ? "GROWING" : "steady"
                if (grown) bad = 1
            }
            exit bad
        }' "$RUN_FOLDER/watch.csv"
}
