"""The `openai` Python package, unpatched and with strict validation of each answer, against ridge serve on a tiny random model."""
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import Server, idle
try:
    import openai
    import tiny_model
    MISSING = ""
except ImportError as error:
    openai, MISSING = None, f"needs the Python package {error.name}"

USER = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "quick"}]


@unittest.skipIf(openai is None, MISSING)
class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        model = os.path.join(folder, "tiny.gguf")
        tiny_model.write_tiny_model(model, tiny_model.CHATML, context=20000)
        cls.server = cls.enterClassContext(Server(model, "-np", "4", "-c", "20000", "--alias", "tiny-1"))
        url = f"http://127.0.0.1:{cls.server.port}/v1"
        cls.client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=Server.PATIENCE_S, _strict_response_validation=True)
        cls.loose = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=Server.PATIENCE_S)  # its type for streamed completions forbids a null finish_reason
        cls.addClassCleanup(cls.client.close)
        cls.addClassCleanup(cls.loose.close)

    def chat(self, **more):
        return self.client.chat.completions.create(**{"model": "tiny-1", "messages": USER, "max_tokens": 16, "temperature": 0, "extra_body": {"ignore_eos": True}, **more})

    def text(self, **more):
        client = self.loose if more.get("stream") else self.client
        return client.completions.create(**{"model": "tiny-1", "prompt": "the quick", "max_tokens": 16, "temperature": 0, "extra_body": {"ignore_eos": True}, **more})

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["tiny-1"])

    def test_chat_and_its_stream(self):
        whole = self.chat(logprobs=True, top_logprobs=2)
        self.assertEqual((whole.object, whole.model, whole.choices[0].message.role, whole.usage.completion_tokens), ("chat.completion", "tiny-1", "assistant", 16))
        chunks = list(self.chat(stream=True, logprobs=True, top_logprobs=2, stream_options={"include_usage": True}))
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        parts = [c.choices[0] for c in chunks if c.choices]
        self.assertEqual("".join(p.delta.content or "" for p in parts), whole.choices[0].message.content)
        self.assertEqual([p.finish_reason for p in parts], [None] * (len(parts) - 1) + ["length"])
        self.assertEqual([t for p in parts if p.logprobs for t in p.logprobs.content], whole.choices[0].logprobs.content)
        self.assertEqual((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 16))
        self.assertTrue(all(c.usage is None for c in self.chat(stream=True)))

    def test_completions(self):
        whole = self.text(logprobs=2)
        self.assertEqual((whole.object, len(whole.choices[0].logprobs.tokens)), ("text_completion", 16))
        self.assertEqual("".join(c.choices[0].text for c in self.text(stream=True) if c.choices), whole.choices[0].text)
        self.assertEqual(sorted(c.index for c in self.text(n=3, temperature=1, seed=5).choices), [0, 1, 2])

    def test_errors(self):
        def raised(kind, **more):
            with self.assertRaises(kind) as caught:
                self.chat(**more)
            return caught.exception
        self.assertEqual(raised(openai.BadRequestError, temperature=-1).param, "temperature")
        self.assertEqual(raised(openai.BadRequestError, messages=[{"role": "user", "content": "x" * 30000}]).code, "context_length_exceeded")
        self.assertEqual(raised(openai.BadRequestError, tools=[{"type": "function", "function": {"name": "f"}}]).param, "tools")
        self.assertEqual(raised(openai.NotFoundError, model="other").param, "model")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.embeddings.create(model="tiny-1", input="a")
        self.assertIn("embedding", str(caught.exception))

    def test_a_closed_stream_ends_the_request(self):
        with self.text(max_tokens=19000, stream=True) as stream:
            next(iter(stream))
        self.server.until(idle)


if __name__ == "__main__":
    unittest.main()
