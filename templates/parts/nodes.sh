#% if joins
# Sets slaunch_nodes. All are workers: the head is in the other job.
find_nodes() {
  check_job
  slaunch_head=''
  mapfile -t slaunch_nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  check_number_of_nodes "$SLURM_JOB_NUM_NODES"
}
#% elif groups
# Sets slaunch_nodes: this node, which is Ray's head, then the nodes of each worker group.
# slaunch_group_start has the index of each group's first node.
find_nodes() {
  local group name wanted=1
  check_job
  slaunch_head=$SLURMD_NODENAME
  slaunch_nodes=("$slaunch_head")
  slaunch_group_start=(0)
  for ((group = 1; group < ${SLURM_HET_SIZE:-1}; group++)); do
    slaunch_group_start+=("${#slaunch_nodes[@]}")
    name=SLURM_JOB_NUM_NODES_HET_GROUP_$group
    wanted=$((wanted + ${!name}))
    name=SLURM_JOB_NODELIST_HET_GROUP_$group
    mapfile -t -O "${#slaunch_nodes[@]}" slaunch_nodes < <(scontrol show hostnames "${!name}")
  done
  check_number_of_nodes "$wanted"
}
#% elif spec.nodes == 1
# This node is Ray's head, and there are no others.
find_nodes() {
  check_job
  slaunch_head=$SLURMD_NODENAME
  slaunch_nodes=("$slaunch_head")
  slaunch_count=1
  ((SLURM_JOB_NUM_NODES == 1)) ||
    finish 77 script-failed "this script is for one node, and the job has $SLURM_JOB_NUM_NODES" \
      'for workers, use: slurm-launch render --from THIS_SCRIPT --num-nodes N'
}
#% else
# Sets slaunch_nodes: this node, which is Ray's head, then the workers.
find_nodes() {
  check_job
  slaunch_head=$SLURMD_NODENAME
  mapfile -t slaunch_nodes < <(
    echo "$slaunch_head"
    scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vxF "$slaunch_head"
  )
  check_number_of_nodes "$SLURM_JOB_NUM_NODES"
}
#% endif
#% if spec.nodes > 1 or joins

# Usage: check_number_of_nodes WANTED
check_number_of_nodes() {
  slaunch_count=${#slaunch_nodes[@]}
  ((slaunch_count == $1)) ||
    finish 77 script-failed "scontrol named $slaunch_count of $1 nodes" 'submit again'
  tune_ray_for_many_nodes
}

# With Ray's own values, workers give up too early on a GCS that thousands of them contact at once.
tune_ray_for_many_nodes() {
  ((slaunch_count > 64)) || return 0
  set_default RAY_gcs_rpc_server_connect_timeout_s 120
  set_default RAY_gcs_server_request_timeout_seconds 120
  set_default RAY_worker_register_timeout_seconds 120
}
#% endif

# Ends the script unless it runs on a node of a job. With salloc it could run on the login node.
check_job() {
  #% if not joins
  slaunch_phase=address
  #% endif
  [[ ${SLURM_JOB_ID-} ]] ||
    finish 77 script-failed 'this is not a Slurm job' "submit the script: sbatch $0"
  [[ ${SLURMD_NODENAME-} ]] ||
    finish 77 script-failed "$HOSTNAME is not a node of job $SLURM_JOB_ID" \
      "submit the script with sbatch; within salloc: srun --nodes=1 --ntasks=1 --overlap bash $0"
}

# Sets slaunch_allocations, one entry for each group of identical nodes: names, MB of memory, GPUs.
# Slurm itself is asked, because variables of the environment may be those of another job.
find_allocation() {
  local entry index nodes
  mapfile -t slaunch_allocations < <(allocation_of_job)
  if ((${#slaunch_allocations[@]} == 0)); then
    say warning "scontrol shows no allocation: Ray gets a share of each node's memory"
  elif ((${#slaunch_allocations[@]} > 1)); then
    for index in "${!slaunch_allocations[@]}"; do
      entry=${slaunch_allocations[index]}
      nodes=$(scontrol show hostnames "${entry%% *}" | tr '\n' ',')
      slaunch_allocations[index]=",$nodes ${entry#* }"
    done
  fi
  choose_fabric_options
}

# Prints the entries. Slurm's record has the tasks of an array and the components of a heterogeneous
# job, and a part for each group of nodes: `Nodes=n[1-2] CPU_IDs=0-1 Mem=600 GRES=gpu:1(IDX:0)`.
allocation_of_job() {
  timeout 9 scontrol show job -d -o "$SLURM_JOB_ID" 2>/dev/null |
    grep -E "^JobId=$SLURM_JOB_ID | HetJobId=$SLURM_JOB_ID " | tr ' ' '\n' | awk -F = '
      $1 == "Nodes" { nodes = $2 }
      $1 == "Mem" { memory = $2 }
      $1 == "GRES" && nodes {
        gpus = 0
        gsub(/\([^)]*\)/, "", $2)
        for (i = split($2, gres, ","); i > 0; i--)
          if (gres[i] ~ /^gpu:/) { sub(/.*:/, "", gres[i]); gpus += gres[i] }
        names[memory " " gpus] = names[memory " " gpus] "," nodes
        nodes = ""
      }
      END { for (what in names) print substr(names[what], 2), what }'
}

# HPE Slingshot gives each step a network of its own, and none to a step of one node.
choose_fabric_options() {
  slaunch_fabric_options=()
  if timeout 9 scontrol show config 2>/dev/null | grep -q '^SwitchType .*hpe_slingshot'; then
    slaunch_fabric_options=(--network="job_vni,single_node_vni")
  fi
}
#% if not joins

# Sets slaunch_head_ip: the address of this node's name, else the one from which another node is
# reached, else any. A site can set it on each node as SLAUNCH_NODE_IP.
find_head_address() {
  local usable address other
  slaunch_head_ip=${SLAUNCH_NODE_IP-}
  unset SLAUNCH_NODE_IP # it is not the address of the other nodes
  if [[ $slaunch_head_ip ]]; then
    return 0
  fi
  usable=$(usable_addresses)
  other=$(addresses_of "${slaunch_nodes[1]:-$slaunch_head}" | head -n 1)
  for address in $(addresses_of "$slaunch_head") $(route_source "$other") $usable; do
    if grep -qxF "$address" <<<"$usable"; then
      slaunch_head_ip=$address
      return
    fi
  done
  local what="IPv${slaunch_ip_family:-4 or 6}${slaunch_interface:+, interface $slaunch_interface}"
  finish 78 no-address "$slaunch_head has no usable address: $what" \
    "choose with --interface or --ip-family; 'ip -br addr' on the node lists the addresses" \
    "$slaunch_head"
}

# Prints this node's addresses, IPv4 if there are any. Without --interface, those of loopback and
# container bridges are left out; link-local ones always are.
usable_addresses() {
  local family found
  for family in ${slaunch_ip_family:-4 6}; do
    found=$(ip_command -o "-$family" addr show up ${slaunch_interface:+dev "$slaunch_interface"} |
      awk -v chosen="$slaunch_interface" '
        / scope link/ || / (tentative|deprecated)/ || $4 ~ /^169\.254\./ { next }
        !chosen && !/ scope global/ { next }
        !chosen && $2 ~ /^(docker|br-|virbr|veth|cni|cali|podman|lxc)/ { next }
        { sub(/\/.*/, "", $4); print $4 }' | sort)
    if [[ $found ]]; then
      echo "$found"
      return
    fi
  done
}

# Usage: addresses_of HOST
addresses_of() {
  getent ahosts "$1" | cut -d ' ' -f 1
}
#% endif

# Prints the local address from which another one is reached.
# Usage: route_source ADDRESS
#% if container and container.runtime == "pyxis"
#
# On a node this runs in the image, and few images have `ip`: so Python finds it.
route_source() {
  "${slaunch_worker_enter[@]}" python3 -c '
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
probe = socket.socket(family, socket.SOCK_DGRAM)
probe.connect((sys.argv[1], 1))
print(probe.getsockname()[0])' "$1" 2>/dev/null | tail -n 1
}
#% else
route_source() {
  local route
  route=$(ip_command -o route get "$1" ${slaunch_interface:+oif "$slaunch_interface"} 2>/dev/null)
  if [[ $route =~ ' src '([^ ]+) ]]; then
    echo "${BASH_REMATCH[1]}"
  fi
}
#% endif

# `ip` is often in a directory that is in the PATH of root only.
ip_command() {
  PATH=$PATH:/usr/sbin:/sbin ip "$@"
}

# Sets what libraries need to use this address of the node; they would guess otherwise.
# Usage: use_address ADDRESS
use_address() {
  set_default VLLM_HOST_IP "$1"
  set_default GLOO_SOCKET_IFNAME \
    "$(ip_command -o addr show to "$1" 2>/dev/null | awk '{ print $2; exit }')"
  # Without --interface, NCCL finds the fastest network by itself.
  set_default NCCL_SOCKET_IFNAME "$slaunch_interface"
}
#% if spec.nodes > 1 or joins

# True if the port can be reached, otherwise prints why not. A firewall that drops packets would
# block for two minutes.
# Usage: try_port ADDRESS PORT
try_port() {
  # shellcheck disable=SC2016 # expanded by that shell
  BASH_ENV='' timeout 3 bash -c ': >"/dev/tcp/$0/$1"' "$1" "$2" 2>&1 && return
  (($? != 124)) || echo 'no answer within 3 s'
  return 1
}
#% endif
