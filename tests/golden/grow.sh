#!/bin/bash
# train-grow: 2 nodes for the Ray cluster of job 1234.
# Made by slurm-launch 0.1.0 at 2026-01-02T03:04:05+00:00. Plain bash 4.4 for Slurm 22.05 or newer and Ray: edit it, sbatch it anywhere.
# The job ends with the command's own exit code, or with one of ours: 70 head failed, 71 nodes missing, 72 node lost,
# 73 environment, 74 time limit, 75 ended from outside, 76 temporary directory, 77 script, 78 no network address, 79 container.
# Made by `slurm-launch grow`: it has no head and no command of its own, and ends when that cluster does.
# shellcheck disable=SC2034,SC2086 # some parts are also for jobs with a head
# shellcheck disable=SC2016,SC2054,SC2089,SC2090,SC2209,SC2317,SC2329 # values are data, and some functions run on the nodes
# ---- 1. What the job asks of Slurm ----
#SBATCH --job-name=train-grow
#SBATCH --output=train-grow_20260102-030405.log
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --partition=gpu
#SBATCH --signal=B:USR1@60
#SBATCH --no-requeue

slaunch_run="$PWD"/train-grow_20260102-030405 # taken now: the environment may change the directory
say() { printf '[slurm-launch] %(%FT%T%z)T %s\n' -1 "$*"; } # a line in the log, for people and for `slurm-launch status`
end() { # CODE OUTCOME [CAUSE HINT [NODE]]: the only way out. Stops what we started, and tells how it went.
  trap - EXIT && trap '' TERM # nothing interrupts the clean-up
  [[ ! ${job_dir-} ]] || stop_cluster "$2"
  say end outcome="$2" code="$1" phase="$phase${5:+ node=$5}${ready_at:+ bring-up=${ready_at}s}${command_took:+ command=${command_took}s}" job="$SLURM_JOB_ID" total="${SECONDS}s${3:+ cause=\"${3//\"/\'}\" hint=\"$4\"}"
  exit "$1"
}
asked_to_end() { # by Slurm, which knows the reason, or by somebody else
  case $(timeout 2 squeue -h -t all -j "$SLURM_JOB_ID" -o %r) in
    TimeLimit*) end 74 time-limit 'the time limit was reached' 'ask for more with --time' ;;
    *Node*) end 72 node-lost 'Slurm has lost a node of the job' 'sinfo -R may tell why; submit again' ;;
    *) end 75 ended-from-outside "the job was ended from outside ($ended_by)" 'scancel or preemption: sacct tells which' ;;
  esac
}
environment_failed() { end 73 environment-failed "failed: $1" 'mend the environment options, or this script' "${SLURMD_NODENAME-}"; }
trap 'end 77 script-failed "the script itself ended" "an exit in the environment code? else look at the lines above"' EXIT
trap '[[ ! ${command_pid-} ]] || kill -USR1 -- "-$command_pid"' USR1 && trap '[[ ! ${command_pid-} ]] || kill -USR2 -- "-$command_pid"' USR2 # --signal
unset ended_by command_pid job_dir && trap 'ended_by=SIGTERM' TERM && trap : PIPE && phase=environment SECONDS=0

# ---- 2. Environment: loaded once, here; the nodes get it from srun ----
command -v ray >/dev/null || environment_failed 'ray is not in PATH'
set +eu && IFS=$' \t\n' && ulimit -n hard # what the environment may have set; Ray opens many files

# ---- Settings: every value of this job, quoted; the code below only reads them ----
unset image worker_image token interface ip_family min_nodes on_node_loss keep_ray_logs object_store unmanaged_gpus port_first attempt ticked ray # not ours
run=$slaunch_run # the log is $run.log; Ray's own logs go to $run.ray/ when something fails
start_timeout=180 # seconds within which the nodes must have joined
temp_base=/tmp # on each node, and short: a Unix socket path holds 107 bytes
auth=token # token: nobody but you can use the cluster; off: anybody in the network can
srun_args=() ray_args=() ray_head_args=() ray_worker_args=() head_step=() worker_step=() head_enter=() worker_enter=() enter_for_command=() join_head=() at_end=() # these for containers
main_job=1234 main_log=/home/me/train_20260102-020304.log main_step=(--jobid=1234) # the job whose Ray the nodes of this one join, its log, and how srun gets into it
unset RAY_ADDRESS RAY_AUTH_TOKEN && export RAY_AUTH_MODE=${auth/off/disabled} DASHBOARD_METRIC_PORT=0 AUTOSCALER_METRIC_PORT=0 # Ray's defaults differ, or clash

# ---- 3. The nodes: all are workers ----
route_source() { [[ $(ip -o route get "$1" ${interface:+oif "$interface"} 2>/dev/null) =~ ' src '([^ ]+) ]] && echo "${BASH_REMATCH[1]}"; }
head='' && mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST") && count=${#nodes[@]} # the head is in the other job
((count == SLURM_JOB_NUM_NODES)) || end 77 script-failed "scontrol named $count of $SLURM_JOB_NUM_NODES nodes" 'submit again'

# ---- 4. What every node does ----
# Below the kernel's own range, if there is room; by the job's id, so that jobs do not clash; not where somebody listens (0A).
pick_port() { # sets port, the first of three for the head (GCS, Ray Client, dashboard)
  local low && read -r low _ </proc/sys/net/ipv4/ip_local_port_range && ((low > 16384)) || low=32768
  port=$((low - 10000 + (SLURM_JOB_ID + 997 * attempt++) % 2500 * 4))
  ! grep -qsE ":($(printf '%04X|%04X|%04X' $port $((port + 1)) $((port + 2)))) [0-9A-F:]+ 0A" /proc/net/tcp /proc/net/tcp6 || pick_port
}
port_flags() { port_args=(--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0); } # any free one
# Each node's part. Orders come by its standard input (the token, `go` when the head runs, `stop.` or `stop and keep the logs.`), news go out: `up` every 5 s.
run_node() { # INDEX of the step's first node
  local node=${SLURMD_NODENAME:-$(hostname)} dir=$dir.$(($1 + SLURM_NODEID)) gpus=${SLURM_GPUS_ON_NODE:-${unmanaged_gpus:-0}}
  local log=$dir/ray-start.log order='' more='' up='' text file ended='' keep='' also='' shadow='' token pid pids reason version offers memory store ip enter
  trap 'ended=1; echo "ended $node"' TERM && trap : PIPE USR1 USR2 && ulimit -n hard # TERM: Slurm ends the step. PIPE: nobody listens any more
  # The directory is made by us, now: what somebody else put in its place, a link above all, is not used.
  if ! read -r token || ! reason=$({ { [[ -d ${dir%/*} ]] || mkdir -p "${dir%/*}"; } && mkdir -m 700 "$dir" && umask 077 && echo "$token" >"$dir/token"; } 2>&1); then
    [[ -L $dir || ! -O $dir ]] || rm -rf "$dir"; echo "failed $node cannot use $dir: ${reason##*: }" && return 76
  fi
  export RAY_AUTH_TOKEN_PATH=$dir/token RAY_TMPDIR=$dir/t && [[ ${TMPDIR:-/tmp} != /tmp ]] || export TMPDIR=$dir # t: Ray opens its own directory to everybody. TMPDIR: what Ray leaves there goes with ours
  [[ ${!RAY_raylet_client_*} ]] || export RAY_raylet_client_num_connect_attempts=200 RAY_raylet_client_connect_timeout_milliseconds=50 # Ray's 10 s, in smaller steps: a raylet too early for its own store would sleep a second
  # Ray gets what Slurm gave us on this node; by itself it would take the whole machine. Memory in MB: one of three is set,
  memory=$((${SLURM_MEM_PER_NODE:-0} + ${SLURM_MEM_PER_CPU:-0} * SLURM_CPUS_ON_NODE + ${SLURM_MEM_PER_GPU:-0} * gpus))
  ((memory)) || memory=$(awk -v ours="$SLURM_CPUS_ON_NODE" -v all="$(getconf _NPROCESSORS_ONLN)" \
    '/^MemTotal/ { print int($2 / 1024 * (ours < all ? ours / all : 1)) }' /proc/meminfo) # or else a fair share
  { read -r && read -r store; } < <(df --output=avail -B1M /dev/shm) # where the object store lives
  store=$((memory * 3 / 10 < store ? memory * 3 / 10 : store)) store=${object_store:-$(((store < 80 ? 80 : store) << 20))} # Ray's least
  port_flags && set -- --block --node-name="$node" --num-cpus="$SLURM_CPUS_ON_NODE" --num-gpus="$gpus" --temp-dir="$dir/t" \
    --memory=$(((memory << 20) - store)) --object-store-memory="$store" --disable-usage-stats --log-color=false "${port_args[@]}"
  if [[ $node == "$head" ]]; then
    set -- "$@" --head --node-ip-address="$head_ip" --port="$port" --dashboard-host=127.0.0.1 --dashboard-port=$((port + 2))
    # What it offers: Ray Client needs grpc (without it the flag is an error, with it the default port may be taken), the dashboard aiohttp_cors.
    offers=("client=ray://${address%:*}:$((port + 1))") && [[ ${ray_head_args[*]} == *-dashboard[=\ ]* || ${ray_head_args[*]} == *-dashboard-port* ]] || offers+=("dashboard=http://127.0.0.1:$((port + 2))")
    version='import sys; from importlib import metadata as m, util as u; print(m.version("ray"), *(a for a in sys.argv[1:] if u.find_spec("grpc" if "ray:" in a else "aiohttp_cors")))' enter=("${head_enter[@]}")
    version=$("${enter[@]}" bash -c 'p=$(command -v ray) p=${p%/*}/python3 && [[ -x $p ]] || p=python3; exec "$p" -c "$0" "$@"' "$version" "${offers[@]}") # its own python
    [[ ! $version ]] || echo "ray $version"; [[ $version != *client=* ]] || set -- "$@" --ray-client-server-port=$((port + 1)); set -- "$@" "${ray_head_args[@]}"
  else
    enter=("${worker_enter[@]}") ip=${SLAUNCH_NODE_IP:-$(route_source "$head_ip")} # this node's own address in the head's network
    set -- "$@" --address="$address" ${ip:+--node-ip-address="$ip"} "${ray_worker_args[@]}"; [[ ${enter-} ]] || command -v ray >/dev/null || order=go # no Ray here: to be told at once
    # Ray 2.54 and newer looks for the head every 2 s only: so it waits for `go`. After 8 s Ray loads slowly here (a network file system): it is loaded meanwhile.
    until [[ $order == *.* || $ended ]] || { { [[ ! $head || $order == *go* ]] || ((SECONDS > 8)); } && reason=$({ : >"/dev/tcp/$head_ip/$port"; } 2>&1); }; do read -r -t 0.1 more || (($? > 128)) || more=.; order+=$more; done
    [[ $order != *keep* ]] || { mkdir -p "$run.ray/$node" && reason=${reason##*: } && echo "$node never reached $address: ${reason:-the head had not come up}" >"$run.ray/$node/ray-start.log"; }
    [[ $order != *.* && ! $ended ]] || { trap '' TERM && rm -rf "$dir" && return; } # it is over before it began
    if mkdir -m 700 "${dir%.*}.0" 2>/dev/null; then shadow=$_; elif [[ ! -O $_ || -L $_ ]]; then echo "failed $node $_ is not ours" && rm -rf "$dir" && return 76; fi # an old Ray has a worker's files under the head's path
  fi
  # A session of its own, and a mark that is inherited: so we find our own processes in the end, and nobody else's. (ch-run drops TMPDIR.)
  SLAUNCH_NODE_DIR=$dir setsid "${enter[@]}" ${enter:+bash -c 'export TMPDIR=$0 && exec "$@"' "$TMPDIR"} ray start "$@" "${ray_args[@]}" </dev/null &>"$log" & pid=$!
  while order+=$more && [[ $order != *.* && ! $ended ]] && kill -0 "$pid" 2>/dev/null; do # the time may end within a line
    read -r -t 0.1 more || (($? > 128)) || more=. # nobody is at the other end any more
    [[ $up ]] || for file in "$log" "$dir"/t/session_2*/logs/{raylet.out,gcs_server.err}; do # read by bash itself: a process for each look would cost more
      text=() && mapfile -t text <"$file"
      case $file:${text[*]} in *'Ray runtime started'* | *'Raylet of id'*) up=1 SECONDS=5 ;; *gcs_server.err:*'Address already in use'*) echo 'Address already in use' >>"$log" && break 2 ;; esac # Ray would wait 40 s
    done 2>/dev/null
    [[ ! $up ]] || ((SECONDS < 5)) || { SECONDS=0 && echo "up $node"; }
  done
  if [[ $order != *.* && ! $ended ]]; then
    { grep -vE 'state-dump|network_util|^- ' "$log" | grep -iE 'err|exit code|exception|fail|found|space|in use' || cat "$log"; } | tail -n 5 | cut -c1-300 | sed "s/^/said $node /"
    ! grep -qE 'AuthToken|from GCS' "$log" || timeout 9 "${enter[@]}" ray --version 2>/dev/null | sed "s/^/said $node /"; keep=1 && echo "failed $node its Ray has ended${enter:+: $(tail -n 1 "$log" | cut -c1-200)}"
  fi
  trap '' TERM; end_processes TERM || end_processes KILL # Slurm sends it twice now and then: the search must not be hit
  [[ ! $keep$ended && $order != *keep* ]] || { mkdir -p "$run.ray/$node" && cp -r "$log" "$dir"/t/session_2*/logs ${shadow:+"$shadow"/t/session_2*/logs} "$_"; } 2>/dev/null
  rm -rf "$dir" ${shadow:+"$shadow"} ${ended:+"$job_dir"}
}
end_processes() { # SIGNAL: true when none of ours is left within a second
  [[ $order != *.* ]] && kill -0 "$batch_pid" 2>/dev/null || also=-eSLAUNCH_NODE_DIR=$job_dir # what the command has left running
  for _ in {1..10}; do
    mapfile -t pids < <(grep -lzsxF -e "SLAUNCH_NODE_DIR=$dir" ${also:+"$also"} /proc/[0-9]*/environ | cut -d/ -f3
      cat /proc/[0-9]*/stat 2>/dev/null | awk -v ours="$pid" '{ id = $1; sub(/.*\) /, ""); if ($4 == ours || id == ours) print id }')
    ((${#pids[@]})) || return 0; kill -s "$1" "${pids[@]}" 2>/dev/null; sleep 0.1
  done && false
}
start_step() { # NODE...: one srun that runs run_node there. It says everything itself: what a step inherits differs by version.
  local step=${#step_pids[@]} first=${#step_of[@]} node fd cpus=${SLURM_JOB_CPUS_PER_NODE%%(*} list role
  [[ $SLURM_JOB_CPUS_PER_NODE != *,* ]] || { cpus='' && unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK; } # unequal: all
  for node in "$@"; do step_of[$node]=$step; done && if [[ $1 == "$head" ]]; then role=("${head_step[@]}"); else role=("${worker_step[@]}"); fi
  printf -v list '%s,' "$@" && mkfifo "$job_dir/to-$step"
  srun --nodes=$# --ntasks=$# --ntasks-per-node=1 --nodelist="${list%,}" ${cpus:+--cpus-per-task="$cpus"} --overlap \
    --export=ALL --cpu-bind=none --mpi=none --kill-on-bad-exit=0 --wait=0 "${srun_args[@]}" "${role[@]}" bash -c "$node_code" bash "$first" \
    <"$job_dir/to-$step" >"$job_dir/from-nodes" 2>"$job_dir/srun-$step.err" &
  step_pids+=($!) && exec {fd}>"$job_dir/to-$step" && step_fds+=("$fd")
  { echo "$token" >&"$fd"; } 2>/dev/null # by this pipe, so that no command line, environment or shared file shows it
}
stop_cluster() { # OUTCOME: the command gets SIGTERM and ten seconds, then SIGKILL; every node is told to end its own Ray
  local order='stop and keep the logs.'
  [[ ! ${command_pid-} ]] || { kill -- "-$command_pid" && ! gone 10 "-$command_pid" && kill -KILL -- "-$command_pid"; } 2>/dev/null; [[ $1 == retry ]] || say stopping
  [[ $1 != @(ok|retry) || ${keep_ray_logs-} ]] || order=stop.; tell "$order"
  gone 20 "${step_pids[@]}" || kill -KILL "${step_pids[@]}" 2>/dev/null # a node that does not answer is left to Slurm, which ends its step
  rm -rf "${job_dir:?}" && [[ $1 == retry ]] || "${at_end[@]}"
}
tell() { for fd in "${step_fds[@]}"; do { echo "$1 $1" >&"$fd"; } 2>/dev/null; done; } # ORDER, to every node: twice, see tick; some may be gone already
gone() { for ((i = $1 * 10; i > 0; i--)); do kill -0 -- "${@:2}" 2>/dev/null || return 0; pause 0.1; done; false; } # SECONDS PID...
pause() { read -r -t "$1" -u "$silence" _ || :; } # SECONDS, at the cost of no process

# ---- 5. The cluster that they join ----
# The other job's log tells where its Ray is: `starting` names the place, `ready` that it is up. A later life begins anew.
find_main() { # sets main_head, main_dir, address, head_ip and port; false: it is not up
  local place word
  place=$(grep -aoE '\[slurm-launch\] [^ ]+ (starting|ready|end) .*' "$main_log" 2>/dev/null | awk -v ours="job=$main_job" '
    { named = 0; for (i = 4; i <= NF; i++) if ($i == ours) named = 1 }
    $3 == "starting" { last = named; if (named) { up = 0; place = $0 } }
    $3 == "ready" && last { up = 1 }
    $3 == "end" && named { up = 0 }
    END { if (up) print place }')
  for word in $place; do
    case $word in head=*) main_head=${word#*=} ;; address=*) address=${word#*=} ;; dir=*) main_dir=${word#*=} ;; auth=*) auth=${word#*=} ;; esac
  done
  [[ $place ]] && port=${address##*:} head_ip=${address%:*} && head_ip=${head_ip#[} head_ip=${head_ip%]} && export RAY_AUTH_MODE=${auth/off/disabled}
}
main_is_over() { # by Slurm's word; one that does not answer tells nothing
  local state && state=$(timeout 9 squeue -h -j "$main_job" -o %T 2>&1) && [[ ! $state || $state == COMPLETING ]] || [[ $state == *'Invalid job id'* ]]
}
main_answers() { timeout 3 bash -c ': >"/dev/tcp/$0/$1"' "$head_ip" "$port" 2>/dev/null; }
# The token comes by a step in the other job, as for `slurm-launch attach`: it never lies where others could read it.
fetch_token() {
  local name code='[[ -O $1.0 && ! -L $1.0 ]] && exec cat -- "$1.0/token"'
  [[ $auth == token ]] || { token=none && return; }
  token=$(for name in "${!SLURM_@}" "${!SRUN_@}"; do [[ $name == SLURM_CONF ]] || unset "$name"; done # this job's own would be the step's
    timeout 60 srun "${main_step[@]}" --overlap --nodes=1 --ntasks=1 --nodelist="$main_head" --cpu-bind=none --mpi=none --chdir=/ \
      --export=PATH bash -c "$code" bash "$main_dir" </dev/null 2>"$job_dir/token.err") && [[ $token ]]
}

# ---- 6. Join it, stay while it lives, leave before the time is over ----
make_job_dir() { # before the waiting, which is done by its pipes
  local random && step_pids=() step_fds=() joined='' batch_pid=$$ && declare -gA step_of=() why=()
  random=$(od -An -N3 -tx1 /dev/urandom | tr -d ' \n')
  dir=${temp_base//%u/$USER} dir=${dir//%j/$SLURM_JOB_ID}/r$SLURM_JOB_ID-$random job_dir=$dir.job # names that nobody can foresee
  if ((${#dir} + ${#count} > 40)) || ! mkdir -p "${dir%/*}" || ! mkdir -m 700 "$job_dir" || ! mkfifo "$job_dir/from-nodes" "$job_dir/silence"; then
    end 76 temp-dir "cannot use $dir on ${nodes[0]}$( ((${#dir} + ${#count} <= 40)) || echo ': the path is too long')" 'choose another --temp-dir: node-local, writable, short' "${nodes[0]}"
  fi
  exec {events}<>"$job_dir/from-nodes" {silence}<>"$job_dir/silence"
}
join_cluster() {
  local sruns first size && phase=bring-up
  fetch_token || { pause 5 && fetch_token; } || end 71 node-failed "no token from job $main_job: $(tail -n 1 "$job_dir/token.err")" 'does that job still run, and is it yours?'
  node_code=$(declare -p dir job_dir main_dir run head head_ip address ray_args ray_head_args ray_worker_args port ${port_first+port_first port_last} ${interface+interface} \
    ${object_store+object_store} ${unmanaged_gpus+unmanaged_gpus} ${head_enter+head_enter worker_enter} batch_pid && declare -f join_node run_node end_processes route_source port_flags free_block)$'\njoin_node "$1"'
  say starting nodes="$count" head="$main_head" address="$address" auth="$auth" job="$SLURM_JOB_ID" dir="$dir" main="$main_job"
  for ((sruns = count > 32 ? 32 : count, first = 0; sruns > 0; sruns--, first += size)); do
    size=$(((count - first + sruns - 1) / sruns)) && start_step "${nodes[@]:first:size}"
  done
}
join_node() { # an old Ray has a worker's files under the path that the head's has on its own node
  local made='' code
  if mkdir -m 700 "$main_dir.0" 2>/dev/null; then made=$_; elif [[ -e $_ && (! -O $_ || -L $_) ]]; then echo "failed $SLURMD_NODENAME $_ is not ours" && return 76; fi
  run_node "$1"; code=$?
  [[ ! $made ]] || rm -rf "$made"
  return "$code"
}
news() { # of the nodes, for a moment; then $joined are those whose Ray runs, and why[NODE] tells of the others
  local line kind node rest
  pause 0.2
  while read -t 0 -u "$events" && IFS= read -r -t 9 -u "$events" line; do
    kind=${line%% *} rest=${line#* } node=${rest%% *} rest=${rest#* } && [[ $node && ${step_of[$node]-} ]] || continue
    case $kind in
      up) [[ $joined == *" $node "* ]] || { joined+=" $node " && say joined node="$node" nodes="$(wc -w <<<"$joined")/$count"; } ;;
      said) say "$node said: $rest" ;;
      failed) why[$node]=${why[$node]-$rest} ;;
    esac
  done
  for node in "${nodes[@]}"; do kill -0 "${step_pids[${step_of[$node]}]}" 2>/dev/null || why[$node]=${why[$node]-its srun has ended}; done
  [[ ! ${ended_by-} ]] || asked_to_end
}
watch_main() { # sets leaving when the main cluster is over: nothing answers there, and its log tells the end or another life, or it is so for 10 s
  ((SECONDS > asked_at)) || return 0
  asked_at=$SECONDS
  if main_answers; then
    answered=$SECONDS
  elif ((SECONDS - answered >= 10)) || [[ $(find_main && echo "$address") != "$address" ]]; then
    leaving="the cluster of job $main_job is over"
  fi
}
watch_nodes() { # those whose Ray has ended are gone; without any there is nothing left to do
  local node
  for node in "${!why[@]}"; do
    until main_answers || [[ $leaving ]]; do watch_main && news; done # it may be the main cluster that has ended
    [[ ! $leaving ]] || return 0
    [[ $phase == grown ]] || end 71 node-failed "$node did not join: ${why[$node]}" "Ray's logs are in $run.ray/" "$node"
    [[ $joined != *" $node "* ]] || { joined=${joined/ $node /} && say lost node="$node" "${why[$node]}"; }
  done
  [[ $phase != grown || $joined == *[![:space:]]* ]] || end 72 node-lost 'no node of this job is left in the cluster' "Ray's logs are in $run.ray/"
}
drain() { # Ray begins nothing more on these nodes; what runs there may end, for as long as there is time
  local node_step
  node_step='id=$(grep -ohm 1 "Node ID: [0-9a-f]*" "$1.$SLURM_NODEID"/t/session_2*/logs/debug_state.txt "$2.0"/t/session_2*/logs/debug_state.txt 2>/dev/null | head -n 1)
    export RAY_AUTH_TOKEN_PATH=$1.$SLURM_NODEID/token; exec "${@:4}" ray drain-node --address="$3" --node-id="${id##* }" \
      --reason=DRAIN_NODE_REASON_PREEMPTION --reason-message="the time of its job is over" --deadline-remaining-seconds=40'
  timeout 20 srun --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --overlap --export=ALL --cpu-bind=none --mpi=none --kill-on-bad-exit=0 "${srun_args[@]}" \
    "${worker_step[@]}" bash -c "$node_step" bash "$dir" "$main_dir" "$address" "${worker_enter[@]}" </dev/null &>"$job_dir/drain.log" || say warning "not drained: $(tail -n 1 "$job_dir/drain.log")"
}
leaving='' answered=$SECONDS asked_at=0 && trap 'leaving="the time of this job is almost over" time_is_short=1' USR1
say waiting main="$main_job" && phase=waiting deadline=$((SECONDS + start_timeout)) time_is_short='' && make_job_dir
until find_main; do
  [[ ! ${ended_by-} ]] || asked_to_end
  [[ ! $leaving ]] || break
  if ((SECONDS >= asked_at)); then # the log is read often, Slurm is asked now and then
    if main_is_over; then leaving="job $main_job is over" && break; fi
    asked_at=$((SECONDS + 5))
  fi
  ((SECONDS < deadline)) || end 71 nodes-missing "job $main_job was not up within $start_timeout s" 'give a longer --start-timeout'
  pause 0.5
done
if [[ ! $leaving ]]; then
  asked_at=0 && join_cluster && deadline=$((SECONDS + start_timeout)) answered=$SECONDS
  until [[ $leaving ]]; do
    news && watch_main && watch_nodes
    [[ $phase == bring-up ]] || continue
    if (($(wc -w <<<"$joined") == count)); then
      ready_at=$SECONDS phase=grown && say ready nodes="$count/$count" main="$main_job"
    elif ((SECONDS >= deadline)); then
      end 71 nodes-missing "missing after $start_timeout s: only $(wc -w <<<"$joined") of $count nodes joined" "Ray's logs are in $run.ray/"
    fi
  done
fi
say leaving "$leaving"
if [[ $time_is_short && $phase == grown ]]; then
  drain && deadline=$((SECONDS + 20))
  until ((SECONDS >= deadline || ${#why[@]} == count)); do news; done
fi
end 0 ok
