#include "lab/evidence/words.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "lab/evidence/environment.h"
#include "lab/experiments/catalogue.h"
#include "lab/monitor/power.h"
#include "lab/monitor/sampler.h"

namespace ridge::lab {
namespace {

const Wording kChinese{ReportLanguage::kChinese};

// Names of files and of programs are the same in both languages: something that is no ASCII has to be there, or nothing that is a word.
void ExpectChinese(const std::string& english) {
  const bool names = english.find(' ') == std::string::npos;
  const std::string chinese = kChinese.Reason(english);
  EXPECT_TRUE(names || std::ranges::any_of(chinese, [](char c) { return (c & 0x80) != 0; })) << english;
  EXPECT_EQ(Wording{}.Reason(english), english);
}

TEST(Words, EveryReasonOfTheEnvironmentIsSaidInChinese) {
  const std::string empty =
      (std::filesystem::temp_directory_path() / ("ridge_words_" + std::to_string(getpid()))).string();
  std::filesystem::create_directories(empty);
  for (const std::string& root : {empty, std::string("/")}) {
    const auto environment = Environment({.framework = "ridge", .sys_root = root});
    for (const auto& [name, field] : environment["mlperf"].items())
      ExpectChinese(field.contains("reason") ? field["reason"].get<std::string>() : field["from"].get<std::string>());
  }
  std::filesystem::remove_all(empty);
}

TEST(Words, EveryReadingThatIsMissedIsNamedInChinese) {
  const std::string empty =
      (std::filesystem::temp_directory_path() / ("ridge_words_" + std::to_string(getpid()))).string();
  std::filesystem::create_directories(empty);
  for (const std::string& root : {empty, std::string("/")}) {
    const Sampler sampler({.pid = root == "/" ? getpid() : 0, .sys_root = root, .nvml = "/nowhere/libnvidia-ml.so.1"});
    EXPECT_FALSE(sampler.missing().empty());
    for (const Missing& m : sampler.missing()) ExpectChinese(m.what), ExpectChinese(m.reason);
  }
  const std::string none = ReadPowerModes(empty).reason;
  EXPECT_NE(none, "");
  ExpectChinese(none);
  ExpectChinese(Device::This(empty).no_gpu);
  std::filesystem::remove_all(empty);
}

TEST(Words, ReasonsThatAreJoinedOrHoldFigures) {
  EXPECT_EQ(kChinese.Reason("other work took 6–9 % of the CPUs; the host took 3 %"),
            "其他进程占用了 6–9 % 的 CPU；宿主机夺走了 3 % 的时间");
  EXPECT_EQ(kChinese.Reason("pages came back from swap; a line of some log"), "有页面从交换区换回；a line of some log");
  EXPECT_EQ(kChinese.Reason("this processor does not have avx512"), "此处理器没有 avx512");
  EXPECT_EQ(kChinese.Reason("the kernel refuses (perf_event_paranoid is 3): root may, or CAP_PERFMON"),
            "内核拒绝（perf_event_paranoid 为 3）：root 或 CAP_PERFMON 可以");
  EXPECT_EQ(kChinese.Reason("a line of some log; and more"), "a line of some log; and more");
  EXPECT_EQ(kChinese.Reason(""), "");
  EXPECT_EQ(kChinese.Flag("loop"), "重复");
  EXPECT_EQ(kChinese.Test("decode pp64 tg16 x2"), "解码 pp64 tg16 x2");
  EXPECT_EQ(kChinese.Test("first token"), "首 token");
  EXPECT_EQ(kChinese.Test("pp64"), "pp64");
  EXPECT_EQ(Wording{}.Flag("loop"), "loop");
}

}  // namespace
}  // namespace ridge::lab
