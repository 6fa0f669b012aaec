#include "lab/evidence/words.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace ridge::lab {
namespace {

constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
    {"no zones in /sys/class/thermal", "/sys/class/thermal 中没有温度区"},
    {"no /sys/class/powercap/intel-rapl*: not offered by this processor or virtual machine",
     "没有 /sys/class/powercap/intel-rapl*：此处理器或虚拟机不提供能耗计数"},
    {"could not be read", "无法读取"},
    {"a rate needs two samples", "变化率需要两个样本"},
    {"sensor is off", "传感器已关闭"},
    {"no NVIDIA driver", "没有 NVIDIA 驱动"},
    {"no GPU here: no NVIDIA driver", "没有 GPU：没有 NVIDIA 驱动"},
    {"this is no Jetson", "本机不是 Jetson"},
    {"this subject gives no text to judge", "该对象不输出可供判断的文本"},
    {"not measured by this subject", "该对象不测量此项"},
    {"bench gives no first token", "bench 不给出首 token"},
    {"the subject tells no first token", "该对象不给出首 token"},
    {"the subject tells no times of the prompt", "该对象不给出 prompt 的时间"},
    {"the answers are too short", "回答太短"},
    {"the model's file is not known here", "此处不知道模型文件"},
    {"no NVIDIA driver: /proc/driver/nvidia/version is not there",
     "没有 NVIDIA 驱动：不存在 /proc/driver/nvidia/version"},
    {"the subject does not tell what bounds it", "该对象不说明受限于什么"},
    {"no roofline of this machine and build was kept when the runs were made: ridge roofline leaves one",
     "运行时没有本机与本构建的 roofline 记录：请先运行 ridge roofline"},
    {"no roofline of this machine and build is cached; run ridge roofline",
     "没有本机与本构建的 roofline 缓存；请运行 ridge roofline"},
    {"prompt and generation are bound by different things: measure them one by one",
     "提示与生成受限于不同因素：请分开测量"},
    {"pages came back from swap", "有页面从交换区换回"},
    {"the processor throttled", "处理器降频"},
    {"the cgroup's quota held it back", "cgroup 配额限制了它"},
    {"no cpufreq driver (virtual machine?); cpuN_mhz is what /proc/cpuinfo says, which may never change",
     "没有 cpufreq 驱动（虚拟机？）；cpuN_mhz 取自 /proc/cpuinfo，可能从不变化"},
    {"no thermal_throttle counters (Intel only, and not in virtual machines)",
     "没有 thermal_throttle 计数器（仅限 Intel，虚拟机中没有）"},
    {"no /proc/pressure: Linux before 4.20, or psi=0", "没有 /proc/pressure：Linux 早于 4.20，或 psi=0"},
    {"no memory controller of this process's cgroup is mounted", "未挂载本进程 cgroup 的内存控制器"},
    {"no cpu controller of this process's cgroup is mounted", "未挂载本进程 cgroup 的 CPU 控制器"},
};

}  // namespace

std::string Wording::Reason(std::string_view english) const {
  if (!chinese()) return std::string(english);
  for (const auto& [from, to] : kReasons) {
    if (english == from) return std::string(to);
  }
  // Those with a figure inside; several are joined by "; ".
  if (const size_t at = english.find("; "); at != std::string_view::npos && english.find('(') == std::string_view::npos)
    return Reason(english.substr(0, at)) + "；" + Reason(english.substr(at + 2));
  constexpr std::string_view kOther = "other work took ", kHost = "the host took ";
  const size_t percent = english.find(" %");
  if (english.starts_with(kOther) && percent != std::string_view::npos)
    return fmt::format("其他进程占用了 {} % 的 CPU", english.substr(kOther.size(), percent - kOther.size()));
  if (english.starts_with(kHost) && percent != std::string_view::npos)
    return fmt::format("宿主机夺走了 {} % 的时间", english.substr(kHost.size(), percent - kHost.size()));
  return std::string(english);
}

std::string Wording::Verdict(std::string_view verdict) const {
  if (!chinese()) return std::string(verdict);
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"reference", "基准"},
                                 {"A/A", "A/A"},
                                 {"faster", "更快"},
                                 {"slower", "更慢"},
                                 {"smaller", "更小"},
                                 {"larger", "更大"},
                                 {"better", "更好"},
                                 {"worse", "更差"},
                                 {"no difference", "无差异"}}) {
    if (verdict == from) return std::string(to);
  }
  constexpr std::string_view kUndetermined = "undetermined: ";
  if (verdict.starts_with(kUndetermined)) {
    const std::string_view rest = verdict.substr(kUndetermined.size());
    const size_t blocks = rest.find(" quiet blocks, ");
    if (blocks != std::string_view::npos)
      return fmt::format("无法判定：只有 {} 个安静的区块，至少需要 {} 个", rest.substr(0, blocks),
                         rest.substr(blocks + 15, rest.find(' ', blocks + 15) - blocks - 15));
    return "无法判定：" + Reason(rest);
  }
  return std::string(verdict);
}

std::string Wording::Bound(std::string_view bound) const {
  if (bound == "memory") return (*this)("memory bandwidth", "内存带宽");
  if (bound == "unpack") return (*this)("unpacking of weights", "权重解包");
  if (bound == "arithmetic") return (*this)("arithmetic", "计算");
  if (bound == "overhead") return (*this)("overhead of the runtime", "运行时开销");
  return std::string(bound);
}

std::string Wording::List(const std::vector<std::string>& items) const {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : (*this)(", ", "、")) + item;
  return out;
}

std::string Short(double v) {
  const double a = std::abs(v);
  if (a >= 100) return fmt::format("{:.0f}", v);
  if (a >= 10) return fmt::format("{:.1f}", v);
  if (a >= 1) return fmt::format("{:.2f}", v);
  return fmt::format("{:.3g}", v);
}

std::string Short(const std::optional<double>& value, std::string_view none) {
  return value ? Short(*value) : std::string(none);
}

}  // namespace ridge::lab
