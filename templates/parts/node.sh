# run_node is each node's part of a step. It reads orders from its standard input (first the token, in the end `stop` or
# `stop and keep the logs`) and writes news to its standard output.
# shellcheck disable=SC2317,SC2329 # srun calls it
run_node() {
  local node=${SLURMD_NODENAME:-$(hostname)} order='' token pid watcher_pid='' cpus gpus devices memory store shm ip python
  umask 077
  ulimit -n "$(ulimit -Hn)" # Ray opens many files and connections
  trap 'order=stop' TERM # Slurm itself ends the step
  # The directory is made by us, now: what somebody else put in its place, a link above all, is not used.
  if ! mkdir -p "${dir%/*}" || ! mkdir "$dir" || ! read -r token || ! echo "$token" >"$dir/token"; then
    echo "failed $node cannot use $dir" && rm -rf "$dir" && return 76
  fi
  export RAY_TMPDIR=$dir RAY_AUTH_TOKEN_PATH=$dir/token
  [[ ${TMPDIR:-/tmp} != /tmp ]] || export TMPDIR=$dir # what Ray leaves there goes when we go
  # Ray gets what Slurm gave us on this node; by itself it would take the whole machine.
  cpus=$SLURM_CPUS_ON_NODE devices=${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES-}} devices=${devices/NoDevFiles/}
  gpus=${devices//[^,]/} gpus=${SLURM_GPUS_ON_NODE:-$((${#devices} ? ${#gpus} + 1 : 0))}
  memory=$((${SLURM_MEM_PER_NODE:-0} + ${SLURM_MEM_PER_CPU:-0} * cpus + ${SLURM_MEM_PER_GPU:-0} * gpus)) # MB; one is set
  ((memory)) || memory=$(awk -v ours="$cpus" -v all="$(getconf _NPROCESSORS_ONLN)" '/^MemTotal/ { # none is: a fair share
    print int($2 / 1024 * (ours < all ? ours / all : 1)) }' /proc/meminfo)
  shm=$(df --output=avail -B1M /dev/shm | tail -n 1) store=$((memory * 3 / 10)) # the object store lives in /dev/shm
  store=${object_store:-$(((store < shm ? store : shm) << 20))}
  set -- --block --node-name="$node" --num-cpus="$cpus" --num-gpus="$gpus" --memory=$(((memory << 20) - store)) \
    --object-store-memory="$store" --temp-dir="$dir" --disable-usage-stats --log-color=false
  if [[ $node == "$head" ]]; then
    python=$(command -v ray) && python=${python%/*}/python3 && [[ -x $python ]] || python=python3 # the one that has Ray
    set -- "$@" --head --node-ip-address="$head_ip" --port="$port" --dashboard-host=127.0.0.1 --dashboard-port=$((port + 2))
    # Ray Client is an extra of Ray's: without it the flag is an error, with it the default port may be taken.
    ! "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("grpc"))' ||
      set -- "$@" --ray-client-server-port=$((port + 1))
    set -- "$@" "${ray_head_args[@]}"
    { until (: >"/dev/tcp/$head_ip/$port") 2>/dev/null; do sleep 0.1; done && exec "$python" -c "$watcher" "$address" "$count"; } &
    watcher_pid=$!
  else
    ip=$(route_source "$head_ip") # this node's own address in the head's network
    set -- "$@" --address="$address" ${ip:+--node-ip-address="$ip"} "${ray_worker_args[@]}"
    until [[ $order ]] || (: >"/dev/tcp/$head_ip/$port") 2>/dev/null; do read -r -t 0.1 order; done
  fi
  port_flags
  # A session of its own, and a mark that is inherited: so we find our own processes in the end, and nobody else's.
  SLAUNCH_NODE_DIR=$dir setsid ray start "$@" "${port_args[@]}" "${ray_args[@]}" </dev/null &>"$dir/ray-start.log" &
  pid=$!
  while [[ ! $order ]] && kill -0 "$pid" 2>/dev/null && kill -0 "${watcher_pid:-$pid}" 2>/dev/null; do
    read -r -t 0.3 order || (($? > 128)) || order=stop # nobody is at the other end any more
  done
  if [[ ! $order ]]; then
    order='stop and keep the logs'
    grep -v '^ *$' "$dir/ray-start.log" | tail -n 8 | cut -c1-300 | sed "s/^/$node: /" >&2
    echo "failed $node its Ray has ended"
  fi
  end_processes TERM || end_processes KILL
  [[ $order != *keep* ]] || { mkdir -p "$run.ray/$node" && cp -r "$dir"/ray-start.log "$dir"/session_2*/logs "$run.ray/$node/" 2>/dev/null; }
  rm -rf "$dir" "$dir.job"
}
# end_processes SIGNAL: true when none of ours is left within a second.
# shellcheck disable=SC2086,SC2317,SC2329 # run_node calls it
end_processes() {
  local try pids
  for try in {1..10}; do
    pids=$(grep -lzsxF "SLAUNCH_NODE_DIR=$dir" /proc/[0-9]*/environ | cut -d/ -f3
      cat /proc/[0-9]*/stat 2>/dev/null | awk -v ours="$pid" '{ id = $1; sub(/.*\) /, ""); if ($4 == ours) print id }')
    [[ $pids ]] || return 0
    ((try > 1)) || kill -s "$1" $pids $watcher_pid 2>/dev/null
    sleep 0.1
  done
  return 1
}
# Runs on the head node as long as the cluster does, and tells which nodes are alive whenever that changes.
IFS= read -r -d '' watcher <<'END_OF_WATCHER'
import sys, time, ray
address, count = sys.argv[1], int(sys.argv[2])
print("ray", ray.__version__, flush=True)
try:
    from ray._raylet import GcsClient
    gcs = GcsClient(address=address)
    nodes = lambda: {node.node_name for node in gcs.get_all_node_info().values() if node.state == 0}
    nodes()
except (ImportError, AttributeError, TypeError):  # no public interface; a driver can tell as well
    ray.init(address, log_to_driver=False, logging_level="ERROR")
    nodes = lambda: {node["NodeName"] for node in ray.nodes() if node["Alive"]}
before = set()
while True:
    alive = nodes()
    if alive != before:
        print("alive", *sorted(alive), flush=True)
    before = alive
    time.sleep(0.1 if len(alive) < count else 1)
END_OF_WATCHER
