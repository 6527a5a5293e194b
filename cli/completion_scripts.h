// The shells' parts of the completion scripts. @COMMANDS@, @CASES@ and @KEYS@ are filled in by completion.cc.
#pragma once

namespace muster::cli {

// clang-format off

// Completes commands, then options; key= for the commands that take a config; files everywhere.
constexpr char kBashScript[] = R"sh(# bash completion for muster: eval "$(muster completion bash)"
_muster() {
  local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=""
  COMPREPLY=()
  # bash splits words at '=': a value is a file name.
  if [[ $cur == "=" || ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "${cur#=}"); return
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "@COMMANDS@ --help --version" -- "$cur"); return
  fi
  case $command in
@CASES@  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  case $command in run | submit | decode | config)
    if [ -n "$cur" ] && [[ $cur != -* ]]; then
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "@KEYS@" -- "$cur")
      [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    fi ;;
  esac
  if [[ $cur != -* ]]; then
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur")
  fi
}
complete -o filenames -F _muster muster
)sh";

constexpr char kZshScript[] = R"sh(#compdef muster
# zsh completion for muster: eval "$(muster completion zsh)"
_muster() {
  local command=${words[2]} choices=""
  if (( CURRENT == 2 )); then
    compadd -- @COMMANDS@ --help --version
    return
  fi
  () {
    local words=""
    case $command in
@CASES@    esac
    choices=$words
  }
  compadd -- ${=choices}
  case $command in (run|submit|decode|config)
    [[ $PREFIX == *=* ]] && { compset -P '*='; _files; return }
    compadd -S '' -- @KEYS@ ;;
  esac
  _files
}
if [ "$funcstack[1]" = "_muster" ]; then _muster "$@"; else compdef _muster muster; fi
)sh";

// clang-format on

}  // namespace muster::cli
