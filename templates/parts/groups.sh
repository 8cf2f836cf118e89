# Sets the CPUs of a group's nodes. Those of the first group are the default.
# Usage: use_group GROUP
use_group() {
  local name=SLURM_JOB_CPUS_PER_NODE_HET_GROUP_$1
  SLURM_JOB_CPUS_PER_NODE=${!name}
}

# On a node: adds the resources and labels of its group; your --ray-worker-arg come after them.
add_group_arguments() {
  local labels=${slaunch_group_labels[slaunch_group]-}
  local resources=${slaunch_group_resources[slaunch_group]-}
  if [[ $resources ]]; then
    slaunch_start_args+=("--resources=$resources")
  fi
  [[ $labels ]] || return 0
  case $(help_for_labels) in
    *JSON*) slaunch_start_args+=("--labels={\"$(sed 's/=/":"/g; s/,/","/g' <<<"$labels")\"}") ;;
    ?*) slaunch_start_args+=("--labels=$labels") ;;
    *) echo "output $slaunch_node this Ray does not support labels: it starts without $labels" ;;
  esac
}

# Prints Ray's help for --labels: an older Ray wants JSON, an even older one has no labels.
help_for_labels() {
  ray_python '
from ray.scripts.scripts import start
print(*(option.help for option in start.params if option.name == "labels"))' </dev/null 2>/dev/null
}
