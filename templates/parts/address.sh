# Not loopback, link-local or a container bridge: the address of the node's name, else the one that reaches another node, else any.
find_address() { # sets head_ip
  local family mine='' address
  for family in ${ip_family:-4 6}; do
    [[ $mine ]] || mine=$(ip -o "-$family" addr show up ${interface:+dev "$interface"} | awk -v chosen="${interface-}" '
      / scope link/ || !chosen && (!/ scope global/ || $2 ~ /^(docker|br-|virbr|veth|cni|cali|podman|lxc)/) || / (tentative|deprecated)/ { next }
      { sub(/\/.*/, "", $4); print $4 }' | sort)
  done
  for address in $(addresses_of "$head") $(route_source "$(addresses_of "${nodes[1]:-$head}" | head -n 1)") $mine; do
    [[ $'\n'$mine$'\n' != *$'\n'$address$'\n'* ]] || { head_ip=$address && return; }
  done
  end 78 no-address "$head has no usable address: IPv${ip_family:-4 or 6}${interface:+, interface $interface}" \
    "choose with --interface or --ip-family; 'ip -br addr' on the node lists the addresses" "$head"
}
addresses_of() { getent ahosts "$1" | cut -d ' ' -f 1; }
