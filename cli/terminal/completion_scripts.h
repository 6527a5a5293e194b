// Templates of the completion scripts for bash and zsh. completion.cc replaces @COMMANDS@, @CASES@,
// @VALUES@ and @KEYS@. Values are those that `muster completion --values` prints when one presses
// Tab: the jobs and nodes of the coordinator, and the values of keys.
#pragma once

namespace muster::cli {

// clang-format off

// The first word is completed with commands; later words with values, or with options and files,
// and for commands that take a config also with "key=".
constexpr char kBashScript[] = R"sh(# bash completion for muster: eval "$(muster completion bash)"
_muster_values() {
  command muster completion --values "$1" --line "$COMP_LINE" 2> /dev/null | cut -f 1
}
_muster() {
  local cur=${COMP_WORDS[COMP_CWORD]} choices="" values="" before key
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "@COMMANDS@ --help --version" -- "$cur"); return
  fi
  # bash splits words at '='. Values of most keys are file names.
  if [[ $cur == "=" || ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
    key=${COMP_WORDS[COMP_CWORD-2]}
    [[ $cur != "=" ]] || key=${COMP_WORDS[COMP_CWORD-1]}
    mapfile -t COMPREPLY < <(compgen -W "$(_muster_values "key:$key")" -- "${cur#=}")
    [ "${#COMPREPLY[@]}" -eq 0 ] || return
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "${cur#=}"); return
  fi
  before="${COMP_WORDS[*]:1:COMP_CWORD-1} "
  case $before in
@VALUES@  esac
  # A job's number is one word; others may follow, such as the keys of an update. The port of an
  # address is a word of its own, too.
  if [[ $cur != -* && -n $values && ! $before =~ [^:]\ [0-9]+\  ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_muster_values "$values")" -- "$cur")
    # The word before may be an option whose value is a file.
    [[ ${#COMPREPLY[@]} -eq 0 && ${COMP_WORDS[COMP_CWORD-1]} == -* ]] || return
  fi
  case ${COMP_WORDS[1]} in
@CASES@  esac
  mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$cur")
  [[ $cur != -* ]] || return
  case ${COMP_WORDS[1]} in run | submit | update | decode | config)
    if [ -n "$cur" ]; then
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "@KEYS@" -- "$cur")
      [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    fi ;;
  esac
  # A folder gets its slash, but a command or a key of the same name does not.
  if [ "${#COMPREPLY[@]}" -eq 0 ]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  fi
}
complete -F _muster muster
)sh";

constexpr char kZshScript[] = R"sh(#compdef muster
# zsh completion for muster: eval "$(muster completion zsh)"
_muster_values() {
  local -a found
  found=(${(f)"$(command muster completion --values $1 --line "$BUFFER" 2> /dev/null | cut -f 1)"})
  (( $#found )) && compadd -- $found
}
_muster() {
  local choices="" values="" before key
  if (( CURRENT == 2 )); then
    compadd -- @COMMANDS@ --help --version
    return
  fi
  before="${words[2,CURRENT-1]} "
  case $before in
@VALUES@  esac
  if [[ $PREFIX != -* && -n $values && ! $before =~ ' [0-9]+ ' ]]; then
    _muster_values $values || [[ ${words[CURRENT-1]} != -* ]] && return
  fi
  case ${words[2]} in
@CASES@  esac
  compadd -- ${=choices}
  case ${words[2]} in (run|submit|update|decode|config)
    if [[ $PREFIX == *=* ]]; then
      key=${PREFIX%%=*}
      compset -P '*='
      _muster_values key:$key || _files
      return
    fi
    [[ -n $PREFIX ]] && compadd -S '' -- @KEYS@ ;;
  esac
  _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
if [ "$funcstack[1]" = "_muster" ]; then _muster "$@"; else compdef _muster muster; fi
)sh";

constexpr char kFishFunctions[] = R"sh(# fish completion for muster: muster completion fish | source
function __muster_values
    command muster completion --values $argv[1] --line (commandline -p | string collect) 2>/dev/null
end
function __muster_key_values
    set -l key (string split -m 1 -f 1 = -- (commandline -ct))
    __muster_values key:$key | string replace -r '^' "$key="
end
)sh";

// clang-format on

}  // namespace muster::cli
