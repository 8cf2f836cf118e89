start_workers() { # one srun per worker; beyond 32 workers, 32 sruns of several nodes
  local sruns first=1 size && for ((sruns = count > 33 ? 32 : count - 1; sruns > 0; sruns--, first += size)); do
    size=$(((count - first) / sruns)) && start_step "${nodes[@]:first:size}"
  done
}
