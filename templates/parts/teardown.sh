# Stops the command, and Ray on every node; nothing else on the nodes is touched.
stop_cluster() {
  local order=stop-and-keep-logs
  #% if not joins
  stop_command
  #% endif
  say stopping
  [[ $slaunch_outcome != ok || $slaunch_keep_ray_logs ]] || order=stop
  #% if spec.handles_restarts
  if [[ $slaunch_reason && $slaunch_reason != node-lost && ! $slaunch_keep_ray_logs ]]; then
    order=stop # the time ran out, or the command asked for a restart: no failure
  fi
  #% endif
  stop_steps "$order"
  read_messages # a node may have noticed only now that memory ran out
  #% if not joins
  watch_own_memory now
  [[ $slaunch_outcome != command-failed ]] || blame_memory
  #% endif
  rm -rf "$slaunch_job_dir"
  #% if container and container.runtime == "pyxis"
  stop_container_keeper
  #% endif
}
#% if not joins

# The command gets SIGTERM and ten seconds to save its work, then SIGKILL.
stop_command() {
  if [[ $slaunch_command_pid ]] && kill -- "-$slaunch_command_pid" 2>/dev/null; then
    wait_for_end 10 "-$slaunch_command_pid" || kill -KILL -- "-$slaunch_command_pid" 2>/dev/null
  fi
}
#% endif

# Every node stops its own Ray. A node that does not answer is left to Slurm, which ends its step by
# SIGTERM when the job ends, so that it still cleans up. srun has a child that would kill the step
# as soon as srun is gone: the child goes first.
# Usage: stop_steps ORDER
stop_steps() {
  local pid
  send_order "$1"
  if wait_for_end 20 "${slaunch_step_pids[@]}"; then
    return
  fi
  for pid in "${slaunch_step_pids[@]}"; do
    pkill -KILL -P "$pid"
    disown "$pid"
    kill -KILL "$pid"
  done 2>/dev/null
}

#% if not joins
# Before a new start: otherwise those of the old one would stay open.
close_pipes() {
  local fd
  exec {slaunch_messages}>&-
  for fd in "${slaunch_step_fds[@]}"; do
    exec {fd}>&-
  done
}

#% endif
# Sends an order to every node; a step may be gone already.
# Usage: send_order ORDER
send_order() {
  local fd
  for fd in "${slaunch_step_fds[@]}"; do
    echo "$1" >&"$fd"
  done 2>/dev/null
}

# True if these processes end in time.
# Usage: wait_for_end SECONDS PID...
wait_for_end() {
  local tenths
  for ((tenths = $1 * 10; tenths > 0; tenths--)); do
    kill -0 -- "${@:2}" 2>/dev/null || return 0
    pause 0.1
  done
  return 1
}
