#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "lab/load/load.h"
#include "lab/subjects/asked.h"
#include "lab/subjects/llama_log.h"

namespace ridge::lab {
namespace {

AskedRequest Request(std::string id, std::string text, double sent, double first, double done, int64_t tokens) {
  AskedRequest r{
      .prompt_id = std::move(id), .text = std::move(text), .finish_reason = "stop", .sent_s = sent, .done_s = done};
  r.first_token_s = first, r.last_token_s = done, r.output_tokens = tokens;
  return r;
}

// Of this test alone: others run beside it.
std::string RunFile() {
  return testing::TempDir() + "asked-" + testing::UnitTest::GetInstance()->current_test_info()->name() + "-" +
         std::to_string(getpid()) + ".json";
}

TEST(Asked, FiguresFollowFromTheRecord) {
  AskedRun run{.subject = "serve", .version = "ridge 1", .concurrency = 2, .max_tokens = 48, .duration_s = 4};
  run.settings = {
      {"n_threads", 2}, {"n_threads_reason", "x"}, {"fusion", {"a", "b"}}, {"sampling", {{"seed", 7}, {"top_k", 40}}}};
  run.model_bytes = 1000;
  run.requests = {Request("en-fact", "Paris", 0, 0.1, 1.1, 11), Request("en-json", "no", 1, 1.2, 2.2, 21),
                  Request("p1", "", 2, 2.3, 3.3, 31)};
  const std::string path = RunFile();
  ASSERT_TRUE(WriteAsked(run, path));
  const RunOutput out = ParseAsked(ReadText(path).value()).value();
  ASSERT_EQ(out.tests.size(), 4u);
  EXPECT_EQ(out.tests[0].test, "decode");
  EXPECT_NEAR(out.tests[0].value, 20, 1e-9);  // the median of 10, 20 and 30
  EXPECT_EQ(out.tests[1].test, "first token");
  EXPECT_NEAR(out.tests[1].value, 200, 1e-9);
  EXPECT_EQ(out.tests[1].unit, "ms");
  EXPECT_FALSE(out.tests[1].higher_is_better);
  EXPECT_NEAR(out.tests[2].value, 1200, 1e-9);
  EXPECT_NEAR(out.tests[3].value, 63.0 / 4, 1e-9);
  EXPECT_NEAR(*out.measures.ttft_ms, 200, 1e-9);
  EXPECT_EQ(out.measures.model_bytes, 1000);
  EXPECT_TRUE(out.measures.missing.contains("prefill_per_second"));
  EXPECT_EQ(out.resolved.at("n_threads"), "2");
  EXPECT_EQ(out.resolved.at("fusion"), "[\"a\",\"b\"]");
  EXPECT_EQ(out.resolved.at("sampling"), "{\"top_k\":40}");
  EXPECT_FALSE(out.resolved.contains("n_threads_reason"));
  EXPECT_EQ(out.resolved.at("concurrency"), "2");
  EXPECT_EQ(out.answers[0].flags, std::vector<std::string>{});
  EXPECT_EQ(out.answers[1].flags, std::vector<std::string>{"bad-json"});
  EXPECT_EQ(out.answers[2].flags, std::vector<std::string>{"empty"});
  EXPECT_FALSE(ParseAsked("{}"));
  EXPECT_FALSE(ParseAsked("nothing"));
}

TEST(Asked, WhatTheSubjectItselfTellsGoesFirst) {
  AskedRun run{.subject = "serve"};
  run.requests = {Request("p1", "x", 0, 0.1, 1.1, 11)};
  run.requests[0].timings = {{"predicted_per_second", 99.5}, {"prompt_per_second", 500}};
  const std::string path = RunFile();
  ASSERT_TRUE(WriteAsked(run, path));
  const RunOutput out = ParseAsked(ReadText(path).value()).value();
  EXPECT_EQ(out.measures.decode_per_second, 99.5);
  EXPECT_EQ(out.measures.prefill_per_second, 500);
}

// Lines of llama.cpp b1-0c1e570 and, as far as they differ, of older ones.
TEST(LlamaLog, SettingsAreRead) {
  nlohmann::ordered_json s = nlohmann::ordered_json::object();
  ReadLlamaSettings(
      R"(0.00.008.231 I cmn  common_param: system_info: n_threads = 2 (n_threads_batch = 4) / 2 | CPU : SSE3 = 1 |
0.00.308.474 I print_info: n_ctx_train           = 8192
0.00.315.810 I llama_context: n_ctx                 = 1024
0.00.315.817 I llama_context: n_ctx_seq             = 1024
0.00.315.824 I llama_context: n_batch               = 1000
0.00.315.831 I llama_context: n_ubatch              = 512
0.00.315.845 I llama_context: flash_attn            = auto
0.00.327.283 I llama_kv_cache: size =   22.50 MiB (  1024 cells,  30 layers,  1/1 seqs), K (q8_0):   11.25 MiB, V (f16):   11.25 MiB
0.00.407.604 I slot   load_model: id  0 | task -1 | new slot, n_ctx = 99
load_tensors: offloaded 0/31 layers to GPU
)",
      s);
  EXPECT_EQ(s, (nlohmann::ordered_json{{"n_threads", "2"},
                                       {"n_threads_batch", "4"},
                                       {"n_ctx", "1024"},
                                       {"n_batch", "1000"},
                                       {"n_ubatch", "512"},
                                       {"flash_attn", "auto"},
                                       {"type_k", "q8_0"},
                                       {"type_v", "f16"},
                                       {"n_gpu_layers", "0"}}));
}

TEST(AnswerEvent, TellsTextReasonAndTimes) {
  const AnswerEvent a = ParseEvent(R"({"choices": [{"delta": {"content": "Hi"}, "finish_reason": null}]})");
  EXPECT_EQ(a.content, "Hi");
  EXPECT_TRUE(a.text);
  const AnswerEvent b = ParseEvent(
      R"({"choices": [{"delta": {}, "finish_reason": "length"}], "usage": {"prompt_tokens": 3, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}}, "timings": {"a": 1}})");
  EXPECT_EQ(b.finish_reason, "length");
  EXPECT_EQ(b.cached_tokens, 2);
  EXPECT_EQ(b.timings, R"({"a":1})");
  EXPECT_FALSE(b.text);
}

}  // namespace
}  // namespace ridge::lab
