"""Chats over one system prompt, by HTTP: how much of what they share is reused, for an attention model and for a recurrent one.

    RIDGE_BIN=build/release/bin/ridge python3 tests/python/prefix_reuse_test.py

Shareable: in the first turn the system prompt, later all of the turn before (prompt and answer but its last token). What is claimed beyond that is a fault
too. The answers are those without a cache. All of it is reused here; the goals are such that a last page that is not kept (98.5 %), or a recurrent
state that is not kept at the end of a run (94.8 %), is seen.
"""
import concurrent.futures
import os
import random
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import CHAT, Server
try:
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"

CHATS, TURNS, AT_ONCE, PAGE = 64, 4, 8, 32
WORDS = "the quick thick neck check quit then other weather".split()


def text(random, n):
    return " ".join(random.choice(WORDS) for _ in range(n))


@unittest.skipIf(tiny_model is None, MISSING)
class PrefixReuse(unittest.TestCase):
    def turn(self, server, messages):
        status, document = server.post(CHAT, {"messages": messages, "max_tokens": 12, "temperature": 0, "ignore_eos": True,
                                              "logit_bias": {str(i): -100 for i in [*range(35), *range(130, 259)]}})  # printable ASCII
        self.assertEqual(status, 200, document)
        usage = document["usage"]
        messages.append({"role": "assistant", "content": document["choices"][0]["message"]["content"]})
        return usage["prompt_tokens"], usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def chats(self, model, *flags):
        """(messages of each chat, reused tokens and shareable ones of each turn)"""
        source = random.Random(5)
        system = {"role": "system", "content": text(source, 160)}
        chats = [[dict(system)] for _ in range(CHATS)]
        before = [None] * CHATS
        reused, shareable = [0] * TURNS, [0] * TURNS
        with Server(model, "-np", str(AT_ONCE), "-c", "2048", "-t", "1", "--kv-page", str(PAGE), "--kv-memory", "64MiB", *flags) as server, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            empty = self.turn(server, [{"role": "system", "content": "a"}, {"role": "user", "content": "a"}])[0] - 1
            size = self.turn(server, [dict(system), {"role": "user", "content": "a"}])[0] - empty
            for t in range(TURNS):
                for chat in chats:
                    chat.append({"role": "user", "content": text(source, 12)})
                for i, (prompt, answer, cached) in enumerate(pool.map(lambda c: self.turn(server, c), chats)):
                    can = size if t == 0 else before[i]
                    self.assertLessEqual(cached, min(prompt - 1, can + 2 * PAGE))
                    shareable[t] += can
                    reused[t] += min(cached, can)
                    before[i] = prompt + answer - 1
        return chats, reused, shareable

    def test_chats_over_one_system_prompt(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        for family, goal in (("llama", 0.99), ("qwen35", 0.98)):
            with self.subTest(family=family):
                model = os.path.join(folder, family + ".gguf")
                tiny_model.write_tiny_model(model, chat_template=tiny_model.CHATML, context=4096, architecture=family)
                chats, reused, shareable = self.chats(model)
                print(f"{family}: reused " + ", ".join(f"{100 * a / b:.1f} %" for a, b in zip(reused, shareable)) + f" of what the turns share, {100 * sum(reused) / sum(shareable):.1f} % in all")
                self.assertGreater(sum(reused), goal * sum(shareable))
                without, none, _ = self.chats(model, "--no-prefix-cache")
                self.assertEqual(sum(none), 0)
                self.assertEqual(chats, without)


if __name__ == "__main__":
    unittest.main()
