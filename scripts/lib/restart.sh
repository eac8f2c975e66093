# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # settings of those that are sourced
#
# New programs for a shop that sells: one instance after the other. nginx leaves it out, and ends what
# it has sent there; then the instance ends, and the program that is built now takes its place, with
# the lock that the old one had. Needs common.sh, ask.sh, nginx.sh and shop.sh.
#
# left-out/NAME in the shop's folder is there from before nginx is told to leave an instance out until
# after nginx was told to take it in again. Its content is the lock that the instance is started with.
# So a restart that is cut short anywhere leaves no instance with a lock that nobody knows.
#
# left-out/NAME.behind is there from before that instance ends until the new one was told what the others
# were told: it may have missed a PUT /lock. One that is left out and not behind has missed none. After the
# mark of the next instance is made, and before the mark of the one before is removed, both are left out.

# tell_nginx: sends to all that are not left out, and to PUT_BACK. What it sent before was answered.
tell_nginx() {
    local name
    configure_nginx
    nginx_reload "$(shop_folder)/nginx/nginx.conf"
    for name in "${PUT_BACK[@]}"; do
        rm -f "$(shop_folder)/left-out/$name"
    done
    PUT_BACK=()
}

# part_line NAME: its pid and start.
part_line() {
    sed -n "s/^$1 \([0-9]*\) \([0-9]*\) .*/\1 \2/p" "$(shop_folder)/parts"
}

# instance_lives I: the one that was written down, not another that listens in its place.
instance_lives() {
    local pid start
    read -r pid start <<<"$(part_line "$(shop_name "$1")")"
    process_lives "$pid" "$start"
}

# admin_of I: where its admin listener is.
admin_of() {
    printf '127.0.0.1:%s' $(($(shop_instance_port "$1") + 1))
}

# end_instance NAME PID START DRAIN_MS: it answers first what it has.
end_instance() {
    local patience_s
    patience_s=$(instance_patience_s "$4")
    process_lives "$2" "$3" || return 0 # it ended by itself, and another may have its pid
    kill -s TERM "$2" 2>/dev/null || true
    wait_until "$patience_s" process_is_gone "$2" "$3" ||
        fail "instance $1 (pid $2) has not ended $patience_s s after SIGTERM. nginx leaves it out;" \
            "scripts/shop restart tries again"
}

# ---- The lock ------------------------------------------------------------------------------------

# kept_lock I: what is kept of an instance that is left out; fails when nothing is.
kept_lock() {
    local file
    file=$(shop_folder)/left-out/$(shop_name "$1")
    [[ -s $file ]] && cat "$file"
}

# keep_lock I LOCK: is_left_out from now on.
keep_lock() {
    local folder
    folder=$(shop_folder)
    mkdir -p "$folder/left-out"
    printf '%s' "$2" >"$folder/left-out.new"
    mv "$folder/left-out.new" "$folder/left-out/$(shop_name "$1")"
}

# settled_lock I: what GET /lock says once no switch is under way: one that waits for its sales still
# tells the old lock. An instance ends each switch within --wait-ms and a section. Fails when it does not answer.
settled_lock() {
    local answer switching=true
    while [[ $switching == true ]]; do
        instance_lives "$1" || return 1
        answer=$(ask GET "http://$(admin_of "$1")/lock" 2>/dev/null) || return 1
        switching=$(jq .switching <<<"$answer")
        [[ $switching == false ]] || sleep 0.1
    done
    printf '%s' "$answer"
}

# told_lock I: what the instance says, in the words of PUT /lock; fails when it does not answer. One
# that is left out may be new and not know the history's run yet: that is what was kept.
told_lock() {
    local answer
    answer=$(settled_lock "$1") || return 1
    { kept_lock "$1" || true; cat <<<"$answer"; } | jq --slurp --compact-output '
        (.[-1] | {rung, write, check_hold, guard_reads}
            + if .admit then {admit, on_conflict, local_first} else {} end
            + if .segments then {segments} else {} end + if .run then {run} else {} end) as $told
        | .[:-1] + [$told] | add'
}

# is_behind NAME: it may have missed a PUT /lock.
is_behind() {
    [[ -e $(shop_folder)/left-out/$1.behind ]]
}

mark_behind() {
    : >"$(shop_folder)/left-out/$1.behind"
}

# unmark_behind NAME: it was told what the others were told.
unmark_behind() {
    rm "$(shop_folder)/left-out/$1.behind"
}

# whom_to_ask I: the instances in the order in which they know best what lock that one is to have: itself
# and then the others, but first those that have missed no PUT /lock.
whom_to_ask() {
    local i current=() behind=()
    for i in "$1" $(seq 0 $((SHOP_COUNT - 1))); do
        if is_behind "$(shop_name "$i")"; then
            behind+=("$i")
        else
            current+=("$i")
        fi
    done
    printf '%s ' "${current[@]}" "${behind[@]}"
}

declare -A DOUBTED=() # the instances whose lock may not be the newest: they missed it, or have it from one that did

# find_lock I...: in LOCK, that of the first that answers, else the first that is kept; "": neither is. In
# MISSED, whose it is, if a newer one may be lost.
find_lock() {
    local i
    MISSED=
    for i; do
        if LOCK=$(told_lock "$i"); then
            MISSED=${DOUBTED[$(shop_name "$i")]-}
            return 0
        fi
    done
    for i; do
        if LOCK=$(kept_lock "$i"); then
            MISSED=$(shop_name "$i")
            return 0
        fi
    done
}

declare -A TOLD_LOST=() # the instances of which the operator was told already

# tell_what_is_lost NAME: an operator cannot know that nobody is left who heard of the newest lock.
tell_what_is_lost() {
    [[ -z ${TOLD_LOST[$1]-} ]] || return 0
    [[ -n $LOCK && -z $MISSED ]] || TOLD_LOST[$1]=yes
    if [[ -z $LOCK ]]; then
        say "no instance is left to tell its lock: $1 has that of scripts/shop up"
    elif [[ -n $MISSED ]]; then
        say "no instance in service is left to tell its lock: $1 has that of $MISSED, which was left out, $LOCK;" \
            "a PUT /lock that $MISSED missed is lost"
    fi
}

# lock_options LOCK: inventoryd's, one a line; none for "". The history's run is PUT /lock's alone: it is a folder.
lock_options() {
    jq --raw-output 'def switch: if . then "on" else "off" end;
        "--lock", .rung, "--write", .write, "--check-hold", (.check_hold | switch),
        "--guard-reads", (.guard_reads | switch),
        if .admit then "--admit", .admit, "--on-conflict", .on_conflict, "--local-first", (.local_first | switch)
        else empty end,
        if .segments then "--segments", .segments else empty end' <<<"$1"
}

# look_at_others I: the locks of those that missed no PUT /lock, in SEEN.
look_at_others() {
    local i
    SEEN=()
    for ((i = 0; i < SHOP_COUNT; i++)); do
        if ((i != $1)) && ! is_behind "$(shop_name "$i")"; then
            SEEN[i]=$(told_lock "$i") || unset 'SEEN[i]'
        fi
    done
}

# follow_others I: an operator who switches the lock of all reaches the old one meanwhile, or nobody. So
# the new one is told what the others were told.
follow_others() {
    local i before=() changed=yes rounds=0
    while [[ -n $changed ]]; do
        ((rounds++ < 20)) || fail "the others are told another lock again and again; nginx leaves $(shop_name "$1") out"
        changed=
        for i in "${!SEEN[@]}"; do
            before[i]=${SEEN[i]}
        done
        look_at_others "$1"
        for i in "${!SEEN[@]}"; do
            if [[ -n ${before[i]-} && ${SEEN[i]} != "${before[i]}" ]]; then
                tell_lock "$1" "${SEEN[i]}"
                changed=yes
            fi
        done
    done
}

# tell_lock I LOCK
tell_lock() {
    ASK_MAX_S=$((SHOP_ANSWER_MS / 1000 + 15)) ask PUT "http://$(admin_of "$1")/lock" "$2" >/dev/null ||
        fail "instance $(shop_name "$1") does not take the lock that it is told; nginx leaves it out"
}

# ---- One after the other -------------------------------------------------------------------------

# check_new_program: each instance can be started with it as restart_instance will, before one ends.
check_new_program() {
    local i order options
    for ((i = 0; i < SHOP_COUNT; i++)); do
        read -ra order <<<"$(whom_to_ask "$i")"
        find_lock "${order[@]}"
        mapfile -t options < <(lock_options "$LOCK")
        (shop_enter && check_instance "$i" "${options[@]}") ||
            fail "instance $(shop_name "$i") could not be started again; no instance was ended"
    done
}

# in_service I: nginx sends to it, or will with its next configuration.
in_service() {
    local name
    name=$(shop_name "$1")
    ! is_left_out "$name" || [[ " ${PUT_BACK[*]} " == *" $name "* ]]
}

# others_sell I: buyers are served while that one is replaced; "" for I: anyone serves them.
others_sell() {
    local i
    for ((i = 0; i < SHOP_COUNT; i++)); do
        if [[ $i != "$1" ]] && in_service "$i" && instance_ready "$(shop_instance_port "$i")"; then
            return 0
        fi
    done
    return 1
}

# whom_to_take_in: one that is ready and left out, if possible one that has missed no PUT /lock; fails when
# there is none.
whom_to_take_in() {
    local i order
    read -ra order <<<"$(whom_to_ask 0)"
    for i in "${order[@]}"; do
        if instance_lives "$i" && instance_ready "$(shop_instance_port "$i")"; then
            printf '%s' "$i"
            return 0
        fi
    done
    return 1
}

# take_one_in: a restart that was cut short, and instances that have ended since, may leave nginx with nobody
# to send to. One that is ready serves buyers again, with the lock of those that know best, before any ends.
take_one_in() {
    local i name order
    ! others_sell '' || return 0
    i=$(whom_to_take_in) || return 0
    name=$(shop_name "$i")
    if is_behind "$name"; then
        look_at_others "$i"
        read -ra order <<<"$(whom_to_ask "$i")"
        find_lock "${order[@]}"
        (tell_lock "$i" "$LOCK") || return 0 # it is replaced, as any other
        follow_others "$i"
        tell_what_is_lost "$name"
        doubt_as_missed "$name"
        unmark_behind "$name"
    fi
    PUT_BACK+=("$name")
    tell_nginx
    say "instance $name was left out and serves buyers again"
}

# doubt_as_missed NAME: it has the lock that find_lock found.
doubt_as_missed() {
    unset "DOUBTED[$1]"
    [[ -z $MISSED ]] || DOUBTED[$1]=$MISSED
}

# need_own_ports I: nobody else has them, not even an instance that nobody wrote down.
need_own_ports() {
    local port
    port=$(shop_instance_port "$1")
    for port in "$port" $((port + 1)); do
        wait_until 5 port_is_free "$port" || # a killed one's is free a moment after its first thread has gone
            fail "port $port of instance $(shop_name "$1") is taken by $(who_listens "$port"):" \
                "end that, and try again"
    done
}

port_is_free() {
    ! who_listens "$1" >/dev/null
}

# restart_instance I: the new one has the lock and the history's run of the old one.
restart_instance() {
    local name pid start lives='' drain_ms=0 run order options
    name=$(shop_name "$1")
    read -r pid start <<<"$(part_line "$name")"
    read -ra order <<<"$(whom_to_ask "$1")"
    if process_lives "$pid" "$start"; then
        lives=yes
        is_left_out "$name" || others_sell "$1" ||
            fail "no instance except $name is ready: nobody would serve buyers while it restarts"
        drain_ms=$(ask GET "http://$(admin_of "$1")/config" | jq .drain_ms) ||
            fail "instance $name does not answer: end it (kill -KILL $pid), and try again"
    fi
    look_at_others "$1" # first: what they are told from here on, this one may miss
    find_lock "${order[@]}"
    keep_lock "$1" "$LOCK"
    tell_nginx
    find_lock "${order[@]}" # a switch may have come since
    keep_lock "$1" "$LOCK"
    mark_behind "$name"
    if [[ -n $lives ]]; then
        end_instance "$name" "$pid" "$start" "$drain_ms"
    else
        say "instance $name had ended"
    fi
    need_own_ports "$1"
    tell_what_is_lost "$name"
    mapfile -t options < <(lock_options "$LOCK")
    (shop_enter && start_instance "$1" "${options[@]}")
    read -r pid start <<<"$(part_line "$name")"
    await_part "$name" "$pid" "$start" "$(shop_instance_port "$1")"
    run=$(jq --compact-output 'select(.run) | {run}' <<<"$LOCK")
    [[ -z $run ]] || tell_lock "$1" "$run"
    follow_others "$1"
    doubt_as_missed "$name"
    unmark_behind "$name"
    PUT_BACK+=("$name")
    say "instance $name: pid $pid"
}

# instances_in_order: those that have ended or are left out first, so that the others can then be done
# without.
instances_in_order() {
    local i living=()
    for ((i = 0; i < SHOP_COUNT; i++)); do
        if instance_lives "$i" && ! is_left_out "$(shop_name "$i")"; then
            living+=("$i")
        else
            printf '%s ' "$i"
        fi
    done
    printf '%s ' "${living[@]}"
}

# nginx itself, whatever its instances do.
nginx_serves() {
    curl --silent --max-time 5 --output /dev/null "http://127.0.0.1:$SHOP_OPERATORS_PORT/"
}

shop_restart() {
    local folder i order master
    folder=$(shop_folder)
    need jq
    [[ -s $folder/parts ]] || fail "no shop is up on port $SHOP_PORT: scripts/shop up starts one"
    exec 9>"$folder/guard"
    flock --nonblock 9 || fail "another command is starting or ending the shop on port $SHOP_PORT"
    at_exit shop_each say_remedy # of what a restart that was cut short leaves to the next one
    shop_read_settings
    ASK_TOKEN_FILE=$SHOP_TOKEN_FILE
    ASK_MAX_S=15
    need_token
    ((SHOP_COUNT > 1)) ||
        fail "the shop has one instance: nobody would serve buyers while it restarts." \
            "scripts/shop up --instances 2 starts two"
    master=$(shop_master) || fail "no sentinel says which server is the master"
    redis_answers "${master##*:}" || fail "Redis does not answer on port ${master##*:}"
    nginx_serves || fail "nginx does not answer on port $SHOP_OPERATORS_PORT"
    for ((i = 0; i < SHOP_COUNT; i++)); do
        if is_behind "$(shop_name "$i")"; then
            DOUBTED[$(shop_name "$i")]=$(shop_name "$i")
        fi
    done
    take_one_in
    build_programs
    check_new_program
    read -ra order <<<"$(instances_in_order)"
    for i in "${order[@]}"; do
        restart_instance "$i"
    done
    tell_nginx
    exec 9>&-
}
