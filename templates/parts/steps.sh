start_step() { # NODE...: one srun that runs run_node there. It sets every option itself: what a step inherits depends on Slurm's version.
  local step=${#step_pids[@]} first=${#step_of[@]} node fd cpus=${SLURM_JOB_CPUS_PER_NODE%%(*} list role
  [[ $SLURM_JOB_CPUS_PER_NODE != *,* ]] || { cpus='' && unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK; } # unequal: all
  for node in "$@"; do step_of[$node]=$step; done && if [[ $1 == "$head" ]]; then role=("${head_step[@]}"); else role=("${worker_step[@]}"); fi
  printf -v list '%s,' "$@" && mkfifo "$job_dir/to-$step"
  srun --nodes=$# --ntasks=$# --ntasks-per-node=1 --nodelist="${list%,}" ${cpus:+--cpus-per-task="$cpus"} --overlap \
    --export=ALL --cpu-bind=none --mpi=none --kill-on-bad-exit=0 --wait=0 "${srun_args[@]}" "${role[@]}" bash -c "$node_code" bash "$first" \
    <"$job_dir/to-$step" >"$job_dir/from-nodes" 2>"$job_dir/srun-$step.err" &
  step_pids+=($!) && exec {fd}>"$job_dir/to-$step" && step_fds+=("$fd")
  { echo "$token" >&"$fd"; } 2>/dev/null # through this pipe, so that no command line, environment or shared file shows it
}
