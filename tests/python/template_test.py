"""Chat templates against Python's jinja2: the same text, or an error on both sides.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/template_test.py
    RIDGE_TEMPLATES_DIR=DIR ...    also every *.jinja below DIR, and every GGUF's own template with RIDGE_MODELS_DIR
    python3 tests/python/template_test.py --update    writes jinja2's answers into tests/golden/template_snippets.jsonl
"""
import concurrent.futures
import datetime
import functools
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    jinja2 = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SNIPPETS = os.path.join(ROOT, "tests", "golden", "template_snippets.jsonl")
NOW = 1785585845  # 2026-08-01 12:04:05 UTC


def environment():
    """transformers' environment (utils/chat_template_utils.py), with a pinned clock."""

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

        def _body(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


class Raises:
    """jinja2 raised: compares equal to a failed ridge."""

    def __init__(self, reason=""):
        self.reason = reason

    def __eq__(self, other):
        return isinstance(other, Raises)

    def __repr__(self):
        return f"Raises({self.reason!r})"


@functools.lru_cache(maxsize=None)
def compile_template(source):
    return environment().from_string(source)


def python_render(source, variables):
    try:
        return compile_template(source).render(**variables)
    except Exception as e:  # whatever it is, ridge must fail too
        return Raises(f"{type(e).__name__}: {e}")


class Program:
    def __init__(self):
        self.bin = os.environ["RIDGE_BIN"]
        self.folder = tempfile.TemporaryDirectory()

    def file(self, name, content):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as f:
            f.write(content.encode() if isinstance(content, str) else content)
        return path

    def run(self, *args):
        return subprocess.run([self.bin, "template", *args], capture_output=True, timeout=60)

    def render(self, template, messages, tools=None, kwargs=None, generation=False, bos=None, eos=None, tag=""):
        args = template + ["--messages", self.file(f"messages{tag}.json", json.dumps(messages)), "--now", str(NOW)]
        if tools is not None:
            args += ["--tools", self.file(f"tools{tag}.json", json.dumps(tools))]
        if kwargs:
            args += ["--kwargs", json.dumps(kwargs)]
        if generation:
            args += ["--add-generation-prompt"]
        if bos is not None:
            args += ["--bos", bos]
        if eos is not None:
            args += ["--eos", eos]
        done = self.run(*args)
        if done.returncode == 0:
            return done.stdout.decode()
        if done.returncode != 1 or sum(line.startswith("error: ") for line in done.stderr.decode().splitlines()) != 1:
            raise AssertionError(f"status {done.returncode}: {done.stderr!r}")
        return Raises(done.stderr.decode().strip())


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather \"now\" in <a city> & more",
           "parameters": {"type": "object", "properties": {
               "city": {"type": "string", "description": "Städtename, z. B. 北京"},
               "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
               "days": {"type": "integer", "minimum": 1}, "hours": {"type": "array", "items": {"type": "integer"}},
               "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}}, "required": ["lat"]}},
               "required": ["city"]}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "Time.", "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    user = {"role": "user", "content": "Hello, who are you?"}
    answer = {"role": "assistant", "content": "I am Ridge.\n\nAsk me anything."}
    system = {"role": "system", "content": "You are terse.\nAnswer in one line."}
    thought = {"role": "assistant", "content": "Four.", "reasoning_content": "2 + 2 is 4.\nSo: four.", "thinking": "2 + 2 is 4.", "reasoning": "2 + 2"}
    inline = {"role": "assistant", "content": "<think>\nLet me see.\n</think>\n\nFour."}
    dict_call = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Köln", "days": 2, "where": {"lat": 50.9, "lon": None}, "now": True})]}
    text_call = {"role": "assistant", "content": "Looking.", "tool_calls": [call("get_weather", "{\"city\": \"Köln\"}")]}
    none_call = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"city": "Bonn"}, "call00001"), call("clock", {}, "call00002")]}
    result = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"temp\": 21.5, \"sky\": \"☀️\"}"}
    result2 = {"role": "tool", "tool_call_id": "call00002", "name": "clock", "content": "12:00"}
    parts = {"role": "user", "content": [{"type": "text", "text": "First part. "}, {"type": "text", "text": "Second <part>."}]}
    unicode = {"role": "user", "content": "  Grüße, 世界! 👩‍👩‍👧 ñ \u200b\u2028 e\u0301 \t end  "}
    return {
        "simple": dict(messages=[user], generation=True),
        "no-prompt": dict(messages=[user, answer]),
        "system": dict(messages=[system, user], generation=True),
        "multi-turn": dict(messages=[system, user, answer, {"role": "user", "content": "And now?"}, answer, {"role": "user", "content": "Bye"}], generation=True),
        "unicode": dict(messages=[system, unicode], generation=True),
        "tools": dict(messages=[system, user], tools=[WEATHER, CLOCK], generation=True),
        "tools-no-system": dict(messages=[user], tools=[WEATHER], generation=True),
        "tool-result": dict(messages=[system, user, dict_call, result], tools=[WEATHER, CLOCK], generation=True),
        "tool-text-arguments": dict(messages=[user, text_call, result, answer, user], tools=[WEATHER], generation=True),
        "tool-parallel": dict(messages=[user, none_call, result, result2], tools=[WEATHER, CLOCK], generation=True),
        "thinking": dict(messages=[user, thought, {"role": "user", "content": "Sure?"}], generation=True),
        "thinking-inline": dict(messages=[user, inline, {"role": "user", "content": "Sure?"}], generation=True, kwargs={"enable_thinking": True}),
        "thinking-off": dict(messages=[system, user], generation=True, kwargs={"enable_thinking": False, "thinking": False, "reasoning_effort": "low"}),
        "thinking-tools": dict(messages=[user, dict(dict_call, reasoning_content="I need the weather."), result], tools=[WEATHER], generation=True, kwargs={"reasoning_effort": "high"}),
        "parts": dict(messages=[parts, answer, parts], generation=True),
        "developer": dict(messages=[{"role": "developer", "content": "Be kind."}, user], generation=True),
        "assistant-first": dict(messages=[answer, user], generation=True),
        "two-users": dict(messages=[user, user], generation=True),
        "unknown-role": dict(messages=[user, {"role": "observer", "content": "hm"}], generation=True),
        "empty": dict(messages=[], generation=True),
        "documents": dict(messages=[user], generation=True, kwargs={"documents": [{"title": "A", "text": "Alpha"}, {"title": "B", "text": "Beta"}]}),
    }


def python_conversation(source, conversation, bos, eos):
    variables = dict(messages=conversation["messages"], tools=conversation.get("tools"), documents=None,
                     add_generation_prompt=conversation.get("generation", False), bos_token=bos, eos_token=eos)
    variables.update(conversation.get("kwargs", {}))
    return python_render(source, variables)


def read_snippets():
    with open(SNIPPETS, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return lines[0]["variables"], lines[1:]


def snippet_variables(variables):
    return dict(messages=[], tools=None, documents=None, add_generation_prompt=False, **variables)


def update():
    variables, cases = read_snippets()
    lines = [{"variables": variables}]
    for case in cases:
        text = python_render(case["template"], snippet_variables(variables))
        if isinstance(text, str) and " at 0x" in text:
            raise SystemExit(f"an address in the output of {case['template']!r}: it changes from run to run")
        answer = {"raises": True} if isinstance(text, Raises) else {"text": text}
        # Where Ridge differs on purpose, the case says why and what it does instead.
        kept = {k: v for k, v in case.items() if k in ("template", "ridge", "why")}
        lines.append({**kept, **answer})
    with open(SNIPPETS, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


@unittest.skipIf(jinja2 is None, "needs the Python package jinja2")
@unittest.skipIf("RIDGE_BIN" not in os.environ, "needs RIDGE_BIN, the built program")
class TemplateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = Program()

    def compare(self, jobs, at_least):
        """jobs: (name, jinja2's answer as a function, ridge's as a function)."""
        wrong, rendered = [], 0
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, want, got in pool.map(lambda job: (job[0], job[1](), job[2]()), jobs):
                rendered += isinstance(want, str)
                if want != got:
                    wrong.append(f"{name}\n  jinja2: {str(want)[:400]!r}\n  ridge:  {str(got)[:400]!r}")
        self.assertEqual(wrong, [], f"{len(wrong)} of {len(jobs)} differ:\n" + "\n".join(wrong[:40]))
        self.assertGreaterEqual(rendered, at_least, "too few of the templates rendered at all")

    def test_snippets(self):
        variables, cases = read_snippets()
        jobs = []
        for i, case in enumerate(cases):
            if "why" in case:
                continue
            source = case["template"]
            path = self.program.file(f"snippet{i}.jinja", source)
            jobs.append((source, lambda source=source: python_render(source, snippet_variables(variables)),
                         lambda path=path, i=i: self.program.render(["--template", path], [], kwargs=variables, tag=f"-s{i}")))
        self.compare(jobs, 700)

    def test_snippets_hold_jinja2s_answers(self):
        variables, cases = read_snippets()
        for case in cases:
            want = python_render(case["template"], snippet_variables(variables))
            with self.subTest(template=case["template"]):
                self.assertEqual(case.get("text", Raises()), want)

    def conversation_jobs(self, name, source, template, bos, eos):
        for key, c in conversations().items():
            yield (f"{name} × {key}", lambda c=c: python_conversation(source, c, bos, eos),
                   lambda c=c, key=key: self.program.render(template, c["messages"], c.get("tools"), c.get("kwargs"), c.get("generation", False), bos, eos, f"-{os.path.basename(name)}-{key}"))

    def test_own_templates(self):
        jobs = []
        for path in sorted(glob.glob(os.path.join(ROOT, "fuzz", "corpus", "template", "*"))):
            with open(path, encoding="utf-8", newline="") as f:
                source = f.read()
            jobs += self.conversation_jobs(path, source, ["--template", path], "<s>", "</s>")
        self.compare(jobs, 1)

    def test_real_templates(self):
        folder = os.environ.get("RIDGE_TEMPLATES_DIR")
        if not folder:
            self.skipTest("needs RIDGE_TEMPLATES_DIR, a folder with *.jinja files of models (llama.cpp's models/templates)")
        paths = sorted(glob.glob(os.path.join(folder, "**", "*.jinja"), recursive=True))
        self.assertGreaterEqual(len(paths), 20)
        jobs = []
        for path in paths:
            with open(path, encoding="utf-8", newline="") as f:
                source = f.read()
            jobs += self.conversation_jobs(path, source, ["--template", path], "<s>", "</s>")
        self.compare(jobs, 20 * 8)

    def test_models_own_templates(self):
        folder = os.environ.get("RIDGE_MODELS_DIR")
        if not folder:
            self.skipTest("needs RIDGE_MODELS_DIR, a folder with GGUF models")
        try:
            import gguf
        except ImportError:
            self.skipTest("needs the Python package gguf")
        jobs = []
        for path in sorted(glob.glob(os.path.join(folder, "*.gguf"))):
            fields = gguf.GGUFReader(path).fields
            if "tokenizer.chat_template" not in fields:
                continue
            tokens = fields["tokenizer.ggml.tokens"]
            token = lambda key: bytes(tokens.parts[tokens.data[int(fields[key].contents())]]).decode()
            bos, eos = token("tokenizer.ggml.bos_token_id"), token("tokenizer.ggml.eos_token_id")
            source = fields["tokenizer.chat_template"].contents()
            for name, want, _ in self.conversation_jobs(path, source, [], bos, eos):
                c = conversations()[name.rsplit(" × ", 1)[1]]
                jobs.append((name, want, lambda path=path, c=c, name=name: self.program.render(
                    ["-m", path], c["messages"], c.get("tools"), c.get("kwargs"), c.get("generation", False), tag="-m" + str(abs(hash(name))))))
        if not jobs:
            self.skipTest("no model in RIDGE_MODELS_DIR has a chat template")
        self.compare(jobs, 1)

    # ---- the command itself

    def status(self, *args):
        done = self.program.run(*args)
        self.assertEqual(sum(line.startswith("error: ") for line in done.stderr.decode().splitlines()), 1, done.stderr)
        self.assertNotIn(b"Traceback", done.stderr)
        return done.returncode

    def test_command(self):
        file = self.program.file
        good = file("good.jinja", "{{ messages[0].content }}\n\n")
        messages = file("m.json", json.dumps([{"role": "user", "content": "x\u00e9"}]))
        done = self.program.run("--template", good, "--messages", messages)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "x\u00e9\n".encode(), b""))
        done = self.program.run("--template", good, "--messages", messages, "--json")
        self.assertEqual(json.loads(done.stdout), {"text": "x\u00e9\n"})
        self.assertEqual(self.status("--messages", messages), 2)
        self.assertEqual(self.status("--template", good), 2)
        self.assertEqual(self.status("--template", good, "-m", "x.gguf", "--messages", messages), 2)
        self.assertEqual(self.status("--template", "/does/not/exist", "--messages", messages), 1)
        self.assertEqual(self.status("--template", self.program.folder.name, "--messages", messages), 1)
        self.assertEqual(self.status("--template", good, "--messages", file("bad.json", "[{")), 1)
        self.assertEqual(self.status("--template", good, "--messages", file("object.json", "{}")), 1)
        self.assertEqual(self.status("--template", good, "--messages", messages, "--kwargs", "[1]"), 2)
        self.assertEqual(self.status("--template", good, "--messages", messages, "--tools", file("t.json", "3")), 1)
        self.assertEqual(self.status("--template", file("latin1.jinja", b"caf\xe9"), "--messages", messages), 1)
        self.assertEqual(self.status("--template", good, "--messages", file("deep.json", "[" * 5000 + "]" * 5000)), 1)
        empty = self.program.run("--template", file("empty.jinja", ""), "--messages", messages)
        self.assertEqual((empty.returncode, empty.stdout), (0, b""))

    def test_error_names_message_and_line(self):
        path = self.program.file("raise.jinja", "a\n{% if true %}\n{{ raise_exception('roles must alternate') }}\n{% endif %}")
        messages = self.program.file("m2.json", "[]")
        done = self.program.run("--template", path, "--messages", messages, "--json")
        self.assertEqual(done.returncode, 1)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["what"], "roles must alternate")
        self.assertIn("line 3", error["where"])
        self.assertIn(path, error["where"])

    def test_hostile_templates_end(self):
        hostile = {
            "deep": "{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}",
            "not": "{{ " + "not " * 100000 + "1 }}",
            "minus": "{{ " + "-" * 100000 + "1 }}",
            "if": "{% if 1 %}" * 100000,
            "loop": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
            "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "output": "{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
            "memory": "{% set ns = namespace(x='ab') %}{% for a in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "repeat": "{{ [0] * 10000000000 }}",
            "pad": "{{ 'a'.center(10000000000) }}",
            "format": "{{ '%10000000000d' % 1 }}{{ '{:10000000000}'.format(1) }}",
            "replace": "{% set a = 'a' * 100000 %}{{ a.replace('a', a).replace('a', a) }}",
            "nest": "{% set ns = namespace(x=[]) %}{% for a in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}",
            "fill": "{{ [1]|batch(10000000000, 0)|list }}",
            "call": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
            "generators": "{% set ns = namespace(x=[1]) %}{% for a in range(100000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}{{ ns.x|list }}",
        }
        messages = self.program.file("none.json", "[]")
        for name, source in hostile.items():
            with self.subTest(name):
                path = self.program.file(f"hostile-{name}.jinja", source)
                self.assertEqual(self.status("--template", path, "--messages", messages), 1)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update()
    else:
        unittest.main()
