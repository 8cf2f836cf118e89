start_step() { # NODE...: one srun that runs run_node there. It says everything itself: what a step inherits differs by version.
  local step=${#step_pids[@]} first=${#step_of[@]} node fd cpus=${SLURM_JOB_CPUS_PER_NODE%%(*} list role
  [[ $SLURM_JOB_CPUS_PER_NODE != *,* ]] || { cpus='' && unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK; } # unequal: all
  for node in "$@"; do step_of[$node]=$step; done && if [[ $1 == "$head" ]]; then role=("${head_step[@]}"); else role=("${worker_step[@]}"); fi
  list=$(IFS=, && echo "$*") && mkfifo "$job_dir/to-$step"
  srun --nodes=$# --ntasks=$# --ntasks-per-node=1 --nodelist="$list" ${cpus:+--cpus-per-task="$cpus"} --overlap \
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
  local order='stop and keep the logs.' fd
  [[ ! ${command_pid-} ]] || { kill -- "-$command_pid" && ! gone 10 "-$command_pid" && kill -KILL -- "-$command_pid"; } 2>/dev/null; [[ $1 == retry ]] || say stopping
  [[ $1 != @(ok|retry) || ${keep_ray_logs-} ]] || order=stop.
  for fd in "${step_fds[@]}"; do { echo "$order $order" >&"$fd"; } 2>/dev/null; done # twice, see tick; some may be gone already
  gone 20 "${step_pids[@]}" # a node that does not answer is left to Slurm, which ends its step when this script is over
  rm -rf "${job_dir:?}" && [[ $1 == retry ]] || "${at_end[@]}"
}
gone() { for ((i = $1 * 10; i > 0; i--)); do kill -0 -- "${@:2}" 2>/dev/null || return 0; pause 0.1; done; false; } # SECONDS PID...
pause() { read -r -t "$1" -u "$silence" _ || :; } # SECONDS, at the cost of no process
