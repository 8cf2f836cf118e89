# start_step NODE...: one srun that runs run_node on these nodes. It says everything itself, because versions of Slurm
# differ in what a step inherits. --overlap: beside the other steps; --cpu-bind=none: Ray places its own workers.
start_step() {
  local step=${#step_pids[@]} node fd cpus=${SLURM_JOB_CPUS_PER_NODE%%(*} list
  [[ $SLURM_JOB_CPUS_PER_NODE != *,* ]] || { cpus='' && unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK; } # unequal: all
  for node in "$@"; do step_of[$node]=$step; done
  list=$(IFS=, && echo "$*")
  mkfifo "$dir.job/to-$step"
  srun --nodes=$# --ntasks=$# --ntasks-per-node=1 --nodelist="$list" ${cpus:+--cpus-per-task="$cpus"} --overlap \
    --export=ALL --cpu-bind=none --mpi=none --kill-on-bad-exit=0 --wait=0 "${srun_args[@]}" bash -c "$node_code" \
    <"$dir.job/to-$step" >"$dir.job/from-nodes" 2>"$dir.job/said-$step" &
  step_pids+=($!)
  exec {fd}>"$dir.job/to-$step" && step_fds+=("$fd")
  echo "$token" >&"$fd" # by this pipe, so that no command line, environment or shared file shows it
}
start_cluster() {
  local random
  phase=bring-up step_pids=() step_fds=() joined='' attempt=$((${attempt:--1} + 1))
  declare -gA step_of=() why=()
  random=$(od -An -N40 -tx1 /dev/urandom | tr -d ' \n') token=${random:16}
  [[ $run == /* ]] || run=$PWD/$run
  dir=${temp_base//%u/$USER} dir=${dir//%j/$SLURM_JOB_ID}/r$SLURM_JOB_ID-${random:0:6} # a name that nobody can foresee
  if ((${#dir} > 43)) || ! mkdir -p "${dir%/*}" || ! mkdir -m 700 "$dir.job" || ! mkfifo "$dir.job/from-nodes"; then
    end 76 temp-dir "cannot use $dir on $head" 'choose another --temp-dir: node-local, writable, short' "$head"
  fi
  exec {events}<>"$dir.job/from-nodes"
  pick_port "$attempt"
  address=$head_ip:$port && [[ $head_ip != *:* ]] || address=[$head_ip]:$port # IPv6
  node_code=$(declare -p dir run head head_ip address count watcher ray_args ray_head_args ray_worker_args "${!port@}" \
    ${interface+interface} ${object_store+object_store} && declare -f)$'\nrun_node'
  say starting nodes="$count" address="$address" auth="$auth"
  start_step "$head"
  [[ $count == 1 ]] || start_workers
}
# stop_cluster OUTCOME: tells every node to end its own Ray. Nothing else on the nodes is touched.
stop_cluster() {
  local order='stop and keep the logs' fd try
  [[ $1 != @(ok|retry) || ${keep_ray_logs-} ]] || order=stop
  trap : PIPE # a step may be gone already
  for fd in "${step_fds[@]}"; do { echo "$order" >&"$fd"; } 2>/dev/null; done
  for try in {1..100}; do ! kill -0 "${step_pids[@]}" 2>/dev/null || pause 0.1; done # at most ten seconds
  kill "${step_pids[@]}" 2>/dev/null # srun then ends its step by force
  wait "${step_pids[@]}" 2>/dev/null
  rm -rf "${dir:?}.job"
}
pause() { read -r -t "$1" -u "$events" _ || :; } # without a process
