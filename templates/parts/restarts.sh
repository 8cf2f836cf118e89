# Without --time only Slurm knows the limit. If the warning came at once, every attempt would end
# like this one.
check_time_for_warning() {
  local whole
  ((slaunch_signal_before)) || return 0
  ask_slurm
  [[ $slaunch_began && $slaunch_ends ]] || return 0
  whole=$(($(date -d "$slaunch_ends" +%s) - $(date -d "$slaunch_began" +%s)))
  ((whole > slaunch_signal_before)) ||
    finish 74 time-limit "the job's time limit is $whole s, not more than --signal-before \
$slaunch_signal_before" 'use a longer --time, or a shorter --signal-before'
}

# Slurm's USR1 is for this script with --signal-before, otherwise for the command.
# shellcheck disable=SC2329 # the trap calls it
note_warning() {
  if ((slaunch_signal_before)); then
    slaunch_ended_by=${slaunch_ended_by:-warning}
    [[ $slaunch_phase != environment ]] || end_as_asked
  else
    signal_command_group USR1
  fi
}

# Asks Slurm for the job. Sets slaunch_fate (requeued, preempted, grace, limit, lost, runs,
# canceled, or nothing) and the times slaunch_began and slaunch_ends.
ask_slurm() {
  local job
  slaunch_fate=''
  slaunch_began=''
  slaunch_ends=''
  job=$(SLURM_TIME_FORMAT=standard timeout 9 scontrol show job -o "$SLURM_JOB_ID" |
    grep "^JobId=$SLURM_JOB_ID ") || return 0
  if [[ $job =~ \ StartTime=(2[^ ]*) ]]; then
    slaunch_began=${BASH_REMATCH[1]}
  fi
  if [[ $job =~ \ EndTime=(2[^ ]*) ]]; then
    slaunch_ends=${BASH_REMATCH[1]}
  fi
  case $job in
    *" PreemptTime=${slaunch_ends:-?}"*) slaunch_fate=preempted ;;
    *' JobState=RUNNING '*' PreemptTime=2'*) slaunch_fate=grace ;; # the end is later
    *' JobState=RUNNING '*) slaunch_fate=runs ;;
    *' Reason=TimeLimit '*) slaunch_fate=limit ;;
    *' Reason='*Node*' Dependency='*) slaunch_fate=lost ;;
    *) slaunch_fate=canceled ;;
  esac
  if [[ $job =~ \ Restarts=([0-9]+) ]] && ((BASH_REMATCH[1] > slaunch_restart)); then
    slaunch_fate=requeued
  fi
}

# Called again and again once the job was asked to end. SIGTERM means now; a warning, or preemption
# with a grace period, means soon.
end_as_asked() {
  if [[ $slaunch_ended_by == SIGTERM ]]; then
    end_now
  elif [[ ! $slaunch_save_until ]]; then
    ask_command_to_save
  elif ((SECONDS >= slaunch_save_until)); then
    finish 74 time-limit 'the command did not end in time after the warning' \
      'a longer --signal-before gives it more time'
  fi
}

# After SIGTERM. Only Slurm knows the reason.
end_now() {
  ask_slurm
  case $slaunch_fate in
    requeued) slaunch_reason=slurm ;;
    preempted) slaunch_reason=preemption ;;
    limit)
      finish 74 time-limit 'the time limit was reached' \
        'request more with --time; --signal-before gives the command time to save its work'
      ;;
    lost)
      slaunch_reason=''
      finish 72 node-lost 'Slurm has lost a node of the job' 'sinfo -R may show why; submit again'
      ;;
    *) slaunch_reason='' ;;
  esac
  finish 75 ended-from-outside "the job was terminated externally ($slaunch_ended_by)" \
    'scancel or preemption: sacct shows which'
}

# After the warning. Sets slaunch_save_until: the time that is left, without that for the cleanup.
ask_command_to_save() {
  local left most=$((slaunch_signal_before + 60))
  slaunch_reason=time-limit
  [[ $slaunch_phase != command ]] || signal_command "$slaunch_checkpoint_signal"
  [[ $slaunch_ended_by != preemption ]] || pause 1 # Slurm shows the grace period a moment later
  ask_slurm
  [[ $slaunch_fate != grace ]] || slaunch_reason=preemption
  [[ $slaunch_phase == command ]] ||
    finish 74 time-limit 'the time limit was reached before the command started' \
      'request more with --time'
  left=$(($(date -d "${slaunch_ends:-1970-01-01}" +%s) - $(date +%s)))
  ((left > 0)) || left=$((slaunch_signal_before ? slaunch_signal_before : 30))
  # Slurm's warning may be up to a minute early; or someone else sent it.
  [[ $slaunch_reason == preemption ]] || ((left <= most)) || left=$most
  left=$((left - (left > 60 ? 20 : left / 3)))
  slaunch_save_until=$((SECONDS + left))
  say saving seconds="$left" signal="$slaunch_checkpoint_signal" reason="$slaunch_reason"
}

# Signals the processes of the command, except a shell that only waits for another one: it would
# exit and leave that one running.
# Usage: signal_command SIGNAL
signal_command() {
  local pid waits caught group=$slaunch_command_pid
  #% if container and container.enter_for_command
  # see in_head_container
  if [[ -s $slaunch_job_dir/group ]]; then
    group=$(<"$slaunch_job_dir/group")
  fi
  #% endif
  while read -r pid waits; do
    # A bit mask of the signals that the process handles itself.
    caught=$(awk '/^SigCgt/ { print substr($2, length($2) - 7) }' "/proc/$pid/status" 2>/dev/null)
    if ((! waits || 16#${caught:-0} >> $(kill -l "$1") - 1 & 1)); then
      kill -s "$1" "$pid" 2>/dev/null
    fi
  done < <(processes_of_group "$group")
}

# Prints each process of the group, with 1 if it has a child in the group, else 0.
# Usage: processes_of_group GROUP
processes_of_group() {
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v group="$1" '
    { id = $1; sub(/.*\) /, ""); if ($3 == group) parent[id] = $2 }
    END {
      for (id in parent) waits[parent[id]] = 1
      for (id in parent) print id, id in waits
    }'
}

# At the end of an attempt: two more reasons to run again.
find_reason_for_restart() {
  [[ ! $slaunch_reason && $slaunch_phase == command && $slaunch_max_restarts ]] || return 0
  if [[ $slaunch_outcome == command-failed && $slaunch_code == 85 ]]; then
    slaunch_reason=exit-code # the command requests it
  elif [[ $slaunch_outcome == node-lost ]]; then
    slaunch_reason='node-lost' # other nodes may work
  fi
}

# Sets the outcome of an attempt that has a reason to run again.
requeue_or_say_why_not() {
  [[ $slaunch_reason && $slaunch_max_restarts ]] || return 0
  slaunch_why_not=''
  if requeue; then
    say requeue restart="$((slaunch_restart + 1))" reason="$slaunch_reason"
    slaunch_code=0
    slaunch_outcome=requeued
    if [[ $slaunch_reason != node-lost ]]; then
      slaunch_cause=''
      slaunch_failed_node=''
    fi
    return
  fi
  case $slaunch_reason in
    exit-code)
      slaunch_cause=$slaunch_why_not
      slaunch_hint='submit again: the command requested a restart'
      ;;
    node-lost) slaunch_cause+=", and $slaunch_why_not" ;;
    preemption)
      set_outcome 75 ended-from-outside "preempted, and $slaunch_why_not" 'submit again'
      ;;
    *)
      set_outcome 74 time-limit "the time limit was reached, and $slaunch_why_not" \
        'submit again, or request more with --time or --max-restarts'
      ;;
  esac
}

# Usage: set_outcome CODE OUTCOME CAUSE HINT
set_outcome() {
  slaunch_code=$1
  slaunch_outcome=$2
  slaunch_cause=$3
  slaunch_hint=$4
}

# True if the job will run again: Slurm has requeued it already, or does so on request. Otherwise
# slaunch_why_not has the reason.
requeue() {
  local answer times=times
  ask_slurm
  if [[ $slaunch_fate == canceled ]]; then
    slaunch_why_not='it was canceled' # Slurm would requeue that one, too
    return 1
  fi
  [[ $slaunch_fate != requeued ]] || return 0
  if ((slaunch_restart >= slaunch_max_restarts)); then
    ((slaunch_restart != 1)) || times='time'
    slaunch_why_not="it has been requeued $slaunch_restart $times"
    slaunch_why_not+=" (--max-restarts $slaunch_max_restarts)"
    return 1
  fi
  for _ in {1..5}; do
    # "Pending" means that the previous request worked.
    answer=$(request_requeue) && return
    [[ $answer != *'pending execution'* ]] || return 0
    slaunch_why_not="Slurm did not requeue it: ${answer:-no answer}"
    [[ ! $answer || $answer == *[Cc]ontact* || $answer == *'timed out'* ]] || return 1
    pause 2
  done
  return 1
}

# Of an array only this task: the array's own ID would mean all its tasks.
request_requeue() {
  local job=$SLURM_JOB_ID
  if [[ ${SLURM_ARRAY_TASK_ID-} ]]; then
    job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
  fi
  timeout 20 scontrol requeue "$job" 2>&1
}
