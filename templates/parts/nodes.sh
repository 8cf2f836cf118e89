#% if joins
# Sets slaunch_nodes. All are workers: the head is in the other job.
find_nodes() {
  slaunch_head=''
  mapfile -t slaunch_nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  check_number_of_nodes "$SLURM_JOB_NUM_NODES"
}
#% elif groups
# Sets slaunch_nodes: this node, which is Ray's head, then the nodes of each worker group.
# slaunch_group_start has the index of each group's first node.
find_nodes() {
  local group name wanted=1
  slaunch_phase=address
  slaunch_head=${SLURMD_NODENAME:-$(hostname -s)}
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
  slaunch_phase=address
  slaunch_head=${SLURMD_NODENAME:-$(hostname -s)}
  slaunch_nodes=("$slaunch_head")
  slaunch_count=1
  ((SLURM_JOB_NUM_NODES == 1)) ||
    finish 77 script-failed "this script is for one node, and the job has $SLURM_JOB_NUM_NODES" \
      'for workers, use: slurm-launch render --from THIS_SCRIPT --num-nodes N'
}
#% else
# Sets slaunch_nodes: this node, which is Ray's head, then the workers.
find_nodes() {
  slaunch_phase=address
  slaunch_head=${SLURMD_NODENAME:-$(hostname -s)}
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
}
#% endif
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
    found=$(ip -o "-$family" addr show up ${slaunch_interface:+dev "$slaunch_interface"} |
      awk -v chosen="$slaunch_interface" '
        / scope link/ || / (tentative|deprecated)/ { next }
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
  route=$(ip -o route get "$1" ${slaunch_interface:+oif "$slaunch_interface"} 2>/dev/null)
  if [[ $route =~ ' src '([^ ]+) ]]; then
    echo "${BASH_REMATCH[1]}"
  fi
}
#% endif
