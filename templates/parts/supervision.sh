# Returns when all nodes have joined the cluster, or slaunch_min_nodes of them.
wait_for_nodes() {
  slaunch_retries=0
  choose_start_timeout
  slaunch_deadline=$((SECONDS + slaunch_start_timeout))
  slaunch_nodes_needed=${slaunch_min_nodes:-$slaunch_count}
  until ((${#slaunch_up[@]} >= slaunch_nodes_needed)) && [[ ${slaunch_up[$slaunch_head]-} ]]; do
    ((SECONDS < slaunch_deadline)) || nodes_are_missing
    watch_nodes
    if [[ $slaunch_port_is_taken ]]; then
      restart_with_another_port
    fi
  done
}

# Ends the job, because the deadline has passed.
nodes_are_missing() {
  local node missing=()
  for node in "${slaunch_nodes[@]}"; do
    [[ ${slaunch_up[$node]-} ]] || missing+=("$node")
  done
  give_up 71 nodes-missing "missing after $slaunch_start_timeout s: ${missing[*]} \
(${#slaunch_up[@]} of $slaunch_count nodes joined)" "${missing[0]}"
}

# Runs the command on this node, and watches the nodes meanwhile. There are no local variables here:
# they would hide yours from the command.
run_command() {
  slaunch_phase='command'
  slaunch_ready_at=$SECONDS
  export RAY_ADDRESS=$slaunch_address
  export RAY_TMPDIR=$slaunch_dir.0/t
  export RAY_AUTH_TOKEN_PATH=$slaunch_dir.0/token
  export SLAUNCH_NODE_DIR=$slaunch_job_dir # marks its processes, see end_own_processes
  use_address "$slaunch_head_ip"
  use_hip_for_newer_ray "${slaunch_ray%% *}"
  find_memory_cgroup
  save_environment_for_attach
  say ready nodes="${#slaunch_up[@]}/$slaunch_count" ray="${slaunch_ray:-unknown}"
  say command "${slaunch_command%%$'\n'*}"
  start_command
  while kill -0 "$slaunch_command_pid" 2>/dev/null; do
    watch_nodes
    watch_own_memory
  done
  slaunch_command_took=$((SECONDS - slaunch_ready_at))
  if [[ $slaunch_ended_by == SIGTERM ]]; then
    end_as_asked # the command may have noticed it first
  fi
  wait "$slaunch_command_pid" 2>/dev/null && finish 0 ok
  finish $? command-failed
}

# In a process group of its own (-m), so that a signal reaches all of it.
start_command() {
  set -m
  #% if container and container.enter_for_command
  in_head_container "${slaunch_head_enter[@]}" bash -c "$slaunch_command" </dev/null &
  #% elif container
  "${slaunch_head_enter[@]}" bash -c "$slaunch_command" </dev/null &
  #% else
  bash -c "$slaunch_command" </dev/null &
  #% endif
  slaunch_command_pid=$!
  set +m
}

# For `slurm-launch attach`: a shell with the command's environment.
save_environment_for_attach() {
  {
    declare -px
    declare -fx
    #% if container
    declare -p slaunch_head_enter slaunch_worker_enter
    #% endif
    #% if container and container.join_head
    declare -p slaunch_join_head
    #% endif
  } >"$slaunch_job_dir/attach"
}

# Checks the nodes once, and handles those that are lost.
watch_nodes() {
  local node
  poll_nodes
  for node in "${slaunch_lost[@]}"; do
    handle_lost_node "$node"
  done
}

# Ends the job, unless it can continue without this node.
# Usage: handle_lost_node NODE
handle_lost_node() {
  local why=${slaunch_loss_reason[$1]}
  if [[ $slaunch_phase == command ]]; then
    can_continue_without "$1" ||
      give_up 72 node-lost "$1 was lost while the command ran: $why" "$1"
  elif [[ $1 == "$slaunch_head" ]]; then
    if port_was_taken && ((slaunch_retries < 9)); then
      slaunch_port_is_taken=1 # wait_for_nodes starts the nodes again
      return
    fi
    give_up 70 head-failed "the head on $1 failed: $why" "$1"
  elif ((slaunch_count - ${#slaunch_loss_reason[@]} < slaunch_nodes_needed)); then
    give_up 71 node-failed "$1 did not start: $why" "$1"
  fi
  say lost node="$1" "$why; continuing without it"
}

# Not without the head. A node that never joined does not count: with --min-nodes, the command has
# started without it.
# Usage: can_continue_without NODE
can_continue_without() {
  [[ $1 != "$slaunch_head" ]] || return 1
  [[ $slaunch_on_node_loss == continue || ${slaunch_never_up[$1]-} ]]
}

# Whether another program took the head's port before Ray did.
port_was_taken() {
  local output=${slaunch_output[$slaunch_head]-}
  [[ $output == *'Failed to start GCS'* || $output == *'already in use'* ]]
}

# Starts all nodes again.
restart_with_another_port() {
  slaunch_retries=$((slaunch_retries + 1))
  say retry "port $slaunch_port was taken in the meantime"
  stop_steps stop
  close_pipes
  rm -rf "$slaunch_job_dir"
  make_job_directory
  start_head
  #% if spec.nodes > 1
  start_workers
  #% endif
}

# Ends the job, with the likely fix.
# Usage: give_up CODE OUTCOME CAUSE NODE
give_up() {
  pause 1 # when Slurm ends the job, the steps may notice it first
  if [[ $slaunch_ended_by ]]; then
    end_as_asked
  fi
  if ran_out_of_memory "$4"; then
    finish 80 out-of-memory "$(cause_of_kill "$4")" "$(memory_hint)" "$4"
  fi
  finish "$1" "$2" "$3" "$(likely_fix "$4")" "$4"
}

# Whether this node is lost because memory ran out; a kill long before is not the reason. If the
# shell of the step was killed, only Slurm reports it.
# Usage: ran_out_of_memory NODE
ran_out_of_memory() {
  local at=${slaunch_killed_at[$1]-}
  if [[ $at ]] && ((SECONDS - at < slaunch_node_timeout + 30)); then
    return 0
  fi
  [[ ${slaunch_loss_reason[$1]-} == 'its srun'* ]] && step_errors "$1" | grep -qiE 'oom.kill'
}

# Prints what happened there.
# Usage: cause_of_kill NODE
cause_of_kill() {
  local word killed='a process' limit=" at Slurm's limit"
  for word in ${slaunch_killed_on[$1]-}; do
    case $word in
      killed=unknown) ;;
      killed=*) killed=${word#*=} ;;
      limit=0M) limit=', because the node had no memory left' ;;
      limit=*) limit=" at Slurm's limit of ${word//[!0-9]/} MB" ;;
    esac
  done
  echo "out of memory on $1: the kernel killed $killed$limit"
}

# Prints what to do about it.
memory_hint() {
  echo 'request more memory with --mem, or let Ray use less: fewer concurrent tasks, a smaller' \
    '--object-store-memory'
}

# If the kernel killed something in the ten minutes before the command failed, that is the likely
# cause: Ray may have retried the task for a while.
blame_memory() {
  local node latest=-600
  for node in "${!slaunch_killed_at[@]}"; do
    ((slaunch_killed_at[$node] > latest)) || continue
    latest=${slaunch_killed_at[$node]}
    slaunch_failed_node=$node
  done
  if ((SECONDS - latest < 600)); then
    slaunch_cause=$(cause_of_kill "$slaunch_failed_node")
    slaunch_hint=$(memory_hint)
  else
    slaunch_failed_node=''
  fi
}

# Prints a hint for a node that is lost, if there is one.
# Usage: likely_fix NODE
likely_fix() {
  case "${slaunch_loss_reason[$1]-} ${slaunch_output[$1]-} $(step_errors "$1")" in
    *'ray: No such file'* | *'ray: '*'not found'* | *'"ray": '*'not found'*)
      #% if container
      echo "install Ray on $1, or load an environment that all nodes can access" \
        '(in the image: --container-setup)'
      #% else
      echo "install Ray on $1, or load an environment that all nodes can access"
      #% endif
      ;;
    *'No space left'*) echo "no space on $1: choose another --temp-dir" ;;
    *AuthToken*"ray, version ${slaunch_ray%% *} "*)
      echo "$1 has another token: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or RAY_AUTH_MODE is set there"
      ;;
    *[Vv]'ersion mismatch'* | *'ray, version '*)
      echo 'the nodes have different versions of Ray or Python'
      ;;
    *'during startup'*)
      echo "$1 was too slow for Ray: request more --cpus-per-task, or leave it out with --exclude"
      ;;
    *'onnection failure'* | *'imed out'*)
      echo "$1 cannot be reached: leave it out with --exclude, or choose --interface"
      ;;
    #% if container
    *)
      if [[ $slaunch_phase == bring-up ]] && ((SECONDS >= slaunch_deadline)); then
        echo 'loading an image takes time: use a longer --start-timeout'
      fi
      ;;
      #% endif
  esac
}

# Records the version of Ray that the head has reported, and handles what older ones lack.
# Usage: note_ray_version VERSION OFFERS
note_ray_version() {
  slaunch_ray="$1 $2"
  slaunch_ray=${slaunch_ray% }
  #% if spec.nodes > 1
  # Older workers need only the head's port, see wait_for_head.
  is_at_least 2.54 "$1" || send_order go
  #% endif
  if [[ $slaunch_auth != off ]] && ! is_at_least 2.52 "$1"; then
    say warning "Ray $1 does not support tokens (2.52 does):" \
      'anyone on the network can use this cluster'
  fi
}
