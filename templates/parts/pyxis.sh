srun --help 2>/dev/null | grep -q -e --container-image ||
  end 79 container-failed 'this cluster has no Pyxis: its srun knows no --container-image' 'slurm-launch doctor tells which runtimes there are; choose with --container-runtime'
container=slaunch_$SLURM_JOB_ID${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}_${SLURM_RESTART_COUNT:-0} # its name: the command joins the head's
unset "${!PYXIS_CONTAINER_@}" # these would put the other steps into a container too
in_head_container() { # PROGRAM...: as a step that joins the head's container. srun answers SIGTERM by killing it, so signals go past it.
  local cpus=${SLURM_JOB_CPUS_PER_NODE%%(*} inside pid sent
  [[ $SLURM_JOB_CPUS_PER_NODE != *,* ]] || { cpus='' && unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK; }
  inside='exec 2>&1; set -m; "$@" & set +m; echo "$!" >"$SLAUNCH_NODE_DIR/group"; wait "$!" 2>/dev/null; echo "$?" >"$SLAUNCH_NODE_DIR/code"'
  pass_on() { [[ ! -s $job_dir/group ]] || kill -s "$1" -- "-$(<"$job_dir/group")"; }
  trap 'pass_on TERM' TERM && trap 'pass_on USR1' USR1 && trap 'pass_on USR2' USR2
  set +m
  setsid srun --nodes=1 --ntasks=1 --nodelist="$head" ${cpus:+--cpus-per-task="$cpus"} --overlap --export=ALL --cpu-bind=none --mpi=none \
    "${srun_args[@]}" --container-name="$container:exec" --container-workdir="$workdir" --container-env="$container_env" bash -c "$inside" bash "$@" 2>"$job_dir/command.err" &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do wait "$pid"; sent=$?; done
  if [[ -s $job_dir/code ]]; then sent=$(<"$job_dir/code"); else cat "$job_dir/command.err"; fi # what srun itself has to say
  exit "$sent"
}
remove_containers() { # a site whose containers outlive the job has left one on every node
  timeout 20 srun --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --overlap --cpu-bind=none --mpi=none \
    bash -c 'enroot remove -f "pyxis_$1"' bash "$container" &>/dev/null
}
at_end=(remove_containers)
# Few images have `ip`: on the nodes Python finds the address from which the head is reached.
route_source() {
  python3 -c 'import socket, sys; s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], 1)); print(s.getsockname()[0])' "$1"
}
