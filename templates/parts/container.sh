# Ends the job when a node lacks what the container needs, and names both.
check_container() {
  local line lines=() missing=() answers=0 other=''
  mapfile -t lines < <(ask_nodes_what_is_missing | sort -u)
  for line in "${lines[@]}"; do
    case $line in
      "missing here: "*)
        missing+=("${line#*: }")
        say missing "${line#*: }"
        ;;
      "checked here: "*) answers=$((answers + 1)) ;;
      *) other=$line ;; # a message of the site or of srun
    esac
  done
  if ((${#missing[@]})); then
    container_failed "${missing[@]}"
  fi
  ((answers == slaunch_count)) ||
    say warning "only $answers of $slaunch_count nodes reported whether they have what the" \
      "container needs: $other"
}

# Usage: container_failed MISSING...
container_failed() {
  local line everywhere=0 hint='fix it there, or leave the node out with --exclude'
  for line in "$@"; do
    [[ ${line#*: } != "${1#*: }" ]] || everywhere=$((everywhere + 1))
  done
  ((everywhere < slaunch_count)) || hint='it is missing on every node: check the option'
  finish 79 container-failed "$1" "$hint" "${1%%:*}"
}

# Prints the answers of all nodes. The program is in the environment: a command
# line would be visible to every user of the node.
ask_nodes_what_is_missing() {
  # shellcheck disable=SC2016 # expanded on the nodes
  slaunch_program=$(
    declare -p slaunch_head slaunch_image slaunch_runtime slaunch_mounts slaunch_temp_base
    #% if container.worker_image != container.image
    declare -p slaunch_worker_image
    #% endif
    printf '%s\n%s' "$slaunch_functions" list_missing
  ) on_all_nodes 60 bash -c 'eval "$slaunch_program"' </dev/null 2>&1
}

# On a node: prints a line for each thing that is missing.
# shellcheck disable=SC2329 # ask_nodes_what_is_missing sends it to the nodes
list_missing() {
  local node=$SLURMD_NODENAME mount target image=$slaunch_image
  #% if container.worker_image != container.image
  [[ $node == "$slaunch_head" ]] || image=$slaunch_worker_image
  #% endif
  mkdir -p "$(temp_base)"
  [[ ! $slaunch_runtime ]] || command -v "$slaunch_runtime" >/dev/null ||
    echo "missing here: $node: $slaunch_runtime is not in PATH"
  [[ $image != [./]* || -r $image ]] ||
    echo "missing here: $node: there is no image $image, or it cannot be read"
  for mount in "${slaunch_mounts[@]}"; do
    target=${mount#*:}
    target=${target%%:*}
    [[ -e ${mount%%:*} ]] || echo "missing here: $node: there is no ${mount%%:*} to mount"
    [[ $slaunch_runtime != ch-run || ! -d $image || -e $image$target ]] ||
      echo "missing here: $node: the image has no $target to mount on"
  done
  echo "checked here: $node"
}

#% if groups
# Runs a program on all nodes, by one srun for each group, for at most SECONDS; 0: no limit.
# Usage: on_all_nodes SECONDS [OPTION...] PROGRAM...
on_all_nodes() {
  local slaunch_index slaunch_next slaunch_size
  for slaunch_index in "${!slaunch_group_start[@]}"; do
    slaunch_next=${slaunch_group_start[slaunch_index + 1]:-$slaunch_count}
    slaunch_size=$((slaunch_next - slaunch_group_start[slaunch_index]))
    (
      slaunch_seconds=$1
      become_srun \
        --het-group="$slaunch_index" \
        --nodes="$slaunch_size" \
        --ntasks="$slaunch_size" \
        "${slaunch_srun_args[@]}" \
        "${@:2}"
    ) <&0 & # with our input: in the background it would have none
  done
  wait
}
#% else
# Runs a program on all nodes, for at most SECONDS; 0: no limit.
# Usage: on_all_nodes SECONDS [OPTION...] PROGRAM...
on_all_nodes() {
  (
    slaunch_seconds=$1
    become_srun \
      --nodes="$slaunch_count" \
      --ntasks="$slaunch_count" \
      "${slaunch_srun_args[@]}" \
      "${@:2}"
  )
}
#% endif
#% if container.mounts_job_dirs

# Ray's directory, the job's and the log's have the same paths inside. Your own mount of one of them
# takes precedence.
mount_job_directories() {
  local directory
  for directory in "$(temp_base)" "$PWD" "${slaunch_run%/*}"; do
    [[ $directory != *[,:\;\$\`\"\'\\[:space:]]* ]] ||
      finish 79 container-failed "cannot mount $directory in a container" \
        'run the job in a directory without spaces and special characters'
    if [[ $directory != / && $directory && " ${slaunch_mounts[*]} " != *":$directory"[\ :]* ]]; then
      slaunch_mounts+=("$directory:$directory")
    fi
  done
}
#% endif
