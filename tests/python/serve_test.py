"""ridge serve, from outside, on a tiny random model: answers, streams, errors that name the field, counters with their laws, and its end."""
import base64
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from serving import CHAT, RIDGE, SIGINT, SIGTERM, TEXT, Server, head, idle
try:
    import numpy as np
    import tiny_model
    MISSING = ""
except ImportError as error:
    tiny_model, MISSING = None, f"needs the Python package {error.name}"


def choices(events):
    """index -> (text, finish reason, [(token, logprob)]) of the joined chunks."""
    out = {}
    for event in events:
        for choice in event["choices"]:
            text, finish, probs = out.get(choice["index"], ("", None, []))
            text += choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content") or ""
            lp = choice["logprobs"] or {}
            probs = probs + [(t["token"], t["logprob"]) for t in lp.get("content") or []] + list(zip(lp.get("tokens") or [], lp.get("token_logprobs") or []))
            assert finish is None, "a chunk after the last"
            out[choice["index"]] = (text, choice["finish_reason"], probs)
    return out


@unittest.skipIf(tiny_model is None, MISSING)
class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        model = os.path.join(folder, "chat.gguf")
        tiny_model.write_tiny_model(model, tiny_model.CHATML)
        cls.path = model
        cls.server = cls.enterClassContext(Server(model, "-np", "4", "-c", "200", "-t", "2"))

    def good(self, path, body):
        status, document = self.server.post(path, body)
        self.assertEqual(status, 200, document)
        return document

    def bad(self, status, param, path, body, says=""):
        found, document = self.server.post(path, body)
        self.assertEqual(found, status, document)
        error = document["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["param"], param, error)
        self.assertIn(says, error["message"])
        return error

    def test_models_health_ready(self):
        models = json.loads(self.server.get("/v1/models")[2])
        self.assertEqual([m["id"] for m in models["data"]], ["chat"])
        self.assertEqual(self.server.get("/ready")[0], 200)
        self.assertEqual(json.loads(self.server.get("/health")[2])["status"], "ok")

    def test_stream_joins_to_the_answer_in_one_piece(self):
        for temperature in (0, 1.5):
            for more in ({}, {"stop": ["e", "qu"]}, {"stop": "\u00e9\u00e9\u00e9"}, {"n": 3}):
                text = {"prompt": "the quick", "max_tokens": 60, "temperature": temperature, "seed": 7, "logprobs": 2, "ignore_eos": True, **more}
                chat = {"messages": [{"role": "user", "content": "quick"}], "max_tokens": 60, "temperature": temperature, "seed": 7,
                        "logprobs": True, "top_logprobs": 2, "ignore_eos": True, **more}
                for path, body in ((TEXT, text), (CHAT, chat)):
                    with self.subTest(path=path, temperature=temperature, more=more):
                        whole, events = self.good(path, body), self.server.stream(path, body)
                        self.assertEqual(choices(events), choices([whole]))
                        self.assertEqual(len(whole["choices"]), more.get("n", 1))
                        if more.get("stop") == ["e", "qu"]:
                            self.assertNotIn("e", whole["choices"][0].get("text", ""))

    def test_a_stop_list_that_never_matches_changes_nothing(self):
        body = {"prompt": "the quick", "max_tokens": 50, "temperature": 1, "seed": 3, "logprobs": 0}
        self.assertEqual(choices([self.good(TEXT, body)]), choices([self.good(TEXT, {**body, "stop": ["zzzzzzzz"]})]))

    def test_log_probabilities(self):
        choice = self.good(CHAT, {"messages": [{"role": "user", "content": "q"}], "max_tokens": 20, "temperature": 0, "logprobs": True, "top_logprobs": 4, "ignore_eos": True})["choices"][0]
        self.assertEqual(len(choice["logprobs"]["content"]), 20)
        for token in choice["logprobs"]["content"]:
            self.assertLessEqual(token["logprob"], 0)
            self.assertEqual(token["logprob"], max(t["logprob"] for t in token["top_logprobs"]))
            self.assertEqual(len(token["top_logprobs"]), 4)
            self.assertIsInstance(bytes(token["bytes"]), bytes)
        old = self.good(TEXT, {"prompt": "q", "max_tokens": 20, "temperature": 0, "logprobs": 3, "ignore_eos": True})["choices"][0]
        lp = old["logprobs"]
        self.assertEqual({len(lp[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}, {20})
        for token, at in zip(lp["tokens"], lp["text_offset"]):
            if "bytes:" not in token and "<|" not in token:
                self.assertEqual(old["text"][at:at + len(token)], token)

    def test_usage_and_ledger(self):
        ids = self.good("/tokenize", {"content": "the quick the"})["tokens"]
        document = self.good(TEXT, {"prompt": ids, "max_tokens": 9, "temperature": 0, "ignore_eos": True})
        self.assertEqual(document["usage"]["prompt_tokens"], len(ids))
        self.assertEqual(document["usage"]["completion_tokens"], 9)
        self.assertEqual(document["usage"]["total_tokens"], len(ids) + 9)
        self.assertIsInstance(document["usage"]["prompt_tokens_details"]["cached_tokens"], int)
        names = "tokenize_ms prompt_n prompt_ms prompt_per_second cache_n predicted_n predicted_ms predicted_per_second sample_ms detokenize_ms ttft_ms total_ms".split()
        self.assertLessEqual(set(names), set(document["ridge"]))
        body = {"prompt": ids, "max_tokens": 9, "temperature": 0}
        plain, with_usage = self.server.stream(TEXT, body), self.server.stream(TEXT, {**body, "stream_options": {"include_usage": True}})
        self.assertTrue(all("usage" not in e for e in plain))
        self.assertTrue(all(e["usage"] is None for e in with_usage[:-1]))
        self.assertEqual((with_usage[-1]["choices"], with_usage[-1]["usage"]["prompt_tokens"]), ([], len(ids)))
        for events in (plain, with_usage):
            self.assertEqual(["ridge" in e for e in events], [False] * (len(events) - 1) + [True])

    def test_parts_of_the_first_text_sum_to_its_time(self):
        names = "receive tokenize queue prefill decode sample detokenize deliver write other".split()
        for path, body in ((TEXT, {"prompt": "the quick"}), (CHAT, {"messages": [{"role": "user", "content": "hi"}]}), (TEXT, {"prompt": "the quick", "n": 3, "seed": 4})):
            ledger = self.server.stream(path, {**body, "max_tokens": 40, "ignore_eos": True})[-1]["ridge"]
            parts = ledger["first_text_parts_ms"]
            self.assertEqual(list(parts), names)
            self.assertAlmostEqual(sum(v or 0 for v in parts.values()), ledger["first_text_ms"], places=6)
            for name in ("receive", "tokenize", "queue", "prefill", "sample", "detokenize"):
                self.assertGreater(parts[name], 0, name)
        # Where no client sees a first text there is none: an answer in one piece, and one that begins with its prompt.
        for ledger in (self.good(TEXT, {"prompt": "the quick", "max_tokens": 4})["ridge"],
                       self.server.stream(TEXT, {"prompt": "the quick", "max_tokens": 4, "echo": True})[-1]["ridge"]):
            self.assertIsNone(ledger["first_text_ms"])
            self.assertIsNone(ledger["first_text_parts_ms"])

    def test_a_planted_sleep_lands_in_its_stage(self):
        body = {"prompt": "the quick", "max_tokens": 6, "ignore_eos": True, "temperature": 0}
        for stage in "receive tokenize queue prefill decode sample detokenize deliver write".split():
            with Server(self.path, "-np", "1", "-c", "200", "-t", "1", "--plant-sleep", f"{stage}=20") as server:
                self.assertEqual(server.document["config"]["planted_sleep"], f"{stage}=20")
                ledger = server.stream(TEXT, body)[-1]["ridge"]
            parts = ledger["first_text_parts_ms"]
            if stage == "decode":  # of the whole answer: the first text may be the first token's
                self.assertGreaterEqual(ledger["predicted_ms"], 20 * ledger["decode_steps"])
                self.assertGreater(ledger["decode_steps"], 0)
            elif parts[stage] is None:  # the text and the end went out together
                self.assertEqual(stage, "write")
            else:
                self.assertGreaterEqual(parts[stage], 20, (stage, parts))
        for what in ("prefill", "prefill=", "prefill=0", "prefill=x", "load=5", "=5", "prefill=5ms"):
            ran = subprocess.run([RIDGE, "serve", "-m", self.path, "--port", "0", "--plant-sleep", what], capture_output=True, text=True)
            self.assertEqual(ran.returncode, 2, ran.stderr)
            self.assertIn("--plant-sleep", ran.stderr)

    def test_every_miss_names_its_token_and_message(self):
        def ask(*texts, **more):
            messages = [{"role": ("user", "assistant")[i % 2], "content": t} for i, t in enumerate(texts)]
            return self.good(CHAT, {"messages": messages, "max_tokens": 4, "temperature": 0, "ignore_eos": True, **more})
        salt = {"cache_salt": "misses"}
        first = ask("one the quick", **salt)
        self.assertEqual(first["ridge"]["cache_miss"], {"reason": "new", "token": 0, "message": 0})
        ask("one the quick", "the answer", "and a second", **salt)
        tokens = lambda text: len(self.good("/tokenize", {"content": text, "parse_special": True})["tokens"])
        head = "<|im_start|>user\none the quick<|im_end|>\n<|im_start|>assistant\n"
        for texts, message, before in ((("one the slow", "the answer", "and a second"), 0, "<|im_start|>user\none the "),
                                       (("one the quick", "the other", "and a second"), 1, head + "the "),
                                       (("one the quick", "the answer", "and a third"), 2, head + "the answer<|im_end|>\n<|im_start|>user\nand a ")):
            with self.subTest(texts=texts):
                miss = ask(*texts, **salt)["ridge"]["cache_miss"]
                self.assertEqual((miss["reason"], miss["message"]), ("diverged", message), miss)
                self.assertLessEqual(abs(miss["token"] - tokens(before)), 1, "to the token, but for what two letters become")
        again = ask("one the quick", **salt)["ridge"]
        self.assertEqual((again["cache_miss"]["reason"], again["cache_n"]), ("none", again["prompt_n"] - 1))
        self.assertIsNone(ask("one the quick", cache_prompt=False)["ridge"]["cache_miss"])
        text = self.good(TEXT, {"prompt": "quite another text", "max_tokens": 3, "cache_salt": "misses"})["ridge"]["cache_miss"]
        self.assertIsNone(text["message"])

    def test_deadlines_and_predictions(self):
        body = {"prompt": "the quick", "max_tokens": 4, "temperature": 0}
        self.good(TEXT, body)
        ledger = self.good(TEXT, {**body, "deadline_s": 60})["ridge"]
        self.assertGreater(ledger["predicted_ttft_ms"], 0)
        self.assertGreater(self.server.metrics()["ridge:predicted_ttft_seconds"], 0)
        for value in (-1, "1", 1e9):
            self.bad(400, "deadline_s", TEXT, {**body, "deadline_s": value})
        links = [self.server.open_stream(TEXT, {**body, "max_tokens": 190, "ignore_eos": True}) for _ in range(8)]
        status, document = self.server.post(TEXT, {**body, "deadline_s": 0})
        self.assertEqual(status, 503, document)
        self.assertIn("deadline", document["error"]["message"])
        for link in links:
            link.close()
        self.server.until(idle)

    def test_pins(self):
        body = {"prompt": "the pinned the quick prompt", "max_tokens": 4, "temperature": 0}
        self.assertEqual(self.good(TEXT, body)["ridge"]["cache_pinned_n"], 0)
        pinned = self.good(TEXT, {**body, "cache_pin_s": 0.3})["ridge"]
        self.assertEqual(pinned["cache_pinned_n"], pinned["prompt_n"])
        self.server.until(lambda m: m["ridge:kv_pages_pinned"] == 0)
        self.assertGreater(self.server.metrics()["ridge:kv_pages_pinned_limit"], 0)
        for value in (-1, "1", 1e9):
            self.bad(400, "cache_pin_s", TEXT, {**body, "cache_pin_s": value})
        self.bad(400, "cache_pin_s", TEXT, {**body, "cache_pin_s": 5, "cache_prompt": False})

    def test_prompts_of_every_form(self):
        one = self.good(TEXT, {"prompt": "the", "max_tokens": 5, "temperature": 0})["choices"][0]["text"]
        ids = self.good("/tokenize", {"content": "the"})["tokens"]
        for prompt in (["the"], ids, [ids], ["the", "the"]):
            found = self.good(TEXT, {"prompt": prompt, "max_tokens": 5, "temperature": 0})["choices"]
            self.assertEqual([c["text"] for c in found], [one] * len(found))
        two = self.good(TEXT, {"prompt": ["the", "q"], "n": 2, "max_tokens": 3})
        self.assertEqual([c["index"] for c in two["choices"]], [0, 1, 2, 3])
        echo = {"prompt": "the quick", "max_tokens": 5, "temperature": 0}
        plain, echoed = self.good(TEXT, echo), self.good(TEXT, {**echo, "echo": True})
        self.assertEqual(echoed["choices"][0]["text"], "the quick" + plain["choices"][0]["text"])
        self.assertEqual(choices(self.server.stream(TEXT, {**echo, "echo": True}))[0][0], echoed["choices"][0]["text"])

    def test_log_probabilities_of_the_prompt(self):
        ids = self.good("/tokenize", {"content": "the quick brown caf\u00e9 \u4e16 and the"})["tokens"]
        made = self.good(TEXT, {"prompt": ids, "max_tokens": 40, "temperature": 1, "seed": 4, "logprobs": 3, "ignore_eos": True, "logit_bias": {str(i): -100 for i in range(3)}})
        answer = made["choices"][0]["logprobs"]
        text = "the quick brown caf\u00e9 \u4e16 and the"
        whole = {"prompt": text, "max_tokens": 40, "temperature": 1, "seed": 4, "logprobs": 3, "ignore_eos": True, "echo": True, "logit_bias": {str(i): -100 for i in range(3)}}
        choice = self.good(TEXT, whole)["choices"][0]
        lp, n = choice["logprobs"], len(ids)
        self.assertEqual({len(lp[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}, {n + 40})
        self.assertEqual((lp["token_logprobs"][0], lp["top_logprobs"][0], lp["text_offset"][0]), (None, None, 0))
        self.assertTrue(choice["text"].startswith(text))
        # What was generated has the same bits where it is a prompt, whatever was cached, in one piece or streamed.
        self.assertEqual(lp["token_logprobs"][n:], answer["token_logprobs"])
        self.assertEqual(lp["top_logprobs"][n:], answer["top_logprobs"])
        for token, at in zip(lp["tokens"][:n], lp["text_offset"]):
            if "bytes:" not in token:
                self.assertEqual(choice["text"][at:at + len(token)], token)
        self.assertEqual(choices(self.server.stream(TEXT, whole)), choices([{"choices": [choice]}]))
        rows = os.path.join(os.path.dirname(self.path), "rows.f32")
        subprocess.run([RIDGE, "logits", "-m", self.path, "--ids", ",".join(map(str, ids)), "-o", rows], stdin=subprocess.DEVNULL, capture_output=True, check=True)
        logits = np.fromfile(rows, np.float32).reshape(n, -1).astype(np.float64)
        for i in range(1, n):
            self.assertAlmostEqual(lp["token_logprobs"][i], logits[i - 1][ids[i]] - np.log(np.exp(logits[i - 1]).sum()), places=4)
        for more, param in (("-ub", "5"), ("--spec", "off"), ("--kv-page", "16")):
            with Server(self.path, "-np", "1", "-c", "200", more, param) as other:
                again = other.post(TEXT, whole)[1]
                self.assertEqual(again["choices"], [choice])
                scored = other.post(TEXT, {**whole, "prompt": ids + self.ids_of(made), "max_tokens": 0})[1]
                self.assertEqual(scored["choices"][0]["logprobs"]["token_logprobs"], lp["token_logprobs"])
                self.assertEqual(scored["choices"][0]["logprobs"]["top_logprobs"], lp["top_logprobs"])
                self.assertEqual((scored["usage"]["completion_tokens"], scored["usage"]["prompt_tokens_details"]["cached_tokens"], scored["choices"][0]["finish_reason"]), (0, 0, "length"))
                self.assertEqual(other.metrics()["ridge:generation_tokens_total"], 40)

    def ids_of(self, document):
        """Of an answer in whole characters or bytes, the ids by its tokens' names."""
        out = []
        for name in document["choices"][0]["logprobs"]["tokens"]:
            raw = bytes.fromhex(name[6:].replace("\\x", "")) if name.startswith("bytes:") else name.encode()
            out.append(self.vocabulary()[raw])
        return out

    def vocabulary(self):
        if not hasattr(self, "_vocabulary"):
            pieces = self.good("/tokenize", {"content": "the quick ck", "with_pieces": True})["tokens"]
            self.__class__._vocabulary = {bytes([b]): 3 + b for b in range(256)}
            merges = ["th", "the", " the", "qu", "ck"]
            self._vocabulary.update({m.encode(): 259 + i for i, m in enumerate(merges)})
            for token in pieces:
                piece = token["piece"].encode() if isinstance(token["piece"], str) else bytes(token["piece"])
                assert self._vocabulary[piece] == token["id"], token
        return self._vocabulary

    def test_log_probabilities_of_several_prompts(self):
        body = {"prompt": ["the quick", "q"], "n": 2, "max_tokens": 3, "temperature": 1, "seed": 1, "logprobs": 1, "echo": True, "ignore_eos": True}
        found = self.good(TEXT, body)["choices"]
        self.assertEqual(choices(self.server.stream(TEXT, body)), choices([{"choices": found}]))
        for prompt, group in (("the quick", found[:2]), ("q", found[2:])):
            n = len(self.good("/tokenize", {"content": prompt})["tokens"])
            for choice in group:
                self.assertTrue(choice["text"].startswith(prompt))
                self.assertEqual(len(choice["logprobs"]["tokens"]), n + 3)
                self.assertIsNone(choice["logprobs"]["token_logprobs"][0])
                self.assertEqual(choice["logprobs"]["token_logprobs"][:n], group[0]["logprobs"]["token_logprobs"][:n])
        special = self.good(TEXT, {"prompt": [1, 5, 0, 7], "max_tokens": 0, "logprobs": 0, "echo": True})["choices"][0]
        self.assertEqual((special["text"], special["logprobs"]["text_offset"]), ("<|im_start|>\x02<|endoftext|>\x04", [0, 12, 13, 26]))
        self.assertIsNone(special["logprobs"]["top_logprobs"])
        self.bad(400, "suffix", TEXT, {"prompt": "a", "suffix": "b"})
        self.bad(400, "best_of", TEXT, {"prompt": "a", "best_of": 2})

    def test_a_step_longer_than_the_limit_is_told(self):
        with Server(self.path, "-c", "200", "--stall-timeout", "0") as server:
            self.assertEqual(server.get("/health")[0], 200)
            status, end = 200, time.monotonic() + Server.PATIENCE_S
            while status != 503 and time.monotonic() < end:  # what is asked between two steps finds none
                with server.open_stream(TEXT, {"prompt": "the", "max_tokens": 190, "ignore_eos": True}):
                    status, _, body = server.get("/health")
            self.assertEqual((status, json.loads(body)["status"]), (503, "stalled"))
        run = subprocess.run([RIDGE, "serve", "-m", self.path, "--stall-timeout", "-1"], stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(run.returncode, 2)

    def test_ridge_run_gives_the_same_text(self):
        for text in ("the quick", "caf\u00e9 <|im_end|> the"):
            served = self.good(TEXT, {"prompt": text, "max_tokens": 30, "temperature": 0})["choices"][0]
            run = subprocess.run([RIDGE, "run", "-m", self.path, "-p", text, "-n", "30", "--temp", "0", "--json"], stdin=subprocess.DEVNULL, capture_output=True, check=True)
            ran = json.loads(run.stdout)
            self.assertEqual((ran["text"], ran["finish_reason"]), (served["text"], served["finish_reason"]))

    def test_seeds(self):
        body = {"prompt": "the", "max_tokens": 30, "temperature": 1}
        first = self.good(TEXT, body)
        again = self.good(TEXT, {**body, "seed": first["ridge"]["seed"]})
        self.assertEqual(first["choices"], again["choices"])
        self.assertNotEqual(first["ridge"]["seed"], self.good(TEXT, body)["ridge"]["seed"])
        for seed in (-1, -2 ** 63, 2 ** 63 - 1, 0):
            given = self.good(TEXT, {**body, "seed": seed})
            self.assertEqual(given["ridge"]["seed"], seed)
            self.assertEqual(self.good(TEXT, {**body, "seed": given["ridge"]["seed"]})["choices"], given["choices"])
        three = self.good(TEXT, {**body, "n": 3, "seed": 5})["choices"]
        self.assertEqual(len({c["text"] for c in three}), 3)
        self.assertEqual(three[0]["text"], self.good(TEXT, {**body, "seed": 5})["choices"][0]["text"])

    def test_logit_bias(self):
        ban = self.good(TEXT, {"prompt": "the", "max_tokens": 1, "temperature": 0, "logprobs": 1})["choices"][0]["logprobs"]["tokens"][0]
        token = self.good("/tokenize", {"content": ban})["tokens"] if "bytes:" not in ban else None
        if token and len(token) == 1:
            other = self.good(TEXT, {"prompt": "the", "max_tokens": 1, "temperature": 0, "logit_bias": {str(token[0]): -100}})["choices"][0]["text"]
            self.assertNotEqual(other, ban)
        forced = self.good(TEXT, {"prompt": "the", "max_tokens": 3, "temperature": 0, "logit_bias": {str(self.good("/tokenize", {"content": "q"})["tokens"][0]): 100}})
        self.assertEqual(forced["choices"][0]["text"], "qqq")
        for key in ("028", "+28", "28 ", " 28", "-0", "00", "2e1", "0x1c", ""):
            self.bad(400, "logit_bias", TEXT, {"prompt": "a", "logit_bias": {"28": 100, key: -100}}, json.dumps(key))
        last = self.bad(400, "logit_bias", TEXT, {"prompt": "a", "logit_bias": {"900": 1}})["message"].split("0 to ")[1].split(",")[0]
        every = {str(i): -100 for i in range(int(last) + 1)}
        self.bad(400, "logit_bias", TEXT, {"prompt": "a", "logit_bias": every}, "banned")
        every.pop("28")
        self.assertEqual(self.ids_of(self.good(TEXT, {"prompt": "a", "max_tokens": 2, "temperature": 1, "logprobs": 0, "ignore_eos": True, "logit_bias": every})), [28, 28])

    def test_tokens(self):
        for text in ("the quick", " \u4e16\u754c\U0001f642", "<|im_start|>", ""):
            ids = self.good("/tokenize", {"content": text})["tokens"]
            self.assertEqual(self.good("/detokenize", {"tokens": ids})["content"], text)
            self.assertFalse(set(ids) & {0, 1, 2}, "a control token out of plain text")
        self.assertEqual(self.good("/tokenize", {"content": "<|im_start|>", "parse_special": True})["tokens"], [1])
        pieces = self.good("/tokenize", {"content": "\u4e16a", "with_pieces": True})["tokens"]
        self.assertEqual(pieces[-1]["piece"], "a")
        self.assertEqual(pieces[0]["piece"], [0xe4])

    def test_refusals_name_the_field(self):
        user = [{"role": "user", "content": "q"}]
        for param, change in (("temperature", {"temperature": 3}), ("top_p", {"top_p": True}), ("n", {"n": 0}), ("stop", {"stop": [""]}), ("stop", {"stop": ["a"] * 17}),
                              ("seed", {"seed": 1.5}), ("stream", {"stream": 1}), ("max_tokens", {"max_tokens": 0}), ("max_tokens", {"max_tokens": 10 ** 12}),
                              ("top_logprobs", {"top_logprobs": 2}), ("top_logprobs", {"logprobs": True, "top_logprobs": 21}), ("logit_bias", {"logit_bias": {"900": 1}}),
                              ("logit_bias", {"logit_bias": {"3": 101}}), ("stream_options", {"stream_options": {"include_usage": True}}),
                              ("stream_options.x", {"stream": True, "stream_options": {"x": 1}}), ("messages", {"messages": []}), ("messages[0].role", {"messages": [{"content": "x"}]}),
                              ("messages[0].content", {"messages": [{"role": "user"}]}), ("messages[1].role", {"messages": user + [{"role": "robot", "content": "x"}]}),
                              ("messages[0].content[0].type", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
                              ("tools", {"tools": [{"type": "function"}]}), ("response_format", {"response_format": {"type": "json_object"}}), ("reasoning_effort", {"reasoning_effort": "low"}),
                              ("nonsense", {"nonsense": 1}), ("presence_penalty", {"presence_penalty": 2.5})):
            with self.subTest(param=param, change=change):
                self.bad(400, param, CHAT, {"messages": user, **change})
        for value in (None, 5, {}, [], [1, "a"], [1.5], [-1], [10 ** 6], [[[1]]], "", [""]):
            with self.subTest(prompt=value):
                found, document = self.server.post(TEXT, {"prompt": value})
                self.assertEqual(found, 400)
                self.assertTrue(document["error"]["param"].startswith("prompt"), document)
        self.bad(404, "model", CHAT, {"model": "other", "messages": user})
        for path, field in ((TEXT, "prompt"), ("/detokenize", "tokens"), ("/v1/embeddings", "input")):
            for at, found, value in (("[0]", "-1", [-1]), ("[0]", "49152", [49152]), ("[2]", "1.5", [1, 2, 1.5]), ("[1]", '"a"', [1, "a"])):
                with self.subTest(path=path, value=value):
                    self.bad(400, field + at, path, {field: value}, f"found {found}, expected a token id, 0 to ")
        self.bad(400, "prompt[1][1]", TEXT, {"prompt": [[1, 2], [3, -1]]}, "found -1")
        self.bad(400, "prompt[1]", TEXT, {"prompt": ["a", ""]}, "an empty string")
        self.bad(400, "prompt[1]", TEXT, {"prompt": ["a", 1]}, "found 1")
        self.bad(400, "tokens", "/detokenize", {"tokens": 5}, "a list of token ids")
        self.assertEqual(self.bad(400, "bogus", TEXT, {"prompt": "a", "bogus": 1})["message"], "unknown field: bogus")
        self.assertLess(len(json.dumps(self.server.post(TEXT, {"prompt": "a", "k" * 10 ** 6: 1})[1])), 400)
        self.bad(400, "content", "/tokenize", {})
        self.assertIn("embedding", self.bad(400, "model", "/v1/embeddings", {"input": "x"})["message"])
        self.bad(400, "input", "/v1/embeddings", {"input": 5})

    def test_template_variables(self):
        chat = {"messages": [{"role": "user", "content": "quick"}], "max_tokens": 4, "temperature": 0}
        plain = self.good(CHAT, chat)
        self.assertEqual(self.good(CHAT, {**chat, "chat_template_kwargs": {"enable_thinking": False}})["choices"], plain["choices"])
        for name, value in (("messages", [{"role": "user", "content": "other"}]), ("tools", []), ("documents", []), ("add_generation_prompt", False), ("bos_token", "x"),
                            ("eos_token", ""), ("raise_exception", 1), ("range", None)):
            self.bad(400, "chat_template_kwargs", CHAT, {**chat, "chat_template_kwargs": {"enable_thinking": True, name: value}}, f'"{name}"')
        self.bad(400, "chat_template_kwargs", CHAT, {**chat, "chat_template_kwargs": {"big": 2 ** 63}}, "64 bits")

    def test_what_asks_for_nothing_passes(self):
        self.good(CHAT, {"model": "chat", "messages": [{"role": "developer", "content": "x", "tool_calls": None}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
                         "max_tokens": 2, "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "temperature": None, "user": "me", "metadata": {}, "modalities": ["text"]})

    def test_too_long(self):
        long = {"messages": [{"role": "user", "content": "x" * 500}]}
        self.assertEqual(self.bad(400, "messages", CHAT, long, "200 tokens")["code"], "context_length_exceeded")
        self.assertEqual(self.bad(400, "messages", CHAT, {**long, "stream": True})["code"], "context_length_exceeded")
        self.assertEqual(self.bad(400, "prompt", TEXT, {"prompt": [5] * 150, "max_tokens": 51})["code"], "context_length_exceeded")
        self.assertEqual(self.good(TEXT, {"prompt": [5] * 150, "max_tokens": 50, "ignore_eos": True})["usage"]["total_tokens"], 200)

    def test_json_is_strict(self):
        for body in (b"", b"x", b"[]", b'"x"', b"null", b'{"prompt": "a", "prompt": "b"}', b'{"prompt": NaN}', b'{"temperature": 1e999, "prompt": "a"}', b'{"prompt": "\xff"}', b'{"prompt": "a"} x',
                     b'{"prompt": "\xed\xa0\x80"}', b"[" * 100000, b'{"a":' * 100000, b'{"prompt": "a\nb"}', b'{"prompt": "a",}', b"{'prompt': 'a'}"):
            status, document = self.server.post(TEXT, body)
            self.assertEqual(status, 400, body[:40])
            self.assertEqual((document["error"]["type"], document["error"]["param"]), ("invalid_request_error", None), document)
        for path in (TEXT, CHAT, "/tokenize", "/detokenize", "/v1/embeddings"):
            for body, byte in ((b'{"prompt": "a"}\0', 16), (b'{"prompt": "a"}\0{"temperature": 9}', 16), (b'{"prompt":\0 "a"}', 11), (b'\0{"prompt": "a"}', 1)):
                self.bad(400, None, path, body, f"byte {byte}: a NUL byte")
            self.assertLess(len(self.bad(400, None, path, b'{"%s": 1, "%s": 2}' % (b"k" * 10 ** 6, b"k" * 10 ** 6), "twice")["message"]), 300)

    def test_counters_keep_their_laws(self):
        """Whatever the tests before have asked for; and a list of prompts of which the last one is refused."""
        self.bad(400, "prompt", TEXT, {"prompt": ["the", "quick", "the quick " * 400], "max_tokens": 4})
        self.server.until(idle)
        before = self.server.metrics()
        tokens = sum(self.good(TEXT, {"prompt": [9] * n, "max_tokens": 4, "ignore_eos": True})["usage"]["prompt_tokens"] for n in (3, 70, 120))
        after = self.server.until(idle)
        for m in (before, after):
            self.assertEqual(m["ridge:prompt_tokens_total"], m["ridge:prompt_tokens_computed_total"] + m["ridge:prompt_tokens_cached_total"])
            self.assertEqual(sum(m[f'ridge:kv_pages{{state="{s}"}}'] for s in ("free", "held", "cached")), m["ridge:kv_pages_capacity"])
            self.assertEqual(m['ridge:kv_pages{state="held"}'], 0)
            self.assertEqual(m['ridge:time_to_first_token_seconds_bucket{le="+Inf"}'], m["ridge:time_to_first_token_seconds_count"])
            self.assertEqual(m["ridge:prompt_tokens_submitted_total"], m["ridge:prompt_tokens_total"] + m["ridge:prompt_tokens_dropped_total"] + m["ridge:prompt_tokens_pending"])
            self.assertEqual(m["ridge:prompt_tokens_pending"], 0)
            self.assertEqual(m["ridge:requests_submitted_total"], m["ridge:requests_finished_total"])
            ends = sum(m[f'ridge:request_success_total{{finished_reason="{r}"}}'] for r in ("stop", "length")) + sum(m[f'ridge:request_failure_total{{reason="{r}"}}'] for r in ("cancelled", "failed"))
            self.assertEqual(ends, m["ridge:requests_finished_total"], "each sequence that the engine took is one answer's")
            self.assertEqual(m["ridge:time_to_first_token_seconds_count"] + m["ridge:inter_token_latency_seconds_count"], m["ridge:generation_tokens_total"])
            self.assertLessEqual(m["ridge:time_to_first_token_seconds_count"], m["ridge:request_queue_time_seconds_count"])
            self.assertLessEqual(m["ridge:request_queue_time_seconds_count"], m["ridge:requests_submitted_total"])
            self.assertLessEqual(m["ridge:drafts_accepted_total"], m["ridge:drafts_proposed_total"])
            # memory: the prefix cache lies in the pool, all of it idle now, and the process has all that is named
            self.assertLessEqual(m["ridge:prefix_cache_bytes"], m["ridge:kv_bytes"])
            self.assertEqual(m["ridge:prefix_cache_bytes"] > 0, m['ridge:kv_pages{state="cached"}'] > 0)
            self.assertEqual(m["ridge:http_body_bytes"], 0)
            self.assertGreater(m["ridge:resident_bytes"], m["ridge:weights_bytes"])
            self.assertGreater(m["ridge:weights_bytes"], 0)
        self.assertEqual(after["ridge:prompt_tokens_total"] - before["ridge:prompt_tokens_total"], tokens)
        self.assertEqual(after["ridge:generation_tokens_total"] - before["ridge:generation_tokens_total"], 12)
        self.assertEqual(after['ridge:request_success_total{finished_reason="length"}'] - before['ridge:request_success_total{finished_reason="length"}'], 3)


@unittest.skipIf(tiny_model is None, MISSING)
class Embeddings(unittest.TestCase):
    def test_vectors(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "tiny.gguf")
            tiny_model.write_tiny_model(model)
            with Server(model, "--embeddings") as server:
                texts = ["the quick", "q", "the quick"] + ["abc"] * 20
                status, document = server.post("/v1/embeddings", {"input": texts})
                self.assertEqual(status, 200, document)
                vectors = [d["embedding"] for d in document["data"]]
                self.assertEqual([d["index"] for d in document["data"]], list(range(23)))
                self.assertEqual({len(v) for v in vectors}, {tiny_model.WIDTH})
                self.assertAlmostEqual(sum(x * x for x in vectors[0]), 1, 4)
                self.assertEqual(vectors[0], vectors[2])
                self.assertNotEqual(vectors[0], vectors[1])
                _, coded = server.post("/v1/embeddings", {"input": "q", "encoding_format": "base64", "dimensions": tiny_model.WIDTH})
                found = struct.unpack(f"<{tiny_model.WIDTH}f", base64.b64decode(coded["data"][0]["embedding"], validate=True))
                self.assertEqual(found, struct.unpack(f"<{tiny_model.WIDTH}f", struct.pack(f"<{tiny_model.WIDTH}f", *vectors[1])))
                ids = server.post("/tokenize", {"content": "q"})[1]["tokens"]
                self.assertEqual(server.post("/v1/embeddings", {"input": [ids]})[1]["data"][0]["embedding"], vectors[1])
                self.assertEqual(server.post("/v1/embeddings", {"input": "q"})[1]["usage"], {"prompt_tokens": len(ids), "total_tokens": len(ids)})
                for param, change in (("input", {"input": ""}), ("input", {"input": 5}), ("encoding_format", {"encoding_format": "x"}), ("dimensions", {"dimensions": 3})):
                    status, document = server.post("/v1/embeddings", {"input": "q", **change})
                    self.assertEqual((status, document["error"]["param"]), (400, param))
                status, document = server.post("/v1/embeddings", {"input": ["q"] * 40 + ["x" * 1000]})
                self.assertEqual(status, 400)
                self.assertIn("input[40]", document["error"]["message"])
                self.assertEqual(server.post(TEXT, {"prompt": "q"})[0], 400)
                self.assertEqual(server.get("/ready")[0], 200)
                self.assertEqual(server.stop(SIGTERM)[0], 0)


@unittest.skipIf(tiny_model is None, MISSING)
class Life(unittest.TestCase):
    """Connections that break, limits, keys, and the end of the server."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.model = os.path.join(folder, "base.gguf")
        tiny_model.write_tiny_model(cls.model, context=100000)

    def test_a_pool_smaller_than_the_context(self):
        """It is told at the start, and no answer ends before what was asked for without a word."""
        small = ("-np", "2", "--kv-memory", "16KiB")  # two pages of 32 tokens
        with Server(self.model, "-c", "200", *small) as server:
            status, document = server.post(TEXT, {"prompt": [5] * 30, "max_tokens": 35})
            self.assertEqual((status, document["error"]["code"]), (400, "context_length_exceeded"), document)
            self.assertIn("64 tokens at most", document["error"]["message"])
            self.assertIn("--kv-memory", document["error"]["message"])
            status, document = server.post(TEXT, {"prompt": [5] * 30, "max_tokens": 34, "ignore_eos": True})
            self.assertEqual((status, document["usage"]["total_tokens"]), (200, 64))
            status, document = server.post(TEXT, {"prompt": [5] * 64, "max_tokens": 1})
            self.assertEqual(status, 400)
            self.assertIn("--kv-memory", document["error"]["message"])
            self.assertIn("the KV pool holds no request of the whole context: --kv-memory: found room for 64 tokens", server.stop(SIGTERM)[1])
        with Server(self.model, *small) as server:
            self.assertEqual(server.document["config"]["n_ctx"], 64)
            self.assertNotIn("holds no request", server.stop(SIGTERM)[1])
        for more, word in ((["-c", "200", "--strict"], "whole context"), (["--embeddings"], "no KV pool")):
            run = subprocess.run([RIDGE, "serve", "-m", self.model, "--port", "0", *small, *more], stdin=subprocess.DEVNULL, capture_output=True, timeout=Server.PATIENCE_S, text=True)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(word, run.stderr)

    def test_connections(self):
        with Server(self.model, "-np", "4", "-c", "100000") as server:
            health = b"GET /health HTTP/1.1\r\nHost: x\r\n"
            self.assertEqual(server.raw(health + b"\r\n" + health + b"Connection: close\r\n\r\n").count(b"HTTP/1.1 200 "), 2)
            self.assertIn(b"Connection: close", server.raw(b"GET /health HTTP/1.0\r\n\r\n"))
            self.assertIn(b"HTTP/1.1 200 ", server.raw(b"GET http://x/health?a=/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
            for target in (b"http://", b"http://x", b"http:/health", b"https://x/health"):
                self.assertIn(b"HTTP/1.1 404 ", server.raw(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
            answer = server.raw(b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            self.assertTrue(answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\n"))
            body = b'{"content": "x"}'
            chunked = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n" + body[:7] + b"\r\n%x\r\n" % len(body[7:]) + body[7:] + b"\r\n0\r\n\r\n"
            self.assertIn(b'{"tokens":', server.raw(chunked))
            opened = chunked[:chunked.index(b"7\r\n")]
            for status, data in ((200, opened + b"10;name=value\r\n" + body + b"\r\n0\r\nT: v\r\n\r\n"), (200, opened + b"".join(b"1\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n"),
                                 (431, opened + b'7;a="' + b"x" * 200000), (431, opened + b"0\r\nT: " + b"y" * 200000), (431, opened + b"0\r\n" + b"T: y\r\n" * 20000),
                                 (431, opened + b"1;" + b"x" * 40000 + b"\r\na\r\n1;" + b"x" * 40000 + b"\r\n"),
                                 (431, b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20000 + b"\r\n")):
                with self.subTest(data=data[len(opened):][:20]):
                    self.assertTrue(server.raw(data).startswith(b"HTTP/1.1 %d " % status))
            self.assertIn(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ", self.expect(server, body))
            for status, data in ((413, head("/tokenize", 40 << 20)), (431, b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100000 + b"\r\n\r\n"), (400, b"noise\r\n\r\n"), (505, b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n"),
                                 (400, b"GET /health HTTP/1.1\r\n\r\n"), (501, head("/tokenize", 0).replace(b"Content-Length: 0", b"Transfer-Encoding: rot13")), (400, head("/tokenize", -5)),
                                 (400, head("/tokenize", 5, more="Content-Length: 6\r\n")), (404, head("/no", 0, more="Connection: close\r\n")), (405, head("/health", 0, more="Connection: close\r\n")),
                                 (405, head("/tokenize", 0, "GET", "Connection: close\r\n"))):
                with self.subTest(data=data[:60]):
                    got = server.raw(data)
                    if got or status not in (400, 505):
                        self.assertTrue(got.startswith(b"HTTP/1.1 %d " % status), got[:80])
            self.assertEqual(server.get("/health")[0], 200)

    def test_what_is_not_http_is_told_in_openais_shape(self):
        opened = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        with Server(self.model, "-np", "2", "-c", "256") as server:
            for status, says, data in ((400, "bare CR or LF", b"GET /health HTTP/1.1\nHost: x\n\n"), (400, "bare CR or LF", b"GET /health HTTP/1.1\n\n"), (400, "bare CR or LF", b"GET /health HTTP/1.1\rHost: x\r\n\r\n"),
                                       (400, "not HTTP", b"GET /health HTTP/1.1\r\nHost: x\n\r\n\r\n"), (400, "not HTTP", b"GET /health HTTP/1.1\r\nHost: x\r\n\nA: b\r\n\r\n"),
                                       (505, "HTTP/1.1", b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n"), (505, "HTTP/1.1", b"GET /health HTTP/0.9\nHost: x\n\n"),
                                       (400, "request line", b"GET /health HTTQ/1.1\r\nHost: x\r\n\r\n"), (400, "request line", b"GET /health http/1.1\r\nHost: x\r\n\r\n"), (400, "request line", b"GET /health HTTP/1.1 x\r\nHost: x\r\n\r\n"),
                                       (400, "request line", b"GET /health HTTP/a.b\r\nHost: x\r\n\r\n"), (400, "not HTTP", b"GET /health\r\nHost: x\r\n\r\n"), (400, "not HTTP", b"G@T /health HTTP/1.1\r\nHost: x\r\n\r\n"),
                                       (400, "not HTTP", b"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n"), (400, "not HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40), (400, "not HTTP", b"GET /health HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n"),
                                       (400, "not HTTP", b"GET /health HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n"), (400, "not HTTP", opened + b"zz\r\nab\r\n0\r\n\r\n"), (400, "not HTTP", opened + b"-1\r\nab\r\n0\r\n\r\n"),
                                       (400, "not HTTP", opened + b"2\r\nabcd\r\n0\r\n\r\n"), (400, "not HTTP", opened + b"2\nab\r\n0\r\n\r\n"), (400, "not HTTP", opened + b"f" * 17 + b"\r\nab\r\n0\r\n\r\n"),
                                       (431, "64 KiB", b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"), (431, "64 KiB", b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"y" * 100000 + b": z\r\n\r\n")):
                with self.subTest(data=data[:60]):
                    got, _, body = server.raw(data).partition(b"\r\n\r\n")
                    self.assertTrue(got.startswith(b"HTTP/1.1 %d " % status), got[:60])
                    error = json.loads(body)["error"]
                    self.assertEqual((set(error), error["param"], error["type"]), ({"message", "type", "param", "code"}, None, "invalid_request_error"))
                    self.assertIn(says, error["message"])
            self.assertEqual(server.get("/health")[0], 200)

    def expect(self, server, body):
        got = b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=Server.PATIENCE_S) as link:
            link.sendall(head("/tokenize", len(body), more="Expect: 100-continue\r\nConnection: close\r\n"))
            got += link.recv(1000)
            link.sendall(body)
            while piece := link.recv(1000):
                got += piece
        return got

    def test_the_end_of_the_client_cancels(self):
        long = {"prompt": "the", "max_tokens": 90000, "ignore_eos": True}
        with Server(self.model, "-np", "4", "-c", "100000") as server:
            alone = server.post(TEXT, {"prompt": "quick", "max_tokens": 20, "seed": 1})[1]["choices"]
            for stream in (True, False):
                for half in (True, False):
                    with self.subTest(stream=stream, half=half):
                        link = server.open_stream(TEXT, {**long}) if stream else self.send(server, long)
                        server.until(lambda m: m["ridge:num_requests_running"] == 1)
                        link.shutdown(socket.SHUT_WR) if half else link.close()
                        server.until(idle)
                        link.close()
            # one that does not read slows nobody
            link = server.open_stream(TEXT, long)
            self.assertEqual(server.post(TEXT, {"prompt": "quick", "max_tokens": 20, "seed": 1})[1]["choices"], alone)
            link.close()
            m = server.until(idle)
            self.assertEqual(m['ridge:kv_pages{state="held"}'], 0)

    def test_clients_that_take_their_time_slow_nobody(self):
        """One sends its head and one its body a byte at a time, until the server has waited long enough; one reads its answer a byte at a time."""
        ask = {"prompt": "quick", "max_tokens": 20, "seed": 1}
        with Server(self.model, "-np", "4", "-c", "100000") as server:
            alone = server.post(TEXT, ask)[1]["choices"]
            reads = server.open_stream(TEXT, {"prompt": "the", "max_tokens": 90000, "ignore_eos": True})
            sends = socket.create_connection(("127.0.0.1", server.port), timeout=Server.PATIENCE_S)
            stuck = socket.create_connection(("127.0.0.1", server.port), timeout=Server.PATIENCE_S)
            stuck.sendall(head(TEXT, 1000))
            end, pieces = time.monotonic() + Server.PATIENCE_S, iter(head(TEXT, 5, more="X: " + "y" * 10000 + "\r\n"))
            while not select.select([sends], [], [], 0.2)[0]:
                self.assertLess(time.monotonic(), end, "the server waits for ever")
                sends.sendall(bytes([next(pieces)]))
                stuck.sendall(b" ")
                self.assertEqual(len(reads.recv(1)), 1)
                self.assertEqual(server.post(TEXT, ask)[1]["choices"], alone)
            self.assertTrue(sends.recv(1 << 16).startswith(b"HTTP/1.1 408 "))
            self.assertEqual(server.metrics()["ridge:num_requests_running"], 1)
            for link in (reads, sends, stuck):
                link.close()
            self.assertEqual(server.until(idle)['ridge:kv_pages{state="held"}'], 0)
            self.assertEqual(server.stop(SIGTERM)[0], 0)

    def send(self, server, body):
        data = json.dumps(body).encode()
        link = socket.create_connection(("127.0.0.1", server.port), timeout=Server.PATIENCE_S)
        link.sendall(head(TEXT, len(data)) + data)
        return link

    def test_full_queue(self):
        with Server(self.model, "-np", "1", "-c", "100000", "--max-waiting", "1") as server:
            long = {"prompt": "the", "max_tokens": 90000, "ignore_eos": True}
            links = [server.open_stream(TEXT, long)]
            server.until(lambda m: m["ridge:num_requests_running"] == 1)
            links.append(server.open_stream(TEXT, long))
            server.until(lambda m: m["ridge:num_requests_waiting"] == 1)
            status, headers, _ = server.request("POST", TEXT, json.dumps({"prompt": "x"}).encode())
            self.assertEqual((status, headers.get("retry-after")), (429, "1"))
            for link in links:
                link.close()
            server.until(idle)
            self.assertEqual(server.post(TEXT, {"prompt": "x", "max_tokens": 2})[0], 200)

    def test_key(self):
        with Server(self.model, "--api-key", "sk-1") as server:
            for path in ("/ready", "/health", "/health?from=balancer"):
                self.assertEqual(server.get(path)[0], 200)
            for headers in ({}, {"Authorization": "Bearer sk-2"}, {"Authorization": "Bearer sk-"}, {"Authorization": "sk-1"}, {"Authorization": "Bearer sk-11"}):
                self.assertEqual(server.get("/v1/models", headers)[0], 401)
            self.assertEqual(server.get("/v1/models", {"Authorization": "Bearer sk-1"})[0], 200)

    def test_drain(self):
        with Server(self.model, "-np", "2", "-c", "30000", "--drain", "600") as server:
            link = server.open_stream(TEXT, {"prompt": "the", "max_tokens": 8000, "ignore_eos": True, "logprobs": 0})
            server.until(lambda m: m["ridge:num_requests_running"] == 1)
            pieces = []  # read beside: nobody says that the system keeps so much
            reader = threading.Thread(target=lambda: pieces.extend(iter(lambda: link.recv(1 << 16), b"")), daemon=True)
            reader.start()
            status, err = server.stop(SIGTERM)
            self.assertEqual(status, 0, err)
            reader.join(Server.PATIENCE_S)
            got = b"".join(pieces)
            self.assertIn(b"data: [DONE]", got)
            events = [json.loads(line[6:]) for line in got.decode().split("\n") if line.startswith("data: {")]  # splitlines() knows ends of lines that JSON does not escape
            self.assertEqual(len(choices(events)[0][2]), 8000)
            link.close()

    def test_a_drain_that_takes_too_long_is_cut_off(self):
        with Server(self.model, "-np", "2", "-c", "100000", "--drain", "0.1") as server:
            link = server.open_stream(TEXT, {"prompt": "the", "max_tokens": 90000, "ignore_eos": True})
            server.until(lambda m: m["ridge:num_requests_running"] == 1)
            status, err = server.stop(SIGTERM)
            self.assertEqual(status, 0, err)
            self.assertIn("cancelled", err)
            link.close()

    def test_two_interrupts_end_at_once(self):
        with Server(self.model, "-np", "2", "-c", "100000") as server:
            link = server.open_stream(TEXT, {"prompt": "the", "max_tokens": 90000, "ignore_eos": True})
            server.until(lambda m: m["ridge:num_requests_running"] == 1)
            status, err = server.stop(SIGINT, SIGINT)
            self.assertEqual(status, 1)
            self.assertIn("error: interrupted", err)
            link.close()

    def test_a_signal_while_it_loads_is_no_error(self):
        """A hub that never answers keeps it loading for as long as the test needs."""
        with socket.socket() as hub, tempfile.TemporaryDirectory() as home:
            hub.bind(("127.0.0.1", 0))
            hub.listen()
            hub.settimeout(Server.PATIENCE_S)
            env = {**os.environ, "RIDGE_HOME": home, "HF_ENDPOINT": f"http://127.0.0.1:{hub.getsockname()[1]}", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
            for number in (SIGTERM, SIGINT):
                for more in ([], ["--json"]):
                    child = subprocess.Popen([RIDGE, "serve", "-m", "hf:me/model", "--port", "0", *more], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    link, _ = hub.accept()
                    child.send_signal(number)
                    out, err = child.communicate(timeout=Server.PATIENCE_S)
                    link.close()
                    self.assertEqual((child.returncode, out), (0, ""), err)
                    self.assertNotIn("error:", err)
                    self.assertIn("ended before the model was loaded", err)

    def test_a_signal_while_weights_are_read_is_no_error(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "deep.gguf")
            tiny_model.write_tiny_model(model, silent=300)
            for _ in range(10):  # until one comes before all is read
                child = subprocess.Popen([RIDGE, "serve", "-m", model, "--port", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.assertIn(": loading ", child.stderr.readline())
                child.send_signal(SIGTERM)
                out, err = child.communicate(timeout=Server.PATIENCE_S)
                self.assertEqual((child.returncode, out), (0, ""), err)
                self.assertNotIn("error:", err)
                if "ended before the model was loaded" in err:
                    return
            self.fail(err)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs two CPUs")
    def test_every_thread_stays_on_the_cpus_that_were_asked_for(self):
        cpu = max(os.sched_getaffinity(0))
        with Server(self.model, "-np", "2", "-c", "256", "-t", "1", "--cpu-mask", hex(1 << cpu)) as server:
            server.post(TEXT, {"prompt": "the", "max_tokens": 4})
            server.post("/tokenize", {"content": "x" * (2 << 20)})
            folder, found = f"/proc/{server.child.pid}/task", {}
            for task in os.listdir(folder):
                with open(os.path.join(folder, task, "status")) as file:
                    fields = dict(line.split(":", 1) for line in file if ":" in line)
                found[task] = (fields["Name"].strip(), fields["Cpus_allowed_list"].strip())
            self.assertGreater(len(found), 3)
            self.assertEqual({cpus for _, cpus in found.values()}, {str(cpu)}, found)

    def test_command_line(self):
        def refused(*arguments):
            run = subprocess.run([RIDGE, "serve", "-m", self.model, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=Server.PATIENCE_S, text=True)
            self.assertIn("error: ", run.stderr)
            return run.returncode, run.stderr
        for arguments in (["--host", "0.0.0.0", "--port", "0"], ["--host", "nowhere"], ["--port", "70000"], ["-np", "0"], ["--spec", "x"], ["--kv-memory", "5x"], ["--kv-memory", "1"], ["-np", "64", "-ub", "32"]):
            with self.subTest(arguments=arguments):
                self.assertEqual(refused("--port", "0", *arguments)[0] if "--port" not in arguments else refused(*arguments)[0], 2)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assertEqual(refused("--port", str(taken.getsockname()[1]))[0], 1)


if __name__ == "__main__":
    unittest.main()
