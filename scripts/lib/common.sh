# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What every script shares: words to the user, bounded waits, checks of ports, tools and processes,
# and an end that undoes what was begun. Source it first. Progress and errors go to standard error,
# results to standard output.
set -euo pipefail

LADDER_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# What is fetched, and what running shops leave: git ignores both.
LADDER_CACHE=${LADDER_CACHE:-$LADDER_ROOT/.cache}
LADDER_STATE=${LADDER_STATE:-$LADDER_CACHE/shops}
# The folder the programs are built in. One that the caller names is used as it is, never built.
LADDER_BUILD_GIVEN=${LADDER_BUILD:-}
LADDER_BUILD=${LADDER_BUILD:-$LADDER_ROOT/build/release}
[[ $LADDER_BUILD == /* ]] || LADDER_BUILD=$PWD/$LADDER_BUILD # a script may change folders

PROGRAM=$(basename "$0")

# ---- Words ---------------------------------------------------------------------------------------

say() {
    printf '%s\n' "$*" >&2
}

# shown TEXT: without what may be a login of a URL in it.
shown() {
    printf '%s' "${1/:*@/:***@}"
}

# Ends the script: 2 says that nothing can be said about what was asked, 1 is kept for "it failed".
fail() {
    printf '%s: %s\n' "$PROGRAM" "$*" >&2
    exit 2
}

# ---- Options -------------------------------------------------------------------------------------
# A script fills OPTIONS: "--port" -> the variable that takes the value; "list+" takes many,
# "!flag" takes none and becomes yes. What is not in it is left in REST, in order.
declare -A OPTIONS=()
REST=()

# parse_options "$@": also prints the script's usage() for --help.
parse_options() {
    local target value before=
    while (($#)); do
        [[ -n $1 ]] ||
            fail "an argument is empty${before:+, behind $(shown "$before")}: leave it out, or say what it is." \
                "See $PROGRAM --help"
        if [[ $1 == --*=* && -n ${OPTIONS[${1%%=*}]-} ]]; then
            set -- "${1%%=*}" "${1#*=}" "${@:2}"
        fi
        target=${OPTIONS[$1]-}
        case $1/$target in
        --help/)
            usage
            exit 0
            ;;
        */)
            REST+=("$1")
            ;;
        */!*)
            printf -v "${target#!}" yes
            ;;
        *)
            value=$(option_value "$@")
            take_option "$target" "$value"
            shift
            ;;
        esac
        before=$1
        shift
    done
}

# option_value "$@": the value behind the option $1, or a clear refusal.
option_value() {
    [[ -n ${2:-} ]] || fail "$1 needs a value. See $PROGRAM --help"
    printf '%s' "$2"
}

take_option() {
    if [[ $1 == *+ ]]; then
        local -n list=${1%+}
        list+=("$2")
    else
        printf -v "$1" '%s' "$2"
    fi
}

# refuse_rest [ARG...]: nothing may be left over.
refuse_rest() {
    (($# > 0)) || return 0
    fail "\"$(shown "$1")\" is not understood. Options:" \
        "$(printf '%s\n' "${!OPTIONS[@]}" | sort | tr '\n' ' ')--help"
}

# whole_number OPTION VALUE MIN MAX
whole_number() {
    if [[ ! $2 =~ ^(0|[1-9][0-9]{0,8})$ ]] || (($2 < $3 || $2 > $4)); then
        fail "$1 is \"$(shown "$2")\": it must be a whole number from $3 to $4"
    fi
}

# one_of OPTION VALUE WORD...
one_of() {
    local option=$1 value=$2 word
    shift 2
    for word; do
        [[ $value != "$word" ]] || return 0
    done
    fail "$option is \"$(shown "$value")\": it must be one of: $*"
}

# ---- The end -------------------------------------------------------------------------------------
# at_exit COMMAND...: run when the script ends, however it ends, the latest first.

EXIT_STEPS=()
ATTENDED=

at_exit() {
    EXIT_STEPS+=("$(printf '%q ' "$@")")
}

leave() {
    local code=$? i
    trap - EXIT
    trap '' INT TERM HUP PIPE
    set +e
    if ((code > 128)) && [[ -n $ATTENDED || ${#EXIT_STEPS[@]} -gt 0 ]]; then
        say "$PROGRAM: told to stop${ATTENDED:+; ending what was started}"
    fi
    end_attended
    for ((i = ${#EXIT_STEPS[@]} - 1; i >= 0; i--)); do
        eval "${EXIT_STEPS[i]}"
    done
    exit "$code"
}

end_by_signals() {
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 141' PIPE
    trap 'exit 143' TERM
}

# uninterrupted COMMAND...: a signal ends the script after it, not in the middle.
uninterrupted() {
    local told='' code=0
    trap 'told=129' HUP
    trap 'told=130' INT
    trap 'told=141' PIPE
    trap 'told=143' TERM
    "$@" || code=$?
    end_by_signals
    [[ -z $told ]] || exit "$told"
    return "$code"
}

trap leave EXIT
end_by_signals

# attend COMMAND...: runs it as a process group of its own and waits for it. A signal to the script
# is acted on at once, not when the command is done, and ends the whole group with it.
attend() {
    local code=0
    set -m
    "$@" </dev/null &
    ATTENDED=-$!
    set +m
    wait "${ATTENDED#-}" || code=$?
    ATTENDED=
    return "$code"
}

# attend_at_terminal COMMAND...: the same for one that may ask the user (sudo's password), for which
# it must stay in the terminal's group. It is told to end and ends in its own time.
attend_at_terminal() {
    local code=0
    "$@" <&0 &
    ATTENDED=$!
    wait "$ATTENDED" || code=$?
    ATTENDED=
    return "$code"
}

end_attended() {
    local target=$ATTENDED
    [[ -n $target ]] || return 0
    ATTENDED=
    kill -TERM -- "$target" 2>/dev/null
    if [[ $target == -* ]] && ! wait_until 60 target_is_gone "$target"; then
        kill -KILL -- "$target" 2>/dev/null
    fi
    wait "${target#-}" 2>/dev/null
}

# target_is_gone PID or -GROUP. A zombie is gone: not every first process of a container reaps.
target_is_gone() {
    local file stat fields
    if [[ $1 != -* ]]; then
        if process_start "$1" >/dev/null; then
            return 1
        fi
        return 0
    fi
    for file in /proc/[0-9]*/stat; do
        { read -r stat <"$file"; } 2>/dev/null || continue
        read -ra fields <<<"${stat##*) }"
        if [[ ${fields[2]} == "${1#-}" && ${fields[0]} != Z ]]; then
            return 1
        fi
    done
}

# ---- Waiting, ports, tools, processes ------------------------------------------------------------

# wait_until SECONDS COMMAND...: asks again and again until it succeeds; 1 when the time is over.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

# make_folder DIR: with all above it.
make_folder() {
    mkdir -p "$1" 2>/dev/null || fail "the folder $1 cannot be made"
}

# need TOOL...: all on PATH, or a sentence that says how to get them.
need() {
    local tool missing=()
    for tool; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    ((${#missing[@]} == 0)) ||
        fail "not found on PATH: ${missing[*]}. scripts/setup --for run installs what is missing" \
            "(as root or with sudo)"
}

# who_listens PORT: "nginx, pid 12" or "another user's process"; fails when the port is free. Of several
# processes that share the port it is the one that started the others: if it ends, they all do.
who_listens() {
    local lines pid parent pids
    lines=$(ss --no-header --listening --tcp --numeric --processes "sport = :$1")
    [[ -n $lines ]] || return 1
    pids=" $(grep --only-matching 'pid=[0-9]*' <<<"$lines" | sed 's/^pid=//' | paste -s -d ' ') "
    if [[ ! $lines =~ \(\(\"([^\"]+)\",pid=([0-9]+) ]]; then
        printf 'another user'\''s process'
        return
    fi
    pid=${BASH_REMATCH[2]}
    while parent=$(process_parent "$pid") && [[ $pids == *" $parent "* ]]; do
        pid=$parent
    done
    printf '%s, pid %s' "${BASH_REMATCH[1]}" "$pid"
}

# process_parent PID
process_parent() {
    local stat fields
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    read -ra fields <<<"${stat##*) }"
    printf '%s' "${fields[1]}"
}

# process_start PID: when it began, in the kernel's ticks; fails when it is gone or a zombie.
# A pid with its start names one process: the number alone may be used again.
process_start() {
    local stat fields
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    read -ra fields <<<"${stat##*) }"
    [[ ${fields[0]} != Z ]] || return 1
    printf '%s' "${fields[19]}"
}

# process_lives PID START
process_lives() {
    [[ $(process_start "$1") == "$2" ]]
}

process_is_gone() {
    ! process_lives "$@"
}

# end_process PID START [SIGNAL [SECONDS WHAT]]: asks it to end, insists after 15 s or SECONDS; never touches another
# process. WHAT it is and does: said if it does not end at once, and if it is killed.
end_process() {
    local patience_s=${4:-15} what=${5:-}
    process_lives "$1" "$2" || return 0
    kill -s "${3:-TERM}" "$1" 2>/dev/null || return 0
    if [[ -n $what ]] && ! wait_until 2 process_is_gone "$1" "$2"; then
        say "waiting for $what: it has $patience_s s"
    fi
    if ! wait_until "$patience_s" process_is_gone "$1" "$2"; then
        [[ -z $what ]] || say "$patience_s s are over, and pid $1 is killed: $what"
        kill -s KILL "$1" 2>/dev/null || true
        wait_until 5 process_is_gone "$1" "$2"
    fi
}

# end_orphans PID: what the process left in its group. The number cannot be used again while the
# group lives, so when no process has it, the group is still that of the one that is gone.
end_orphans() {
    if process_start "$1" >/dev/null || target_is_gone "-$1"; then
        return 0
    fi
    kill -s TERM -- "-$1" 2>/dev/null || true
    wait_until 10 target_is_gone "-$1" || kill -s KILL -- "-$1" 2>/dev/null || true
}

# start_beside COMMAND...: in the background, as a group of its own: what it waits for ends with it. Sets BESIDE_PID.
start_beside() {
    set -m
    "$@" </dev/null 7>&- & # without the lock of the load, see shop.sh
    # shellcheck disable=SC2034  # the caller reads it
    BESIDE_PID=$!
    set +m
}

# end_beside PID
end_beside() {
    kill -- "-$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

# build_programs: inventoryd and ladder-audit, in LADDER_BUILD, unless the caller named a folder.
build_programs() {
    local log=$LADDER_CACHE/build.log
    [[ -z $LADDER_BUILD_GIVEN ]] || return 0
    need cmake
    make_folder "$LADDER_CACHE"
    { : >"$log"; } 2>/dev/null || fail "$log cannot be written"
    if ! attend build_into "$log"; then
        tail -n 20 "$log" >&2
        fail "the build failed; the whole log is $log"
    fi
}

build_into() {
    (cd "$LADDER_ROOT" && cmake --preset release && cmake --build --preset release --parallel 2) 2>&1 |
        tee "$1" | tell_that_it_builds
}

# tell_that_it_builds: once, if there is something to build.
tell_that_it_builds() {
    local line told=
    while IFS= read -r line; do
        [[ -z $told && $line == *Building* ]] || continue
        say "building inventoryd and ladder-audit (about 20 s the first time)"
        told=yes
    done
}
