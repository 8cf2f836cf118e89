# The container's name: the command, a step of its own, joins the head's container by it.
set_up_pyxis() {
  srun --help 2>/dev/null | grep -q -e --container-image ||
    finish 79 container-failed 'this cluster has no Pyxis: srun has no --container-image' \
      'slurm-launch doctor lists the container runtimes; choose one with --container-runtime'
  slaunch_container=slaunch_$SLURM_JOB_ID
  slaunch_container+=${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}_${SLURM_RESTART_COUNT:-0}
  unset "${!PYXIS_CONTAINER_@}" # these would put the other steps into a container too
}
#% if not joins

# Runs a program in the head's container, in a step of its own. srun would kill it on SIGTERM, so
# signals go directly to its process group.
# Usage: in_head_container PROGRAM...
in_head_container() {
  local slaunch_pid slaunch_signal slaunch_early=''
  # Any of these may be the --checkpoint-signal.
  for slaunch_signal in HUP INT QUIT USR1 USR2 ALRM TERM CONT; do
    # shellcheck disable=SC2064 # the name is to be expanded now
    trap "pass_on $slaunch_signal" "$slaunch_signal"
  done
  set +m
  forget_slurm_options
  setsid "${slaunch_join_head[@]}" bash -c "$(program_in_head_container)" bash "$@" \
    2>"$slaunch_job_dir/command.err" &
  slaunch_pid=$!
  until [[ -s $slaunch_job_dir/group ]] || ! kill -0 "$slaunch_pid" 2>/dev/null; do
    pause 0.05
  done
  for slaunch_signal in $slaunch_early; do
    pass_on "$slaunch_signal"
  done
  wait_despite_signals "$slaunch_pid"
  exit_as_in_container $?
}

# A signal that comes while the step is starting waits.
# Usage: pass_on SIGNAL
pass_on() {
  if [[ -s $slaunch_job_dir/group ]]; then
    kill -s "$1" -- "-$(<"$slaunch_job_dir/group")"
  else
    slaunch_early+=" $1"
  fi
}

# In the container: SIGTERM for the whole job must not end this shell before the program. The group
# and the exit code of the program are left in files.
program_in_head_container() {
  declare -f wait_despite_signals
  cat <<'END'
exec 2>&1
trap : TERM
[[ ! ${HIP_VISIBLE_DEVICES-} ]] || unset ROCR_VISIBLE_DEVICES # Slurm sets it in each step
set -m
"$@" &
set +m
echo "$!" >"$SLAUNCH_NODE_DIR/group"
wait_despite_signals "$!"
echo "$?" 2>/dev/null >"$SLAUNCH_NODE_DIR/code"
END
}

# A signal for the waiting shell ends a `wait`.
# Usage: wait_despite_signals PID
wait_despite_signals() {
  local code
  while :; do
    wait "$1" 2>/dev/null
    code=$?
    ((code > 128)) && kill -0 "$1" 2>/dev/null || return "$code"
  done
}

# The code is in a file, unless the step did not get so far. Slurm's messages, for example about
# memory, go to the log if the command failed.
# Usage: exit_as_in_container CODE_OF_SRUN
exit_as_in_container() {
  local code=$1
  if [[ -s $slaunch_job_dir/code ]]; then
    code=$(<"$slaunch_job_dir/code")
  fi
  if ((code)); then
    grep -vE 'Exited with|cpu binding|^pyxis: [a-z]*ing ' "$slaunch_job_dir/command.err" 2>/dev/null
  fi
  exit "$code"
}
#% endif

# A site may keep named containers after the job. So a step outside of them runs on every node until
# the end, also after scancel, and removes the container when the job's directories there are gone.
start_container_keeper() {
  # shellcheck disable=SC2016 # expanded on the nodes
  exec {slaunch_keeper}> >(on_all_nodes 0 --no-kill --wait=0 bash -c '
    trap ended=1 TERM
    until [[ $ended ]] || read -r -t 1 || (($? <= 128)); do :; done
    while compgen -G "$2*" >/dev/null; do sleep 0.2; done
    enroot remove -f "pyxis_$1"
    :' bash "$slaunch_container" "$(temp_base)/r$SLURM_JOB_ID-" &>/dev/null)
  slaunch_keeper_pid=$!
}

# The end of its input is the order to stop.
stop_container_keeper() {
  exec {slaunch_keeper}>&-
  wait_for_end 10 "$slaunch_keeper_pid"
}
