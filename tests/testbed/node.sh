#!/bin/bash
# node.sh NODE: process 1 of a node, in its own namespaces. It is bash and not slurmd because it must reap orphans.
# shellcheck disable=SC1090,SC1091
set -eEuo pipefail
node=$1
trap 'echo "node.sh failed: $BASH_COMMAND" >&2' ERR
trap 'echo 1 >"/testbed/ended/$node"' EXIT
. /testbed/cluster.env
. "/testbed/nodes/$node"
. /testbed/lib.sh

if ((${#PRIVATE_TMP_CPUS[@]})); then # see init.sh
  taskset --pid --cpu-list "$(IFS=, && echo "${PRIVATE_TMP_CPUS[*]}")" $$ >/dev/null
fi
hostname "$node"
net_defaults
# The extra interfaces come first, so that `hostname -I` lists them before the main one.
if ((DOCKER0)); then
  ip link add docker0 type bridge
  ip address add 172.17.0.1/16 dev docker0
  ip link set docker0 up
fi
# /proc is still that of the cluster, so process 1 is init.sh: the other end of each cable is there.
outside=/proc/1/ns/net
if ((ETH1)); then
  ip link add eth1 type veth peer name "$node.1" netns "$outside"
  add_addresses eth1 "$SECOND4/16" "$SECOND6/64"
  ip link set eth1 up
  nsenter --net="$outside" ip link set "$node.1" master br1 up
fi
ip link add eth0 type veth peer name "$node" netns "$outside"
ip link set eth0 up
if ((ROUTED)); then
  add_addresses eth0 "$ADDRESS4/32" "$ADDRESS6/128"
  nsenter --net="$outside" bash /testbed/link.sh "$node"
  [[ $FAMILIES != *4* ]] || ip route add default via 169.254.77.1 dev eth0 onlink
  [[ $FAMILIES != *6* ]] || ip -6 route add default via fe80::77 dev eth0 onlink
else
  add_addresses eth0 "$ADDRESS4/16" "$ADDRESS6/64"
  nsenter --net="$outside" bash /testbed/link.sh "$node"
fi

mount -t proc proc /proc
if ((${#CGROUPS[@]})); then
  own_sys
else
  fresh_sys ""
fi
fresh_tmp "" "$TMP_SIZE"
mount --bind "/testbed/hosts/$node" /etc/hosts
start_daemon "slurmd.$node" slurmd -D
exec {never}<> <(:) # a pipe that stays open and empty: bash blocks on it and reaps orphans
while :; do
  read -r -u "$never" _ || :
done
