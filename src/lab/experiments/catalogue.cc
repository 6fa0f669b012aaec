#include "lab/experiments/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "backend/backend.h"
#include "backend/cpu/blas.h"
#include "base/topology.h"
#include "lab/monitor/power.h"

namespace ridge::lab {
namespace {

enum class Role { kBench, kRun, kServe, kBatched };

// A TOML value: numbers and switches as they are, all else as a string.
std::string Toml(const std::string& text) {
  const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos && text.size() < 10;
  return number || text == "true" || text == "false" ? text : nlohmann::json(text).dump();
}

struct Plan {
  Role role = Role::kBench;
  std::string subject;  // where it is not that of the role
  std::vector<std::pair<std::string, std::string>> base;
  std::vector<std::pair<std::string, std::string>> work;
  std::string flag;
  std::vector<std::string> values;
  std::map<std::string, std::string> not_run;
  int repeats = 1;
};

std::string SubjectOfRole(Role role, bool peer) {
  switch (role) {
    case Role::kBench: return peer ? "llama-bench" : "bench";
    case Role::kRun: return peer ? "llama-cli" : "run";
    case Role::kServe: return peer ? "llama-server" : "serve";
    case Role::kBatched: return peer ? "llama-batched-bench" : "batched-bench";
  }
  return "";
}

std::vector<std::string> ThreadCounts(int cpus) {
  std::vector<std::string> out;
  for (int n = 1; n < cpus; n *= 2) out.push_back(std::to_string(n));
  out.push_back(std::to_string(cpus));
  return out;
}

// Enough tokens for a steady rate, and few enough that a small model takes a second or two for a run.
const std::vector<std::pair<std::string, std::string>> kShape = {{"p", "128"}, {"n", "32"}};
const std::vector<std::pair<std::string, std::string>> kAsk = {{"max_tokens", "48"}};

Plan PlanOf(std::string_view name, const ReadyOptions& o, const Device& d) {
  const std::string model = o.models.empty() ? "" : o.models[0];
  Plan p{.base = {{"m", model}}};
  const auto with = [](auto& list, const auto& more) { list.insert(list.end(), more.begin(), more.end()); };
  const bool bench = name != "context" && name != "cli-vs-server" && name != "concurrency" && name != "prefix-cache" &&
                     name != "speculation" && name != "batched" && name != "runtimes";
  if (bench) {
    with(p.base, kShape);
    if (o.quality) p.work = kAsk;
  }
  if (name == "offload") {
    p.flag = "ngl", p.values = {"0", "99"};
    if (!d.no_gpu.empty())
      p.not_run["99"] = d.no_gpu;
    else if (o.peer.empty())
      p.not_run["99"] = "this build of ridge computes on the CPU only; give llama.cpp's programs with --peer";
  } else if (name == "context") {
    p.role = Role::kRun, p.flag = "c", p.values = {"1024", "2048", "4096"};
    p.work = {{"prompts", "4"}, {"max_tokens", "48"}};
  } else if (name == "depth") {
    p.base = {{"m", model}, {"p", "0"}, {"n", "32"}};
    if (o.peer.empty()) p.base.emplace_back("roofline", "true");
    p.flag = "d", p.values = {"0", "512", "1024"};
  } else if (name == "format") {
    p.base = kShape, p.flag = "m", p.values = o.models;
  } else if (name == "threads") {
    if (o.peer.empty()) p.base.emplace_back("roofline", "true");
    p.flag = "t", p.values = ThreadCounts(d.cpus);
    if (d.cpus < 2) p.not_run["2"] = "this process may use one CPU only";
  } else if (name == "cli-vs-server") {
    p.flag = "subject", p.role = Role::kRun;
    p.values = {SubjectOfRole(Role::kRun, !o.peer.empty()), SubjectOfRole(Role::kServe, !o.peer.empty())};
    p.base.emplace_back("c", "4096");
    // What the server could reuse of other requests would be a second difference.
    p.base.emplace_back("no-prefix-cache", "true");
    if (o.peer.empty()) p.base.emplace_back("spec", "off");
    p.work = {{"prompts", "4"}, {"max_tokens", "48"}};
  } else if (name == "runtimes") {
    p.flag = "subject", p.role = Role::kServe, p.values = {"serve", "llama-server"};
    p.base.insert(p.base.end(), {{"c", "4096"},
                                 {"np", "1"},
                                 {"b", "2048"},
                                 {"ub", "512"},
                                 {"fa", "1"},
                                 {"no-prefix-cache", "true"},
                                 {"spec", "off"}});
    p.work = {{"prompts", "6"}, {"max_tokens", "48"}};
  } else if (name == "power-mode") {
    p.flag = "power-mode", p.values = d.power_modes;
    if (d.power_modes.size() < 2) p.not_run["(every mode)"] = d.no_power_modes;
  } else if (name == "observer") {
    p.base = {{"m", model}, {"p", "128"}, {"n", "64"}}, p.flag = "observer", p.values = {"off", "on"};
    p.work.clear(), p.repeats = 3;
  } else if (name == "isa") {
    // Scalar code takes its time.
    p.base = {{"m", model}, {"p", "32"}, {"n", "8"}}, p.flag = "isa";
    if (o.quality) p.work = {{"prompts", "3"}, {"max_tokens", "24"}};
    for (const auto& [isa, why] : d.isas) {
      p.values.push_back(isa);
      if (!why.empty()) p.not_run[isa] = why;
    }
  } else if (name == "batch") {
    p.base = {{"m", model}, {"p", "256"}, {"n", "0"}}, p.flag = "ub", p.values = {"16", "64", "256"};
  } else if (name == "kv-type") {
    p.base = {{"m", model}, {"p", "0"}, {"n", "32"}, {"d", "512"}, {"fa", "1"}};
    p.flag = "ctk", p.values = {"f16", "q8_0", "q4_0"};
  } else if (name == "flash-attention") {
    p.base = {{"m", model}, {"p", "128"}, {"n", "32"}, {"d", "256"}}, p.flag = "fa", p.values = {"1", "0"};
  } else if (name == "fusion") {
    p.flag = "fusion", p.values = {"on", "off"};
  } else if (name == "blas") {
    p.base = {{"m", model}, {"p", "256"}, {"n", "0"}}, p.flag = "matmul", p.values = {"native", "blas"};
    if (!d.no_blas.empty()) p.not_run["blas"] = d.no_blas;
  } else if (name == "batched") {
    p.role = Role::kBatched, p.base = {{"m", model}, {"npp", "64"}, {"ntg", "16"}};
    if (!o.peer.empty()) p.base.emplace_back("c", "2048");
    p.flag = "npl", p.values = {"1", "2", "4", "8"};
    if (o.quality) p.work = kAsk;
  } else if (name == "concurrency") {
    p.role = Role::kServe, p.flag = "concurrency", p.values = {"1", "2", "4", "8"};
    p.work = {{"requests", "16"}, {"max_tokens", "32"}, {"ignore_eos", "true"}};
    if (o.url.empty())
      p.base.insert(p.base.end(), {{"np", "8"},
                                   {"c", o.peer.empty() ? "1024" : "8192"},
                                   {"no-prefix-cache", "true"},  // questions come twice
                                   {"spec", "off"}});
    else
      p.base.clear(), p.subject = "url";
  } else if (name == "prefix-cache") {
    p.role = Role::kServe, p.flag = "no-prefix-cache", p.values = {"false", "true"};
    p.base.insert(p.base.end(), {{"np", "1"}, {"c", "4096"}, {"spec", "off"}});
    p.work = {{"prefix_words", "150"}, {"prompts", "6"}, {"max_tokens", "8"}};
  } else if (name == "speculation") {
    p.role = Role::kServe, p.flag = "spec", p.values = {"off", "lookup"};
    p.base.insert(p.base.end(), {{"np", "1"}, {"c", "4096"}});
    p.work = {{"max_tokens", "64"}};
  }
  // Pinned: a number of threads that is chosen anew for each run may change with the machine's load.
  if (p.flag != "t" && !p.base.empty()) p.base.emplace_back("t", std::to_string(d.cpus));
  return p;
}

}  // namespace

const std::vector<Ready>& ReadyMade() {
  static const std::vector<Ready> kReady = {
      {"offload", "Does a GPU help, and which bottleneck does it move?", "GPU offload 是否有收益，瓶颈移到了哪里？",
       "-ngl 0, 99"},
      {"context", "What does the size of the context cost?", "ctx-size 对内存和首 token 有什么影响？",
       "-c 1024, 2048, 4096 of the command line"},
      {"format", "Which format is smaller, which is faster, and is it still good?",
       "哪种量化格式更小、更快，质量是否仍可接受？", "-m of two models or more", false, 2},
      {"threads", "How many threads pay?", "多少个 CPU 线程合适？", "-t 1, 2, 4, … all CPUs"},
      {"cli-vs-server", "What does the service cost beside the command line?", "服务化比命令行多花多少时间？",
       "the same questions to ridge run and to ridge serve"},
      {"runtimes", "How does llama.cpp do the same work?", "llama.cpp 做同样的工作有多快？",
       "the same questions to ridge serve and to --peer's llama-server"},
      {"power-mode", "What do power and heat allow?", "不同功耗模式下速度和稳定性如何？",
       "nvpmodel or the CPU's governor"},
      {"observer", "What does watching cost: the monitor and the trace of ops?", "监控与算子追踪本身有多大开销？",
       "neither, and both", true},
      {"isa", "What does a wider instruction set bring?", "更宽的指令集带来多少收益？", "--isa", true},
      {"batch", "How long should a step of the prompt be?", "prefill 的分块多大合适？", "-ub 16, 64, 256"},
      {"batched", "What does decoding several sequences at once bring?", "同时解码多个序列能提高多少吞吐？",
       "-npl 1, 2, 4, 8 of batched-bench"},
      {"kv-type", "What does a smaller K cache cost and bring?", "K cache 量化的收益和风险？",
       "-ctk f16, q8_0, q4_0 at depth 512"},
      {"flash-attention", "What does flash attention bring?", "flash attention 带来多少收益？", "-fa 1, 0"},
      {"fusion", "What do fused ops bring?", "算子融合带来多少收益？", "--fusion on, off", true},
      {"blas", "Is prefill faster with a BLAS library?", "prefill 用 BLAS 是否更快？", "--matmul native, blas", true},
      {"depth", "What does a long history cost each token?", "历史越长，每个 token 慢多少？",
       "-d 0, 512, 1024 of bench"},
      {"concurrency", "How do throughput and waiting change with the load?", "并发增加时吞吐和首 token 如何变化？",
       "1, 2, 4, 8 requests at once"},
      {"prefix-cache", "What does a shared beginning save?", "共享前缀能省多少 prefill？", "--no-prefix-cache off, on",
       true},
      {"speculation", "What do guessed tokens bring?", "投机解码带来多少收益？", "--spec off, lookup", true},
      {"homework-1", "Compare -ngl 0 with -ngl 99 on one model.", "在同一模型上比较 -ngl 0 与 -ngl 99。", "as offload",
       false, 1, "offload"},
      {"homework-2", "Compare ctx-size 1024, 2048 and 4096 on one model.",
       "在同一模型上比较 ctx-size 1024、2048、4096。", "as context", false, 1, "context"},
      {"homework-3", "Compare two of Q8, Q5 and Q4 at least.", "比较 Q8、Q5、Q4 中至少两个量化格式。", "as format",
       false, 2, "format"},
      {"homework-4", "Explain, from one set of results, where the bottleneck is most likely.",
       "选择一组结果，解释瓶颈最可能来自哪里。", "as threads, with the ceilings", false, 1, "threads"},
      {"homework-5", "On a Jetson: power mode, temperature and tegrastats.",
       "如果设备是 Jetson，补充功耗模式、温度和 tegrastats 日志。", "as power-mode; --from LOG", false, 1,
       "power-mode"},
      {"homework-6", "Explain the -ngl comparison with the roofline: which configuration is nearer to memory-bound?",
       "用 roofline 框架解释你的 -ngl 对比结果：哪个配置更接近 memory-bound？依据是什么？", "as offload; --from LOG",
       false, 1, "offload"},
      {"homework-7",
       "Estimate the decode ceiling from bandwidth over bytes, compare it with what is measured, and explain the gap.",
       "用 tokens/s ≲ BW / 模型字节数 估算 decode 上限，与实测值对比并解释差距来源。", "as depth, with the ceilings",
       false, 1, "depth"},
  };
  return kReady;
}

const Ready* FindReady(std::string_view name) {
  const auto it = std::ranges::find(ReadyMade(), name, &Ready::name);
  return it == ReadyMade().end() ? nullptr : &*it;
}

Device Device::This(const std::string& root) {
  Device d;
  d.cpus = ResolveThreads({}).threads;
  for (const backend::IsaInfo& isa : backend::CpuIsas())
    d.isas[isa.name] = isa.supported ? "" : "this processor does not have " + isa.name;
  const PowerModes modes = ReadPowerModes(root);
  d.power_modes = modes.names, d.no_power_modes = modes.reason;
  std::error_code error;
  if (!std::filesystem::exists(root + "/proc/driver/nvidia/version", error))
    d.no_gpu = "no NVIDIA driver: /proc/driver/nvidia/version is not there";
  if (const auto blas = cpu::LoadBlas(1); !blas) d.no_blas = blas.error().Message();
  return d;
}

Result<std::string> WriteReady(std::string_view name, const ReadyOptions& o, const Device& device) {
  const Ready* ready = FindReady(name);
  if (ready == nullptr)
    return Fail(Code::kUsage, "there is no such experiment")
        .Found(std::string(name))
        .Remedy("ridge lab list names them");
  const std::string_view what = ready->like.empty() ? name : std::string_view(ready->like);
  const Ready& like = *FindReady(what);
  if (!o.url.empty() && what != "concurrency")
    return Fail(Code::kUsage, "this experiment is not about a server that runs already")
        .Where("--url")
        .Expected("concurrency");
  if (!o.peer.empty() && like.own_only)
    return Fail(Code::kUsage, "llama.cpp's programs have no such setting").Where("--peer").Found(std::string(name));
  if (what == "runtimes" && o.peer.empty())
    return Fail(Code::kUsage, "this experiment needs a folder of llama.cpp's programs").Where("--peer");
  if (o.url.empty() && static_cast<int>(o.models.size()) < like.models)
    return Fail(Code::kUsage, like.models > 1 ? "this experiment compares models" : "a model is needed")
        .Where("-m")
        .Found(std::to_string(o.models.size()))
        .Expected(fmt::format("{} at least", like.models));
  const Plan p = PlanOf(what, o, device);
  std::string text = fmt::format("# ridge lab run {}, for this device\n[experiment]\nname = {}\nquestion = {}\n", name,
                                 Toml(std::string(name)), Toml(ready->question + " / " + ready->question_zh));
  const std::string subject = p.subject.empty() ? SubjectOfRole(p.role, !o.peer.empty()) : p.subject;
  text += fmt::format("subject = {}\n", Toml(subject));
  if (subject == "url") text += fmt::format("url = {}\n", Toml(o.url));
  if (subject == "url" && !o.models.empty()) text += fmt::format("model = {}\n", Toml(o.models[0]));
  if (!o.peer.empty() && subject != "url")
    text += fmt::format("program = {}  # a folder: the program has the subject's name\n",
                        Toml(o.peer + (o.peer.ends_with('/') ? "" : "/")));
  text += fmt::format("blocks = {}\nrepeats = {}\n\n", o.blocks, p.repeats);
  const auto table = [&](const char* title, const auto& entries) {
    if (entries.empty()) return;
    text += fmt::format("[{}]\n", title);
    for (const auto& [key, value] : entries) text += fmt::format("{} = {}\n", key, Toml(value));
    text += "\n";
  };
  table("base", p.base);
  table("work", p.work);
  std::string values;
  for (const std::string& v : p.values) values += (values.empty() ? "" : ", ") + Toml(v);
  text += fmt::format("[variable]\nflag = {}\nvalues = [{}]\n", Toml(p.flag), values);
  if (!p.not_run.empty()) {
    text += "\n[not_run]\n";
    for (const auto& [value, why] : p.not_run)
      text += fmt::format("{} = {}\n", nlohmann::json(value).dump(), nlohmann::json(why).dump());
  }
  return text;
}

}  // namespace ridge::lab
