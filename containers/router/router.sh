#!/bin/sh
# Takes the address .254 in every network that it is in, where the others there look for a way out, and delays what goes from
# one region to another by half of ROUND_TRIP_MS.
set -eu

# "DEVICE ADDRESS/24" of each network.
networks=$(ip -4 -oneline address show scope global | awk '{ print $2, $4 }')
regions=$(echo "$networks" | grep -v ' 10\.90\.0\.' | awk '{ print $1 }')

echo "$networks" | while read -r device address; do
    ip address add "${address%.253/24}.254/24" dev "$device"
done

# Delays what leaves into a region: each packet once on its way there, and the answer once on its way back.
with_netem() {
    for device in $regions; do
        tc qdisc add dev "$device" root netem delay "$1us" limit 100000 2>/dev/null || return 1
    done
}

# Routes what comes from a region through a device that gives it back later.
with_a_program() {
    [ -n "${DELAY:-}" ] || return 1
    $DELAY late "$1us" &
    until ip link show late >/dev/null 2>&1; do
        # The program may have ended.
        kill -0 $! 2>/dev/null || return 1
        sleep 0.1
    done
    ip link set late txqueuelen 10000 up
    ip route add default dev late table 100
    for device in $regions; do
        ip rule add iif "$device" lookup 100
    done
}

half=$((${ROUND_TRIP_MS:-0} * 500))
if [ "$half" -eq 0 ]; then
    echo "the regions are next to each other"
elif with_netem "$half" || with_a_program "$half"; then
    echo "the regions are $ROUND_TRIP_MS ms apart"
else
    echo "this kernel has no netem: the regions are next to each other"
fi
exec sleep infinity
