# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # settings of those that are sourced
#
# New programs for a shop that sells: one instance after the other. nginx leaves it out, and ends what
# it has sent there; then the instance ends, and the program that is built now takes its place.
# Needs common.sh, ask.sh, nginx.sh and shop.sh.

# leave_out NAME: nginx sends that instance nothing, and what it has sent was answered. "": all are in.
leave_out() {
    configure_nginx "$1"
    nginx_reload "$(shop_folder)/nginx/nginx.conf"
}

# part_line NAME: its pid and start.
part_line() {
    sed -n "s/^$1 \([0-9]*\) \([0-9]*\) .*/\1 \2/p" "$(shop_folder)/parts"
}

# end_instance NAME PID START DRAIN_MS: it answers first what it has.
end_instance() {
    local patience_s=$(($4 / 1000 + 15))
    kill -s TERM "$2" 2>/dev/null || true
    wait_until "$patience_s" process_is_gone "$2" "$3" ||
        fail "instance $1 (pid $2) has not ended $patience_s s after SIGTERM. nginx leaves it out;" \
            "scripts/shop restart tries again"
}

# lock_of I: what PUT /lock of a new instance needs, to do as that one does; or, where it has ended or
# was never told, as the others do. One that nginx leaves out may have been started and not told. "":
# nobody answers.
lock_of() {
    local i admin setting
    for i in "$1" $(seq 0 $((SHOP_COUNT - 1))); do
        admin=127.0.0.1:$(($(shop_instance_port "$i") + 1))
        if ! is_left_out "$(shop_instance_port "$i")" && setting=$(ask GET "http://$admin/lock" 2>/dev/null); then
            jq --compact-output '{rung, write, check_hold, guard_reads}
                + if .run then {run} else {} end' <<<"$setting"
            return 0
        fi
    done
}

# others_sell I: buyers are served while that one is replaced.
others_sell() {
    local i
    for ((i = 0; i < SHOP_COUNT; i++)); do
        if ((i != $1)) && instance_ready "$(shop_instance_port "$i")"; then
            return 0
        fi
    done
    return 1
}

# restart_instance I: the new one has the lock and the history's run of the old one.
restart_instance() {
    local name pid start admin setting config
    name=$(shop_name "$1")
    admin=127.0.0.1:$(($(shop_instance_port "$1") + 1))
    read -r pid start <<<"$(part_line "$name")"
    setting=$(lock_of "$1")
    [[ -n $setting ]] || fail "no instance that nginx serves tells its lock: scripts/shop status shows more"
    if process_lives "$pid" "$start"; then
        others_sell "$1" ||
            fail "no instance except $name is ready: nobody would serve buyers while it restarts"
        config=$(ask GET "http://$admin/config") ||
            fail "instance $name does not answer: end it (kill -KILL $pid), and try again"
        leave_out "$name"
        end_instance "$name" "$pid" "$start" "$(jq .drain_ms <<<"$config")"
    else
        say "instance $name had ended"
        leave_out "$name"
    fi
    (shop_enter && start_instance "$1")
    read -r pid start <<<"$(part_line "$name")"
    await_part "$name" "$pid" "$start" "$(shop_instance_port "$1")"
    ask PUT "http://$admin/lock" "$setting" >/dev/null ||
        fail "instance $name did not take the lock of the old one; nginx leaves it out"
    say "instance $name: pid $pid"
}

# instances_in_order: those that have ended or are left out first, so that the others can then be done
# without.
instances_in_order() {
    local i pid start living=()
    for ((i = 0; i < SHOP_COUNT; i++)); do
        read -r pid start <<<"$(part_line "$(shop_name "$i")")"
        if process_lives "$pid" "$start" && ! is_left_out "$(shop_instance_port "$i")"; then
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
    local folder i order
    folder=$(shop_folder)
    need jq
    [[ -s $folder/parts ]] || fail "no shop is up on port $SHOP_PORT: scripts/shop up starts one"
    exec 9>"$folder/guard"
    flock --nonblock 9 || fail "another command is starting or ending the shop on port $SHOP_PORT"
    shop_read_settings
    ASK_TOKEN_FILE=$SHOP_TOKEN_FILE
    ASK_MAX_S=15
    need_token
    ((SHOP_COUNT > 1)) ||
        fail "the shop has one instance: nobody would serve buyers while it restarts." \
            "scripts/shop up --instances 2 starts two"
    redis_answers || fail "Redis does not answer on port $SHOP_REDIS_PORT"
    nginx_serves || fail "nginx does not answer on port $SHOP_OPERATORS_PORT"
    build_programs
    read -ra order <<<"$(instances_in_order)"
    for i in "${order[@]}"; do
        restart_instance "$i"
    done
    leave_out ''
    exec 9>&-
}
