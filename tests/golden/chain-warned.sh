#!/bin/bash
# train: a Ray cluster of 1 node, and a command on it.
# Made by slurm-launch 0.1.0 at 2026-01-02T03:04:05+00:00. Plain bash 4.4 for Slurm 22.05 or newer and Ray: edit it, sbatch it anywhere.
# The job ends with the command's own exit code, or with one of ours: 70 head failed, 71 nodes missing, 72 node lost,
# 73 environment, 74 time limit, 75 ended from outside, 76 temporary directory, 77 script, 78 no network address, 79 container.
# spec: {"own": {"chain": 5, "chain-while": "notok", "command": "python train.py", "exp-name": "train", "signal-before": 300, "time": "1-0"}}
# shellcheck disable=SC2016,SC2054,SC2089,SC2090,SC2209,SC2317,SC2329 # values are data, and some functions run on the nodes
# ---- 1. What the job asks of Slurm ----
#SBATCH --job-name=train
#SBATCH --output=train_20260102-030405_%a.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=1-0
#SBATCH --array=0-4%1
#SBATCH --signal=B:USR1@300
#SBATCH --no-requeue

slaunch_run="$PWD"/train_20260102-030405${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID} # taken now: the environment may change the directory
slaunch_warning=300 slaunch_signal=USR1 slaunch_restarts= # USR1 comes so many seconds before the limit; what the command gets then; how often the job may go on
say() { printf '[slurm-launch] %(%FT%T%z)T %s\n' -1 "$*"; } # a line in the log, for people and for `slurm-launch status`
end() { # CODE OUTCOME [CAUSE HINT [NODE]]: the only way out. Stops what we started, has the job run again where it should, and tells how it went.
  local outcome=$2 why_not=''
  trap - EXIT && trap '' TERM USR1 # nothing interrupts the clean-up
  [[ ${reason-} || $phase/$1/$2 != command/85/command-failed || ! $slaunch_restarts ]] || reason=exit-code # the command asks for another life
  [[ ! ${reason-} ]] || outcome=ok # no failure, so Ray's logs are not kept
  [[ ${reason-} || $phase/$2 != command/node-lost || ! $slaunch_restarts ]] || reason='node-lost' # a failure, but other nodes may do
  [[ ! ${job_dir-} ]] || stop_cluster "$outcome"
  if [[ ${reason-} && $slaunch_restarts ]]; then
    if runs_again; then
      [[ $reason == node-lost ]] || set -- 0 requeued # of a lost node the log keeps the cause
      set -- 0 requeued "${@:3}"
    else
      case $reason in
        exit-code) set -- "$1" "$2" "$why_not" 'submit again: the command wants to go on' ;;
        node-lost) set -- 72 "$2" "$3, and $why_not" "$4" "${5-}" ;;
        preemption) set -- 75 ended-from-outside "preempted, and $why_not" 'submit again' ;;
        *) set -- 74 time-limit "the time was over, and $why_not" 'submit again, or ask for more with --time or --max-restarts' ;;
      esac
    fi
  fi
  say end outcome="$2" code="$1" phase="$phase${5:+ node=$5}${ready_at:+ bring-up=${ready_at}s}${command_took:+ command=${command_took}s}" job="$SLURM_JOB_ID" total="${SECONDS}s${3:+ cause=\"${3//\"/\'}\" hint=\"$4\"}"
  exit "$1"
}
runs_again() { # true when the job will: Slurm has seen to it already, or does so now that we ask; else why_not tells
  local said job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID} # an array's own id would mean all its tasks
  ask_slurm
  if [[ $fate == cancelled ]]; then why_not='it was cancelled' && return 1; fi # Slurm would requeue that one, too
  if [[ $fate != requeued ]]; then
    ((slaunch_restart < slaunch_restarts)) || { why_not="it has been requeued $slaunch_restart time$( ((slaunch_restart == 1)) || echo s) (--max-restarts $slaunch_restarts)" && return 1; }
    for _ in {1..5}; do
      ! said=$(timeout 20 scontrol requeue "$job" 2>&1) && [[ $said != *'pending execution'* ]] || break # pending: an answer got lost
      why_not="Slurm did not requeue it: ${said:-no answer}"
      [[ ! $said || $said == *[Cc]ontact* || $said == *'timed out'* ]] || return 1
      sleep 2 && false
    done || return 1
  fi
  say requeue restart="$((slaunch_restart + 1))" reason="$reason"
}
ask_slurm() { # what it says of the job: sets fate (requeued, preempted, grace, limit, lost, runs, cancelled or nothing), and began and ends, times
  local job && fate='' began='' ends=''
  job=$(SLURM_TIME_FORMAT=standard timeout 9 scontrol show job -o "$SLURM_JOB_ID" | grep "^JobId=$SLURM_JOB_ID ") || return 0
  [[ ! $job =~ \ StartTime=(2[^ ]*) ]] || began=${BASH_REMATCH[1]}
  [[ ! $job =~ \ EndTime=(2[^ ]*) ]] || ends=${BASH_REMATCH[1]}
  case $job in
    *" PreemptTime=${ends:-?}"*) fate=preempted ;; # while a grace lasts, its end is later
    *' JobState=RUNNING '*' PreemptTime=2'*) fate=grace ;;
    *' JobState=RUNNING '*) fate=runs ;;
    *' Reason=TimeLimit '*) fate=limit ;;
    *' Reason='*Node*' Dependency='*) fate=lost ;;
    *) fate=cancelled ;;
  esac
  [[ ! $job =~ \ Restarts=([0-9]+) ]] || ((BASH_REMATCH[1] <= slaunch_restart)) || fate=requeued
}
asked_to_end() { # again and again while ended_by says by whom. SIGTERM means now; a warning, or preemption with a grace, means soon.
  local left
  case $ended_by/${until-} in
    SIGTERM/*) # now Slurm alone knows the reason
      ask_slurm && case $fate in
        requeued) reason=slurm ;;
        preempted) reason=preemption ;;
        limit) end 74 time-limit 'the time limit was reached' 'ask for more with --time; --signal-before gives the command time to save its work' ;;
        lost) reason='' && end 72 node-lost 'Slurm has lost a node of the job' 'sinfo -R may tell why; submit again' ;;
        *) reason='' ;;
      esac
      end 75 ended-from-outside "the job was ended from outside ($ended_by)" 'scancel or preemption: sacct tells which' ;;
    */) # the first time
      reason=time-limit && [[ $phase != command ]] || signal_command "$slaunch_signal"
      [[ $ended_by != preemption ]] || pause 1 # Slurm tells a moment later how long the grace is
      ask_slurm && [[ $fate != grace ]] || reason=preemption
      [[ $phase == command ]] || end 74 time-limit 'the time was over before the command began' 'ask for more with --time'
      left=$(($(date -d "${ends:-1970-01-01}" +%s) - $(date +%s))) && ((left > 0)) || left=$((slaunch_warning ? slaunch_warning : 30))
      [[ $reason == preemption ]] || ((left <= slaunch_warning + 60)) || left=$((slaunch_warning + 60)) # Slurm is up to a minute early; or somebody else sent it
      left=$((left - (left > 60 ? 20 : left / 3))) until=$((SECONDS + left)) # the rest is for our own end
      say saving seconds="$left" signal="$slaunch_signal" reason="$reason" ;;
    *) ((SECONDS < until)) || end 74 time-limit 'the command did not end in time after the warning' 'a longer --signal-before gives it more time' ;;
  esac
}
signal_command() { # SIGNAL: to the command's processes, but for a shell that only waits for another: it would die of it, and leave that one alone
  local pid waits caught group=$command_pid
  [[ ! -s $job_dir/group ]] || group=$(<"$job_dir/group") # of a command that runs in a step of its own, see in_head_container
  while read -r pid waits; do
    caught=$(awk '/^SigCgt/ { print substr($2, length($2) - 7) }' "/proc/$pid/status" 2>/dev/null)
    if ((!waits || 16#${caught:-0} >> $(kill -l "$1") - 1 & 1)); then kill -s "$1" "$pid" 2>/dev/null; fi
  done < <(cat /proc/[0-9]*/stat 2>/dev/null | awk -v group="$group" '
    { id = $1; sub(/.*\) /, ""); if ($3 == group) parent[id] = $2 }
    END { for (id in parent) waits[parent[id]] = 1; for (id in parent) print id, id in waits }')
}
environment_failed() { end 73 environment-failed "failed: $1" 'mend the environment options, or this script' "${SLURMD_NODENAME-}"; }
warned() { # Slurm's USR1 is for us with --signal-before, else for the command
  if ((slaunch_warning)); then ended_by=${ended_by:-warning} && [[ $phase != environment ]] || asked_to_end; elif [[ ${command_pid-} ]]; then kill -USR1 -- "-$command_pid"; fi
}
trap 'end 77 script-failed "the script itself ended" "an exit in the environment code? else look at the lines above"' EXIT
trap warned USR1 && trap '[[ ! ${command_pid-} ]] || kill -USR2 -- "-$command_pid"' USR2
unset ended_by reason until command_pid job_dir && trap 'ended_by=SIGTERM' TERM && trap : PIPE && phase=environment SECONDS=0
# Ray's logs of the life before keep a name of their own.
export SLAUNCH_RESTART=${SLURM_RESTART_COUNT:-0} && slaunch_restart=$SLAUNCH_RESTART
((!slaunch_restart)) || [[ ! -e $slaunch_run.ray ]] || mv -T "$slaunch_run.ray" "$slaunch_run.ray-$((slaunch_restart - 1))"
# Without --time only Slurm knows the limit. Where the warning would come at once, every life would end like this one.
if ((slaunch_warning)) && ask_slurm && [[ $began && $ends ]]; then
  slaunch_whole=$(($(date -d "$ends" +%s) - $(date -d "$began" +%s)))
  ((slaunch_whole > slaunch_warning)) || end 74 time-limit "the job's whole time is $slaunch_whole s, not more than --signal-before $slaunch_warning" 'give a longer --time, or a shorter --signal-before'
fi
# The chain: this job runs several times, one after another. Each is a link.
slaunch_link=${SLURM_ARRAY_TASK_ID:-0} && export SLAUNCH_LINK=$slaunch_link
slaunch_folder="$PWD"/train_20260102-030405.run # for checkpoints: the same in every life of the job and in every link of the chain
export SLAUNCH_RUN_DIR=$slaunch_folder
(umask 077 && mkdir -p "$SLAUNCH_RUN_DIR") || environment_failed "mkdir $SLAUNCH_RUN_DIR"
slaunch_while=notok # the chain goes on while links end like this
unset reason && eval "$(declare -f end | sed '1s/end/end_link/')" # what every job does at its end
end() { # and before it: the links that still wait may not be wanted any more
  local how=notok && [[ $2 != ok ]] || how=ok
  [[ ! ${reason-} ]] || how=$slaunch_while # what ends after a warning has neither failed nor is it done, whatever its code: on with it
  trap '' TERM
  if [[ $how != "$slaunch_while" ]] && ((slaunch_link < SLURM_ARRAY_TASK_MAX)); then
    if scancel --state=PENDING "$SLURM_ARRAY_JOB_ID"; then
      say chain over link="$slaunch_link" "this link ended $how: those after it do not run (--chain-while $slaunch_while)"
    else
      say warning "this link ended $how, but those after it could not be cancelled: scancel $SLURM_ARRAY_JOB_ID"
    fi
  fi
  end_link "$@"
}

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
IFS= read -r -d '' command <<'END_OF_COMMAND' # yours, to the letter
python train.py
END_OF_COMMAND
unset RAY_ADDRESS RAY_AUTH_TOKEN && export RAY_AUTH_MODE=${auth/off/disabled} DASHBOARD_METRIC_PORT=0 AUTOSCALER_METRIC_PORT=0 # Ray's defaults differ, or clash

# ---- 3. The nodes, and the head's address ----
# Not loopback, link-local or a container's; the one that the node's name means, else that which reaches another node, else any.
find_address() { # sets head_ip
  local family mine='' address
  for family in ${ip_family:-4 6}; do
    [[ $mine ]] || mine=$(ip -o "-$family" addr show up ${interface:+dev "$interface"} | awk -v chosen="${interface-}" '
      / scope link/ || !chosen && (!/ scope global/ || $2 ~ /^(docker|br-|virbr|veth|cni|cali|podman|lxc)/) || / (tentative|deprecated)/ { next }
      { sub(/\/.*/, "", $4); print $4 }' | sort)
  done
  for address in $(addresses_of "$head") $(route_source "$(addresses_of "${nodes[1]:-$head}" | head -n 1)") $mine; do
    [[ $'\n'$mine$'\n' != *$'\n'$address$'\n'* ]] || { head_ip=$address && return; }
  done
  end 78 no-address "$head has no usable address: IPv${ip_family:-4 or 6}${interface:+, interface $interface}" \
    "choose with --interface or --ip-family; 'ip -br addr' on the node lists what there is" "$head"
}
addresses_of() { getent ahosts "$1" | cut -d ' ' -f 1; }
route_source() { [[ $(ip -o route get "$1" ${interface:+oif "$interface"} 2>/dev/null) =~ ' src '([^ ]+) ]] && echo "${BASH_REMATCH[1]}"; }
phase=address head=${SLURMD_NODENAME:-$(hostname -s)} # this script runs on the job's first node: Ray's head
mapfile -t nodes < <(echo "$head" && scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vxF "$head") && count=${#nodes[@]}
((count == SLURM_JOB_NUM_NODES)) || end 77 script-failed "scontrol named $count of $SLURM_JOB_NUM_NODES nodes" 'submit again'
head_ip=${SLAUNCH_NODE_IP-} && unset SLAUNCH_NODE_IP && [[ $head_ip ]] || find_address # unless the site has said it

# ---- 4. The head, and what every node does ----
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
start_cluster() {
  local random && phase=bring-up step_pids=() step_fds=() joined='' never='' attempt=${attempt:-0} batch_pid=$$ && declare -gA step_of=() heard=() words=() why=()
  random=$(od -An -N40 -tx1 /dev/urandom | tr -d ' \n') token=${random:16}
  dir=${temp_base//%u/$USER} dir=${dir//%j/$SLURM_JOB_ID}/r$SLURM_JOB_ID-${random:0:6} job_dir=$dir.job # names that nobody can foresee
  if ((${#dir} + ${#count} > 40)) || ! mkdir -p "${dir%/*}" || ! mkdir -m 700 "$job_dir" || ! mkfifo "$job_dir/from-nodes" "$job_dir/silence"; then
    end 76 temp-dir "cannot use $dir on $head$( ((${#dir} + ${#count} <= 40)) || echo ': the path is too long')" 'choose another --temp-dir: node-local, writable, short' "$head"
  fi
  exec {events}<>"$job_dir/from-nodes" {silence}<>"$job_dir/silence" && pick_port
  [[ $(df --output=fstype "$job_dir") != *$'\n'@(nfs*|lustre|gpfs|beegfs*|ceph|cifs|smb*|panfs|afs|wekafs|fuse*) ]] || say warning "$dir is on a network file system: choose a node-local --temp-dir"
  address=$head_ip:$port && [[ $head_ip != *:* ]] || address=[$head_ip]:$port # IPv6
  node_code=$(declare -p dir job_dir run head head_ip address ray_args ray_head_args ray_worker_args port ${port_first+port_first port_last} ${interface+interface} \
    ${object_store+object_store} ${unmanaged_gpus+unmanaged_gpus} ${head_enter+head_enter worker_enter} batch_pid && declare -f run_node end_processes route_source port_flags free_block)$'\nrun_node "$1"'
  say starting nodes="$count" head="$head" address="$address" auth="$auth" job="$SLURM_JOB_ID" dir="$dir"
  start_step "$head" && if ((count > 1)); then start_workers; fi
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

# ---- 6. Wait for the nodes, run the command, end with its code ----
tick() { # waits a moment for news; then $joined are the nodes whose Ray runs, lost=() those lost now, why[NODE] the reason
  local line kind node rest ended=() && lost=()
  for node in "${nodes[@]}"; do kill -0 "${step_pids[${step_of[$node]}]}" 2>/dev/null || ended+=("$node"); done
  pause 0.1; ((SECONDS - ${ticked:-$SECONDS} < 9)) || for node in $joined; do heard[$node]=$SECONDS; done # the job was suspended for a while
  while read -t 0 -u "$events" && IFS= read -r -t 9 -u "$events" line; do # bash loses a character when the time of a read ends within a line
    kind=${line%% *} rest=${line#* } node=${rest%% *} rest=${rest#* } && [[ $node && ($kind == ray || ${step_of[$node]-}) ]] || continue; heard[$node]=$SECONDS
    case $kind in
      ray) ray=${line#* } rest=$(printf '%s\n' 2.54 2.52 "$node" | sort -V | tr '\n' ' ') && [[ $rest == '2.52 2.54 '* ]] || tell go # an older worker needs the head's port only
        [[ $auth == off || $rest == 2.52* ]] || say warning "Ray $node knows no tokens (2.52 does): anybody in the network can use this cluster" ;;
      up) [[ $joined == *" $node "* ]] || { joined+=" $node " blanks=${joined//[! ]/} && say joined node="$node" nodes="$((${#blanks} / 2))/$count"; [[ $node != "$head" ]] || tell go; } ;;
      said) words[$node]+="$rest " && say "$node said: $rest" ;;
      failed) lose "$node" "$rest" ;;
      ended) [[ ${ended_by-} ]] || ! scontrol show job -o "$SLURM_JOB_ID" | grep -q "^JobId=$SLURM_JOB_ID .*PreemptTime=2" || ended_by=preemption ;; # with a grace, of which only the steps are told
    esac
  done
  for node in "${ended[@]}"; do lose "$node" "its srun has ended: $(grep -vE 'spank|Exited with|Try .srun' "$job_dir/srun-${step_of[$node]}.err" | tail -n 1)"; done
  for node in $joined; do ((SECONDS - ${heard[$node]} < 30)) || lose "$node" 'nothing was heard of it for 30 s'; done
  ticked=$SECONDS && [[ ! ${ended_by-} ]] || asked_to_end
}
lose() { [[ ${why[$1]-} ]] || { [[ $joined == *" $1 "* ]] || never+=" $1 "; why[$1]=$2 joined=${joined/ $1 /} lost+=("$1"); }; } # NODE WHY
give_up() { # CODE OUTCOME CAUSE NODE: ends the job, with the likely remedy
  local hint="Ray's logs are in $run.ray/" && [[ $2 != nodes-missing || ! ${image-} ]] || hint='an image takes time: give a longer --start-timeout'
  pause 1 && [[ ! ${ended_by-} ]] || asked_to_end # when Slurm ends the job, the steps may feel it before we do
  case "${why[$4]-} ${words[$4]-} $(cat "$job_dir/srun-${step_of[$4]}.err")" in
    *'ray: No such file'* | *'ray: '*'not found'* | *'"ray": '*'not found'*) hint="install Ray on $4, or load an environment that all nodes can see${image:+ (in the image: --container-setup)}" ;;
    *'No space left'*) hint="no space on $4: choose another --temp-dir" ;;
    *AuthToken*"ray, version ${ray%% *} "*) hint="$4 has another token: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or RAY_AUTH_MODE is set there" ;;
    *[Vv]'ersion mismatch'* | *'ray, version '*) hint='the nodes have different versions of Ray or Python' ;;
    *'during startup'*) hint="$4 was too slow for Ray: ask for more --cpus-per-task, or leave it out with --exclude" ;;
    *'onnection failure'* | *'imed out'*) hint="$4 cannot be reached: leave it out with --exclude, or choose --interface" ;;
  esac
  end "$1" "$2" "$3" "$hint" "$4"
}
node_lost() { # NODE: ends the job, unless it can go on without this one
  case $phase/$1 in
    command/*) [[ $1 != "$head" && (${on_node_loss-} == continue || $never == *" $1 "*) ]] || # with --min-nodes
      give_up 72 node-lost "$1 was lost while the command ran: ${why[$1]}" "$1" ;;
    bring-up/"$head")
      [[ ${words[$1]-} == *@('Failed to start GCS'|'already in use')* && $attempt -lt 9 ]] || give_up 70 head-failed "the head on $1 failed: ${why[$1]}" "$1"
      say retry "port $port was taken meanwhile" && stop_cluster retry && start_cluster && return ;;
    *) ((count - ${#why[@]} >= enough)) || give_up 71 node-failed "$1 did not start: ${why[$1]}" "$1" ;;
  esac
  say lost node="$1" "${why[$1]}; going on without it"
}
start_cluster; deadline=$((SECONDS + start_timeout)) enough=${min_nodes:-$count}
until [[ $phase == command ]] && ! kill -0 "$command_pid" 2>/dev/null; do
  tick
  for node in "${lost[@]}"; do [[ ! ${why[$node]-} || ${ended_by-} ]] || node_lost "$node"; done # none, after a retry
  [[ $phase == bring-up ]] || continue
  blanks=${joined//[! ]/} && if ((${#blanks} / 2 >= enough)) && [[ $joined == *" $head "* ]]; then # two for each node, counted without a process
    ready_at=$SECONDS phase='command'
    export RAY_ADDRESS=$address RAY_TMPDIR=$dir.0/t RAY_AUTH_TOKEN_PATH=$dir.0/token SLAUNCH_NODE_DIR=$job_dir # its mark
    { declare -px && declare -fx && declare -p join_head head_enter worker_enter; } >"$job_dir/attach" # for `slurm-launch attach`: a shell with the same
    say ready nodes="$(wc -w <<<"$joined")/$count" ray="${ray-unknown}" && say command "${command%%$'\n'*}"
    set -m; "${enter_for_command[@]}" "${head_enter[@]}" bash -c "$command" </dev/null & command_pid=$!; set +m # a process group of its own, so that a signal reaches all of it
  elif ((SECONDS >= deadline)); then
    missing=$(for node in "${nodes[@]}"; do [[ $joined == *" $node "* ]] || printf '%s ' "$node"; done)
    give_up 71 nodes-missing "missing after $start_timeout s: $missing($(wc -w <<<"$joined") of $count nodes joined)" "${missing%% *}"
  fi
done
command_took=$((SECONDS - ready_at)) && wait "$command_pid" 2>/dev/null && end 0 ok; end $? command-failed
