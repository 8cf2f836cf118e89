#!/bin/bash
# link.sh NODE: connect the cluster's end of a node's cable. Runs in the login node's network namespace.
# shellcheck disable=SC1090,SC1091
set -euo pipefail
. /testbed/cluster.env
. "/testbed/nodes/$1"
if ((ROUTED)); then
  ip link set "$1" up
  ip address replace 169.254.77.1/32 dev "$1"
  ip address replace fe80::77/64 dev "$1" nodad
  [[ $FAMILIES != *4* ]] || ip route replace "$ADDRESS4/32" dev "$1"
  [[ $FAMILIES != *6* ]] || ip route replace "$ADDRESS6/128" dev "$1"
else
  ip link set "$1" master br0 up
fi
