route_source() { [[ $(ip -o route get "$1" ${interface:+oif "$interface"} 2>/dev/null) =~ ' src '([^ ]+) ]] && echo "${BASH_REMATCH[1]}"; }
