# pick_port ATTEMPT: sets port, the first of three for the head (GCS, Ray Client, dashboard). Below the range from which
# the kernel hands out ports, so that no passing connection sits on one; by the job's id, so that jobs do not clash.
pick_port() {
  local low try
  read -r low _ </proc/sys/net/ipv4/ip_local_port_range && ((low > 16384)) || low=32768
  for ((try = $1 * 50; try < $1 * 50 + 50; try++)); do
    port=$((low - 10000 + (SLURM_JOB_ID + try * 997) % 2500 * 4))
    grep -qE ": [0-9A-F]+:($(printf '%04X|%04X|%04X' $port $((port + 1)) $((port + 2)))) [0-9A-F:]+ 0A" \
      /proc/net/tcp /proc/net/tcp6 || break # nobody listens (state 0A) there
  done
}
# shellcheck disable=SC2317,SC2329 # runs on the nodes
port_flags() { port_args=(--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0); } # any free one
