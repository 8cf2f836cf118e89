route_source() { ip -o route get "$1" ${interface:+oif "$interface"} 2>/dev/null | sed -n 's/.* src \([^ ]*\).*/\1/p'; }
