#!/bin/bash
# init.sh STATE: process 1 of a cluster (and of its login node), in its own mount, UTS, IPC, network and PID namespaces.
# Everything else is a descendant, so the kernel removes all of it, with all mounts and networks, when this process
# ends. It ends at the end of its standard input, that is when the Python process has ended, for whatever reason.
# shellcheck disable=SC1090,SC1091
set -eEuo pipefail
trap 'echo "init.sh failed: $BASH_COMMAND" >&2' ERR
state=$1
. "$state/cluster.env"
. "$state/lib.sh"

# The root of all nodes: the machine's own files (or a debootstrap folder) as the lower layer, changes in memory.
mount -t tmpfs -o mode=755 tmpfs "$state/mem"
mkdir "$state/mem/"{upper,work,root}
root=$state/mem/root
mount -t overlay -o "lowerdir=$LOWER,upperdir=$state/mem/upper,workdir=$state/mem/work" overlay "$root"
mkdir -p "$root"/{proc,sys,dev,run,tmp,var/tmp,home,mnt,testbed}
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
fresh_sys "$root"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/home" # the file system that all nodes share, as with NFS
mount --bind "$state" "$root/testbed"
for path in "${BINDS[@]}"; do
  # The users of the cluster must be able to reach the bound paths, for example below /root with mode 0700.
  [[ $path != /tmp/* ]] || continue
  parent=${path%/*}
  while [[ $parent ]]; do
    mkdir -p "$root$parent"
    (($(stat -c '0%a & 1' "$root$parent"))) || chmod o+x "$root$parent"
    parent=${parent%/*}
  done
done
for path in "${BINDS[@]}"; do
  [[ $path == /tmp/* ]] || bind_path "$path" "$root$path"
  # A virtual environment with the machine's own Python needs that one, whatever this release has.
  [[ $path != /usr/bin/python3.* ]] || ln -sfn "${path##*/}" "$root/usr/bin/python3"
done
fresh_tmp "$root" "$LOGIN_TMP_SIZE"
cd "$root"
pivot_root . mnt
cd /
umount -l /mnt

# No name server, so that an unknown name fails at once.
cat /testbed/hosts/login >/etc/hosts
rm -f /etc/resolv.conf
: >/etc/resolv.conf
for user in "${USERS[@]}"; do # name:uid
  name=${user%:*} uid=${user#*:}
  sed -i "/^$name:/d" /etc/passwd /etc/group
  echo "$name:x:$uid:$uid::/home/$name:/bin/bash" >>/etc/passwd
  echo "$name:x:$uid:" >>/etc/group
  install -d -m 700 -o "$uid" -g "$uid" "/home/$name"
done
cp /testbed/etc_slurm/* /etc/slurm/
((! PYXIS)) || install -m 755 /testbed/enroot.sh /usr/local/bin/enroot
install -d -m 755 /var/spool/slurmctld "${NODES[@]/#//var/spool/slurmd/}"
for ((i = 0; i < MAX_GPUS; i++)); do
  # slurmd accepts device files only. This is the number of NVIDIA's: without the driver, open fails with ENXIO, and with
  # EPERM for those who may not. With that of /dev/null, a job without this GPU could not open /dev/null either.
  mknod "/etc/slurm/gpu$i" c 195 "$i"
done

hostname login
net_defaults
if ((ROUTED)); then
  # One flat network with many nodes overflows the kernel's neighbor table, which all namespaces share.
  echo 1 >/proc/sys/net/ipv4/ip_forward
  echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
  add_addresses lo 10.77.0.1/32 fd77::1/128
else
  ip link add br0 type bridge mcast_snooping 0
  add_addresses br0 10.77.0.1/16 fd77::1/64
  ip link set br0 up
fi
ip link add br1 type bridge mcast_snooping 0
add_addresses br1 10.88.0.1/16 fd88::1/64
ip link set br1 up

install -d -m 755 -o munge -g munge /run/munge
install -d -m 700 -o munge -g munge /etc/munge /var/lib/munge /var/log/munge
rm -f /etc/munge/munge.key
(umask 377 && head -c 1024 /dev/urandom >/etc/munge/munge.key)
chown munge:munge /etc/munge/munge.key
start_daemon munged setpriv --reuid munge --regid munge --clear-groups munged --foreground
wait_for munged munge -n

if ((ACCOUNTING)); then
  data=/var/lib/testbed-mariadb
  install -d -m 700 -o mysql -g mysql "$data" /run/mysqld
  mariadb-install-db --no-defaults --user=mysql --datadir="$data" --skip-test-db >/testbed/log/mariadb-install.out
  start_daemon mariadbd mariadbd --no-defaults --user=mysql --datadir="$data" --skip-networking \
    --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid --innodb-flush-log-at-trx-commit=0
  wait_for mariadbd mariadb-admin --no-defaults ping
  install -m 600 /testbed/slurmdbd.conf /etc/slurm/ # slurmdbd refuses a file that other users can read
  start_daemon slurmdbd slurmdbd -D
  wait_for slurmdbd sacctmgr --noheader list cluster
  sacctmgr --quiet --immediate add cluster testbed
  sacctmgr --quiet --immediate add account lab
  for user in root "${USERS[@]%:*}"; do
    sacctmgr --quiet --immediate add user "$user" account=lab
  done
fi

start_daemon slurmctld slurmctld -D
wait_for slurmctld scontrol show config # so that the nodes register at the first attempt
# Each entry of CGROUPS is controller=folder.
for folder in "${CGROUPS[@]#*=}"; do
  mkdir "${NODES[@]/#/$folder/}"
done
pin=()
((! ${#PRIVATE_TMP_CPUS[@]})) || pin=(taskset --cpu-list "$(lowest_cpu "${PRIVATE_TMP_CPUS[@]}")")
for node in "${NODES[@]}"; do
  (
    for folder in "${CGROUPS[@]#*=}"; do
      echo 0 >"$folder/$node/cgroup.procs" # 0: this process
    done
    exec "${pin[@]}" unshare --mount --uts --ipc --net --pid ${CGROUPS[0]:+--cgroup} --fork --kill-child \
      bash /testbed/node.sh "$node"
  ) </dev/null >>"/testbed/log/$node.out" 2>&1 &
done
: >/testbed/started

while read -r _; do :; done
