# A srun for each worker; beyond 32 of them, 32 sruns that share the nodes.
start_workers() {
  local -a workers=()
  local node sruns first=0 size
  for node in "${nodes[@]}"; do [[ $node == "$head" ]] || workers+=("$node"); done
  for ((sruns = count > 33 ? 32 : count - 1; sruns > 0; sruns--, first += size)); do
    size=$(((count - 1 - first) / sruns))
    start_step "${workers[@]:first:size}"
  done
}
