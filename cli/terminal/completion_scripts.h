// Templates of the completion scripts for bash and zsh. completion.cc replaces @COMMANDS@, @CASES@
// and @KEYS@. `muster completion --line LINE`, on each Tab, prints the kind of the word before the
// cursor and then its values, with descriptions behind tabs (completion_values.h). Values are texts
// of other people and machines: no shell may expand them, as bash's `compgen -W` does.
#pragma once

namespace muster::cli {

// clang-format off

// The first word is completed with commands; later words with values, or with options and files,
// and for commands that take a config also with "key=".
constexpr char kBashScript[] = R"sh(# bash completion for muster: eval "$(muster completion bash)"
_muster() {
  local cur=${COMP_WORDS[COMP_CWORD]} choices="" kind="" value word
  local -a found=()
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "@COMMANDS@ --help --version" -- "$cur"); return
  fi
  if [[ $cur != -* ]]; then
    mapfile -t found < <(command muster completion --line "${COMP_LINE:0:COMP_POINT}" 2> /dev/null | cut -f 1)
    kind=${found[0]}
    # bash splits words at '='. Values of most keys are file names.
    [[ $cur != "=" && ${COMP_WORDS[COMP_CWORD-1]} != "=" || $kind == value ]] || kind=file
  fi
  if [[ $kind == value ]]; then
    for value in "${found[@]:1}"; do
      [[ $value == "${cur#=}"* ]] || continue
      printf -v word %q "$value"
      COMPREPLY+=("$word")
    done
    return
  fi
  if [[ $kind == file ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "${cur#=}"); return
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
_muster() {
  local choices="" kind
  local -a found
  if (( CURRENT == 2 )); then
    compadd -- @COMMANDS@ --help --version
    return
  fi
  if [[ $PREFIX != -* ]]; then
    found=("${(@f)$(command muster completion --line "${(j: :)words[1,CURRENT-1]} $PREFIX" 2> /dev/null | cut -f 1)}")
    kind=$found[1]
    shift found
    if [[ $kind == (value|file) ]]; then
      compset -P 1 '*='
      if [[ $kind == file ]]; then _files; elif (( $#found )); then compadd -- $found; fi
      return
    fi
  fi
  case ${words[2]} in
@CASES@  esac
  compadd -- ${=choices}
  case ${words[2]} in (run|submit|update|decode|config)
    [[ -n $PREFIX ]] && compadd -S '' -- @KEYS@ ;;
  esac
  _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
if [ "$funcstack[1]" = "_muster" ]; then _muster "$@"; else compdef _muster muster; fi
)sh";

constexpr char kFishFunctions[] = R"sh(# fish completion for muster: muster completion fish | source
function __muster_values
    set -l found (command muster completion --line (commandline -cp | string collect) 2>/dev/null)
    if test "$found[1]" = value; and test (count $found) -gt 1
        printf '%s\n' $found[2..-1]
    end
end
function __muster_key_values
    set -l key (string split -m 1 -f 1 = -- (commandline -ct))
    __muster_values | string replace -r '^' "$key="
end
)sh";

// clang-format on

}  // namespace muster::cli
