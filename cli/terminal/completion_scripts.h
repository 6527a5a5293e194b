// Templates of the completion scripts for bash and zsh. completion.cc replaces @COMMANDS@, @CASES@
// and @KEYS@.
#pragma once

namespace muster::cli {

// clang-format off

// The first word is completed with commands; later words with options and files, and for commands
// that take a config also with "key=".
constexpr char kBashScript[] = R"sh(# bash completion for muster: eval "$(muster completion bash)"
_muster() {
  local cur=${COMP_WORDS[COMP_CWORD]} choices=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "@COMMANDS@ --help --version" -- "$cur"); return
  fi
  # bash splits words at '=': a value is a file name.
  if [[ $cur == "=" || ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "${cur#=}"); return
  fi
  case ${COMP_WORDS[1]} in
@CASES@  esac
  mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$cur")
  [[ $cur != -* ]] || return
  case ${COMP_WORDS[1]} in run | submit | decode | config)
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
_muster() {
  local choices=""
  if (( CURRENT == 2 )); then
    compadd -- @COMMANDS@ --help --version
    return
  fi
  case ${words[2]} in
@CASES@  esac
  compadd -- ${=choices}
  case ${words[2]} in (run|submit|decode|config)
    [[ $PREFIX == *=* ]] && { compset -P '*='; _files; return }
    [[ -n $PREFIX ]] && compadd -S '' -- @KEYS@ ;;
  esac
  _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
if [ "$funcstack[1]" = "_muster" ]; then _muster "$@"; else compdef _muster muster; fi
)sh";

// clang-format on

}  // namespace muster::cli
