# Below the kernel's ephemeral range, if there is room; derived from the job ID, so that jobs do not clash; not in use (0A).
pick_port() { # sets port, the first of three for the head (GCS, Ray Client, dashboard)
  local low && read -r low _ </proc/sys/net/ipv4/ip_local_port_range && ((low > 16384)) || low=32768
  port=$((low - 10000 + (SLURM_JOB_ID + 997 * attempt++) % 2500 * 4))
  ! grep -qsE ":($(printf '%04X|%04X|%04X' $port $((port + 1)) $((port + 2)))) [0-9A-F:]+ 0A" /proc/net/tcp /proc/net/tcp6 || pick_port
}
port_flags() { port_args=(--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0); } # any free one
