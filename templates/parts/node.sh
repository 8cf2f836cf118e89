# In a step, this program runs run_node instead of the rest of main.
run_node_if_in_step() {
  if [[ ${slaunch_first_index-} ]]; then
    run_node
    exit
  fi
}

# What each node does, in its srun step. It reads orders from standard input (`go` when the head
# runs, `stop`, `stop-and-keep-logs`) and writes messages to standard output (`up` every 5 s).
run_node() {
  reset_options
  slaunch_node=${SLURMD_NODENAME:-$(hostname -s)}
  slaunch_node_dir=$slaunch_dir.$((slaunch_first_index + SLURM_NODEID))
  slaunch_log=$slaunch_node_dir/ray-start.log
  set_up_node_signals
  make_node_directory || return
  measure_resources
  set_ray_environment
  if prepare_ray; then
    run_ray
    trap '' TERM # Slurm may send it twice, and nothing interrupts the cleanup
    report_kills now
    end_own_processes
    report_kills now
    keep_logs_if_wanted
  fi
  remove_directories
}

# Slurm ends a step by SIGTERM. Other signals must not end this shell: SIGPIPE, if nobody reads its
# messages any more, and USR1 and USR2 from --signal, which are for the command.
set_up_node_signals() {
  slaunch_order=''
  slaunch_terminated=''
  slaunch_ray_failed=''
  exec {slaunch_clock}<> <(:)
  trap 'slaunch_terminated=1; echo "ended $slaunch_node"' TERM
  trap : PIPE USR1 USR2
}

# The directory must be new. If another user has put something in its place, such as a link, it is
# refused.
make_node_directory() {
  local error
  error=$({
    mkdir -p "${slaunch_dir%/*}" &&
      mkdir -m 700 "$slaunch_node_dir" &&
      (umask 077 && echo "$slaunch_token" >"$slaunch_node_dir/token")
  } 2>&1) && return
  [[ -L $slaunch_node_dir || ! -O $slaunch_node_dir ]] || rm -rf "$slaunch_node_dir"
  echo "failed $slaunch_node cannot use $slaunch_node_dir: ${error##*: }"
  return 76
}

# What Ray and its workers find in their environment. What you have set takes precedence.
set_ray_environment() {
  raise_limits
  export RAY_AUTH_TOKEN_PATH=$slaunch_node_dir/token
  export RAY_TMPDIR=$slaunch_node_dir/t # below ours, because Ray opens its own to everyone
  if [[ ${TMPDIR:-/tmp} == /tmp ]]; then
    export TMPDIR=$slaunch_node_dir # so that what Ray leaves there is removed, too
  fi
  # A raylet that starts before its object store would try again after a second. With these values
  # it does so after 50 ms, for 10 s in all, as Ray's own values do.
  if [[ ! ${!RAY_raylet_client_*} ]]; then
    export RAY_raylet_client_num_connect_attempts=200
    export RAY_raylet_client_connect_timeout_milliseconds=50
  fi
  fit_memory_monitor
  drop_step_variables
}

# Ray's memory monitor kills tasks when 95 % of the machine's memory is in use. With a part of the
# machine, neighbors would trigger it, and the job's own limit never would.
fit_memory_monitor() {
  local total share
  [[ $slaunch_limit ]] || return 0
  [[ ! ${RAY_memory_monitor_refresh_ms-}${RAY_memory_usage_threshold-} ]] || return 0
  read -r _ total _ </proc/meminfo # MemTotal, in KB
  share=$((slaunch_limit * 950 / (total >> 10)))
  if ((share < 855)); then # less than 90 % of the machine
    set_default RAY_memory_monitor_refresh_ms 0
  else
    set_default RAY_memory_usage_threshold "0.$((share < 950 ? share : 950))"
  fi
}

# Slurm selects AMD GPUs by ROCR_VISIBLE_DEVICES. Ray 2.45 and newer refuses to start with it, and
# uses HIP_VISIBLE_DEVICES, whose numbers are positions in the other list.
# Usage: use_hip_for_newer_ray [VERSION]
use_hip_for_newer_ray() {
  local version=${1-} number gpus hip=()
  [[ ${ROCR_VISIBLE_DEVICES-} ]] || return 0
  [[ $version ]] || version=$(ray_python 'from importlib import metadata
print(metadata.version("ray"))')
  is_at_least 2.45 "${version:-2.45}" || return 0
  IFS=, read -r -a gpus <<<"$ROCR_VISIBLE_DEVICES"
  for number in ${HIP_VISIBLE_DEVICES//,/ }; do
    [[ $number == *[!0-9]* ]] || number=${gpus[number]-$number} # otherwise it is a UUID
    hip+=("$number")
  done
  ((${#hip[@]})) || hip=("${gpus[@]}")
  HIP_VISIBLE_DEVICES=$(IFS=, && echo "${hip[*]}")
  export HIP_VISIBLE_DEVICES
  export SLAUNCH_SET="${SLAUNCH_SET-} HIP_VISIBLE_DEVICES" # see set_default
  unset ROCR_VISIBLE_DEVICES
}

# Usage: is_at_least VERSION_WANTED VERSION
is_at_least() {
  printf '%s\n' "$@" | sort -V -C
}

# Variables of this step: Open MPI in an actor would take them for its own start.
drop_step_variables() {
  unset "${!SLURM_STEP@}" "${!SLURM_NTASKS@}" "${!SLURM_SRUN@}" \
    "${!PMI_@}" "${!PMI2_@}" "${!PMIX_@}" SLURM_PROCID SLURM_LOCALID SLURM_GTIDS \
    SLURM_TASK_PID SLURM_LAUNCH_NODE_IPADDR SLURM_MPI_TYPE
}

# Ray gets what Slurm allocated on this node; by default it would take the whole machine.
measure_resources() {
  local shm
  find_memory_cgroup
  find_allocation_here
  # With hyperthreads, and one of them used for each core, SLURM_CPUS_ON_NODE counts both.
  slaunch_cpus=${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}
  slaunch_gpus=${SLURM_GPUS_ON_NODE:-${slaunch_unmanaged_gpus:-0}}
  ((slaunch_allocated_memory)) || slaunch_allocated_memory=$(share_of_memory)
  slaunch_memory=$slaunch_allocated_memory # in MB
  if [[ $slaunch_limit ]] && ((slaunch_limit < slaunch_memory)); then
    slaunch_memory=$slaunch_limit
  fi
  # The object store: 30 % of it, at most the space in /dev/shm, at least Ray's minimum.
  shm=$(df --output=avail -B1M /dev/shm | tail -n 1)
  slaunch_store=$((slaunch_memory * 3 / 10))
  ((slaunch_store <= shm)) || slaunch_store=$shm
  ((slaunch_store >= 80)) || slaunch_store=80
  slaunch_store=${slaunch_object_store:-$((slaunch_store << 20))}
  check_resources
}

# Sets slaunch_allocated_memory, in MB, and slaunch_allocated_gpus: what Slurm's record of the job
# has for this node; 0 if it has nothing.
find_allocation_here() {
  local entry nodes memory gpus
  slaunch_allocated_memory=0
  slaunch_allocated_gpus=0
  for entry in "${slaunch_allocations[@]}"; do
    read -r nodes memory gpus <<<"$entry"
    if ((${#slaunch_allocations[@]} == 1)) ||
      [[ $nodes == *",$slaunch_node,"* ]]; then
      slaunch_allocated_memory=$memory
      slaunch_allocated_gpus=$gpus
      return
    fi
  done
}

# Prints this node's memory in MB, in proportion to the CPUs that the job has.
share_of_memory() {
  awk -v ours="$SLURM_CPUS_ON_NODE" -v all="$(getconf _NPROCESSORS_ONLN)" '
    /^MemTotal/ { print int($2 / 1024 * (ours < all ? ours / all : 1)) }' /proc/meminfo
}

# Warns if Ray gets fewer GPUs than the job has here, or too little memory to start.
check_resources() {
  if ((slaunch_memory < 800)); then
    echo "warning $slaunch_node $slaunch_memory MB on $slaunch_node are barely enough for Ray" \
      'itself: request more with --mem'
  fi
  if ((slaunch_gpus < slaunch_allocated_gpus)); then
    echo "warning $slaunch_node Ray gets only $slaunch_gpus of $slaunch_allocated_gpus GPUs on" \
      "$slaunch_node: Slurm gives no more to a step; request them with --num-gpus"
  elif [[ ${SLURM_SHARDS_ON_NODE-} ]]; then
    echo "warning $slaunch_node the job has shards of a GPU on $slaunch_node, which Ray does not" \
      "count: --ray-arg=--num-gpus=1 gives it one"
  fi
}

# Sets slaunch_start_args for `ray start`. False: the step ended before its Ray could start.
prepare_ray() {
  #% if spec.port_range
  set_port_arguments
  #% endif
  slaunch_start_args=(
    --block
    --node-name="$slaunch_node"
    --num-cpus="$slaunch_cpus"
    --num-gpus="$slaunch_gpus"
    --memory=$(((slaunch_memory << 20) - slaunch_store))
    --object-store-memory="$slaunch_store"
    --temp-dir="$slaunch_node_dir/t"
    --disable-usage-stats
    --log-color=false
    #% if spec.port_range
    "${slaunch_port_args[@]}"
    #% else
    --min-worker-port=0 # 0: any free port
    --max-worker-port=0
    --dashboard-agent-listen-port=0
    #% endif
  )
  #% if joins
  prepare_worker
  #% elif spec.nodes == 1
  prepare_head
  #% else
  if [[ $slaunch_node == "$slaunch_head" ]]; then
    prepare_head
  else
    prepare_worker
  fi
  #% endif
}
#% if not joins

# The head reports its version and what it offers: Ray Client and the dashboard, each if Ray has
# the libraries for it. Without grpc, the port of Ray Client would be an error.
prepare_head() {
  local offers=("client=ray://${slaunch_address%:*}:$((slaunch_port + 1))")
  local found
  #% if container
  slaunch_enter=("${slaunch_head_enter[@]}")
  #% endif
  if [[ ${slaunch_ray_head_args[*]} != *-dashboard[=\ ]* &&
    ${slaunch_ray_head_args[*]} != *-dashboard-port* ]]; then
    offers+=("dashboard=http://127.0.0.1:$((slaunch_port + 2))")
  fi
  found=$(ray_python '
import sys
from importlib import metadata, util
needs = {"client": "grpc", "dashboard": "aiohttp_cors"}
offers = [word for word in sys.argv[1:] if util.find_spec(needs[word.partition("=")[0]])]
print(metadata.version("ray"), *offers)' "${offers[@]}")
  if [[ $found ]]; then
    echo "ray $found"
  fi
  use_address "$slaunch_head_ip"
  slaunch_start_args+=(--head --node-ip-address="$slaunch_head_ip" --port="$slaunch_port")
  slaunch_start_args+=(--dashboard-host=127.0.0.1 --dashboard-port=$((slaunch_port + 2)))
  if [[ $found == *client=* ]]; then
    slaunch_start_args+=(--ray-client-server-port=$((slaunch_port + 1)))
  fi
  slaunch_start_args+=("${slaunch_ray_head_args[@]}")
}
#% endif

# Runs code with the Python that `ray` uses.
# Usage: ray_python CODE [ARGUMENT...]
ray_python() {
  #% if container
  # shellcheck disable=SC2016 # the code is for that shell
  "${slaunch_enter[@]}" bash -c '
    python=$(dirname "$(command -v ray)")/python3
    [[ -x $python ]] || python=python3
    exec "$python" -c "$@"' bash "$@"
  #% else
  local python
  python=$(dirname "$(command -v ray)")/python3
  [[ -x $python ]] || python=python3
  "$python" -c "$@"
  #% endif
}
#% if spec.nodes > 1 or joins

# A worker uses its own address in the head's network, unless the site has set SLAUNCH_NODE_IP.
prepare_worker() {
  local ip
  #% if container
  slaunch_enter=("${slaunch_worker_enter[@]}")
  #% endif
  #% if groups
  add_group_arguments
  #% endif
  ip=${SLAUNCH_NODE_IP:-$(route_source "$slaunch_head_ip")}
  [[ ! $ip ]] || use_address "$ip"
  slaunch_start_args+=(--address="$slaunch_address" ${ip:+--node-ip-address="$ip"})
  slaunch_start_args+=("${slaunch_ray_worker_args[@]}")
  wait_for_head && make_head_directory_for_old_ray
}

# Waits for `go`, which comes when the head has registered: Ray 2.54 and newer looks for the head
# only every 2 s. After 8 s the head is slow to load Ray, probably from a network file system. Then
# its open port is enough, so that this node loads Ray at the same time.
# False: the step ended before.
wait_for_head() {
  local error='the head had not come up'
  #% if not container
  command -v ray >/dev/null || return 0 # Ray's start will report it at once
  #% endif
  while [[ $slaunch_order != stop* && ! $slaunch_terminated ]]; do
    #% if not joins
    if [[ $slaunch_order == go ]] || ((SECONDS > 8)); then
      error=$(try_port "$slaunch_head_ip" "$slaunch_port") && return 0
    fi
    #% else
    error=$(try_port "$slaunch_head_ip" "$slaunch_port") && return 0
    #% endif
    read_orders
  done
  if [[ $slaunch_order == stop-and-keep-logs ]]; then
    mkdir -p "$slaunch_run.ray/$slaunch_node"
    echo "$slaunch_node never reached $slaunch_address: ${error##*: }" \
      >"$slaunch_run.ray/$slaunch_node/ray-start.log"
  fi
  return 1
}

# Ray 2.40 keeps a worker's files under the path of the head's directory.
make_head_directory_for_old_ray() {
  if mkdir -m 700 "$slaunch_head_dir" 2>/dev/null; then
    slaunch_made_head_dir=1
  elif [[ ! -O $slaunch_head_dir || -L $slaunch_head_dir ]]; then
    echo "failed $slaunch_node $slaunch_head_dir belongs to another user or is a link"
    return 1
  fi
}
#% endif

# Runs Ray until the step has to end. A Ray that fails to start is started again, at most twice.
run_ray() {
  local slaunch_try
  use_hip_for_newer_ray
  for slaunch_try in 2 3 4; do
    start_ray
    watch_ray
    [[ $slaunch_ray_failed ]] || return 0
    if ((slaunch_try > 3)) || ! can_be_retried; then
      break
    fi
    echo "retry $slaunch_node attempt=$slaunch_try $(important_output | tail -n 1)"
    end_own_processes
    mv "$slaunch_node_dir"/t/session_2*/logs "$slaunch_node_dir/attempt-$((slaunch_try - 1))" \
      2>/dev/null
    rm -rf "$slaunch_node_dir/t"
    slaunch_ray_failed=''
    pause 1
    #% if spec.nodes > 1 or joins
    [[ $slaunch_node == "$slaunch_head" ]] || wait_for_head || return 0
    #% endif
  done
  report_failure
}

# Not if another attempt would end the same way.
can_be_retried() {
  local hopeless='AuthToken|[Vv]ersion mismatch|in use|No space|ot found|No such|Usage:|ImportError'
  [[ ! $slaunch_was_up && $slaunch_kills == 0 ]] || return 1
  [[ $slaunch_order != stop* && ! $slaunch_terminated ]] || return 1
  ! grep -qE "$hopeless|ModuleNotFound" "$slaunch_log"
}

# Ray gets a session of its own, and its children inherit SLAUNCH_NODE_DIR: end_own_processes finds
# them by these.
start_ray() {
  #% if container
  # ch-run drops TMPDIR.
  # shellcheck disable=SC2016 # the code is for the shell in the container
  SLAUNCH_NODE_DIR=$slaunch_node_dir setsid "${slaunch_enter[@]}" \
    bash -c 'export TMPDIR=$0 && exec "$@"' "$TMPDIR" \
    ray start "${slaunch_start_args[@]}" "${slaunch_ray_args[@]}" </dev/null &>"$slaunch_log" &
  #% else
  SLAUNCH_NODE_DIR=$slaunch_node_dir setsid \
    ray start "${slaunch_start_args[@]}" "${slaunch_ray_args[@]}" </dev/null &>"$slaunch_log" &
  #% endif
  slaunch_ray_pid=$!
}

# Reports `up` when Ray runs and every 5 s from then on, until the step has to end. Sets
# slaunch_ray_failed if Ray has ended by itself.
watch_ray() {
  local next_report=0
  slaunch_was_up=''
  while kill -0 "$slaunch_ray_pid" 2>/dev/null; do
    read_orders
    [[ $slaunch_order != stop* && ! $slaunch_terminated ]] || return 0
    report_kills
    if [[ ! $slaunch_was_up ]]; then
      if gcs_port_is_taken; then
        break
      fi
      if ray_is_up; then
        slaunch_was_up=1
      fi
    fi
    if [[ $slaunch_was_up ]] && ((SECONDS >= next_report)); then
      echo "up $slaunch_node"
      next_report=$((SECONDS + 5))
    fi
  done
  report_kills now
  slaunch_ray_failed=1
}

# Usage: report_kills [now]
report_kills() {
  if find_kills "$@"; then
    echo "out-of-memory $slaunch_node $slaunch_kill_report"
  fi
}

# Sets slaunch_order to the last order. `read -t 0` only tests for input: a read that times out
# within a line loses a character.
read_orders() {
  pause 0.1
  while read -r -t 0; do
    if ! read -r slaunch_order; then
      slaunch_order=stop # the script is gone
      return
    fi
  done
}

# Ray's own output shows that this node has registered; the raylet's log does so slightly earlier.
ray_is_up() {
  file_has "$slaunch_log" 'Ray runtime started' ||
    file_has "$slaunch_node_dir"/t/session_2*/logs/raylet.out 'Raylet of id'
}

# Ray would wait 40 s for a GCS that has ended because another program took its port.
gcs_port_is_taken() {
  file_has "$slaunch_node_dir"/t/session_2*/logs/gcs_server.err 'Address already in use' || return
  echo 'Address already in use' >>"$slaunch_log"
}

# Reads the file with bash itself: a process for each check would slow down the start.
# Usage: file_has FILE TEXT
file_has() {
  local lines=()
  { mapfile -t lines <"$1"; } 2>/dev/null
  [[ ${lines[*]} == *"$2"* ]]
}

# Ray has ended by itself: its last lines go to the job's log, as the likely cause.
report_failure() {
  important_output | sed "s/^/output $slaunch_node /"
  if grep -qE 'AuthToken|from GCS' "$slaunch_log"; then # do the versions differ?
    #% if container
    timeout 9 "${slaunch_enter[@]}" ray --version 2>/dev/null | sed "s/^/output $slaunch_node /"
    #% else
    timeout 9 ray --version 2>/dev/null | sed "s/^/output $slaunch_node /"
    #% endif
  fi
  #% if container
  echo "failed $slaunch_node its Ray has ended: $(tail -n 1 "$slaunch_log" | cut -c1-200)"
  #% else
  echo "failed $slaunch_node its Ray has ended"
  #% endif
}

# Prints the last lines of Ray's output that may explain its end.
important_output() {
  {
    grep -vE 'state-dump|network_util|^- ' "$slaunch_log" |
      grep -iE 'err|exit code|exception|fail|found|space|in use' || cat "$slaunch_log"
  } | tail -n 5 | cut -c1-300
}

# Ends Ray and what it started here. On the head node also what the command has left running, unless
# the script is still there to end the command itself.
end_own_processes() {
  local signal pids marks=("-eSLAUNCH_NODE_DIR=$slaunch_node_dir")
  if [[ $slaunch_order == stop* ]] || ! kill -0 "$slaunch_batch_pid" 2>/dev/null; then
    marks+=("-eSLAUNCH_NODE_DIR=$slaunch_job_dir")
  fi
  for signal in TERM KILL; do
    for _ in {1..10}; do
      mapfile -t pids < <(own_processes "${marks[@]}")
      ((${#pids[@]})) || return 0
      kill -s "$signal" "${pids[@]}" 2>/dev/null
      pause 0.1
    done
  done
}

# Prints the IDs of this job's processes with one of the marks in their environment, and of those in
# the session of `ray start`: a process that changes its title overwrites its environment. A job
# that was submitted from this one has the marks, too, but another job ID.
# Usage: own_processes MARK...
own_processes() {
  grep -lzsxF "$@" /proc/[0-9]*/environ |
    xargs -r grep -lzsxF "SLURM_JOB_ID=$SLURM_JOB_ID" | cut -d / -f 3
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v session="$slaunch_ray_pid" '
    { id = $1; sub(/.*\) /, ""); if ($4 == session || id == session) print id }'
}

# Copies Ray's logs to the directory of the job's log, after a failure or with --keep-ray-logs.
keep_logs_if_wanted() {
  local target=$slaunch_run.ray/$slaunch_node
  [[ $slaunch_ray_failed || $slaunch_terminated || $slaunch_order == stop-and-keep-logs ]] ||
    return 0
  mkdir -p "$target"
  cp -r "$slaunch_log" "$slaunch_node_dir"/t/session_2*/logs "$target" 2>/dev/null
  cp -r "$slaunch_node_dir"/attempt-* "$target" 2>/dev/null
  #% if spec.nodes > 1 or joins
  if [[ $slaunch_made_head_dir ]]; then
    cp -r "$slaunch_head_dir"/t/session_2*/logs "$target" 2>/dev/null
  fi
  #% endif
}

# If Slurm ended the step, the script may be gone, and its directory is removed here.
remove_directories() {
  rm -rf "$slaunch_node_dir" ${slaunch_terminated:+"$slaunch_job_dir"}
  #% if spec.nodes > 1 or joins
  if [[ $slaunch_made_head_dir ]]; then
    rm -rf "$slaunch_head_dir"
  fi
  #% endif
}
