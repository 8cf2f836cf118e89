make_job_dir() { # before waiting: pause uses its pipes
  local random && step_pids=() step_fds=() joined='' batch_pid=$$ && declare -gA step_of=() why=()
  random=$(od -An -N3 -tx1 /dev/urandom | tr -d ' \n')
  dir=${temp_base//%u/$USER} dir=${dir//%j/$SLURM_JOB_ID}/r$SLURM_JOB_ID-$random job_dir=$dir.job # unpredictable names
  if ((${#dir} + ${#count} > 40)) || ! mkdir -p "${dir%/*}" || ! mkdir -m 700 "$job_dir" || ! mkfifo "$job_dir/from-nodes" "$job_dir/silence"; then
    end 76 temp-dir "cannot use $dir on ${nodes[0]}$( ((${#dir} + ${#count} <= 40)) || echo ': the path is too long')" 'choose another --temp-dir: node-local, writable, short' "${nodes[0]}"
  fi
  exec {events}<>"$job_dir/from-nodes" {silence}<>"$job_dir/silence"
}
join_cluster() {
  local sruns first size && phase=bring-up
  fetch_token || { pause 5 && fetch_token; } || end 71 node-failed "no token from job $main_job: $(tail -n 1 "$job_dir/token.err")" 'check that the job is yours and still running'
  node_code=$(declare -p dir job_dir main_dir run head head_ip address ray_args ray_head_args ray_worker_args port ${port_first+port_first port_last} ${interface+interface} \
    ${object_store+object_store} ${unmanaged_gpus+unmanaged_gpus} ${head_enter+head_enter worker_enter} batch_pid && declare -f join_node run_node end_processes route_source port_flags free_block)$'\njoin_node "$1"'
  say starting nodes="$count" head="$main_head" address="$address" auth="$auth" job="$SLURM_JOB_ID" dir="$dir" main="$main_job"
  for ((sruns = count > 32 ? 32 : count, first = 0; sruns > 0; sruns--, first += size)); do
    size=$(((count - first + sruns - 1) / sruns)) && start_step "${nodes[@]:first:size}"
  done
}
join_node() { # an old Ray keeps a worker's files under the path of the head's directory
  local made='' code
  if mkdir -m 700 "$main_dir.0" 2>/dev/null; then made=$_; elif [[ -e $_ && (! -O $_ || -L $_) ]]; then echo "failed $SLURMD_NODENAME $_ belongs to another user or is a link" && return 76; fi
  run_node "$1"; code=$?
  [[ ! $made ]] || rm -rf "$made"
  return "$code"
}
news() { # reads the nodes' messages; then $joined are those whose Ray runs, and why[NODE] has the reason for others
  local line kind node rest
  pause 0.2
  while read -t 0 -u "$events" && IFS= read -r -t 9 -u "$events" line; do
    kind=${line%% *} rest=${line#* } node=${rest%% *} rest=${rest#* } && [[ $node && ${step_of[$node]-} ]] || continue
    case $kind in
      up) [[ $joined == *" $node "* ]] || { joined+=" $node " && say joined node="$node" nodes="$(wc -w <<<"$joined")/$count"; } ;;
      said) say "[$node] $rest" ;;
      failed) why[$node]=${why[$node]-$rest} ;;
    esac
  done
  for node in "${nodes[@]}"; do kill -0 "${step_pids[${step_of[$node]}]}" 2>/dev/null || why[$node]=${why[$node]-its srun has ended}; done
  [[ ! ${ended_by-} ]] || asked_to_end
}
watch_main() { # sets leaving when the main cluster has ended: nothing answers there, and its log shows the end or a restart, or 10 s have passed
  ((SECONDS > asked_at)) || return 0
  asked_at=$SECONDS
  if main_answers; then
    answered=$SECONDS
  elif ((SECONDS - answered >= 10)) || [[ $(find_main && echo "$address") != "$address" ]]; then
    leaving="the cluster of job $main_job has ended"
  fi
}
watch_nodes() { # drops the nodes whose Ray has ended; without any node the job ends
  local node
  for node in "${!why[@]}"; do
    until main_answers || [[ $leaving ]]; do watch_main && news; done # the main cluster itself may have ended
    [[ ! $leaving ]] || return 0
    [[ $phase == grown ]] || end 71 node-failed "$node did not join: ${why[$node]}" "Ray's logs are in $run.ray/" "$node"
    [[ $joined != *" $node "* ]] || { joined=${joined/ $node /} && say lost node="$node" "${why[$node]}"; }
  done
  [[ $phase != grown || $joined == *[![:space:]]* ]] || end 72 node-lost 'no node of this job is left in the cluster' "Ray's logs are in $run.ray/"
}
drain() { # Ray starts nothing new on these nodes; what runs there may finish while there is time
  local node_step
  node_step='id=$(grep -ohm 1 "Node ID: [0-9a-f]*" "$1.$SLURM_NODEID"/t/session_2*/logs/debug_state.txt "$2.0"/t/session_2*/logs/debug_state.txt 2>/dev/null | head -n 1)
    export RAY_AUTH_TOKEN_PATH=$1.$SLURM_NODEID/token; exec "${@:4}" ray drain-node --address="$3" --node-id="${id##* }" \
      --reason=DRAIN_NODE_REASON_PREEMPTION --reason-message="its job reaches its time limit" --deadline-remaining-seconds=40'
  timeout 20 srun --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --overlap --export=ALL --cpu-bind=none --mpi=none --kill-on-bad-exit=0 "${srun_args[@]}" \
    "${worker_step[@]}" bash -c "$node_step" bash "$dir" "$main_dir" "$address" "${worker_enter[@]}" </dev/null &>"$job_dir/drain.log" || say warning "not drained: $(tail -n 1 "$job_dir/drain.log")"
}
leaving='' answered=$SECONDS asked_at=0 && trap 'leaving="this job is about to reach its time limit" time_is_short=1' USR1
say waiting main="$main_job" && phase=waiting deadline=$((SECONDS + start_timeout)) time_is_short='' && make_job_dir
until find_main; do
  [[ ! ${ended_by-} ]] || asked_to_end
  [[ ! $leaving ]] || break
  if ((SECONDS >= asked_at)); then # the log is read often, Slurm is queried every 5 s
    if main_is_over; then leaving="job $main_job has ended" && break; fi
    asked_at=$((SECONDS + 5))
  fi
  ((SECONDS < deadline)) || end 71 nodes-missing "job $main_job was not up within $start_timeout s" 'use a longer --start-timeout'
  pause 0.5
done
if [[ ! $leaving ]]; then
  asked_at=0 && join_cluster && deadline=$((SECONDS + start_timeout)) answered=$SECONDS
  until [[ $leaving ]]; do
    news && watch_main && watch_nodes
    [[ $phase == bring-up ]] || continue
    if (($(wc -w <<<"$joined") == count)); then
      ready_at=$SECONDS phase=grown && say ready nodes="$count/$count" main="$main_job"
    elif ((SECONDS >= deadline)); then
      end 71 nodes-missing "missing after $start_timeout s: only $(wc -w <<<"$joined") of $count nodes joined" "Ray's logs are in $run.ray/"
    fi
  done
fi
say leaving "$leaving"
if [[ $time_is_short && $phase == grown ]]; then
  drain && deadline=$((SECONDS + 20))
  until ((SECONDS >= deadline || ${#why[@]} == count)); do news; done
fi
end 0 ok
