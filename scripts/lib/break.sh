# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Kills servers while a row's load runs. Needs common.sh and run.sh.

BREAK_PID=
BREAK_DONE= # a file that exists once they are killed

# a_quarter_is_sold KEYS ITEM STOCK
a_quarter_is_sold() {
    local left
    left=$(redis_state "$1" "$2" 2>/dev/null | jq --arg item "$2" '.stock[$item]' 2>/dev/null) || return 1
    [[ $left =~ ^[0-9]+$ ]] && ((left <= $3 - ($3 + 3) / 4))
}

# Until the script ends.
break_in_the_middle() {
    until a_quarter_is_sold "${@:3}"; do
        process_start "$$" >/dev/null || return
        sleep 0.02
    done
    "${RUN_KILL[@]}" "$1" "$2" && : >"$BREAK_DONE"
}

# start_break FAULT RUNG KEYS ITEM STOCK: when a quarter of the stock of ITEM is sold, RUN_KILL kills what FAULT names.
start_break() {
    [[ $1 != none ]] || return 0
    BREAK_DONE=$RUN_FOLDER/killed
    start_beside break_in_the_middle "$@" >/dev/null
    BREAK_PID=$BESIDE_PID
    at_exit stop_break
}

stop_break() {
    [[ -n $BREAK_PID ]] || return 0
    end_beside "$BREAK_PID"
    BREAK_PID=
}

# end_break: the load is over.
end_break() {
    [[ -n $BREAK_PID ]] || return 0
    stop_break
    [[ -e $BREAK_DONE ]] ||
        fail "the load was over before a server was killed: ask for more requests, or for more business in a sale"
    rm "$BREAK_DONE"
}
