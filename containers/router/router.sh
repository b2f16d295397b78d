#!/bin/sh
# Adds the address .254, the default gateway of the other containers, in each of its networks. Delays packets from one region to another
# by half of ROUND_TRIP_MS.
set -eu

# A line "DEVICE ADDRESS/24" for each network.
networks=$(ip -4 -oneline address show scope global | awk '{ print $2, $4 }')
regions=$(echo "$networks" | grep -v ' 10\.90\.0\.' | awk '{ print $1 }')

echo "$networks" | while read -r device address; do
    ip address add "${address%.253/24}.254/24" dev "$device"
done

# Delays packets that the router sends into a region: a request when it enters its region, and the answer when it returns.
with_netem() {
    for device in $regions; do
        tc qdisc add dev "$device" root netem delay "$1us" limit 100000 2>/dev/null || return 1
    done
}

# Routes packets from a region through a TUN device, from which they come back after the delay.
with_a_program() {
    [ -n "${DELAY:-}" ] || return 1
    $DELAY late "$1us" &
    until ip link show late >/dev/null 2>&1; do
        # Fail if the program has ended.
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
