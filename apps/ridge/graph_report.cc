#include "graph_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/quantity.h"
#include "quant/quant.h"
#include "text_table.h"

namespace ridge::app {
namespace {

using graph::kNone;
using graph::Op;
using graph::ValueId;

constexpr graph::Load kLoad{.tokens = 1, .logits = 1, .context = kReportContext, .kv_bytes_per_value = 2};

struct GroupReport {
  std::string name, label;
  std::vector<ValueId> in, out;  // that come from and go to other groups
  std::vector<graph::WeightId> weights;
  graph::Cost cost;
};

bool Has(const std::vector<ValueId>& list, ValueId id) { return std::ranges::find(list, id) != list.end(); }

GroupReport Report(const graph::Graph& graph, const graph::Group& group) {
  GroupReport report;
  std::vector<ValueId> made, used_within;
  for (size_t i : group.ops) {
    const Op& op = graph.ops()[i];
    if (!report.name.empty()) report.name += " + ";
    report.name += graph::Name(op.kind);
    report.cost += graph::CostOf(graph, op, kLoad);
    for (ValueId in : op.in) {
      if (!Has(made, in) && !Has(report.in, in)) report.in.push_back(in);
    }
    if (op.out != kNone) made.push_back(op.out);
    for (graph::WeightId w : op.weights) report.weights.push_back(w);
    if (op.bias != kNone) report.weights.push_back(op.bias);
  }
  for (ValueId id : made) {
    bool read_outside = id == graph.output();
    for (size_t i = 0; i < graph.ops().size(); i++)
      read_outside = read_outside || (std::ranges::find(group.ops, i) == group.ops.end() && Has(graph.ops()[i].in, id));
    if (read_outside) report.out.push_back(id);
  }
  // The op that holds weights names a group best; a norm's name says less than a matrix's.
  const Op* named = &graph.ops()[group.ops[0]];
  for (size_t i : group.ops) {
    const Op& op = graph.ops()[i];
    if (named->kind != graph::OpKind::kMatMul && op.kind == graph::OpKind::kMatMul) named = &op;
  }
  report.label = named->label;
  return report;
}

const char* RowsName(const graph::Value& value) { return value.rows == graph::Rows::kTokens ? "T" : "R"; }

Json ShapesJson(const graph::Graph& graph, const std::vector<ValueId>& ids) {
  Json shapes = Json::array();
  for (ValueId id : ids) shapes.push_back({{"rows", RowsName(graph.value(id))}, {"cols", graph.value(id).cols}});
  return shapes;
}

std::string ShapesText(const graph::Graph& graph, const std::vector<ValueId>& ids) {
  std::string text;
  for (ValueId id : ids)
    text += fmt::format("{}[{}, {}]", text.empty() ? "" : " ", RowsName(graph.value(id)), graph.value(id).cols);
  return text;
}

}  // namespace

Json GraphJson(const graph::Graph& graph, const graph::Schedule& schedule) {
  Json passes = Json::array();
  for (int i = 0; i < graph::kPasses; i++) {
    const graph::Pass pass = static_cast<graph::Pass>(i);
    passes.push_back({{"name", graph::Name(pass)},
                      {"on", schedule.passes.on(pass)},
                      {"matched", schedule.matched[i]},
                      {"does", graph::Purpose(pass)}});
  }
  Json ops = Json::array();
  graph::Cost total;
  const auto cost_json = [](const graph::Cost& cost) -> Json {
    return {{"bytes_read", cost.bytes_read}, {"bytes_written", cost.bytes_written}, {"flops", cost.flops}};
  };
  for (const graph::Group& group : schedule.groups) {
    const GroupReport report = Report(graph, group);
    Json kinds = Json::array(), weights = Json::array();
    for (size_t i : group.ops) kinds.push_back(graph::Name(graph.ops()[i].kind));
    for (graph::WeightId id : report.weights) {
      const graph::Weight& w = graph.weight(id);
      weights.push_back({{"name", w.name}, {"type", quant::Get(w.type).name}, {"shape", w.shape}});
    }
    ops.push_back({{"label", report.label},
                   {"pass", group.pass ? Json(graph::Name(*group.pass)) : Json(nullptr)},
                   {"ops", std::move(kinds)},
                   {"in", ShapesJson(graph, report.in)},
                   {"out", ShapesJson(graph, report.out)},
                   {"weights", std::move(weights)},
                   {"cost", cost_json(report.cost)}});
    total += report.cost;
  }
  return {{"passes", std::move(passes)},
          {"ops", std::move(ops)},
          {"cost", cost_json(total)},
          {"cost_of", {{"tokens", 1}, {"logit_rows", 1}, {"context", kReportContext}, {"kv_bytes_per_value", 2}}}};
}

std::string GraphText(const graph::Graph& graph, const graph::Schedule& schedule) {
  TextTable passes({{"pass"}, {""}, {"places", true}, {"what runs as one"}});
  for (int i = 0; i < graph::kPasses; i++) {
    const graph::Pass pass = static_cast<graph::Pass>(i);
    passes.Row({std::string(graph::Name(pass)), schedule.passes.on(pass) ? "on" : "off",
                fmt::format("{}", schedule.matched[i]), std::string(graph::Purpose(pass))});
  }
  TextTable ops({{"op"}, {"pass"}, {"label"}, {"in"}, {"out"}, {"read", true}, {"written", true}, {"flops", true}});
  graph::Cost total;
  const auto row = [&](std::string name, std::string pass, std::string label, std::string in, std::string out,
                       const graph::Cost& cost) {
    ops.Row({std::move(name), std::move(pass), std::move(label), std::move(in), std::move(out),
             fmt::format("{:.0f}", cost.bytes_read), fmt::format("{:.0f}", cost.bytes_written),
             fmt::format("{:.0f}", cost.flops)});
  };
  for (const graph::Group& group : schedule.groups) {
    const GroupReport report = Report(graph, group);
    row(report.name, group.pass ? std::string(graph::Name(*group.pass)) : "", Printable(report.label),
        ShapesText(graph, report.in), ShapesText(graph, report.out), report.cost);
    total += report.cost;
  }
  row("total", "", "", "", "", total);
  return fmt::format(
      "{}\n{} as {}. T: tokens of a step, R: rows that give logits. Bytes and operations of a step of one "
      "token "
      "at a context of {:.0f}:\n\n{}",
      passes.Text(), Count(graph.ops().size(), "op runs", "ops run"), schedule.groups.size(), kReportContext,
      ops.Text());
}

}  // namespace ridge::app
