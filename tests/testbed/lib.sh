# shellcheck shell=bash
# Functions for the cluster's init.sh and each node's node.sh. Sourced, never run.
# BINDS, CGROUPS (arrays), FAMILIES, ROUTED come from cluster.env.

# bind_path SOURCE TARGET: read-only, so that no job and no test can change the machine.
bind_path() {
  if [[ -d $1 ]]; then
    mkdir -p "$2"
  else
    mkdir -p "${2%/*}"
    : >>"$2"
  fi
  mount --bind -o ro "$1" "$2"
}

# fresh_tmp ROOT SIZE: a separate /tmp, /var/tmp and /dev/shm, as on a real node. Bound paths below /tmp are
# mounted in the new /tmp before it hides the old one.
fresh_tmp() {
  local path
  mount -t tmpfs -o "mode=1777,size=$2" tmpfs "$1/mnt"
  for path in "${BINDS[@]}"; do
    [[ $path != /tmp/* ]] || bind_path "$path" "$1/mnt/${path#/tmp/}"
  done
  mount --move "$1/mnt" "$1/tmp"
  mount -t tmpfs -o mode=1777 tmpfs "$1/var/tmp"
  mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
}

# fresh_sys ROOT: /sys/class/net must list the interfaces of this network namespace. The cgroups stay mounted:
# slurmd does not start without /sys/fs/cgroup.
fresh_sys() {
  mount --rbind /sys/fs/cgroup "$1/mnt"
  mount -t sysfs sysfs "$1/sys"
  mount --move "$1/mnt" "$1/sys/fs/cgroup"
}

# own_sys: the same for a node with cgroups. It sees its own part of each hierarchy, which is the root of its cgroup
# namespace, as if there were no others.
own_sys() {
  local cgroup path
  mount -t sysfs sysfs /sys
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  for cgroup in "${CGROUPS[@]%%=*}"; do
    path=/sys/fs/cgroup/$cgroup
    mkdir "$path"
    mount -t cgroup -o "$cgroup" cgroup "$path"
  done
}

# lowest_cpu CPU...: the one on which to create the mount namespaces of the nodes. job_container/tmpfs mounts that of a job
# in that of its node, and the kernel allows this only if it has a higher number. Since Linux 6.18 each CPU counts for
# itself: namespaces that are created later on another CPU can have lower numbers.
lowest_cpu() {
  local cpu
  for cpu; do
    # shellcheck disable=SC2016
    if taskset --cpu-list "$cpu" unshare --mount bash -ec '
      mount -t tmpfs tmpfs /mnt
      : >/mnt/ns
      for other; do
        taskset --cpu-list "$other" unshare --mount=/mnt/ns true
        umount /mnt/ns
      done' bash "$@" 2>/dev/null; then
      echo "$cpu"
      return
    fi
  done
  return 1
}

# Before the first interface is created: without duplicate address detection, IPv6 addresses are usable at once.
net_defaults() {
  local name
  for name in all default; do
    [[ ! -e /proc/sys/net/ipv6 ]] || echo 0 >/proc/sys/net/ipv6/conf/$name/accept_dad
  done
  ip link set lo up
}

# add_addresses DEVICE IPV4/LENGTH IPV6/LENGTH: only for the address families of the cluster.
add_addresses() {
  [[ $FAMILIES != *4* ]] || ip address add "$2" dev "$1"
  [[ $FAMILIES != *6* ]] || ip address add "$3" dev "$1" nodad
}

# start_daemon NAME COMMAND...: in the background; the file ended/NAME is created when it ends.
start_daemon() {
  local name=$1 code=0
  shift
  rm -f "/testbed/ended/$name"
  (
    # bash has its background processes ignore these, and Slurm 26.05 passes that on to jobs.
    setsid --wait env --default-signal=INT,QUIT "$@" </dev/null >>"/testbed/log/$name.out" 2>&1 || code=$?
    echo "$code" >"/testbed/ended/$name"
  ) &
}

# wait_for NAME COMMAND...: until the command succeeds; fails when the daemon NAME has ended, or after 30 s.
wait_for() {
  local name=$1 deadline=$((SECONDS + 30))
  shift
  until "$@" >/dev/null 2>&1; do
    if [[ -e /testbed/ended/$name ]] || ((SECONDS > deadline)); then
      echo "$name did not start (waited for: $*)" >&2
      return 1
    fi
    sleep 0.05
  done
}
