start_workers() { # a srun for each; beyond 32 of them, 32 sruns that share the nodes
  local sruns first=1 size && for ((sruns = count > 33 ? 32 : count - 1; sruns > 0; sruns--, first += size)); do
    size=$(((count - first) / sruns)) && start_step "${nodes[@]:first:size}"
  done
}
