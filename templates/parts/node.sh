# Runs on each node. It reads orders from standard input (the token, `go` when the head runs, `stop.` or `stop and keep the logs.`) and prints messages: `up` every 5 s.
run_node() { # INDEX of the step's first node
  local node=${SLURMD_NODENAME:-$(hostname)} dir=$dir.$(($1 + SLURM_NODEID)) gpus=${SLURM_GPUS_ON_NODE:-${unmanaged_gpus:-0}}
  local log=$dir/ray-start.log order='' more='' up='' text file ended='' keep='' also='' shadow='' token pid pids reason version offers memory store ip enter
  trap 'ended=1; echo "ended $node"' TERM && trap : PIPE USR1 USR2 && ulimit -n hard # TERM: Slurm ends the step. PIPE: the script is gone
  # The directory must be new: what another user put in its place, such as a link, is not used.
  if ! read -r token || ! reason=$({ { [[ -d ${dir%/*} ]] || mkdir -p "${dir%/*}"; } && mkdir -m 700 "$dir" && umask 077 && echo "$token" >"$dir/token"; } 2>&1); then
    [[ -L $dir || ! -O $dir ]] || rm -rf "$dir"; echo "failed $node cannot use $dir: ${reason##*: }" && return 76
  fi
  export RAY_AUTH_TOKEN_PATH=$dir/token RAY_TMPDIR=$dir/t && [[ ${TMPDIR:-/tmp} != /tmp ]] || export TMPDIR=$dir # t: Ray makes its own directory accessible to everyone. TMPDIR: what Ray leaves there is removed too
  [[ ${!RAY_raylet_client_*} ]] || export RAY_raylet_client_num_connect_attempts=200 RAY_raylet_client_connect_timeout_milliseconds=50 # Ray's 10 s, in smaller steps: a raylet too early for its own store would sleep a second
  # Ray gets what Slurm allocated on this node; by default it would take the whole machine. Memory in MB: one of three is set,
  memory=$((${SLURM_MEM_PER_NODE:-0} + ${SLURM_MEM_PER_CPU:-0} * SLURM_CPUS_ON_NODE + ${SLURM_MEM_PER_GPU:-0} * gpus))
  ((memory)) || memory=$(awk -v ours="$SLURM_CPUS_ON_NODE" -v all="$(getconf _NPROCESSORS_ONLN)" \
    '/^MemTotal/ { print int($2 / 1024 * (ours < all ? ours / all : 1)) }' /proc/meminfo) # or a proportional share
  { read -r && read -r store; } < <(df --output=avail -B1M /dev/shm) # the space for the object store
  store=$((memory * 3 / 10 < store ? memory * 3 / 10 : store)) store=${object_store:-$(((store < 80 ? 80 : store) << 20))} # Ray's minimum
  port_flags && set -- --block --node-name="$node" --num-cpus="$SLURM_CPUS_ON_NODE" --num-gpus="$gpus" --temp-dir="$dir/t" \
    --memory=$(((memory << 20) - store)) --object-store-memory="$store" --disable-usage-stats --log-color=false "${port_args[@]}"
  if [[ $node == "$head" ]]; then
    set -- "$@" --head --node-ip-address="$head_ip" --port="$port" --dashboard-host=127.0.0.1 --dashboard-port=$((port + 2))
    # What it offers: Ray Client needs grpc (without it the flag is an error, with it the default port may be taken), the dashboard aiohttp_cors.
    offers=("client=ray://${address%:*}:$((port + 1))") && [[ ${ray_head_args[*]} == *-dashboard[=\ ]* || ${ray_head_args[*]} == *-dashboard-port* ]] || offers+=("dashboard=http://127.0.0.1:$((port + 2))")
    version='import sys; from importlib import metadata as m, util as u; print(m.version("ray"), *(a for a in sys.argv[1:] if u.find_spec("grpc" if "ray:" in a else "aiohttp_cors")))' enter=("${head_enter[@]}")
    version=$("${enter[@]}" bash -c 'p=$(command -v ray) p=${p%/*}/python3 && [[ -x $p ]] || p=python3; exec "$p" -c "$0" "$@"' "$version" "${offers[@]}") # Ray's own python
    [[ ! $version ]] || echo "ray $version"; [[ $version != *client=* ]] || set -- "$@" --ray-client-server-port=$((port + 1)); set -- "$@" "${ray_head_args[@]}"
  else
    enter=("${worker_enter[@]}") ip=${SLAUNCH_NODE_IP:-$(route_source "$head_ip")} # this node's own address in the head's network
    set -- "$@" --address="$address" ${ip:+--node-ip-address="$ip"} "${ray_worker_args[@]}"; [[ ${enter-} ]] || command -v ray >/dev/null || order=go # no Ray here: report that at once
    # Ray 2.54 and newer looks for the head every 2 s only: so it waits for `go`. After 8 s Ray is slow to load here (a network file system): it is loaded meanwhile.
    until [[ $order == *.* || $ended ]] || { { [[ ! $head || $order == *go* ]] || ((SECONDS > 8)); } && reason=$({ : >"/dev/tcp/$head_ip/$port"; } 2>&1); }; do read -r -t 0.1 more || (($? > 128)) || more=.; order+=$more; done
    [[ $order != *keep* ]] || { mkdir -p "$run.ray/$node" && reason=${reason##*: } && echo "$node never reached $address: ${reason:-the head had not come up}" >"$run.ray/$node/ray-start.log"; }
    [[ $order != *.* && ! $ended ]] || { trap '' TERM && rm -rf "$dir" && return; } # stopped before it started
    if mkdir -m 700 "${dir%.*}.0" 2>/dev/null; then shadow=$_; elif [[ ! -O $_ || -L $_ ]]; then echo "failed $node $_ belongs to another user or is a link" && rm -rf "$dir" && return 76; fi # an old Ray keeps a worker's files under the head's path
  fi
  # Its own session, and a mark that children inherit: so that only our own processes are found at the end. (ch-run drops TMPDIR.)
  SLAUNCH_NODE_DIR=$dir setsid "${enter[@]}" ${enter:+bash -c 'export TMPDIR=$0 && exec "$@"' "$TMPDIR"} ray start "$@" "${ray_args[@]}" </dev/null &>"$log" & pid=$!
  while order+=$more && [[ $order != *.* && ! $ended ]] && kill -0 "$pid" 2>/dev/null; do # a read may time out within a line
    read -r -t 0.1 more || (($? > 128)) || more=. # the other end is closed
    [[ $up ]] || for file in "$log" "$dir"/t/session_2*/logs/{raylet.out,gcs_server.err}; do # read by bash itself: a process for each check would cost more
      text=() && mapfile -t text <"$file"
      case $file:${text[*]} in *'Ray runtime started'* | *'Raylet of id'*) up=1 SECONDS=5 ;; *gcs_server.err:*'Address already in use'*) echo 'Address already in use' >>"$log" && break 2 ;; esac # Ray would wait 40 s
    done 2>/dev/null
    [[ ! $up ]] || ((SECONDS < 5)) || { SECONDS=0 && echo "up $node"; }
  done
  if [[ $order != *.* && ! $ended ]]; then
    { grep -vE 'state-dump|network_util|^- ' "$log" | grep -iE 'err|exit code|exception|fail|found|space|in use' || cat "$log"; } | tail -n 5 | cut -c1-300 | sed "s/^/said $node /"
    ! grep -qE 'AuthToken|from GCS' "$log" || timeout 9 "${enter[@]}" ray --version 2>/dev/null | sed "s/^/said $node /"; keep=1 && echo "failed $node its Ray has ended${enter:+: $(tail -n 1 "$log" | cut -c1-200)}"
  fi
  trap '' TERM; end_processes TERM || end_processes KILL # Slurm may send it twice: it must not interrupt the search
  [[ ! $keep$ended && $order != *keep* ]] || { mkdir -p "$run.ray/$node" && cp -r "$log" "$dir"/t/session_2*/logs ${shadow:+"$shadow"/t/session_2*/logs} "$_"; } 2>/dev/null
  rm -rf "$dir" ${shadow:+"$shadow"} ${ended:+"$job_dir"}
}
end_processes() { # SIGNAL: true if none of our processes is left within a second
  [[ $order != *.* ]] && kill -0 "$batch_pid" 2>/dev/null || also=-eSLAUNCH_NODE_DIR=$job_dir # what the command has left running
  for _ in {1..10}; do
    mapfile -t pids < <(grep -lzsxF -e "SLAUNCH_NODE_DIR=$dir" ${also:+"$also"} /proc/[0-9]*/environ | cut -d/ -f3
      cat /proc/[0-9]*/stat 2>/dev/null | awk -v ours="$pid" '{ id = $1; sub(/.*\) /, ""); if ($4 == ours || id == ours) print id }')
    ((${#pids[@]})) || return 0; kill -s "$1" "${pids[@]}" 2>/dev/null; sleep 0.1
  done && false
}
