# A heterogeneous job: the first group is the head's, each other one is a worker group on its own hosts.
find_nodes() { # sets nodes, count, and group_first: the index in nodes of each group's first node
  local group name wanted=1 && nodes=("$head") group_first=(0)
  for ((group = 1; group < ${SLURM_HET_SIZE:-1}; group++)); do
    name=SLURM_JOB_NUM_NODES_HET_GROUP_$group wanted=$((wanted + ${!name})) group_first+=("${#nodes[@]}") name=SLURM_JOB_NODELIST_HET_GROUP_$group
    mapfile -t -O "${#nodes[@]}" nodes < <(scontrol show hostnames "${!name}")
  done
  count=$(printf '%s\n' "${nodes[@]}" | sort -u | wc -l)
  ((count == wanted)) || end 77 script-failed "scontrol named $count of $wanted nodes" 'submit again'
}
as_group() { # GROUP: sets what srun and the nodes read; otherwise they would read the head's group
  local name own
  for name in SLURM_JOB_CPUS_PER_NODE SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU; do
    own=${name}_HET_GROUP_$1 && if [[ ${!own-} ]]; then export "$name=${!own}"; else unset "$name"; fi
  done
}
find_nodes
