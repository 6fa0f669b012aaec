// Completes a text as it comes, forks the answer, and shows what both cost.
//
//   ridge_complete MODEL.gguf "The capital of France is"
#include <cstdio>

#include "ridge/ridge.h"

namespace {

int Report(const ridge::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.Message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.gguf TEXT\n", argv[0]);
    return 2;
  }
  const ridge::Result<ridge::Model> model = ridge::Model::Load({.path = argv[1]});
  if (!model) return Report(model.error());

  ridge::Request request{.prompt = argv[2], .max_tokens = 24, .sampling = {.temperature = 0}};
  ridge::Result<ridge::Stream> stream = model->Submit(request);
  if (!stream) return Report(stream.error());
  ridge::Event event;
  while (stream->Next(event) == ridge::Stream::Got::kEvent) {
    std::fputs(event.text.c_str(), stdout);
    std::fflush(stdout);
  }
  if (stream->error()) return Report(*stream->error());
  std::puts("");

  // Three other ways on from the same place. What was computed is shared.
  for (uint64_t seed = 1; seed <= 3; seed++) {
    ridge::Result<ridge::Stream> fork =
        stream->Fork({.max_tokens = 12, .sampling = {.temperature = 1.2, .seed = seed}});
    if (!fork) return Report(fork.error());
    const ridge::Result<ridge::Answer> answer = fork->Finish();
    if (!answer) return Report(answer.error());
    std::printf("%s\n  (%lld of %lld tokens from the cache, first token after %.1f ms)\n", answer->text.c_str(),
                static_cast<long long>(answer->receipt.cached_tokens),
                static_cast<long long>(answer->receipt.prompt_tokens), answer->receipt.ttft_ms);
  }
  return 0;
}
