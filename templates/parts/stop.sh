stop_cluster() { # OUTCOME: the command gets SIGTERM and ten seconds, then SIGKILL; every node is ordered to stop its Ray
  local order='stop and keep the logs.'
  [[ ! ${command_pid-} ]] || { kill -- "-$command_pid" && ! gone 10 "-$command_pid" && kill -KILL -- "-$command_pid"; } 2>/dev/null; [[ $1 == retry ]] || say stopping
  [[ $1 != @(ok|retry) || ${keep_ray_logs-} ]] || order=stop.; tell "$order"
  gone 20 "${step_pids[@]}" || kill -KILL "${step_pids[@]}" 2>/dev/null # a node that does not answer is left to Slurm, which ends its step
  rm -rf "${job_dir:?}" && [[ $1 == retry ]] || "${at_end[@]}"
}
tell() { for fd in "${step_fds[@]}"; do { echo "$1 $1" >&"$fd"; } 2>/dev/null; done; } # ORDER, to every node: twice, see tick; some may be gone already
gone() { for ((i = $1 * 10; i > 0; i--)); do kill -0 -- "${@:2}" 2>/dev/null || return 0; pause 0.1; done; false; } # SECONDS PID...
pause() { read -r -t "$1" -u "$silence" _ || :; } # SECONDS, without starting a process
