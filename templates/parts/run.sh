# tick SECONDS: waits so long for news. Then $joined are the nodes alive, lost=() those lost now, why[NODE] the reason.
tick() {
  local timeout=$1 kind node rest alive ended=()
  lost=()
  for node in "${nodes[@]}"; do kill -0 "${step_pids[${step_of[$node]}]}" 2>/dev/null || ended+=("$node"); done
  while read -r -t "$timeout" -u "$events" kind node rest; do
    timeout=0.01 alive=" $node $rest " # and whatever else has come
    case $kind in
      alive)
        for node in $joined; do [[ $alive == *" $node "* ]] || lose "$node" 'Ray has lost contact with it'; done
        joined=$alive && say joined nodes="$(wc -w <<<"$joined")/$count"
        ;;
      failed) lose "$node" "$rest" ;;
      ray) [[ $auth != token || $(printf '%s\n' 2.52 "$node" | sort -V | head -n 1) == 2.52 ]] ||
        say warning "Ray $node knows no tokens (2.52 does): anybody in the network can use this cluster" ;;
    esac
  done
  for node in "${ended[@]}"; do lose "$node" 'its srun has ended'; done
  [[ ! ${ended_by-} ]] || case $(timeout 2 squeue -h -j "$SLURM_JOB_ID" -t all -o '%L %T') in # the time that is left, the state
    *TIMEOUT | 0:0[0-5]' '*) end 74 time-limit 'the time limit was reached' 'ask for more with --time' ;;
    *NODE_FAIL) end 72 node-lost 'Slurm has lost a node of the job' 'sinfo -R may tell why; submit again' ;;
    *) end 75 ended-from-outside "the job was ended from outside ($ended_by)" 'scancel or preemption: sacct may tell' ;;
  esac
}
lose() { [[ ${why[$1]-} ]] || { why[$1]=$2 && lost+=("$1"); }; }

# give_up CODE OUTCOME CAUSE NODE: with the node's last words and the likely reason.
give_up() {
  local words line hint="Ray's logs are in $run.ray/"
  words=$(grep -v 'lacks support for cpu binding' "$dir.job/said-${step_of[$4]}" | tail -n 8)
  case $words in
    *'ray: command not found'*) hint="install Ray on $4, or load an environment that all nodes can see" ;;
    *'No space left'*) hint="no space on $4: choose another --temp-dir" ;;
    *[Vv]'ersion mismatch'*) hint='the nodes have different versions of Ray or Python' ;;
    *[Aa]'uthentication'*) hint='the nodes do not agree on the token: look for RAY_AUTH_ in your environment' ;;
    *'onnection failure'* | *'imed out'*) hint="$4 cannot be reached: leave it out with --exclude, or choose --interface" ;;
  esac
  while read -r line; do [[ ! $line ]] || say "$4 said: $line"; done <<<"$words"
  words=$(tail -n 1 <<<"$words" | tr '"' "'")
  end "$1" "$2" "$3${words:+. Its last words: $words}" "$hint" "$4"
}

# wait_for_nodes: until enough are alive. A node that fails ends the job at once, unless enough are left without it.
wait_for_nodes() {
  local deadline=$((SECONDS + start_timeout)) enough=${min_nodes:-$count} node missing
  until (($(wc -w <<<"$joined") >= enough)); do
    tick 0.5
    for node in "${lost[@]}"; do
      if [[ $node != "$head" ]]; then
        ((count - ${#why[@]} >= enough)) || give_up 71 node-failed "$node did not start: ${why[$node]}" "$node"
        say lost node="$node" "${why[$node]}; enough are left"
      elif ((attempt < 3)) && grep -q ' in use' "$dir.job/said-0"; then
        say retry "port $port was taken meanwhile" && stop_cluster retry && start_cluster && break
      else
        give_up 70 head-failed "the head did not start: ${why[$node]}" "$node"
      fi
    done
    if ((SECONDS >= deadline && $(wc -w <<<"$joined") < enough)); then
      missing=$(for node in "${nodes[@]}"; do [[ $joined == *" $node "* ]] || printf '%s ' "$node"; done)
      give_up 71 nodes-missing "nodes missing after $start_timeout s: ${missing% } ($(wc -w <<<"$joined") of $count joined)" \
        "${missing%% *}"
    fi
  done
  clock && ready_at=$ms
  say ready nodes="$(wc -w <<<"$joined")/$count" bring-up="$((ready_at - began))ms"
}

# run_command: in a process group of its own, so that a signal reaches all of it. Meanwhile the nodes are watched.
run_command() {
  local node code
  phase='command'
  export RAY_ADDRESS=$address RAY_TMPDIR=$dir
  [[ $auth != token ]] || export RAY_AUTH_TOKEN_PATH=$dir/token # the head's step made it, for you alone
  say command "$(head -n 1 <<<"$command")"
  set -m
  bash -c "$command" </dev/null &
  command_pid=$!
  set +m
  while kill -0 "$command_pid" 2>/dev/null; do
    tick 0.3
    for node in "${lost[@]}"; do
      [[ $on_node_loss == continue && $node != "$head" ]] ||
        give_up 72 node-lost "$node was lost while the command ran: ${why[$node]}" "$node"
      say lost node="$node" "${why[$node]}; going on without it"
    done
  done
  wait "$command_pid" 2>/dev/null
  code=$? command_pid=''
  clock && command_ended_at=$ms
  if ((code)); then end $code command-failed; else end 0 ok; fi
}
# stop_command: SIGTERM and ten seconds to save its work, then SIGKILL.
stop_command() {
  local try
  [[ ${command_pid-} ]] || return
  kill -- "-$command_pid" 2>/dev/null
  for try in {1..100}; do ! kill -0 -- "-$command_pid" 2>/dev/null || pause 0.1; done
  kill -KILL -- "-$command_pid" 2>/dev/null
  clock && command_ended_at=$ms
}
