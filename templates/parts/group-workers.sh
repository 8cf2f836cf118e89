start_workers() { # one srun per worker; beyond 32 workers, sruns of several nodes. No srun spans two groups.
  local group first last size sruns code plain=("${srun_args[@]}") srun_args node_code=${node_code%$'\n'*}
  code=$node_code$'\n'$(declare -f group_flags)
  for ((group = 1; group < ${#group_first[@]}; group++)); do
    first=${group_first[group]} last=${group_first[group + 1]:-$count} && as_group "$group"
    srun_args=("${plain[@]}" --het-group="$group") node_code=$code$'\n'$(printf 'group_flags %q %q' "${group_labels[group]-}" "${group_resources[group]-}")$'\nrun_node "$1"'
    sruns=$((count > 33 ? (last - first) * 32 / (count - 1) : last - first))
    for ((sruns = sruns ? sruns : 1; sruns > 0; sruns--, first += size)); do
      size=$(((last - first) / sruns)) && start_step "${nodes[@]:first:size}"
    done
  done
  as_group 0
}
group_flags() { # LABELS RESOURCES: on a node, adds those of its group for Ray; your --ray-worker-arg come after them
  local asks='from ray.scripts.scripts import start; print(*(p.help for p in start.params if p.name == "labels"))'
  [[ ! $2 ]] || ray_worker_args=("--resources=$2" "${ray_worker_args[@]}")
  [[ ! $1 ]] || case $(timeout 60 "${worker_enter[@]}" bash -c 'p=$(command -v ray) p=${p%/*}/python3 && [[ -x $p ]] || p=python3; exec "$p" -c "$0"' "$asks" </dev/null 2>/dev/null) in
    *JSON*) ray_worker_args=("--labels={\"$(sed 's/=/":"/g; s/,/","/g' <<<"$1")\"}" "${ray_worker_args[@]}") ;; # the format of an older Ray
    *?*) ray_worker_args=("--labels=$1" "${ray_worker_args[@]}") ;;
    *) echo "said ${SLURMD_NODENAME:-$(hostname)} this Ray does not support labels: it starts without $1" ;;
  esac
}
