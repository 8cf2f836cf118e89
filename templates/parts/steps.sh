# Resets what is known about steps and nodes.
reset_steps() {
  slaunch_step_pids=()
  slaunch_step_fds=()
  slaunch_lost=()
  #% if not joins
  slaunch_port_is_taken=''
  #% endif
  # All of these are by node.
  declare -gA slaunch_step_of=()      # the number of its step
  declare -gA slaunch_up=()           # those whose Ray runs
  declare -gA slaunch_last_message=() # when the last message came
  declare -gA slaunch_output=()       # the last lines of a Ray that has ended
  declare -gA slaunch_loss_reason=()  # why a node is lost
  #% if not joins
  declare -gA slaunch_killed_on=()
  declare -gA slaunch_killed_at=()
  declare -gA slaunch_never_up=()
  #% endif
}
#% if not joins

# Starts Ray's head, as a background step on this node.
start_head() {
  reset_steps
  pick_port
  slaunch_head_dir=$slaunch_dir.0
  slaunch_address=$slaunch_head_ip:$slaunch_port
  [[ $slaunch_head_ip != *:* ]] || slaunch_address=[$slaunch_head_ip]:$slaunch_port # IPv6
  say starting nodes="$slaunch_count" head="$slaunch_head" address="$slaunch_address" \
    auth="$slaunch_auth" job="$SLURM_JOB_ID" dir="$slaunch_dir"
  start_step "$slaunch_head"
}
#% endif
#% if groups

# Starts the workers: one step for each; beyond 32 workers, steps of several nodes. No step spans
# two groups.
start_workers() {
  local slaunch_first slaunch_last slaunch_size slaunch_steps
  for ((slaunch_group = 1; slaunch_group < ${#slaunch_group_start[@]}; slaunch_group++)); do
    slaunch_first=${slaunch_group_start[slaunch_group]}
    slaunch_last=${slaunch_group_start[slaunch_group + 1]:-$slaunch_count}
    slaunch_steps=$((slaunch_last - slaunch_first))
    if ((slaunch_count > 33)); then
      slaunch_steps=$((slaunch_steps * 32 / (slaunch_count - 1)))
      ((slaunch_steps)) || slaunch_steps=1
    fi
    use_group "$slaunch_group"
    for (( ; slaunch_steps > 0; slaunch_steps--)); do
      slaunch_size=$(((slaunch_last - slaunch_first) / slaunch_steps))
      start_step "${slaunch_nodes[@]:slaunch_first:slaunch_size}"
      slaunch_first=$((slaunch_first + slaunch_size))
    done
  done
  slaunch_group=0
  use_group 0
}
#% elif spec.nodes > 1 or joins

# Starts the workers: one step for each; beyond 32 workers, 32 steps of several nodes.
start_workers() {
  #% if joins
  local slaunch_first=0
  #% else
  local slaunch_first=1 # the head is number 0
  #% endif
  local slaunch_size
  local slaunch_steps=$((slaunch_count - slaunch_first))
  ((slaunch_steps <= 32)) || slaunch_steps=32
  for (( ; slaunch_steps > 0; slaunch_steps--)); do
    slaunch_size=$(((slaunch_count - slaunch_first) / slaunch_steps))
    start_step "${slaunch_nodes[@]:slaunch_first:slaunch_size}"
    slaunch_first=$((slaunch_first + slaunch_size))
  done
}
#% endif

# Without a setting, the deadline grows with the nodes: a file system serves all of them.
choose_start_timeout() {
  #% if container
  # An image may have to be fetched and unpacked.
  : "${slaunch_start_timeout:=$((900 + slaunch_count))}"
  #% else
  : "${slaunch_start_timeout:=$((180 + slaunch_count))}"
  #% endif
}

# Starts an srun step in the background that runs run_node on these nodes. All options are explicit:
# what a step inherits depends on Slurm's version.
# Usage: start_step NODE...
#
# The step's program goes through its standard input. A command line is visible to every user of the
# node and stored in Slurm's accounting. Local variables have the prefix, too: srun passes your
# environment on, and a local `node` would hide your variable `node`.
start_step() {
  local slaunch_step=${#slaunch_step_pids[@]} slaunch_first_index=${#slaunch_step_of[@]}
  local slaunch_fd slaunch_nodelist
  printf -v slaunch_nodelist '%s,' "$@"
  assign_step "$slaunch_step" "$@"
  choose_step_options "$1"
  (($# == 1)) || slaunch_step_options+=(--no-kill) # the loss of one node is not that of the others
  mkfifo "$slaunch_job_dir/to-$slaunch_step"
  # shellcheck disable=SC2016 # expanded on the node
  become_srun \
    --nodes=$# \
    --ntasks=$# \
    --nodelist="${slaunch_nodelist%,}" \
    --wait=0 \
    "${slaunch_step_options[@]}" \
    bash -c 'read -r -d "" slaunch_program && eval "$slaunch_program"' \
    <"$slaunch_job_dir/to-$slaunch_step" \
    >"$slaunch_job_dir/messages" \
    2>"$slaunch_job_dir/srun-$slaunch_step.err" &
  slaunch_step_pids+=($!)
  exec {slaunch_fd}>"$slaunch_job_dir/to-$slaunch_step"
  slaunch_step_fds+=("$slaunch_fd")
  node_program 1>&"$slaunch_fd" 2>/dev/null # srun may have ended
}

# Replaces this shell with an srun of the script: call it in a subshell. It ends after
# slaunch_seconds, if that is set.
# Usage: become_srun OPTION... PROGRAM...
become_srun() {
  forget_slurm_options
  exec ${slaunch_seconds:+timeout "$slaunch_seconds"} srun \
    --ntasks-per-node=1 \
    --overlap \
    --export=ALL \
    --cpu-bind=none \
    --mpi=none \
    --kill-on-bad-exit=0 \
    "$@"
}

# Unsets what srun would take for options, except what identifies the job. Such variables may be
# left from another job if this script was submitted from within one. A step without them gets all
# that the job has on its nodes.
forget_slurm_options() {
  local slaunch_name
  for slaunch_name in "${!SLURM_@}" "${!SRUN_@}" "${!PYXIS_@}" \
    "${!PMI_@}" "${!PMI2_@}" "${!PMIX_@}"; do
    case $slaunch_name in
      SLURM_CONF | SLURM_JWT | SLURM_JOB* | SLURM_ARRAY_* | SLURM_RESTART_COUNT) ;;
      SLURM_CLUSTER* | SLURM_SUBMIT_*) ;;
      #% if groups
      SLURM_HET_*) ;;
      #% endif
      *) unset "$slaunch_name" ;;
    esac
  done
  export SLURM_OOM_KILL_STEP=0 # a task that is killed for memory does not end its node
}

# Usage: assign_step STEP NODE...
assign_step() {
  local node
  for node in "${@:2}"; do
    slaunch_step_of[$node]=$1
  done
}

# Sets slaunch_step_options: all CPUs of the job on the node, and your additional arguments.
#% if container and container.step
# Those for the container depend on the node. Usage: choose_step_options NODE
#% endif
choose_step_options() {
  slaunch_step_options=()
  if [[ $SLURM_JOB_CPUS_PER_NODE != *,* ]]; then # the nodes do not differ
    slaunch_step_options+=(--cpus-per-task="${SLURM_JOB_CPUS_PER_NODE%%(*}")
  fi
  slaunch_step_options+=("${slaunch_fabric_options[@]}" "${slaunch_srun_args[@]}")
  #% if groups
  if ((slaunch_group)); then
    slaunch_step_options+=(--het-group="$slaunch_group")
  fi
  #% endif
  #% if container and container.step
  if [[ $1 == "$slaunch_head" ]]; then
    slaunch_step_options+=("${slaunch_head_step[@]}")
  else
    slaunch_step_options+=("${slaunch_worker_step[@]}")
  fi
  #% endif
}

# Prints what a node executes, with a NUL at its end: variables, functions, and the call of main.
node_program() {
  slaunch_batch_pid=$$
  echo 'unalias -a'
  declare -p slaunch_dir slaunch_job_dir slaunch_head_dir "slaunch_run" slaunch_token \
    slaunch_head slaunch_head_ip slaunch_port slaunch_address slaunch_interface \
    slaunch_ray_args slaunch_ray_head_args slaunch_ray_worker_args slaunch_object_store \
    slaunch_first_index slaunch_batch_pid slaunch_allocations
  #% if spec.num_gpus and spec.gpu_directive == "none"
  declare -p slaunch_unmanaged_gpus
  #% endif
  #% if spec.port_range
  declare -p slaunch_port_first slaunch_port_last
  #% endif
  #% if groups
  declare -p slaunch_group slaunch_group_labels slaunch_group_resources
  #% endif
  #% if container
  declare -p slaunch_head_enter slaunch_worker_enter
  #% endif
  printf '%s\nmain\0' "$slaunch_functions"
}
