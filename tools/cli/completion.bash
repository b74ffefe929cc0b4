# Completion of `tutti` for bash: commands, the options of each from its own help, collectives, then files.
# `eval "$(tutti completion)"`, or beside bash-completion where tutti is installed for all users.
_tutti() {
  local tool=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]:-} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="$("$tool" --help 2>/dev/null | sed -n 's/^  \([a-z]\+\) .*/\1/p') --help --version"
  elif [[ $word == -* ]]; then
    words=$("$tool" "$command" --help 2>/dev/null | grep -oE -- '(^|[ ,])--[a-z][a-z0-9-]*' | tr -d ' ,' | sort -u)
  elif [ "$COMP_CWORD" -eq 2 ] && [[ " bench explain schedule tune verify " == *" $command "* ]]; then
    words="allgather allreduce alltoall barrier broadcast exscan gather reduce reduce_scatter scan scatter"
  fi
  COMPREPLY=()
  if [ -n "$words" ]; then mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word"); fi
}
complete -o default -F _tutti tutti
