#!/usr/bin/env bash
# Makes docs/img/terminal.svg: the command's output on a terminal of 100 columns, drawn by the Python package rich. Needs Go,
# Python and script from util-linux.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
svg=$PWD/docs/img/terminal.svg
venv rich==15.0.0
(cd cmd/fileproc && go build -o "$tmp/fileproc" .)
go -C scripts run ./tickets -layout nested1 -count 200 -out "$tmp" >/dev/null
mv "$tmp/tickets_nested1_200" "$tmp/tickets"

cat >"$tmp/session" <<'END'
stty cols 100
PATH=$PWD:$PATH
while IFS= read -r command; do
	printf '\e[1;32m$ \e[0m%s\n' "$command"
	eval "$command"
done <<'COMMANDS'
fileproc grep --sort -i 'login form.*proxy' tickets
fileproc frontmatter tickets --fields priority,title --where 'status == "open" && "docs" in tags'
COMMANDS
END
cd "$tmp"
env -u NO_COLOR TERM=xterm-256color script --quiet --return --command 'bash session' /dev/null </dev/null >typescript

"$python" - typescript "$svg" <<'END'
import re, sys
from rich.console import Console
from rich.text import Text

with open(sys.argv[1], newline="") as f:
    text = Text.from_ansi(f.read().replace("\r\n", "\n").rstrip())
with open("/dev/null", "w") as nowhere:
    console = Console(record=True, width=100, file=nowhere)
    console.print(text)
svg = console.export_svg(title="fileproc", unique_id="terminal")
# An image in a page cannot load fonts.
svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S).replace("Fira Code", "ui-monospace, Menlo, Consolas")
with open(sys.argv[2], "w") as f:
    f.write(re.sub(r"[ \t]+\n", "\n", svg))
END
