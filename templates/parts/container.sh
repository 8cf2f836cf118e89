mounts=("${mounts[@]//%u/$USER}") image=${image//%u/$USER}
check_container() { # ends the job when a node lacks what the container needs, and names both
  local line lines=() lacks=() answers=0 other='' everywhere=0 hint='fix it there, or leave the node out with --exclude'
  mapfile -t lines < <(on_all_nodes 60 bash -c "$(declare -p head image ${worker_image+worker_image} runtime mounts temp_base && \
    declare -f missing_here temp_folder)"$'\nmissing_here' </dev/null 2>&1 | sort -u)
  for line in "${lines[@]}"; do
    case $line in
      "missing here: "*) lacks+=("${line#*: }") && say missing "${line#*: }" ;;
      "checked here: "*) ((++answers)) ;;
      *) other=$line ;; # a message of the site or of srun
    esac
  done
  for line in "${lacks[@]}"; do [[ ${line#*: } != "${lacks[0]#*: }" ]] || ((++everywhere)); done
  ((everywhere < count)) || hint='it is missing on every node: check the option'
  ((!${#lacks[@]})) || end 79 container-failed "${lacks[0]}" "$hint" "${lacks[0]%%:*}"
  ((answers == count)) || say warning "only $answers of $count nodes reported whether they have what the container needs: $other"
}
on_all_nodes() { # SECONDS [OPTION...] PROGRAM...: runs it by srun for at most SECONDS; 0: no limit
  timeout "$1" srun --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --overlap --export=ALL --cpu-bind=none --mpi=none \
    --kill-on-bad-exit=0 "${srun_args[@]}" "${@:2}"
}
missing_here() { # on a node: prints a line for each thing that is missing
  local node=${SLURMD_NODENAME:-$(hostname)} item target && [[ $node == "$head" ]] || image=${worker_image-$image}
  mkdir -p "$(temp_folder)"
  [[ ! $runtime ]] || command -v "$runtime" >/dev/null || echo "missing here: $node: $runtime is not in PATH"
  [[ $image != [./]* || -r $image ]] || echo "missing here: $node: there is no image $image, or it cannot be read"
  for item in "${mounts[@]}"; do
    target=${item#*:} target=${target%%:*}
    [[ -e ${item%%:*} ]] || echo "missing here: $node: there is no ${item%%:*} to mount"
    [[ $runtime != ch-run || ! -d $image || -e $image$target ]] || echo "missing here: $node: the image has no $target to mount on"
  done
  echo "checked here: $node"
}
temp_folder() { local folder=${temp_base//%u/$USER} && echo "${folder//%j/$SLURM_JOB_ID}"; }
