srun --help 2>/dev/null | grep -q -e --container-image ||
  end 79 container-failed 'this cluster has no Pyxis: srun has no --container-image' 'slurm-launch doctor lists the container runtimes; choose one with --container-runtime'
container=slaunch_$SLURM_JOB_ID${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}_${SLURM_RESTART_COUNT:-0} # its name: the command joins the head's
unset "${!PYXIS_CONTAINER_@}" # these would put the other steps into a container too
in_head_container() { # PROGRAM...: as a step that joins the head's container. srun would kill it on SIGTERM, so signals bypass srun.
  local inside pid sent name early=''
  # In the container: SIGTERM for the whole job must not end this shell before the program.
  inside='exec 2>&1; trap : TERM; set -m; "$@" & set +m; p=$!; echo "$p" >"$SLAUNCH_NODE_DIR/group"
    while wait "$p" 2>/dev/null; c=$?; ((c > 128)) && kill -0 "$p" 2>/dev/null; do :; done; echo "$c" 2>/dev/null >"$SLAUNCH_NODE_DIR/code"'
  pass_on() { if [[ -s $job_dir/group ]]; then kill -s "$1" -- "-$(<"$job_dir/group")"; else early+=" $1"; fi; }
  # shellcheck disable=SC2064 # the name is to be expanded now
  for name in HUP INT QUIT USR1 USR2 ALRM TERM CONT; do trap "pass_on $name" "$name"; done # any of them may be --checkpoint-signal
  set +m
  setsid "${join_head[@]}" bash -c "$inside" bash "$@" 2>"$job_dir/command.err" &
  pid=$!
  until [[ -s $job_dir/group ]] || ! kill -0 "$pid" 2>/dev/null; do pause 0.05; done
  for sent in $early; do pass_on "$sent"; done # signals that came while the step was starting
  while wait "$pid"; sent=$? && ((sent > 128)) && kill -0 "$pid" 2>/dev/null; do :; done # a signal for us ends a wait
  [[ ! -s $job_dir/code ]] || sent=$(<"$job_dir/code")
  ((!sent)) || grep -vE 'Exited with|cpu binding|^pyxis: [a-z]*ing ' "$job_dir/command.err" 2>/dev/null # Slurm's messages, for example about memory
  exit "$sent"
}
# A site may keep named containers after the job. So a step outside of them runs on every node until the end, also after scancel,
# and removes the container there when the job's directories are gone.
exec {keeper}> >(on_all_nodes 0 --no-kill --wait=0 bash -c 'trap ended=1 TERM; until [[ $ended ]] || read -r -t 1 || (($? <= 128)); do :; done
    while compgen -G "$2*" >/dev/null; do sleep 0.2; done; enroot remove -f "pyxis_$1"; :' bash "$container" "$(temp_folder)/r$SLURM_JOB_ID-" &>/dev/null)
keeper_pid=$!
end_keeper() { exec {keeper}>&- && gone 10 "$keeper_pid"; }
at_end=(end_keeper)
# Few images have `ip`: on the nodes Python finds the address from which the head is reached.
route_source() {
  "${worker_enter[@]}" python3 -c 'import socket, sys; s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], 1)); print(s.getsockname()[0])' "$1" 2>/dev/null | tail -n 1
}
