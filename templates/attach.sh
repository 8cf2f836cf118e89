# What `slurm-launch attach` runs on the head node of a job, by srun; it is not part of a job's script.
#
# Usage: DIR RUN NODE STREAM [WORD...]
#   DIR     the prefix of the job's directories
#   RUN     the run's name
#   NODE    another node of the job, or nothing
#   STREAM  --pty, --unbuffered or nothing
#   WORD    a command; without one, a shell
#
# Names are prefixed, because the environment of the job's command is loaded here.

slaunch_dir=$1
slaunch_run_name=$2
slaunch_node=$3
slaunch_stream=$4
shift 4
# The environment of a job with a container sets these.
slaunch_join_head=()
slaunch_head_enter=()
slaunch_worker_enter=()

# What belongs to another user is not run.
slaunch_check_file() {
  if [[ ! -O $slaunch_dir.job || -L $slaunch_dir.job || ! -O $slaunch_dir.job/attach ]]; then
    echo "slurm-launch: there is no $slaunch_dir.job/attach here:" \
      'the job is not running its command' >&2
    exit 1
  fi
}

# The terminal's variables are yours; all others are the command's, without what Slurm sets for this
# step.
slaunch_clear_environment() {
  local slaunch_name
  slaunch_terminal=()
  for slaunch_name in TERM COLORTERM NO_COLOR; do
    if [[ $(declare -p "$slaunch_name" 2>/dev/null) == 'declare -x '* ]]; then
      slaunch_terminal+=("$slaunch_name=${!slaunch_name}")
    fi
  done
  while read -r slaunch_name; do
    unset "$slaunch_name"
  done 2>/dev/null < <(compgen -e)
}

# Runs the program in the head's container if there is one, or on another node.
slaunch_attach() {
  set +o posix
  if ((${#slaunch_terminal[@]})); then
    export "${slaunch_terminal[@]}"
  fi
  cd -- "$PWD" 2>/dev/null || cd /
  slaunch_way=("${slaunch_join_head[@]}")
  slaunch_enter=("${slaunch_head_enter[@]}")
  slaunch_group=()
  if [[ $slaunch_node && $slaunch_node != "${SLURMD_NODENAME-}" ]]; then
    slaunch_choose_node
  fi
  slaunch_quiet_inner_srun
  slaunch_choose_program "$@"
  slaunch_run_program
  slaunch_end_what_is_left
  exit "$slaunch_code"
}

# From here to that node, which has its own directories. A container has the same name there.
slaunch_choose_node() {
  local slaunch_index
  slaunch_find_index
  unset HOSTNAME VLLM_HOST_IP GLOO_SOCKET_IFNAME # those of the head
  export SLAUNCH_NODE_DIR=$slaunch_dir.$slaunch_index
  export RAY_TMPDIR=$SLAUNCH_NODE_DIR/t
  export RAY_AUTH_TOKEN_PATH=$SLAUNCH_NODE_DIR/token
  slaunch_enter=("${slaunch_worker_enter[@]}")
  slaunch_way=("${slaunch_way[@]/#--nodelist=*/--nodelist=$slaunch_node}")
  if ((${#slaunch_way[@]} == 0)); then
    unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_TRES_PER_TASK
    if ((${#slaunch_group[@]})); then
      unset SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU # those of the head's group
    fi
    slaunch_way=(srun --nodes=1 --ntasks=1 --nodelist="$slaunch_node" --overlap --export=ALL
      --cpu-bind=none --mpi=none)
  fi
}

# Sets slaunch_index, the node's number in the job's own order: this node, then the others, then
# those of each group of a heterogeneous job.
slaunch_find_index() {
  local slaunch_nodes slaunch_name slaunch_number
  mapfile -t slaunch_nodes < <(
    echo "$SLURMD_NODENAME"
    scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vxF "$SLURMD_NODENAME"
  )
  for ((slaunch_number = 1; slaunch_number < ${SLURM_HET_SIZE:-1}; slaunch_number++)); do
    slaunch_name=SLURM_JOB_NODELIST_HET_GROUP_$slaunch_number
    mapfile -t -O "${#slaunch_nodes[@]}" slaunch_nodes < <(
      scontrol show hostnames "${!slaunch_name}"
    )
    if [[ " ${slaunch_nodes[*]} " == *" $slaunch_node "* && ${#slaunch_group[@]} == 0 ]]; then
      slaunch_group=("--het-group=$slaunch_number")
    fi
  done
  for slaunch_index in "${!slaunch_nodes[@]}"; do
    if [[ ${slaunch_nodes[slaunch_index]} == "$slaunch_node" ]]; then
      return
    fi
  done
  echo "slurm-launch: $slaunch_node is not a node of the job, which has ${slaunch_nodes[*]}" >&2
  exit 2
}

# An srun within this one: its own messages are not for the terminal.
slaunch_quiet_inner_srun() {
  local slaunch_noise='srun: (error: )?([^ ]+: task 0: |Force Terminated|cluster configuration lacks)'
  if ((${#slaunch_way[@]})); then
    slaunch_way+=(--disable-status "${slaunch_group[@]}" ${slaunch_stream:+"$slaunch_stream"})
    if [[ $slaunch_stream == --pty ]]; then
      exec 2> >(exec grep -vE "$slaunch_noise" >&2)
    fi
  fi
}

# The given words; or a shell, which reads standard input if there is no terminal.
slaunch_choose_program() {
  if (($#)); then
    slaunch_words=("$@")
  elif [[ $slaunch_stream == --pty ]]; then
    slaunch_words=(bash -c "$(declare -f slaunch_shell)"$'\nslaunch_shell "$1"' bash)
    slaunch_words+=("$slaunch_run_name")
  else
    slaunch_words=(bash)
  fi
}

# An interactive bash that loads your ~/.bashrc and then the job's environment: a bashrc may change
# the PATH. The prompt shows the run's name.
# shellcheck disable=SC2329 # slaunch_choose_program sends it to another shell
slaunch_shell() {
  local slaunch_rc=$SLAUNCH_NODE_DIR/rc.$$
  # shellcheck disable=SC2016 # expanded by the interactive shell
  {
    echo '[[ ! -r ~/.bashrc ]] || . ~/.bashrc'
    echo 'slaunch_ps1=$PS1'
    echo '{'
    declare -px
    echo '} 2>/dev/null'
    printf '%s\n' "[[ \$slaunch_ps1 != '\\s-\\v\\\$ ' ]] || slaunch_ps1='\\u@\\h:\\w\\\$ '"
    echo "PS1='($1) '\$slaunch_ps1"
    echo 'export -n PS1'
    echo 'unset slaunch_ps1 COLUMNS LINES'
    printf 'rm -f %q\n' "$slaunch_rc"
  } >"$slaunch_rc"
  exec bash --rcfile "$slaunch_rc" -i
}

# A process that is left running would hold the terminal, and srun would wait: an inherited mark finds
# it. Signals are for the program, which gets them from Slurm too. bash would report them on stderr.
slaunch_run_program() {
  slaunch_mark=SLAUNCH_ATTACHED=$SLURM_JOB_ID.$$.$RANDOM
  trap : INT TERM HUP
  {
    env "$slaunch_mark" "${slaunch_way[@]}" "${slaunch_enter[@]}" "${slaunch_words[@]}" 2>&3 3>&-
    slaunch_code=$?
  } 3>&2 2>/dev/null
}

# Ends the processes with the mark.
slaunch_end_what_is_left() {
  local slaunch_signal slaunch_pids
  for slaunch_signal in HUP TERM KILL; do
    for _ in {1..5}; do
      mapfile -t slaunch_pids < <(
        grep -lzsxF "$slaunch_mark" /proc/[0-9]*/environ | cut -d / -f 3
      )
      if ((${#slaunch_pids[@]} == 0)); then
        return
      fi
      kill -s "$slaunch_signal" "${slaunch_pids[@]}" 2>/dev/null
      sleep 0.1
    done
  done
}

slaunch_check_file
slaunch_clear_environment
# Not in a function, where `declare` would be local. Some variables of bash cannot be set.
# shellcheck source=/dev/null
source "$slaunch_dir.job/attach" 2>/dev/null
slaunch_attach "$@"
