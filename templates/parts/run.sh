tick() { # reads the nodes' messages; then $joined are the nodes whose Ray runs, lost=() those lost now, why[NODE] the reason
  local line kind node rest ended=() && lost=()
  for node in "${nodes[@]}"; do kill -0 "${step_pids[${step_of[$node]}]}" 2>/dev/null || ended+=("$node"); done
  pause 0.1; ((SECONDS - ${ticked:-$SECONDS} < 9)) || for node in $joined; do heard[$node]=$SECONDS; done # the job was suspended for a while
  while read -t 0 -u "$events" && IFS= read -r -t 9 -u "$events" line; do # bash loses a character when a read times out within a line
    kind=${line%% *} rest=${line#* } node=${rest%% *} rest=${rest#* } && [[ $node && ($kind == ray || ${step_of[$node]-}) ]] || continue; heard[$node]=$SECONDS
    case $kind in
      ray) ray=${line#* } rest=$(printf '%s\n' 2.54 2.52 "$node" | sort -V | tr '\n' ' ') && [[ $rest == '2.52 2.54 '* ]] || tell go # an older worker needs the head's port only
        [[ $auth == off || $rest == 2.52* ]] || say warning "Ray $node does not support tokens (2.52 does): anyone on the network can use this cluster" ;;
      up) [[ $joined == *" $node "* ]] || { joined+=" $node " blanks=${joined//[! ]/} && say joined node="$node" nodes="$((${#blanks} / 2))/$count"; [[ $node != "$head" ]] || tell go; } ;;
      said) words[$node]+="$rest " && say "[$node] $rest" ;;
      failed) lose "$node" "$rest" ;;
      ended) [[ ${ended_by-} ]] || ! scontrol show job -o "$SLURM_JOB_ID" | grep -q "^JobId=$SLURM_JOB_ID .*PreemptTime=2" || ended_by=preemption ;; # with a grace period, of which only the steps are notified
    esac
  done
  for node in "${ended[@]}"; do lose "$node" "its srun has ended: $(grep -vE 'spank|Exited with|Try .srun' "$job_dir/srun-${step_of[$node]}.err" | tail -n 1)"; done
  for node in $joined; do ((SECONDS - ${heard[$node]} < 30)) || lose "$node" 'no message from it for 30 s'; done
  ticked=$SECONDS && [[ ! ${ended_by-} ]] || asked_to_end
}
lose() { [[ ${why[$1]-} ]] || { [[ $joined == *" $1 "* ]] || never+=" $1 "; why[$1]=$2 joined=${joined/ $1 /} lost+=("$1"); }; } # NODE WHY
give_up() { # CODE OUTCOME CAUSE NODE: ends the job, with the likely fix
  local hint="Ray's logs are in $run.ray/" && [[ $2 != nodes-missing || ! ${image-} ]] || hint='loading an image takes time: use a longer --start-timeout'
  pause 1 && [[ ! ${ended_by-} ]] || asked_to_end # when Slurm ends the job, the steps may notice it first
  case "${why[$4]-} ${words[$4]-} $(cat "$job_dir/srun-${step_of[$4]}.err")" in
    *'ray: No such file'* | *'ray: '*'not found'* | *'"ray": '*'not found'*) hint="install Ray on $4, or load an environment that all nodes can access${image:+ (in the image: --container-setup)}" ;;
    *'No space left'*) hint="no space on $4: choose another --temp-dir" ;;
    *AuthToken*"ray, version ${ray%% *} "*) hint="$4 has another token: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or RAY_AUTH_MODE is set there" ;;
    *[Vv]'ersion mismatch'* | *'ray, version '*) hint='the nodes have different versions of Ray or Python' ;;
    *'during startup'*) hint="$4 was too slow for Ray: request more --cpus-per-task, or leave it out with --exclude" ;;
    *'onnection failure'* | *'imed out'*) hint="$4 cannot be reached: leave it out with --exclude, or choose --interface" ;;
  esac
  end "$1" "$2" "$3" "$hint" "$4"
}
node_lost() { # NODE: ends the job, unless it can continue without this one
  case $phase/$1 in
    command/*) [[ $1 != "$head" && (${on_node_loss-} == continue || $never == *" $1 "*) ]] || # with --min-nodes
      give_up 72 node-lost "$1 was lost while the command ran: ${why[$1]}" "$1" ;;
    bring-up/"$head")
      [[ ${words[$1]-} == *@('Failed to start GCS'|'already in use')* && $attempt -lt 9 ]] || give_up 70 head-failed "the head on $1 failed: ${why[$1]}" "$1"
      say retry "port $port was taken in the meantime" && stop_cluster retry && start_cluster && return ;;
    *) ((count - ${#why[@]} >= enough)) || give_up 71 node-failed "$1 did not start: ${why[$1]}" "$1" ;;
  esac
  say lost node="$1" "${why[$1]}; continuing without it"
}
start_cluster; deadline=$((SECONDS + start_timeout)) enough=${min_nodes:-$count}
until [[ $phase == command ]] && ! kill -0 "$command_pid" 2>/dev/null; do
  tick
  for node in "${lost[@]}"; do [[ ! ${why[$node]-} || ${ended_by-} ]] || node_lost "$node"; done # none, after a retry
  [[ $phase == bring-up ]] || continue
  blanks=${joined//[! ]/} && if ((${#blanks} / 2 >= enough)) && [[ $joined == *" $head "* ]]; then # two for each node, counted without a process
    ready_at=$SECONDS phase='command'
    export RAY_ADDRESS=$address RAY_TMPDIR=$dir.0/t RAY_AUTH_TOKEN_PATH=$dir.0/token SLAUNCH_NODE_DIR=$job_dir # its mark
    { declare -px && declare -fx && declare -p join_head head_enter worker_enter; } >"$job_dir/attach" # for `slurm-launch attach`: a shell with the same environment
    say ready nodes="$(wc -w <<<"$joined")/$count" ray="${ray-unknown}" && say command "${command%%$'\n'*}"
    set -m; "${enter_for_command[@]}" "${head_enter[@]}" bash -c "$command" </dev/null & command_pid=$!; set +m # in its own process group, so that a signal reaches all of it
  elif ((SECONDS >= deadline)); then
    missing=$(for node in "${nodes[@]}"; do [[ $joined == *" $node "* ]] || printf '%s ' "$node"; done)
    give_up 71 nodes-missing "missing after $start_timeout s: $missing($(wc -w <<<"$joined") of $count nodes joined)" "${missing%% *}"
  fi
done
command_took=$((SECONDS - ready_at)) && wait "$command_pid" 2>/dev/null && end 0 ok; end $? command-failed
