r"""The scripts that make bash, zsh and fish call jobrun at the TAB key, and its replies.

The protocol is click's: the script runs ``jobrun`` with ``_JOBRUN_COMPLETE`` in the environment.
click's own scripts were tried in real shells and lose what the tests hold: they take a path only
as "any file" or "any folder", not as the specs and runs that jobrun found (``a.y`` and
``deep\ er/`` are not completed); a space follows words that are not finished, those that end in
``=``, ``.`` or ``/``; words with ``:`` and ``=``, at which bash splits, are not put together;
errors of jobrun go to the terminal.
"""

from __future__ import annotations

import os
from typing import Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

__all__ = ["SHELLS", "VARIABLE", "register", "script"]

VARIABLE = "_JOBRUN_COMPLETE"

_BASH = """\
# jobrun completion for bash: in ~/.bashrc, eval "$(jobrun completion bash)"
%(complete_func)s() {
    local IFS=$'\\n' kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        COMPREPLY+=("$value")
        [[ $kind == path ]] && compopt -o filenames
        [[ $value == *[=./] ]] && compopt -o nospace
    done < <(_JOBRUN_LINE="${COMP_LINE:0:COMP_POINT}" _JOBRUN_BREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s
# jobrun completion for zsh: in ~/.zshrc after compinit, eval "$(jobrun completion zsh)"
%(complete_func)s() {
    local -a response finished described open
    local kind value help
    response=("${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \\
        %(complete_var)s=zsh_complete "${words[1]}" 2>/dev/null)}")
    for kind value help in $response; do
        if [[ $value == *[=./] ]]; then
            open+=("$value")
        elif [[ $help == _ ]]; then
            finished+=("$value")
        else
            described+=("${value//:/\\\\:}:$help")
        fi
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#finished )) && compadd -U -V unsorted -a finished
    (( $#open )) && compadd -U -S '' -V unsorted -a open
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH = """\
# jobrun completion for fish: jobrun completion fish > ~/.config/fish/completions/jobrun.fish
function %(complete_func)s
    set -l words (commandline -cp)
    set -l word (commandline -ct)
    COMP_WORDS="$words" COMP_CWORD="$word" %(complete_var)s=fish_complete %(prog_name)s 2>/dev/null
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Whole(ShellComplete):
    """Completion of whole words: also of ``--set=lr``, where click completes after the ``=``."""

    def complete(self) -> str:
        """Return the output for the shell."""
        args, incomplete = self.get_completion_args()
        option, equals, _ = incomplete.partition("=")
        lead = option + equals if equals and option.startswith("--") else ""
        items = self.get_completions(args, incomplete)
        for item in items:
            item.value = lead + item.value
        return "\n".join(self.format_completion(item) for item in self.fitted(items, incomplete))

    def fitted(self, items: list[CompletionItem[str]], incomplete: str) -> Any:
        """Return the items in the form that the shell expects."""
        return items


class _Bash(_Whole, BashComplete):
    source_template = _BASH

    def source(self) -> str:
        """Return the script; it needs bash 4.4, and reports an older one itself."""
        return ShellComplete.source(self)

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words up to the cursor as a shell splits them, and not as readline does."""
        line = os.environ["_JOBRUN_LINE"]
        words = split_arg_string(line)
        incomplete = "" if len(words) < 2 or _ends_a_word(line) else words.pop()
        return words[1:], incomplete

    def fitted(self, items: list[CompletionItem[str]], incomplete: str) -> Any:
        """Return the items without the part up to the last ``=`` or ``:``, which readline keeps."""
        breaks = [c for c in "=:" if c in os.environ.get("_JOBRUN_BREAKS", "=:")]
        cut = max((incomplete.rfind(c) + 1 for c in breaks), default=0)
        for item in items:
            value = item.value[cut:]
            item.value = value.rstrip("/") if item.type == "path" else value
        return items


def _ends_a_word(line: str) -> bool:
    """Return whether a line ends in a space that is not quoted."""
    return line[-1:].isspace() and len(split_arg_string(line + "x")) > len(split_arg_string(line))


class _Zsh(_Whole, ZshComplete):
    source_template = _ZSH

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return three lines; the script escapes them as needed."""
        return f"{item.type}\n{item.value}\n{_line(item.help) or '_'}"


class _Fish(_Whole, FishComplete):
    source_template = _FISH

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return one line, the help after a tab."""
        return f"{item.value}\t{_line(item.help)}" if item.help else item.value


def _line(text: str | None) -> str:
    return " ".join(text.split()) if text else ""


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def register() -> None:
    """Register these classes with click, so that they answer the shells."""
    for name, shell in SHELLS.items():
        add_completion_class(shell, name)


def script(shell: str, cli: Any) -> str:
    """Return the script that a shell runs once, so that it calls jobrun."""
    return SHELLS[shell](cli, {}, "jobrun", VARIABLE).source()
