# The other job's log shows where its Ray is: `starting` has the address, `ready` means that it is up. A restart begins again.
find_main() { # sets main_head, main_dir, address, head_ip and port; false: it is not up
  local place word
  place=$(grep -aoE '\[slurm-launch\] [^ ]+ (starting|ready|end) .*' "$main_log" 2>/dev/null | awk -v ours="job=$main_job" '
    { named = 0; for (i = 4; i <= NF; i++) if ($i == ours) named = 1 }
    $3 == "starting" { last = named; if (named) { up = 0; place = $0 } }
    $3 == "ready" && last { up = 1 }
    $3 == "end" && named { up = 0 }
    END { if (up) print place }')
  for word in $place; do
    case $word in head=*) main_head=${word#*=} ;; address=*) address=${word#*=} ;; dir=*) main_dir=${word#*=} ;; auth=*) auth=${word#*=} ;; esac
  done
  [[ $place ]] && port=${address##*:} head_ip=${address%:*} && head_ip=${head_ip#[} head_ip=${head_ip%]} && export RAY_AUTH_MODE=${auth/off/disabled}
}
main_is_over() { # according to Slurm; false if slurmctld cannot be reached
  local state && state=$(timeout 9 squeue -h -j "$main_job" -o %T 2>&1) && [[ ! $state || $state == COMPLETING ]] || [[ $state == *'Invalid job id'* ]]
}
main_answers() { timeout 3 bash -c ': >"/dev/tcp/$0/$1"' "$head_ip" "$port" 2>/dev/null; }
# A step in the other job reads the token, as for `slurm-launch attach`: it is never stored where others could read it.
fetch_token() {
  local name code='[[ -O $1.0 && ! -L $1.0 ]] && exec cat -- "$1.0/token"'
  [[ $auth == token ]] || { token=none && return; }
  token=$(for name in "${!SLURM_@}" "${!SRUN_@}"; do [[ $name == SLURM_CONF ]] || unset "$name"; done # the step would inherit this job's
    timeout 60 srun "${main_step[@]}" --overlap --nodes=1 --ntasks=1 --nodelist="$main_head" --cpu-bind=none --mpi=none --chdir=/ \
      --export=PATH bash -c "$code" bash "$main_dir" </dev/null 2>"$job_dir/token.err") && [[ $token ]]
}
