#!/bin/bash
# floor.sh HEAD_IP COMMAND...: by hand on one node, without Slurm; started on all nodes at once. The node with the address
# HEAD_IP is the head: it runs the command as soon as its Ray is up.
if [[ $(hostname --ip-address) == *"$1"* ]]; then
  ray start --head --node-ip-address="$1" --port=6379 --num-cpus=1 --dashboard-host=127.0.0.1 && RAY_ADDRESS=$1:6379 exec "${@:2}"
else
  exec ray start --address="$1:6379" --num-cpus=1
fi
