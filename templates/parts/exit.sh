# Writes a line to the log, for people and for `slurm-launch status`.
say() {
  printf '[slurm-launch] %(%FT%T%z)T %s\n' -1 "$*"
}

# The only way out: stops what was started, logs the outcome, and exits.
# Usage: finish CODE OUTCOME [CAUSE HINT [NODE]]
finish() {
  set +eu # the environment may have set them
  slaunch_code=$1
  slaunch_outcome=$2
  slaunch_cause=${3-}
  slaunch_hint=${4-}
  slaunch_failed_node=${5-}
  slaunch_finishing=1
  trap - EXIT
  trap '' TERM USR1 # nothing interrupts the cleanup
  #% if spec.handles_restarts
  find_reason_for_restart
  #% endif
  #% if spec.chain and spec.chain_while != "any"
  cancel_later_links
  #% endif
  if [[ $slaunch_job_dir ]]; then
    stop_cluster
  fi
  #% if spec.handles_restarts
  requeue_or_say_why_not
  #% endif
  log_end
  exit "$slaunch_code"
}

# The last line of the log.
log_end() {
  if [[ $slaunch_cause && ! $slaunch_hint ]]; then
    slaunch_hint='see the lines above'
    [[ ! -d $slaunch_run.ray ]] || slaunch_hint="Ray's logs are in $slaunch_run.ray/"
  fi
  local line="outcome=$slaunch_outcome code=$slaunch_code phase=$slaunch_phase"
  line+=${slaunch_failed_node:+ node=$slaunch_failed_node}
  line+=${slaunch_ready_at:+ bring-up=${slaunch_ready_at}s}
  line+=${slaunch_command_took:+ command=${slaunch_command_took}s}
  line+=" job=$SLURM_JOB_ID total=${SECONDS}s"
  if [[ $slaunch_cause ]]; then
    line+=" cause=\"${slaunch_cause//\"/\'}\" hint=\"$slaunch_hint\""
  fi
  say end "$line"
}

# The script ends without a call of finish: by an `exit` in the environment, or by SIGTERM while it
# is loaded. Slurm sends the signal to this shell only. A trap for it would wait until the program
# that the environment runs has ended; the trap for EXIT does not wait.
# shellcheck disable=SC2329 # the trap calls it
end_unexpectedly() {
  local state=''
  if [[ $slaunch_loading && $BASH_COMMAND != exit* ]]; then
    state=$(timeout 2 squeue -h -t all -j "$SLURM_JOB_ID" -o %T)
  fi
  case $state in
    '' | RUNNING)
      finish 77 script-failed 'the script itself ended' \
        'does the environment code call exit? otherwise see the lines above'
      ;;
  esac
  slaunch_ended_by=SIGTERM
  end_as_asked
}

# Usage: environment_failed WHAT
environment_failed() {
  finish 73 environment-failed "failed: $1" \
    'fix the environment options, or this script' "${SLURMD_NODENAME-}"
}

# Sets the traps: from here on the script exits through finish, and signals are recorded.
set_up_exit_and_signals() {
  # What a job has set from which this one was submitted.
  # shellcheck disable=SC2086 # several names
  unset ${SLAUNCH_SET-} SLAUNCH_SET
  SECONDS=0
  slaunch_phase=environment
  slaunch_ended_by=''
  #% if joins
  slaunch_leaving=''
  #% else
  slaunch_command_pid=''
  #% endif
  slaunch_job_dir=''
  slaunch_finishing=''
  #% if spec.handles_restarts
  slaunch_reason='' # to run again
  slaunch_save_until=''
  slaunch_restart=${SLURM_RESTART_COUNT:-0}
  #% endif
  exec {slaunch_clock}<> <(:) # a pipe without content, see pause
  slaunch_loading=''
  trap end_unexpectedly EXIT
  #% if joins
  trap 'slaunch_leaving="this job is about to reach its time limit"' USR1
  #% elif spec.handles_restarts
  trap 'note_warning' USR1
  trap 'signal_command_group USR2' USR2
  #% else
  trap 'signal_command_group USR1' USR1 # from --signal
  trap 'signal_command_group USR2' USR2
  #% endif
  trap : PIPE # a step may be gone when an order is written to it
}
#% if not spec.handles_restarts

# Ends the job after SIGTERM, with the reason that Slurm gives.
end_as_asked() {
  case $(timeout 2 squeue -h -t all -j "$SLURM_JOB_ID" -o %r) in
    TimeLimit*)
      finish 74 time-limit 'the time limit was reached' 'request more with --time'
      ;;
    *Node*)
      finish 72 node-lost 'Slurm has lost a node of the job' 'sinfo -R may show why; submit again'
      ;;
    *)
      finish 75 ended-from-outside "the job was terminated externally ($slaunch_ended_by)" \
        'scancel or preemption: sacct shows which'
      ;;
  esac
}
#% endif
#% if not joins

# Usage: signal_command_group SIGNAL
# shellcheck disable=SC2329 # the traps call it
signal_command_group() {
  if [[ $slaunch_command_pid ]]; then
    kill -s "$1" -- "-$slaunch_command_pid"
  fi
}
#% endif

# Waits without starting a process: nothing ever arrives on this pipe.
# Usage: pause SECONDS
pause() {
  read -r -t "$1" -u "$slaunch_clock" _ || :
}
