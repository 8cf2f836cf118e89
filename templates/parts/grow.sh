# Waits until the cluster of the other job is up, or will not come up any more.
wait_for_main_job() {
  local deadline next_question=0
  choose_start_timeout
  deadline=$((SECONDS + slaunch_start_timeout))
  slaunch_phase=waiting
  say waiting main="$slaunch_main_job"
  until [[ $slaunch_leaving ]] || find_main_cluster; do
    if [[ $slaunch_ended_by ]]; then
      end_as_asked
    fi
    if ((SECONDS >= next_question)); then # the log is read often, Slurm is queried every 5 s
      if main_job_is_over; then
        slaunch_leaving="job $slaunch_main_job has ended"
      fi
      next_question=$((SECONDS + 5))
    fi
    ((SECONDS < deadline)) ||
      finish 71 nodes-missing \
        "job $slaunch_main_job was not up within $slaunch_start_timeout s" \
        'use a longer --start-timeout'
    pause 0.5
  done
}

# The other job's log shows where its Ray is: `starting` has the address, `ready` means that it is
# up. A restart begins again. False: it is not up.
find_main_cluster() {
  local line word
  local phases='\[slurm-launch\] [^ ]+ (starting|ready|end) .*'
  line=$(grep -aoE "$phases" "$slaunch_main_log" 2>/dev/null |
    awk -v ours="job=$slaunch_main_job" '
      { named = 0; for (i = 4; i <= NF; i++) if ($i == ours) named = 1 }
      $3 == "starting" { last = named; if (named) { up = 0; line = $0 } }
      $3 == "ready" && last { up = 1 }
      $3 == "end" && named { up = 0 }
      END { if (up) print line }')
  [[ $line ]] || return 1
  for word in $line; do
    case $word in
      head=*) slaunch_main_head=${word#*=} ;;
      address=*) slaunch_address=${word#*=} ;;
      dir=*) slaunch_head_dir=${word#*=}.0 ;;
      auth=*) slaunch_auth=${word#*=} ;;
    esac
  done
  slaunch_port=${slaunch_address##*:}
  slaunch_head_ip=${slaunch_address%:*}
  slaunch_head_ip=${slaunch_head_ip#[}
  slaunch_head_ip=${slaunch_head_ip%]}
  export RAY_AUTH_MODE=${slaunch_auth/off/disabled}
}

# According to Slurm; false if slurmctld cannot be reached.
main_job_is_over() {
  local state
  state=$(timeout 9 squeue -h -j "$slaunch_main_job" -o %T 2>&1) ||
    [[ $state == *'Invalid job id'* ]] || return 1
  [[ ! $state || $state == COMPLETING || $state == *'Invalid job id'* ]]
}

# Starts Ray on the nodes of this job, as workers of that cluster.
join_cluster() {
  if [[ $slaunch_leaving ]]; then
    return 0
  fi
  slaunch_phase=bring-up
  reset_steps
  fetch_token || retry_to_fetch_token ||
    finish 71 node-failed \
      "no token from job $slaunch_main_job: $(tail -n 1 "$slaunch_job_dir/token.err")" \
      'check that the job is yours and still running'
  say starting nodes="$slaunch_count" head="$slaunch_main_head" address="$slaunch_address" \
    auth="$slaunch_auth" job="$SLURM_JOB_ID" dir="$slaunch_dir" main="$slaunch_main_job"
  start_workers
}

# A step in the other job reads the token, as for `slurm-launch attach`: it is never stored where
# others could read it.
fetch_token() {
  if [[ $slaunch_auth != token ]]; then
    slaunch_token=none
    return
  fi
  slaunch_token=$(print_token 2>"$slaunch_job_dir/token.err")
  [[ $slaunch_token ]]
}

# In a subshell, without the variables of this job, which the step would inherit.
print_token() {
  local name
  for name in "${!SLURM_@}" "${!SRUN_@}"; do
    [[ $name == SLURM_CONF ]] || unset "$name"
  done
  # shellcheck disable=SC2016 # expanded on that node
  timeout 60 srun \
    "${slaunch_main_step[@]}" \
    --overlap \
    --nodes=1 \
    --ntasks=1 \
    --nodelist="$slaunch_main_head" \
    --cpu-bind=none \
    --mpi=none \
    --chdir=/ \
    --export=PATH \
    bash -c '[[ -O $1 && ! -L $1 ]] && exec cat -- "$1/token"' bash "$slaunch_head_dir" </dev/null
}

# Once, after a moment.
retry_to_fetch_token() {
  pause 5
  fetch_token
}

# Returns when the nodes have to leave: slaunch_leaving has the reason.
stay_in_cluster() {
  local deadline=$((SECONDS + slaunch_start_timeout))
  slaunch_asked_at=0
  slaunch_answered_at=$SECONDS
  until [[ $slaunch_leaving ]]; do
    poll_nodes
    watch_main_cluster
    watch_nodes
    [[ $slaunch_phase == bring-up ]] || continue
    if ((${#slaunch_up[@]} == slaunch_count)); then
      slaunch_ready_at=$SECONDS
      slaunch_phase=grown
      say ready nodes="$slaunch_count/$slaunch_count" main="$slaunch_main_job"
    elif ((SECONDS >= deadline)); then
      finish 71 nodes-missing "missing after $slaunch_start_timeout s: only ${#slaunch_up[@]} of \
$slaunch_count nodes joined" "Ray's logs are in $slaunch_run.ray/"
    fi
  done
}

# The main cluster has ended if nothing answers there, and its log shows the end or a restart, or
# 10 s have passed. Looks once a second.
watch_main_cluster() {
  ((SECONDS > slaunch_asked_at)) || return 0
  slaunch_asked_at=$SECONDS
  if main_cluster_answers; then
    slaunch_answered_at=$SECONDS
  elif ((SECONDS - slaunch_answered_at >= 10)) ||
    [[ $(find_main_cluster && echo "$slaunch_address") != "$slaunch_address" ]]; then
    slaunch_leaving="the cluster of job $slaunch_main_job has ended"
  fi
}

# Whether the port of its GCS accepts connections.
main_cluster_answers() {
  try_port "$slaunch_head_ip" "$slaunch_port" >/dev/null
}

# Reports the nodes whose Ray has ended. Without any node the job ends.
watch_nodes() {
  local node
  for node in "${slaunch_lost[@]}"; do
    until main_cluster_answers || [[ $slaunch_leaving ]]; do # the main cluster may have ended
      pause 0.2
      watch_main_cluster
    done
    if [[ $slaunch_leaving ]]; then
      return 0
    fi
    [[ $slaunch_phase == grown ]] ||
      finish 71 node-failed "$node did not join: ${slaunch_loss_reason[$node]}" \
        "Ray's logs are in $slaunch_run.ray/" "$node"
    say lost node="$node" "${slaunch_loss_reason[$node]}"
  done
  [[ $slaunch_phase != grown ]] || ((${#slaunch_up[@]})) ||
    finish 72 node-lost 'no node of this job is left in the cluster' \
      "Ray's logs are in $slaunch_run.ray/"
}

# Before the time limit, what runs on the nodes may finish while there is time.
leave_cluster() {
  local deadline
  say leaving "$slaunch_leaving"
  if [[ $slaunch_leaving == *'time limit' && $slaunch_phase == grown ]]; then
    drain_nodes
    deadline=$((SECONDS + 20))
    until ((SECONDS >= deadline || ${#slaunch_loss_reason[@]} == slaunch_count)); do
      poll_nodes
    done
  fi
  finish 0 ok
}

# Ray starts nothing new on these nodes.
drain_nodes() {
  # shellcheck disable=SC2016 # expanded on the nodes
  local program='
    debug_state=t/session_2*/logs/debug_state.txt
    id=$(grep -ohm 1 "Node ID: [0-9a-f]*" "$1.$SLURM_NODEID"/$debug_state "$2"/$debug_state \
      2>/dev/null | head -n 1)
    export RAY_AUTH_TOKEN_PATH=$1.$SLURM_NODEID/token
    exec "${@:4}" ray drain-node --address="$3" --node-id="${id##* }" \
      --reason=DRAIN_NODE_REASON_PREEMPTION \
      --reason-message="its job reaches its time limit" --deadline-remaining-seconds=40'
  #% if container
  run_drain "$program" "${slaunch_worker_enter[@]}" &>"$slaunch_job_dir/drain.log" && return
  #% else
  run_drain "$program" &>"$slaunch_job_dir/drain.log" && return
  #% endif
  say warning "not drained: $(tail -n 1 "$slaunch_job_dir/drain.log")"
}

# Usage: run_drain PROGRAM [WORD...]
run_drain() {
  choose_step_options "${slaunch_nodes[0]}"
  (
    slaunch_seconds=20
    become_srun \
      --nodes="$slaunch_count" \
      --ntasks="$slaunch_count" \
      "${slaunch_step_options[@]}" \
      bash -c "$1" bash "$slaunch_dir" "$slaunch_head_dir" "$slaunch_address" "${@:2}" </dev/null
  )
}
