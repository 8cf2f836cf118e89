#% if not joins or spec.port_range
# Whether nothing listens on these ports.
# Usage: ports_are_free FIRST COUNT
ports_are_free() {
  local port hex listening
  # State 0A is "listening"; port numbers are in hexadecimal.
  listening=" $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
    awk '$4 == "0A" { sub(/.*:/, "", $2); print $2 }' | tr '\n' ' ')"
  for ((port = $1; port < $1 + $2; port++)); do
    printf -v hex ' %04X ' "$port"
    [[ $listening != *$hex* ]] || return 1
  done
}
#% endif
#% if spec.port_range

# The range is divided into blocks, so that jobs on the same node use different ports: 16 ports for
# Ray's services and 4 for each CPU. Sets slaunch_block, the first port of a free block, and
# slaunch_block_last. Which block is tried first depends on the job ID.
# Usage: find_block FIRST_TRY
find_block() {
  local ports=$((slaunch_port_last - slaunch_port_first + 1))
  local size=$((16 + 4 * SLURM_CPUS_ON_NODE))
  local try blocks
  ((size <= ports)) || size=$ports
  blocks=$((ports / size))
  for ((try = $1; try < $1 + blocks; try++)); do
    slaunch_block=$((slaunch_port_first + (SLURM_JOB_ID + try) % blocks * size))
    slaunch_block_last=$((slaunch_block + size - 1))
    if ports_are_free "$slaunch_block" "$size"; then
      return 0
    fi
  done
  return 1
}
#% if not joins

# Sets slaunch_port, the first of the head's block.
pick_port() {
  slaunch_attempt=$((${slaunch_attempt:-0} + 1))
  find_block "$((slaunch_attempt - 1))" ||
    finish 70 head-failed "no free block of ports in $slaunch_port_first-$slaunch_port_last on \
$slaunch_head" 'use a wider --port-range' "$slaunch_head"
  slaunch_port=$slaunch_block
}
#% endif

# Sets slaunch_port_args for Ray on this node. The head's GCS, Ray Client and dashboard have the
# ports 0 to 2 of its block.
set_port_arguments() {
  if [[ $slaunch_node == "$slaunch_head" ]]; then
    slaunch_block=$slaunch_port
    slaunch_block_last=$((slaunch_port + 15 + 4 * SLURM_CPUS_ON_NODE))
  else
    find_block "${slaunch_node_dir##*.}"
  fi
  ((slaunch_block_last <= slaunch_port_last)) || slaunch_block_last=$slaunch_port_last
  export DASHBOARD_METRIC_PORT=$((slaunch_block + 9))
  export AUTOSCALER_METRIC_PORT=$((slaunch_block + 10))
  slaunch_port_args=(
    --node-manager-port=$((slaunch_block + 3))
    --object-manager-port=$((slaunch_block + 4))
    --runtime-env-agent-port=$((slaunch_block + 5))
    --dashboard-agent-listen-port=$((slaunch_block + 6))
    --dashboard-agent-grpc-port=$((slaunch_block + 7))
    --metrics-export-port=$((slaunch_block + 8))
    --min-worker-port=$((slaunch_block + 11))
    --max-worker-port="$slaunch_block_last"
  )
}
#% elif not joins

# Sets slaunch_port, the first of the head's three: GCS, Ray Client, dashboard. It depends on the
# job ID, so that jobs do not clash, and is below the kernel's ephemeral range if there is room.
pick_port() {
  local ephemeral
  read -r ephemeral _ </proc/sys/net/ipv4/ip_local_port_range
  ((ephemeral > 16384)) || ephemeral=32768
  while :; do
    slaunch_attempt=$((${slaunch_attempt:-0} + 1))
    slaunch_port=$((ephemeral - 10000 + (SLURM_JOB_ID + 997 * (slaunch_attempt - 1)) % 2500 * 4))
    if ports_are_free "$slaunch_port" 3; then
      return 0
    fi
  done
}
#% endif
