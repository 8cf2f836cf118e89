# Checks the nodes once: reads their messages, and collects those that are lost in slaunch_lost.
poll_nodes() {
  local node step ended=()
  slaunch_lost=()
  for step in "${!slaunch_step_pids[@]}"; do
    kill -0 "${slaunch_step_pids[step]}" 2>/dev/null || ended[step]=1
  done
  pause 0.1
  ignore_silence_of_suspension
  read_messages # the last messages of a step explain more than its exit
  for node in "${slaunch_nodes[@]}"; do
    step=${slaunch_step_of[$node]}
    if [[ ${ended[step]-} && ! ${slaunch_loss_reason[$node]-} ]]; then
      mark_lost "$node" "$(end_of_step "$node")"
    fi
  done
  for node in "${!slaunch_up[@]}"; do
    ((SECONDS - ${slaunch_last_message[$node]} < slaunch_node_timeout)) ||
      mark_lost "$node" "no message from it for $slaunch_node_timeout s"
  done
  if [[ $slaunch_ended_by ]]; then
    end_as_asked
  fi
}

# While a job is suspended, no messages arrive: the silence of that time does not count.
ignore_silence_of_suspension() {
  local node
  if ((SECONDS - ${slaunch_last_poll:-$SECONDS} >= 9)); then
    for node in "${!slaunch_up[@]}"; do
      slaunch_last_message[$node]=$SECONDS
    done
  fi
  slaunch_last_poll=$SECONDS
}

# `read -t 0` only tests for input: a read that times out within a line loses a character.
read_messages() {
  local line kind node text
  while read -r -t 0 -u "$slaunch_messages" &&
    IFS= read -r -t 9 -u "$slaunch_messages" line; do
    read -r kind node text <<<"$line"
    #% if not joins
    if [[ $kind == ray && $node ]]; then
      note_ray_version "$node" "$text"
    fi
    #% endif
    [[ $node && ${slaunch_step_of[$node]-} ]] || continue
    slaunch_last_message[$node]=$SECONDS
    case $kind in
      up) note_joined "$node" ;;
      output)
        slaunch_output[$node]+="$text "
        say "[$node] $text"
        ;;
      out-of-memory) note_kills "$node" "$text" ;;
      warning) say warning "$text" ;;
      retry)
        slaunch_output[$node]=''
        say retry node="$node" "$text"
        ;;
      failed) mark_lost "$node" "$text" ;;
      ended) note_preemption ;;
    esac
  done
}

# Usage: note_joined NODE
note_joined() {
  if [[ ${slaunch_up[$1]-} || ${slaunch_loss_reason[$1]-} ]]; then
    return # it is known already, or was given up as lost
  fi
  slaunch_up[$1]=1
  say joined node="$1" nodes="${#slaunch_up[@]}/$slaunch_count"
  #% if spec.nodes > 1 and not joins
  [[ $1 != "$slaunch_head" ]] || send_order go
  #% endif
}

# With a grace period, Slurm sends SIGTERM only to the steps when it preempts a job.
note_preemption() {
  [[ ! $slaunch_ended_by && ! $slaunch_finishing ]] || return 0
  if timeout 9 scontrol show job -o "$SLURM_JOB_ID" |
    grep -q "^JobId=$SLURM_JOB_ID .*PreemptTime=2"; then
    slaunch_ended_by=preemption
  fi
}

# The kernel has killed something on this node, because memory ran out.
# Usage: note_kills NODE REPORT
note_kills() {
  #% if not joins
  slaunch_killed_at[$1]=$SECONDS
  if [[ ! ${slaunch_killed_on[$1]-} || $2 != *killed=unknown* ]]; then
    slaunch_killed_on[$1]=$2
  fi
  #% endif
  say out-of-memory node="$1" "$2"
}

#% if not joins
# The command is not in a node's step, but in that of this script.
# Usage: watch_own_memory [now]
watch_own_memory() {
  if find_kills "$@"; then
    note_kills "$slaunch_head" "$slaunch_kill_report step=batch"
  fi
}

#% endif
# The first reason counts.
# Usage: mark_lost NODE WHY
mark_lost() {
  if [[ ${slaunch_loss_reason[$1]-} ]]; then
    return 0
  fi
  slaunch_loss_reason[$1]=$2
  #% if not joins
  [[ ${slaunch_up[$1]-} ]] || slaunch_never_up[$1]=1
  #% endif
  unset "slaunch_up[$1]"
  slaunch_lost+=("$1")
}

# Usage: end_of_step NODE
end_of_step() {
  echo "its srun has ended: $(step_errors "$1" |
    grep -vE 'spank|Exited with|Try .srun|may never run' | tail -n 1)"
}

# What srun has printed for the step of this node.
# Usage: step_errors NODE
step_errors() {
  cat "$slaunch_job_dir/srun-${slaunch_step_of[$1]}.err"
}
