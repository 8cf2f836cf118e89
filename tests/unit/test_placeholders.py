"""{lr} in the command: real bash shows that every value arrives verbatim, wherever the placeholder stands."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_launch.errors import UsageError
from slurm_launch.rendering.placeholders import fill
from slurm_launch.spec.sweep_points import Points

SHOW = "show() { printf '<%s>' \"$@\"; }; export -f show\n"
# Where a placeholder may stand, and what the arguments then are; V is the value.
PLACES = {
    "show {v}": ["V"],
    "show --v={v}x": ["--v=Vx"],
    "show {v}{v}": ["VV"],
    'show "a {v} b"': ["a V b"],
    "show 'a {v} b'": ["a V b"],
    "show $'a\\t{v}\\'b'": ["a\tV'b"],
    'show $"a {v}"': ["a V"],
    "show ''{v}''": ["V"],
    'show "\'{v}\'"': ["'V'"],
    "show '\"{v}\"'": ['"V"'],
    'show "\\{v}" "\\\\{v}" "\\"{v}"': ["\\V", "\\V", '"V'],
    "show \\\\{v}": ["\\V"],
    'show "$(printf %s. {v})"': ["V."],
    "show \"$(printf '%s.' '{v}')\"": ["V."],
    'show "$(printf %s. "{v}")"': ["V."],
    "(show {v}); ( ( show {v} ) )": ["V", "V"],
    "((show {v}); true)": ["V"],
    "x={v}; show \"$x\" ${y:-a} {v}": ["V", "a", "V"],
    "# it's {v} and {other}\nshow {v} # don't {v}": ["V"],
    "show a#{v}": ["a#V"],
    "case x in x) show {v};; esac; show {v}": ["V", "V"],
    "show $((1 << 2)) {v}\nshow {v}": ["4", "V", "V"],
    "((x = 1 << 2)); show $x {v}\nshow {v}": ["4", "V", "V"],
    "cat >/dev/null <<E\nit's\nE\nshow {v}": ["V"],
    "cat >/dev/null <<-'E' # {v}\n\tit's\n\tE\nshow {v}": ["V"],
    "cat >/dev/null <<<'{v}'; show {v}": ["V"],
    "show \\\n{v}": ["V"],
    "a=(1 {v}); show \"${a[1]}\" ${#a[@]} {v}": ["V", "2", "V"],
    "f() { show {v}; }; f": ["V"],
    "for i in {v}; do show $i'{v}'; done": None,  # $i splits: only that it runs
    "show {{v}} '{{v}}' \"{{other}}\"": ["{v}", "{v}", "{other}"],
    "show \"${v}\" '${v}' \\${v}": ["V", "${v}", "${v}"],
    "show {a,b} {1..2} '{ x }' {}": ["a", "b", "1", "2", "{ x }", "{}"],
    "awk 'BEGIN { printf \"<%s>\", ENVIRON[\"v\"] }'": ["V"],
    'bash -c \'printf "<%s>" "$1"\' x {v}': ["V"],
}  # fmt: skip
VALUES = st.text(
    st.one_of(st.sampled_from(" \t'\"$&\\`!*?~#{}()<>|;[]-=vE%"), st.characters(codec="utf-8", categories=("L", "N"))),
    max_size=12,
)


def said(command: str, *values: str) -> list[str]:
    """The output of the command in its own bash, as the script starts it, for each of the values."""
    lines = Points(("v",), [(value,) for value in values]).lines()
    code = f"{SHOW}command={shlex.quote(fill(command, ['v']))}\n"
    code += "".join(f"export {line}\nbash -c \"$command\"; printf '\\n\\0'\n" for line in lines)
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split("\n\0")[:-1]


def wanted(command: str, value: str) -> str:
    return "".join(f"<{text.replace('V', value)}>" for text in PLACES[command] or [])


@pytest.mark.parametrize("command", PLACES)
def test_a_value_arrives(command: str) -> None:
    values = ["1e-3", "it's", "", 'a b  "$HOME" `id` \\', "*", "-n", "$(id)", "E"]
    heard = said(command, *values)
    if PLACES[command] is not None:
        assert heard == [wanted(command, value) for value in values]


# In one text after one another; these two leave the reader uncertain of the quotes that follow.
TOGETHER = [command for command in PLACES if PLACES[command] and not command.startswith(("case", "((show"))]


@settings(max_examples=10, deadline=None)
@given(st.lists(VALUES, min_size=10, max_size=20))
def test_every_value_arrives_everywhere(values: list[str]) -> None:
    heard = said("\n".join(TOGETHER), *values)
    assert heard == ["".join(wanted(command, value) for command in TOGETHER) for value in values]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("show {w}", r"has \{w\}, which is not a key"),
        ("awk '{print}'", r"has \{print\}, which is not a key"),
        ("exec {fd}>x", r"has \{fd\}, which is not a key"),
        ("show `echo {v}`", r"within `\.\.\.`"),
        ("show \"`echo '{v}'`\"", r"within `\.\.\.`"),
        ("show ${x:-{v}}", r"within \$\{\.\.\.\}"),
        ("cat <<E\n{v}\nE", "within a here-document"),
        ("cat <<'A' <<B\nx\nA\nlr: {v}\nB\n", "within a here-document"),
        ('show "$(case x in x) show {v};; esac)"', "where its quoting cannot be determined"),
        ("show \"${x:-it's}\" '{v}'", "where its quoting cannot be determined"),
    ],
)
def test_where_it_cannot_be(command: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        fill(command, ["v", "lr"])
    assert caught.value.hint


def test_the_hint_shows_the_fix() -> None:
    with pytest.raises(UsageError) as caught:
        fill("echo\ntrain --lr {l_r}", ["lr", "seed"])
    assert caught.value.at == "--command, line 2"
    assert caught.value.hint == "did you mean {lr}? the sweep has lr, seed; write {{l_r}} for the literal text {l_r}"


def test_a_here_document_keeps_braces_that_are_not_keys() -> None:
    text = "cat <<E\n{other} {{other}} ${v} {{v}}\nE\n"
    assert fill(text, ["v"]) == text.replace("{{v}}", "{v}")


def test_words_after_the_dashes_are_quoted() -> None:
    assert shlex.split(fill(shlex.join(["train", "--lr", "{lr}"]), ["lr"])) == ["train", "--lr", "${lr}"]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("'\"`$(){}\\#<\n E-vx|;"), max_size=30))
def test_any_text_is_read_to_its_end(text: str) -> None:
    """And without placeholders it stays as it is."""
    without = re.sub(r"\{[vxE]+\}", "", text)
    try:
        assert fill(without, ["v"]) == without
    except UsageError:
        assert re.search(r"\{\{?[vxE]+\}", without)
