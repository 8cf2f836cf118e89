# What `slurm-launch attach` runs on the head node of a job, by srun; it is not part of a job's script.
# DIR RUN NODE STREAM [WORD...]: the prefix of the job's directories, the run's name, another node of the job or nothing, --pty
# or --unbuffered or nothing, and a command; without one, a shell.
slaunch_terminal=() slaunch_at=$1.job # names that the job's own variables do not have
if [[ ! -O $slaunch_at || -L $slaunch_at || ! -O $slaunch_at/attach ]]; then # what belongs to another user is not run
  echo "slurm-launch: there is no $slaunch_at/attach here: the job is not running its command" >&2
  exit 1
fi
# The terminal's variables are yours; all others are the command's, without what Slurm sets for this step.
for slaunch_name in TERM COLORTERM NO_COLOR; do
  [[ $(declare -p "$slaunch_name" 2>/dev/null) != 'declare -x '* ]] || slaunch_terminal+=("$slaunch_name=${!slaunch_name}")
done
while read -r slaunch_name; do unset "$slaunch_name"; done 2>/dev/null < <(compgen -e)
# shellcheck source=/dev/null
source "$slaunch_at/attach" 2>/dev/null # some variables of bash cannot be set, such as SHELLOPTS
set +o posix
[[ ! ${slaunch_terminal-} ]] || export "${slaunch_terminal[@]}"
cd -- "$PWD" 2>/dev/null || cd /

slaunch_way=("${join_head[@]}") slaunch_enter=("${head_enter[@]}")
if [[ $3 && $3 != "${SLURMD_NODENAME-}" ]]; then # from here to that node, which has its own directories
  mapfile -t slaunch_nodes < <(echo "$SLURMD_NODENAME" && scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vxF "$SLURMD_NODENAME") # as the script
  slaunch_group=()
  for ((slaunch_index = 1; slaunch_index < ${SLURM_HET_SIZE:-1}; slaunch_index++)); do # a heterogeneous job has groups of nodes
    slaunch_name=SLURM_JOB_NODELIST_HET_GROUP_$slaunch_index && mapfile -t -O "${#slaunch_nodes[@]}" slaunch_nodes < <(scontrol show hostnames "${!slaunch_name}")
    [[ " ${slaunch_nodes[*]} " != *" $3 "* || ${slaunch_group-} ]] || slaunch_group=("--het-group=$slaunch_index")
  done
  for ((slaunch_index = 0; slaunch_index < ${#slaunch_nodes[@]}; slaunch_index++)); do
    [[ ${slaunch_nodes[slaunch_index]} != "$3" ]] || break
  done
  if ((slaunch_index == ${#slaunch_nodes[@]})); then
    echo "slurm-launch: $3 is not a node of the job, which has ${slaunch_nodes[*]}" >&2
    exit 2
  fi
  unset HOSTNAME
  export SLAUNCH_NODE_DIR=$1.$slaunch_index RAY_TMPDIR=$1.$slaunch_index/t RAY_AUTH_TOKEN_PATH=$1.$slaunch_index/token
  slaunch_enter=("${worker_enter[@]}") slaunch_way=("${slaunch_way[@]/#--nodelist=*/--nodelist=$3}") # a container has the same name there
  ((${#slaunch_way[@]})) || slaunch_way=(env -u SLURM_CPUS_PER_TASK -u SRUN_CPUS_PER_TASK -u SLURM_TRES_PER_TASK ${slaunch_group:+-u SLURM_MEM_PER_NODE -u SLURM_MEM_PER_CPU -u SLURM_MEM_PER_GPU}
    srun --nodes=1 --ntasks=1 --nodelist="$3" --overlap --export=ALL --cpu-bind=none --mpi=none)
fi
if ((${#slaunch_way[@]})); then # an srun within this one: its own messages are not for the terminal
  slaunch_way+=(--disable-status "${slaunch_group[@]}" ${4:+"$4"})
  [[ $4 != --pty ]] || exec 2> >(exec grep -vE 'srun: (error: )?([^ ]+: task 0: |Force Terminated|cluster configuration lacks)' >&2)
fi

own_shell() { # NAME: a bash that loads your ~/.bashrc and then the job's environment: a bashrc may change the PATH
  local rc=$SLAUNCH_NODE_DIR/rc.$$
  {
    printf '%s\n' '[[ ! -r ~/.bashrc ]] || . ~/.bashrc' "slaunch_ps1=\$PS1" '{' && declare -px && printf '%s\n' '} 2>/dev/null' \
      "[[ \$slaunch_ps1 != '\\s-\\v\\\$ ' ]] || slaunch_ps1='\\u@\\h:\\w\\\$ '" "PS1='($1) '\$slaunch_ps1" 'export -n PS1' \
      'unset slaunch_ps1 COLUMNS LINES' "rm -f $(printf %q "$rc")"
  } >"$rc" && exec bash --rcfile "$rc" -i
}
case $#$4 in
  4) slaunch_words=(bash) ;; # it reads standard input
  4--pty) slaunch_words=(bash -c "$(declare -f own_shell)"$'\nown_shell "$1"' bash "$2") ;;
  *) slaunch_words=("${@:5}") ;;
esac
# A process that is left running would hold the terminal, and srun would wait: an inherited mark finds it, and it is ended too.
slaunch_mark=SLAUNCH_ATTACHED=$SLURM_JOB_ID.$$.$RANDOM
trap : INT TERM HUP # they are for the program, which gets them from Slurm too
{ env "$slaunch_mark" "${slaunch_way[@]}" "${slaunch_enter[@]}" "${slaunch_words[@]}" 2>&3 3>&-; slaunch_code=$?; } 3>&2 2>/dev/null # bash would report signals
for slaunch_signal in HUP TERM KILL; do
  for _ in {1..5}; do
    mapfile -t slaunch_pids < <(grep -lzsxF "$slaunch_mark" /proc/[0-9]*/environ | cut -d/ -f3)
    ((${#slaunch_pids[@]})) || exit "$slaunch_code"
    kill -s "$slaunch_signal" "${slaunch_pids[@]}" 2>/dev/null
    sleep 0.1
  done
done
exit "$slaunch_code"
