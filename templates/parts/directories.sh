# Makes the job's directory on this node: private, and with a name that nobody can foresee.
# slaunch_dir is the prefix of the job's directories on all nodes.
make_job_directory() {
  local random
  #% if not joins
  slaunch_phase=bring-up
  #% endif
  random=$(od -An -N40 -tx1 /dev/urandom | tr -d ' \n')
  slaunch_token=${random:16}
  slaunch_dir=$(temp_base)/r$SLURM_JOB_ID-${random:0:6}
  # A Unix socket's path has 107 bytes, and Ray appends up to 67 to this one.
  ((${#slaunch_dir} + ${#slaunch_count} <= 40)) || temp_dir_failed ': the path is too long'
  mkdir -p "${slaunch_dir%/*}" || temp_dir_failed
  mkdir -m 700 "$slaunch_dir.job" || temp_dir_failed
  slaunch_job_dir=$slaunch_dir.job
  mkfifo "$slaunch_job_dir/messages" || temp_dir_failed
  exec {slaunch_messages}<>"$slaunch_job_dir/messages"
  if df --output=fstype "$slaunch_job_dir" |
    grep -qE '^(nfs|lustre|gpfs|beegfs|ceph|cifs|smb|panfs|afs|wekafs|fuse)'; then
    say warning "$slaunch_dir is on a network file system: choose a node-local --temp-dir"
  fi
}

# The setting, with your name for %u and the job ID for %j.
temp_base() {
  local base=${slaunch_temp_base//%u/$USER}
  echo "${base//%j/$SLURM_JOB_ID}"
}

# Usage: temp_dir_failed [WHY]
temp_dir_failed() {
  finish 76 temp-dir "cannot use $slaunch_dir on ${slaunch_nodes[0]}${1-}" \
    'choose another --temp-dir: node-local, writable, short' "${slaunch_nodes[0]}"
}
