mount_ours() { # Ray's directory, the job's and the log's have the same names inside
  local folder
  for folder in "$(temp_folder)" "$PWD" "${run%/*}"; do
    [[ $folder != *[,:\;\$\`\"\'\\]* ]] || end 79 container-failed "no container can mount $folder" 'run the job in a directory without special characters'
    [[ $folder == / || " ${mounts[*]} " == *" $folder:$folder"[\ :]* ]] || mounts+=("$folder:$folder")
  done
}
temp_folder() { local folder=${temp_base//%u/$USER} && echo "${folder//%j/$SLURM_JOB_ID}"; }
check_container() { # ends the job when a node lacks what the container needs, and names both
  local lines line
  mapfile -t lines < <(timeout "$start_timeout" srun --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --overlap --export=ALL --cpu-bind=none --mpi=none \
    bash -c "$(declare -p head image ${worker_image+worker_image} runtime mounts temp_base && declare -f missing_here temp_folder)"$'\nmissing_here' 2>/dev/null | sort)
  for line in "${lines[@]}"; do say missing "$line"; done
  ((!${#lines[@]})) || end 79 container-failed "${lines[0]}" 'mend it there, or leave the node out with --exclude' "${lines[0]%%:*}"
}
missing_here() { # on a node: a line for everything that is not there
  local node=${SLURMD_NODENAME:-$(hostname)} item && [[ $node == "$head" ]] || image=${worker_image-$image}
  mkdir -p "$(temp_folder)" # others are the user's business
  [[ ! $runtime ]] || command -v "$runtime" >/dev/null || echo "$node: $runtime is not in PATH"
  [[ $image != [./]* || -r $image ]] || echo "$node: there is no image $image, or it cannot be read"
  for item in "${mounts[@]}"; do
    [[ -e ${item%%:*} ]] || echo "$node: there is no ${item%%:*} to mount"
  done
}
