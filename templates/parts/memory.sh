# Sets slaunch_limit, the smallest memory limit of this process's cgroups in MB, and slaunch_cgroup,
# the directory of its own one. They are empty if there is none.
find_memory_cgroup() {
  local controllers path mount=/sys/fs/cgroup directory=''
  slaunch_cgroup=''
  slaunch_limit=''
  slaunch_kills=0
  while IFS=: read -r _ controllers path; do
    if [[ ,$controllers, == *,memory,* ]]; then # version 1 of cgroups
      mount=/sys/fs/cgroup/memory
      directory=$mount$path
      break
    elif [[ ! $controllers ]]; then # version 2
      directory=$mount$path
    fi
  done </proc/self/cgroup
  [[ -r $directory/memory.events || -r $directory/memory.oom_control ]] || return 0
  slaunch_cgroup=$directory
  while [[ $directory == "$mount"* ]]; do
    use_limit "$directory/memory.max"
    use_limit "$directory/memory.limit_in_bytes"
    directory=${directory%/*}
  done
  # Kills in a cgroup that Slurm has not made for the job may be those of other jobs.
  [[ $slaunch_cgroup == */job_[0-9]*/* ]] || slaunch_cgroup=''
}

# Lowers slaunch_limit to that in the file; `max` or a very large number means no limit.
# Usage: use_limit FILE
use_limit() {
  local bytes
  { read -r bytes <"$1"; } 2>/dev/null || return 0
  [[ $bytes != max ]] && ((bytes >> 50 == 0)) || return 0
  if [[ ! $slaunch_limit ]] || ((bytes >> 20 < slaunch_limit)); then
    slaunch_limit=$((bytes >> 20))
  fi
}

# True if the kernel has killed a process in this cgroup since the last look, because memory ran
# out. Then slaunch_kill_report describes it. Looks once a second, and reports only if the number
# has doubled; with `now` it does both at once.
# Usage: find_kills [now]
find_kills() {
  local line lines=() many=$((slaunch_kills * 2))
  [[ $slaunch_cgroup ]] || return 1
  if [[ ${1-} == now ]]; then
    many=$((slaunch_kills + 1))
  elif ((SECONDS == ${slaunch_looked_at:--1})); then
    return 1
  fi
  slaunch_looked_at=$SECONDS
  { mapfile -t lines <"$slaunch_cgroup/memory.events" ||
    mapfile -t lines <"$slaunch_cgroup/memory.oom_control"; } 2>/dev/null
  for line in "${lines[@]}"; do
    if [[ $line == 'oom_kill '* ]] && ((${line#* } > 0 && ${line#* } >= many)); then
      slaunch_kills=${line#* }
      slaunch_kill_report="limit=${slaunch_limit:-0}M killed=$(name_of_killed) kills=$slaunch_kills"
      return 0
    fi
  done
  remember_processes
  return 1
}

# Remembers the processes in this cgroup, so that the name of one that is killed is known: every
# second if more than a quarter of the memory is in use, otherwise every five seconds.
remember_processes() {
  local bytes pid pages name
  { read -r bytes <"$slaunch_cgroup/memory.current" ||
    read -r bytes <"$slaunch_cgroup/memory.usage_in_bytes"; } 2>/dev/null
  ((SECONDS % 5 == 0 || bytes >> 20 > ${slaunch_limit:-0} / 4)) || return 0
  declare -gA slaunch_process_name=()
  declare -gA slaunch_process_pages=()
  while read -r pid; do
    { read -r _ pages _ <"/proc/$pid/statm" && read -r name <"/proc/$pid/comm"; } 2>/dev/null ||
      continue
    slaunch_process_name[$pid]=${name// /_}
    slaunch_process_pages[$pid]=$pages
  done <"$slaunch_cgroup/cgroup.procs"
}

# Prints the name of the largest process that is gone: the kernel prefers large ones.
name_of_killed() {
  local pid pages largest=0 name=unknown
  for pid in "${!slaunch_process_name[@]}"; do
    pages=0 # it is gone, or a zombie
    { read -r _ pages _ <"/proc/$pid/statm"; } 2>/dev/null
    if ((pages == 0 && slaunch_process_pages[$pid] > largest)); then
      largest=${slaunch_process_pages[$pid]}
      name=${slaunch_process_name[$pid]}
    fi
  done
  echo "$name"
}
