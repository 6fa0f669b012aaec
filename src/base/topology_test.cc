#include "base/topology.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/cpu.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// A folder that stands for / with the few files of /proc and /sys that are read.
class FakeRoot {
 public:
  FakeRoot() {
    std::string pattern = (fs::temp_directory_path() / "ridge-topology-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~FakeRoot() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(path_ + path).parent_path());
    std::ofstream(path_ + path) << text << '\n';
  }
  // `cpus` CPUs online, `threads_per_core` of them on each core, all allowed.
  void Machine(int cpus, int threads_per_core) const {
    const std::string all = "0-" + std::to_string(cpus - 1);
    Write("/sys/devices/system/cpu/online", all);
    Write("/proc/self/status", "Name:\tridge\nCpus_allowed:\tff\nCpus_allowed_list:\t" + all);
    for (int cpu = 0; cpu < cpus; ++cpu) {
      const int first = cpu / threads_per_core * threads_per_core;
      Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/core_cpus_list",
            std::to_string(first) + "-" + std::to_string(first + threads_per_core - 1));
    }
  }
  CpuBudget Threads(std::optional<int> asked = std::nullopt) const { return ResolveThreads(asked, path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Topology, DefaultIsOneThreadPerPhysicalCore) {
  FakeRoot root;
  root.Machine(16, 2);
  EXPECT_EQ(root.Threads().threads, 8);
  EXPECT_EQ(root.Threads().reason, "8 physical cores of 16 CPUs with SMT");
}

TEST(Topology, AffinityMaskCountsNotTheMachine) {
  FakeRoot root;
  root.Machine(16, 2);
  root.Write("/proc/self/status", "Cpus_allowed_list:\t2-3,5");
  EXPECT_EQ(root.Threads().threads, 2);  // 2 and 3 share a core
  EXPECT_NE(root.Threads().reason.find("affinity allows 3 of 16 CPUs"), std::string::npos) << root.Threads().reason;
}

struct QuotaCase {
  const char* text;
  int threads;
};

TEST(Topology, V2QuotaRoundsDownButNeverBelowOne) {
  for (const QuotaCase& c : {QuotaCase{"100000 100000", 1},
                             {"50000 100000", 1},
                             {"max 100000", 8},
                             {"250000 100000", 2},
                             {"399999 100000", 3},
                             {"1000000 100000", 8},
                             {"rubbish", 8},
                             {"", 8},
                             {"0 100000", 8},
                             {"100000 0", 8},
                             {"-5 100000", 8},
                             {"99999999999999999999 100000", 8}}) {
    FakeRoot root;
    root.Machine(8, 1);
    root.Write("/sys/fs/cgroup/cpu.max", c.text);
    EXPECT_EQ(root.Threads().threads, c.threads) << c.text << ": " << root.Threads().reason;
  }
}

TEST(Topology, ParentStricterThanChild) {
  FakeRoot root;
  root.Machine(8, 1);
  root.Write("/proc/self/cgroup", "0::/a/b/c");
  root.Write("/sys/fs/cgroup/a/b/c/cpu.max", "600000 100000");
  root.Write("/sys/fs/cgroup/a/cpu.max", "300000 100000");
  root.Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(root.Threads().threads, 3);
  EXPECT_NE(root.Threads().reason.find("/sys/fs/cgroup/a/cpu.max"), std::string::npos) << root.Threads().reason;
}

TEST(Topology, ChildStricterThanParent) {
  FakeRoot root;
  root.Machine(8, 1);
  root.Write("/proc/self/cgroup", "0::/a/b");
  root.Write("/sys/fs/cgroup/a/b/cpu.max", "200000 100000");
  root.Write("/sys/fs/cgroup/a/cpu.max", "700000 100000");
  EXPECT_EQ(root.Threads().threads, 2);
}

TEST(Topology, V1QuotaThroughMountinfo) {
  FakeRoot root;
  root.Machine(8, 1);
  root.Write("/proc/self/cgroup", "12:memory:/m\n4:cpu,cpuacct:/docker/abc\n0::/");
  root.Write("/proc/self/mountinfo",
             "30 29 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
             "31 30 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro shared:1 - cgroup cgroup rw,cpu,cpuacct");
  root.Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "450000");
  root.Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(root.Threads().threads, 4);
  root.Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(root.Threads().threads, 8);
}

TEST(Topology, AskedNumberIsKeptAndWarnedAbout) {
  FakeRoot root;
  root.Machine(8, 1);
  root.Write("/sys/fs/cgroup/cpu.max", "400000 100000");
  const CpuBudget more = root.Threads(8);
  EXPECT_EQ(more.threads, 8);
  EXPECT_NE(more.warning.find("8 threads asked for, but this process may use 4"), std::string::npos) << more.warning;
  EXPECT_NE(more.warning.find("cpu.max"), std::string::npos) << more.warning;
  const CpuBudget same = root.Threads(4);
  EXPECT_EQ(same.threads, 4);
  EXPECT_EQ(same.warning, "");
  EXPECT_EQ(root.Threads(0).threads, 4);
  EXPECT_EQ(root.Threads(-1).threads, 4);
}

TEST(Topology, EmptyTreeStillGivesOneThread) {
  FakeRoot root;
  EXPECT_EQ(root.Threads().threads, 1);
  EXPECT_FALSE(root.Threads().reason.empty());
}

TEST(Topology, HostileCpuListsEnd) {
  FakeRoot root;
  root.Machine(4, 1);
  root.Write("/proc/self/status", "Cpus_allowed_list:\t0-99999999999,7-3,x,-4,,1");
  EXPECT_EQ(ReadCpuLimits(root.path()).allowed, std::vector<int>{1});
}

TEST(Topology, MemoryLimitIsTheStrictestLevel) {
  FakeRoot root;
  root.Write("/proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB");
  EXPECT_EQ(ReadMemory(root.path()).allowed_bytes, uint64_t{16} << 30);
  EXPECT_FALSE(ReadMemory(root.path()).limit_bytes.has_value());
  root.Write("/proc/self/cgroup", "0::/a/b");
  root.Write("/sys/fs/cgroup/a/b/memory.max", "max");
  root.Write("/sys/fs/cgroup/a/memory.max", "1073741824");
  const MemoryBudget memory = ReadMemory(root.path());
  EXPECT_EQ(memory.allowed_bytes, uint64_t{1} << 30);
  EXPECT_EQ(memory.available_bytes, uint64_t{8} << 30);
  EXPECT_NE(memory.reason.find("/sys/fs/cgroup/a/memory.max"), std::string::npos) << memory.reason;
}

TEST(Topology, V1MemoryWithoutLimitIsNoLimit) {
  FakeRoot root;
  root.Write("/proc/meminfo", "MemTotal: 1024 kB");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_FALSE(ReadMemory(root.path()).limit_bytes.has_value());
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096");
  EXPECT_EQ(ReadMemory(root.path()).allowed_bytes, 4096u);
}

TEST(Topology, HugePageModeIsTheWordInBrackets) {
  FakeRoot root;
  EXPECT_EQ(ReadHugePages(root.path()).thp, "");
  root.Write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  root.Write("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152");
  root.Write("/proc/meminfo", "HugePages_Total:      16\nHugePages_Free:        3");
  const HugePages pages = ReadHugePages(root.path());
  EXPECT_EQ(pages.thp, "madvise");
  EXPECT_EQ(pages.size_bytes, 2097152u);
  EXPECT_EQ(pages.reserved_total, 16u);
  EXPECT_EQ(pages.reserved_free, 3u);
}

TEST(Topology, ThisMachineAnswers) {
  const CpuLimits limits = ReadCpuLimits();
  EXPECT_GE(limits.allowed.size(), 1u);
  EXPECT_GE(limits.physical_cores, 1);
  EXPECT_LE(limits.physical_cores, static_cast<int>(limits.allowed.size()));
  EXPECT_GT(ReadMemory().allowed_bytes, 0u);
}

TEST(Cpu, AgreesWithTheKernel) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags")) flags = line + " ";
  }
#if defined(__x86_64__)
  ASSERT_FALSE(flags.empty());
  const auto listed = [&](const char* name) { return flags.find(std::string(" ") + name + " ") != std::string::npos; };
  EXPECT_EQ(Cpu().avx2, listed("avx2"));
  EXPECT_EQ(Cpu().fma, listed("fma"));
  EXPECT_EQ(Cpu().f16c, listed("f16c"));
  EXPECT_EQ(Cpu().avx512_f, listed("avx512f"));
  EXPECT_EQ(Cpu().avx512_bw, listed("avx512bw"));
  EXPECT_EQ(Cpu().avx512_vl, listed("avx512vl"));
  EXPECT_EQ(Cpu().avx512_dq, listed("avx512dq"));
  EXPECT_EQ(Cpu().avx512_vnni, listed("avx512_vnni"));
  EXPECT_EQ(Cpu().avx512_vbmi, listed("avx512vbmi"));
  EXPECT_EQ(Cpu().avx512_bf16, listed("avx512_bf16"));
  EXPECT_EQ(Cpu().avx_vnni, listed("avx_vnni"));
  EXPECT_EQ(Cpu().amx_int8, listed("amx_int8"));
#endif
}

}  // namespace
}  // namespace ridge
