on_all_nodes() { # SECONDS [OPTION...] PROGRAM...: for a heterogeneous job, by one srun per group
  local group size
  for ((group = 0; group < ${#group_first[@]}; group++)); do
    size=$((${group_first[group + 1]:-$count} - group_first[group]))
    (
      as_group "$group"
      exec timeout "$1" srun --het-group="$group" --nodes="$size" --ntasks="$size" --ntasks-per-node=1 --overlap --export=ALL --cpu-bind=none --mpi=none \
        --kill-on-bad-exit=0 "${srun_args[@]}" "${@:2}"
    ) <&0 & # with our input: in the background it would have none
  done
  wait
}
