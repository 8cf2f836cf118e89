start_cluster() {
  local random && phase=bring-up step_pids=() step_fds=() joined='' never='' attempt=${attempt:-0} batch_pid=$$ && declare -gA step_of=() heard=() words=() why=()
  random=$(od -An -N40 -tx1 /dev/urandom | tr -d ' \n') token=${random:16}
  dir=${temp_base//%u/$USER} dir=${dir//%j/$SLURM_JOB_ID}/r$SLURM_JOB_ID-${random:0:6} job_dir=$dir.job # unpredictable names
  if ((${#dir} + ${#count} > 40)) || ! mkdir -p "${dir%/*}" || ! mkdir -m 700 "$job_dir" || ! mkfifo "$job_dir/from-nodes" "$job_dir/silence"; then
    end 76 temp-dir "cannot use $dir on $head$( ((${#dir} + ${#count} <= 40)) || echo ': the path is too long')" 'choose another --temp-dir: node-local, writable, short' "$head"
  fi
  exec {events}<>"$job_dir/from-nodes" {silence}<>"$job_dir/silence" && pick_port
  [[ $(df --output=fstype "$job_dir") != *$'\n'@(nfs*|lustre|gpfs|beegfs*|ceph|cifs|smb*|panfs|afs|wekafs|fuse*) ]] || say warning "$dir is on a network file system: choose a node-local --temp-dir"
  address=$head_ip:$port && [[ $head_ip != *:* ]] || address=[$head_ip]:$port # IPv6
  node_code=$(declare -p dir job_dir run head head_ip address ray_args ray_head_args ray_worker_args port ${port_first+port_first port_last} ${interface+interface} \
    ${object_store+object_store} ${unmanaged_gpus+unmanaged_gpus} ${head_enter+head_enter worker_enter} batch_pid && declare -f run_node end_processes route_source port_flags free_block)$'\nrun_node "$1"'
  say starting nodes="$count" head="$head" address="$address" auth="$auth" job="$SLURM_JOB_ID" dir="$dir"
  start_step "$head" && if ((count > 1)); then start_workers; fi
}
