# find_address: sets head_ip. Loopback, link-local and container addresses are out. Of those that remain it is the one
# that the node's name stands for, else the one from which another node is reached; never just the first of some list.
find_address() {
  local family mine='' peer=${nodes[1]:-$head} address
  for family in ${ip_family/auto/4 6}; do
    [[ $mine ]] || mine=$(ip -o "-$family" addr show up ${interface:+dev "$interface"} | awk -v chosen="${interface-}" '
      / (tentative|deprecated|dadfailed)/ || !chosen && (!/ scope global/ || $2 ~ /^(docker|br-|virbr|veth|cni|cali|podman|lxc)/) { next }
      { sub(/\/.*/, "", $4); print $4 }' | sort)
  done
  for address in $(getent ahosts "$head" | awk '{ print $1 }') \
    $(route_source "$(getent ahosts "$peer" | awk '{ print $1; exit }')") $mine; do
    [[ $'\n'$mine$'\n' != *$'\n'$address$'\n'* ]] || { head_ip=$address && return; }
  done
  end 78 no-address "$head has no usable address: family $ip_family${interface:+, interface $interface}" \
    "choose with --interface or --ip-family; 'ip -br addr' on the node lists what there is" "$head"
}
# route_source ADDRESS: the address from which this node reaches another.
route_source() { ip -o route get "$1" ${interface:+oif "$interface"} 2>/dev/null | sed -n 's/.* src \([^ ]*\).*/\1/p'; }
