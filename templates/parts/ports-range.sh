# The range is divided into blocks, so that jobs on the same node use different ports; which one is tried first depends on
# the job ID. free_block ATTEMPT CPUS: sets block, the first port of a block in which nothing listens, and block_last.
free_block() {
  local size=$((16 + 4 * $2)) blocks try used p
  ((size <= port_last - port_first + 1)) || size=$((port_last - port_first + 1))
  blocks=$(((port_last - port_first + 1) / size))
  used=" $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { sub(/.*:/, "", $2); print $2 }' | tr '\n' ' ')" # 0A: listening
  for ((try = $1; try < $1 + blocks; try++)); do
    block=$((port_first + (SLURM_JOB_ID + try) % blocks * size)) block_last=$((block + size - 1))
    for ((p = block; p <= block_last; p++)); do [[ $used != *" $(printf %04X "$p") "* ]] || continue 2; done
    return 0
  done
  return 1
}
pick_port() {
  free_block "$((attempt++))" "$SLURM_CPUS_ON_NODE" || end 70 head-failed "no free block of ports in $port_first-$port_last on $head" \
    "use a wider --port-range" "$head"
  port=$block
}
# The block's first ports are for Ray's services (the head's GCS, Ray Client and dashboard have 0 to 2), the rest for workers.
port_flags() {
  if [[ $node == "$head" ]]; then block=$port block_last=$((port + 15 + 4 * SLURM_CPUS_ON_NODE)); else free_block "${dir##*.}" "$SLURM_CPUS_ON_NODE"; fi
  ((block_last <= port_last)) || block_last=$port_last
  export DASHBOARD_METRIC_PORT=$((block + 9)) AUTOSCALER_METRIC_PORT=$((block + 10))
  port_args=(--node-manager-port=$((block + 3)) --object-manager-port=$((block + 4)) --runtime-env-agent-port=$((block + 5))
    --dashboard-agent-listen-port=$((block + 6)) --dashboard-agent-grpc-port=$((block + 7))
    --metrics-export-port=$((block + 8)) --min-worker-port=$((block + 11)) --max-worker-port="$block_last")
}
