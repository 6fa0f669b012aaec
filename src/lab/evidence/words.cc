#include "lab/evidence/words.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

namespace ridge::lab {
namespace {

// {}: any text, which stands in both; the first that fits is taken.
constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
    {"no zones in /sys/class/thermal", "/sys/class/thermal 中没有温度区"},
    {"no /sys/class/powercap/intel-rapl*: not offered by this processor or virtual machine",
     "没有 /sys/class/powercap/intel-rapl*：此处理器或虚拟机不提供能耗计数"},
    {"could not be read", "无法读取"},
    {"a rate needs two samples", "变化率需要两个样本"},
    {"other work took {} % of the CPUs", "其他进程占用了 {} % 的 CPU"},
    {"the host took {} %", "宿主机夺走了 {} % 的时间"},
    {"the device slowed down: {}", "设备降频：{}"},
    {"sensor is off", "传感器已关闭"},
    {"no NVIDIA driver", "没有 NVIDIA 驱动"},
    {"no GPU here: no NVIDIA driver", "没有 GPU：没有 NVIDIA 驱动"},
    {"this is no Jetson", "本机不是 Jetson"},
    {"the driver knows no GPU", "驱动没有发现 GPU"},
    {"no uncore_imc in /sys/bus/event_source/devices: not offered by this processor or virtual machine",
     "/sys/bus/event_source/devices 中没有 uncore_imc：此处理器或虚拟机不提供"},
    {"this processor or virtual machine offers no such counter", "此处理器或虚拟机不提供该计数器"},
    {"no ina3221 in /sys/class/hwmon or /sys/bus/iio that may be read",
     "/sys/class/hwmon 与 /sys/bus/iio 中没有可读的 ina3221"},
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
    {"no --pid was given", "没有给出 --pid"},
    {"no /proc/stat", "没有 /proc/stat"},
    {"no cpufreq driver, and /proc/cpuinfo does not tell", "没有 cpufreq 驱动，/proc/cpuinfo 也没有给出"},
    {"{} cannot be read: since Linux 5.10 only root may", "{} 无法读取：自 Linux 5.10 起只有 root 可以"},
    {"the kernel refuses (perf_event_paranoid is {}): root may, or CAP_PERFMON",
     "内核拒绝（perf_event_paranoid 为 {}）：root 或 CAP_PERFMON 可以"},
    {"one for each CPU or thread would take more than {} descriptors", "每个 CPU 或线程一个会占用超过 {} 个描述符"},
    {"this kernel has no perf_event_open", "此内核没有 perf_event_open"},
    {"the process is not there", "进程不存在"},
    {"not read with another root than /", "根目录不是 / 时不读取"},
    // What the monitor misses.
    {"cpu use", "CPU 占用"},
    {"cpu frequency by cpufreq", "cpufreq 的 CPU 频率"},
    {"cpu frequency", "CPU 频率"},
    {"thermal throttling", "过热降频"},
    {"temperature", "温度"},
    {"energy of {}", "{} 的能耗"},
    {"cpu energy", "CPU 能耗"},
    {"pressure of {}", "{} 压力"},
    {"cgroup memory", "cgroup 内存"},
    {"cgroup throttling", "cgroup 限流"},
    {"process", "进程"},
    {"NVIDIA GPU", "NVIDIA 显卡"},
    {"Jetson sensors", "Jetson 传感器"},
    {"Jetson power rails", "Jetson 电源轨"},
    {"tegrastats", "tegrastats "},
    {"memory traffic", "内存流量"},
    {"counters of the processor", "处理器计数器"},
    {"counter {}", "计数器 {}"},
    // What an experiment cannot run.
    {"this build of ridge computes on the CPU only; give llama.cpp's programs with --peer",
     "这个 ridge 构建只用 CPU 计算；请用 --peer 给出 llama.cpp 的程序"},
    {"this process may use one CPU only", "本进程只能使用一个 CPU"},
    {"this processor does not have {}", "此处理器没有 {}"},
    {"/etc/nvpmodel.conf names no power model", "/etc/nvpmodel.conf 没有列出功耗模式"},
    {"no power modes: neither /etc/nvpmodel.conf nor /sys/devices/system/cpu/cpu0/cpufreq is there",
     "没有功耗模式：/etc/nvpmodel.conf 与 /sys/devices/system/cpu/cpu0/cpufreq 都不存在"},
    {"cpufreq offers one governor alone: {}", "cpufreq 只提供一个调速器：{}"},
    {"the governor may not be changed here: {} cannot be written", "此处不能更改调速器：{} 不可写"},
    {"OpenBLAS cannot be loaded{}", "无法加载 OpenBLAS{}"},
    {"this build has no BLAS{}", "这个构建没有 BLAS{}"},
    {"batched-bench gives no first token", "batched-bench 不给出首 token"},
    {"the server failed{}", "服务失败{}"},
    {"there is no {}", "不存在 {}"},
    {"the subject runs elsewhere", "对象在别处运行"},
    // Where the fields of the environment are from, and why they are not known.
    {"not a submission to MLPerf", "不是提交给 MLPerf 的结果"},
    {"no accelerator: no NVIDIA driver here, and none is used", "没有加速器：此处没有 NVIDIA 驱动，也没有使用"},
    {"neither NVML nor the NVIDIA driver's /proc tells it", "NVML 与 NVIDIA 驱动的 /proc 都没有给出"},
    {"neither a device tree nor DMI tells a product name", "设备树与 DMI 都没有给出产品名"},
    {"no physical_package_id in /sys", "/sys 中没有 physical_package_id"},
    {"/proc/cpuinfo, which may never change; no cpufreq driver", "/proc/cpuinfo（可能从不变化）；没有 cpufreq 驱动"},
    {"no cache folders in /sys/devices/system/cpu/cpu0", "/sys/devices/system/cpu/cpu0 中没有 cache 目录"},
    {"cpu0 in /sys", "/sys 中的 cpu0"},
    {"the root file system does not tell", "根文件系统没有给出"},
    {"root file system", "根文件系统"},
    {"no disk in /sys/block", "/sys/block 中没有磁盘"},
    {"no network card in /sys/class/net", "/sys/class/net 中没有网卡"},
    {"/etc/os-release and uname", "/etc/os-release 与 uname"},
    {"glibc, compiler, /proc/driver/nvidia/version, /etc/nv_tegra_release",
     "glibc、编译器、/proc/driver/nvidia/version、/etc/nv_tegra_release"},
    {"no fan in /sys/class/thermal or hwmon; add it by hand where it matters",
     "/sys/class/thermal 与 hwmon 中没有风扇；需要时请手工补充"},
    {"/sys/class/thermal and hwmon", "/sys/class/thermal 与 hwmon"},
    {"/proc/cpuinfo, cpufreq, nvpmodel", "/proc/cpuinfo、cpufreq、nvpmodel"},
    {"limits of this process", "本进程的限制"},
    {"one process on one machine", "一台机器上的一个进程"},
    {"/proc/cpuinfo does not tell", "/proc/cpuinfo 没有给出"},
    {"cores that hold a CPU of this process", "本进程可用 CPU 所在的核心"},
    {"/proc/meminfo, rounded", "/proc/meminfo，取整"},
    {"this program", "本程序"},
    {"not told", "未说明"},
    {"datacenter or edge: the owner's word, not the machine's", "数据中心或边缘：由所有者说明，机器不知道"},
    {"the firmware's table of modules (/sys/firmware/dmi/tables/DMI) is not there, or only root may read it",
     "固件的内存条表（/sys/firmware/dmi/tables/DMI）不存在，或只有 root 可读"},
    {"the system does not tell it", "系统没有给出"},
    {"no run of this lab leaves the machine's loopback unless its URL says so",
     "除非 URL 另有所指，实验都不离开本机回环接口"},
    {"the CPU's hypervisor flag", "CPU 的 hypervisor 标志"},
    {"no hypervisor flag; more is not told", "没有 hypervisor 标志；其余未给出"},
    {"NVML, GPU 0", "NVML，GPU 0"},
    {"device tree", "设备树"},
};

// The text with what stands for {} put in; nullopt: another text.
std::optional<std::string> Filled(std::string_view english, std::string_view pattern, std::string_view chinese) {
  const size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos) return english == pattern ? std::optional(std::string(chinese)) : std::nullopt;
  const std::string_view before = pattern.substr(0, hole), after = pattern.substr(hole + 2);
  if (english.size() < before.size() + after.size() || !english.starts_with(before) || !english.ends_with(after))
    return std::nullopt;
  const std::string_view what = english.substr(before.size(), english.size() - before.size() - after.size());
  const size_t at = chinese.find("{}");
  return std::string(chinese.substr(0, at)) + std::string(what) + std::string(chinese.substr(at + 2));
}

}  // namespace

std::string Wording::Reason(std::string_view english) const {
  if (!chinese()) return std::string(english);
  // Several disturbances are joined by "; ", and so are sentences of one reason: what is known as a whole comes first.
  for (const auto& [from, to] : kReasons) {
    if (from.find("{}") == std::string_view::npos && english == from) return std::string(to);
  }
  if (const size_t at = english.find("; "); at != std::string_view::npos) {
    const std::string first = Reason(english.substr(0, at));
    if (first != english.substr(0, at)) return first + "；" + Reason(english.substr(at + 2));
  }
  for (const auto& [from, to] : kReasons) {
    if (auto text = Filled(english, from, to)) return *text;
  }
  return std::string(english);
}

std::string Wording::Test(std::string_view test) const {
  if (!chinese()) return std::string(test);
  // What comes behind is a shape: "decode pp64 tg16 x2".
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"decode", "解码"},
                                 {"prefill", "预填充"},
                                 {"both", "两者合计"},
                                 {"first token", "首 token"},
                                 {"whole answer", "完整回答"},
                                 {"throughput", "吞吐"}}) {
    if (test == from || test.starts_with(std::string(from) + " "))
      return std::string(to) + std::string(test.substr(from.size()));
  }
  return std::string(test);
}

std::string Wording::Flag(std::string_view flag) const {
  if (!chinese()) return std::string(flag);
  for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"empty", "空回答"},
                                 {"truncated", "被截断"},
                                 {"loop", "重复"},
                                 {"bad-json", "格式错误"},
                                 {"language", "语言不符"},
                                 {"wrong-fact", "事实错误"},
                                 {"off-topic", "跑题"}}) {
    if (flag == from) return std::string(to);
  }
  return std::string(flag);
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
