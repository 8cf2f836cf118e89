mount_ours() { # Ray's directory, the job's and the log's have the same names inside
  local folder
  for folder in "$(temp_folder)" "$PWD" "${run%/*}"; do
    [[ $folder != *[,:\;\$\`\"\'\\[:space:]]* ]] || end 79 container-failed "no container can mount $folder" 'run the job in a directory without blanks and special characters'
    [[ $folder == / || ! $folder || " ${mounts[*]} " == *":$folder"[\ :]* ]] || mounts+=("$folder:$folder") # yours wins
  done
}
mount_ours
