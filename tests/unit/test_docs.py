"""What the documentation says can be done, can be done; what it points to exists."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec, errors, render
from slurm_launch.config import realhf_import
from slurm_launch.config.layers import holds_code, is_list, is_mapping
from slurm_launch.config.profile_keys import FACTS, LIMITS
from slurm_launch.explain import explain, rules
from slurm_launch.rehearsal import faults
from slurm_launch.rendering import templates
from slurm_launch.runs import log_phases
from slurm_launch.spec.script_header import read_embedded

Launcher = Callable[..., Any]  # tests/unit/conftest.py
ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md", "examples/*.md")
    for path in ROOT.glob(pattern)
}
TEMPLATES = "\n".join(path.read_text() for path in sorted((ROOT / "templates").rglob("*")) if path.is_file())
AFTERWARDS = ("list", "status", "watch", "logs", "cancel", "attach", "dashboard", "explain", "resubmit", "grow")
VERBS = ("submit", "render", "rehearse", "check", "doctor", "config", *AFTERWARDS)


def code_lines(page: str) -> Iterator[str]:
    """The lines of fenced and of indented code, continuation lines joined."""
    fenced, before = False, ""
    for line in page.replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or (line.startswith("    ") and not before.startswith(("-", "*"))):
            yield line.strip()
        before = line if line.strip() else ""


def command_lines() -> list[tuple[str, list[str]]]:
    found = []
    for name, page in PAGES.items():
        for line in code_lines(page):
            if line.startswith("slurm-launch "):
                words = shlex.split(re.sub(r"\s#.*", "", line))  # shlex would see a comment in nvcr.io#nvidia too
                cut = next((i for i, word in enumerate(words) if word in (">", "|", "&&", ";")), len(words))
                found.append((name, words[1:cut]))
    return found


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its first two lines."""
    below = PAGES[page].split(f"\n## {heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert lines, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].splitlines()[2:]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(
    ("page", "words"), command_lines(), ids=lambda value: shlex.join(value) if isinstance(value, list) else value
)
def test_every_command_line_works(launcher: Launcher, page: str, words: list[str]) -> None:
    for flag, value in pairwise(words):
        if flag == "import":
            Path(value).write_text('{"cluster_type": "slurm", "fileroot": "/nfs"}', encoding="utf-8")
        elif flag == "--from":
            Path(value).write_text(render(LaunchSpec(exp_name="old", command="true")), encoding="utf-8")
        elif flag == "--template":
            Path(value).write_text(example_template(), encoding="utf-8")
        elif flag == "--config":
            Path(value).write_text("partition: main\n", encoding="utf-8")
        elif flag == "--sweep-file":
            Path(value).write_text("lr,seed\n1e-3,0\n", encoding="utf-8")
        elif flag == "--profile" and "init" not in words:
            profile = Path.home() / ".config/slurm-launch/profiles" / f"{value}.yaml"
            profile.parent.mkdir(parents=True)
            profile.write_text("partition: main\n", encoding="utf-8")
    if words[0] not in VERBS or words[0] == "submit":
        launch = words[1:] if words[0] == "submit" else words
        if "--help" not in launch:
            launch = ["--dry-run", *launch]
        words = ["submit", *launch]
    elif words[0] == "rehearse":  # tests/script/test_rehearse.py does that
        if "--fault" in words:
            at = words.index("--fault")
            assert faults.parse(words[at + 1], 3)
            del words[at : at + 2]
        if "--tasks" in words:  # tests/script/test_rehearse_tasks.py
            at = words.index("--tasks")
            del words[at : at + 2]
        words = ["render", *words[1:]]
    elif words[0] == "check":  # takes the same flags, and asks the Slurm of this machine
        words = ["render", *words[1:]]
    elif words[0] == "doctor":  # looks at the Slurm of this machine; a wrong flag is told before the help
        words = [*words, "--help"]
    elif words[0] in AFTERWARDS:  # there is no run here
        words = [words[0], "--help", *words[1:]]
    elif words[:2] == ["config", "show"] and len(words) == 2:  # says what a launch would still need
        words += ["--exp-name", "x", "--command", "true"]
    answer = launcher(*words)
    assert answer.code == 0, f"{page}: {answer.err}"
    assert answer.out


def test_the_command_lines_are_found() -> None:
    """Else the test above would pass with none."""
    found = command_lines()
    assert len([1 for page, _ in found if page == "README.md"]) > 10
    assert len([1 for page, _ in found if page == "docs/recipes.md"]) > 10
    assert {"docs/configuration.md", "docs/script.md", "docs/template.md"} <= {page for page, _ in found}


def anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page} links to {target}"
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{page} links to {target}"


@pytest.mark.parametrize("page", PAGES)
def test_every_named_file_and_test_exists(page: str) -> None:
    for path in re.findall(r"`((?:tests|slurm_launch|templates|docs)/[\w./-]*\w/?)[`:]", PAGES[page]):
        assert (ROOT / path).exists(), f"{page} names {path}"
    for file, function in re.findall(r"(test_\w+\.py)(?:::(test_\w+))?", PAGES[page]):
        homes = list((ROOT / "tests").rglob(file))
        assert homes, f"{page} names {file}"
        if function:
            assert f"\ndef {function}(" in homes[0].read_text(encoding="utf-8"), f"{page} names {file}::{function}"


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_exists(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"`make (\w+)", PAGES[page]) + [
        line.split()[1] for line in code_lines(PAGES[page]) if line.startswith("make ")
    ]
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page} names make {target}"


@pytest.mark.parametrize("page", PAGES)
def test_no_page_tells_where_it_was_written(page: str) -> None:
    assert str(ROOT) not in PAGES[page]
    assert "slurm-testbed-" not in PAGES[page]


# docs/script.md against the templates


def test_the_exit_codes_are_those_of_the_script() -> None:
    used = set(re.findall(r"\b(?:finish|give_up|set_outcome) (7\d|80) ([a-z-]+)", TEMPLATES))
    assert len(used) > 10
    documented = {
        (code, outcome) for code, outcomes, _ in table("docs/script.md", "Exit codes") for outcome in quoted(outcomes)
    }
    documented -= {("the command's", "ok"), ("the command's", "command-failed")}
    assert documented == used
    header = re.search(r"\n# Exit codes: (.*?)\n# spec", TEMPLATES, re.DOTALL)
    assert header
    assert set(re.findall(r"\b(?:7\d|80)\b", header[1])) == {code for code, _ in used}
    failures = set(re.findall(r"\| (7\d|80) \|", PAGES["docs/failures.md"]))
    assert failures == {code for code, _ in used}, "docs/failures.md tells of each"
    assert all(log_phases.End(outcome, 1).command_ended is False for _, outcome in used)


def test_the_phases_are_those_of_the_script() -> None:
    used = set(re.findall(r"\bsay ([a-z-]+)", TEMPLATES))
    documented = {phase for first, *_ in table("docs/script.md", "The log") for phase in quoted(first)}
    assert documented == used


def test_the_variables_that_the_command_sees_are_set() -> None:
    for names, _ in table("docs/script.md", "What the command sees"):
        for name in quoted(names):
            assert name == "SLURM_*" or f"{name}=" in TEMPLATES or f"set_default {name} " in TEMPLATES, name


class Shown(dict[str, str]):
    """What the documentation has in the place of a rule's values."""

    def __missing__(self, name: str) -> str:
        return "" if name in ("at", "place", "asked", "time", "versions", "more", "kills") else name.upper()


def test_the_causes_are_those_of_explain() -> None:
    killed = ": the kernel killed PROCESS at Slurm's limit of N MB"
    shown = Shown(cause="the script's own words", hint="the script's own words", killed=killed)
    documented = [
        (quoted(cause)[0], sentence, advice) for cause, sentence, _, advice, _ in table("docs/explain.md", "The causes")
    ]
    assert documented == [
        (rule.cause, rule.sentence.format_map(shown), rule.advice.format_map(shown)) for rule in rules.RULES
    ]


def test_the_keys_of_explain() -> None:
    documented = [key for keys, _ in table("docs/explain.md", "For programs") for key in quoted(keys)]
    assert set(documented) == {"id", "state", "log", *(field.name for field in fields(explain.Explanation))}


def test_the_facts_of_profiles() -> None:
    documented = [name for names, _ in table("docs/profiles.md", "Facts") for name in quoted(names)]
    assert documented == [name.replace("_", "-") for name in FACTS]
    for limit in LIMITS:
        assert f"`{limit.replace('_', '-')}`" in PAGES["docs/profiles.md"]


def test_the_keys_of_a_cluster_spec() -> None:
    rows = {quoted(key)[0]: quoted(becomes) for key, becomes in table("docs/profiles.md", "ReaL's cluster spec")}
    assert tuple(rows) == realhf_import.KEYS
    for theirs, ours in {**realhf_import.OPTIONS, **realhf_import.FACTS}.items():
        assert ours.replace("_", "-") == rows[theirs][0]


def test_the_exit_codes_of_the_tool() -> None:
    documented = {int(code) for code, _ in table("docs/exit-codes.md", "slurm-launch")}
    kinds = {
        error.exit_code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.LaunchError)
    }
    assert documented == kinds | {0, 130}


# docs/template.md against the renderer


def example_template() -> str:
    found = re.search(r"```jinja\n(.*?)```", PAGES["docs/template.md"], re.DOTALL)
    assert found
    return found[1]


def test_the_variables_of_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Recorder:
        def render(self, variables: dict[str, Any]) -> str:
            given.update(variables)
            return ""

    monkeypatch.setattr(templates, "built_in", lambda name: Recorder())
    render(LaunchSpec(exp_name="x", command="true"))
    documented = {name for names, *_ in table("docs/template.md", "Variables") for name in quoted(names)}
    assert documented == set(given)
    raw = re.search(r"These go in as they are:(.*?)\n\n", PAGES["docs/template.md"], re.DOTALL)
    assert raw
    assert set(quoted(raw[1])) == {name for name, value in given.items() if isinstance(value, templates.Raw)}


def test_the_parts_of_a_template() -> None:
    documented = {name for first, *_ in table("docs/template.md", "Our parts") for name in quoted(first)}
    assert documented == {f"parts/{path.name}" for path in (ROOT / "templates/parts").iterdir()}


@pytest.mark.parametrize(
    ("command", "code", "outcome"), [('echo "it\'s $GREETING"', 0, "ok"), ("exit 3", 3, "command-failed")]
)
def test_the_example_template_works(command: str, code: int, outcome: str) -> None:
    Path("job.sh.j2").write_text(example_template(), encoding="utf-8")
    spec = LaunchSpec(
        exp_name="x", command=command, template="job.sh.j2", env={"GREETING": "a b"}, load_env=["export LOADED=1"]
    )
    text = render(spec)
    assert read_embedded(text, "here").own["command"] == command
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert (end := log_phases.parse_end(done.stdout))
    assert (end.outcome, end.code) == (outcome, code)
    assert code or "it's a b\n" in done.stdout


def test_the_example_template_tells_of_a_failing_environment() -> None:
    Path("job.sh.j2").write_text(example_template(), encoding="utf-8")
    text = render(LaunchSpec(exp_name="x", command="true", template="job.sh.j2", load_env=["false"]))
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 73
    assert (end := log_phases.parse_end(done.stdout))
    assert (end.outcome, end.code) == ("environment-failed", 73)


def test_the_python_of_the_readme() -> None:
    found = re.search(r"```python\n(.*?)```", PAGES["README.md"], re.DOTALL)
    assert found
    lines = [line for line in found[1].splitlines() if not re.search(r"submit\(|run\.|rehearse\(", line)]
    assert len(lines) == len(found[1].splitlines()) - 3, "the lines that need a Slurm or a Ray"
    exec("\n".join(lines), {})


# docs/configuration.md and docs/profiles.md against the options


def test_the_lists_that_are_put_together() -> None:
    found = re.search(r"\*\*Lists\*\* \((.*?)\)", PAGES["docs/configuration.md"], re.DOTALL)
    assert found
    lists = {name.replace("_", "-") for name in LaunchSpec.model_fields if is_list(name) and not is_mapping(name)}
    assert set(quoted(found[1])) == lists


def test_the_variables_that_are_code() -> None:
    found = re.search(r"as a\s+shell does(.*?)\. Switches", PAGES["docs/configuration.md"], re.DOTALL)
    assert found
    code = {f"SLAUNCH_{name.upper()}" for name in LaunchSpec.model_fields if is_list(name) and holds_code(name)}
    assert {word for word in quoted(found[1]) if "=" not in word} == code


def test_reals_example_works() -> None:
    found = re.search(r"```json\n(.*?)```", PAGES["docs/profiles.md"], re.DOTALL)
    assert found
    Path("cluster.json").write_text(found[1], encoding="utf-8")
    spec = realhf_import.read(Path("cluster.json"))
    assert (spec.warnings, spec.notes) == ([], [])
    assert set(spec.results) == set(realhf_import.KEYS), "it has every key"
