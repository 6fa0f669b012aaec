// The graph of a model as it is run: the fusion passes with what each matched, then the ops of the final graph with shapes and costs.
//
//   RIDGE_ASSIGN_OR_RETURN(auto model, model::Model::Load(std::move(file)));
//   out.Write(GraphText(model->graph(), graph::Compose(model->graph(), passes)));
//
// Costs are those of a step of one token that gives logits, at a context of kReportContext tokens with a KV of 2 bytes a value. Rows are
// symbols: T tokens of a step, R of them that give logits.
#pragma once

#include <string>

#include "command.h"
#include "graph/passes.h"

namespace ridge::app {

inline constexpr double kReportContext = 512;

Json GraphJson(const graph::Graph& graph, const graph::Schedule& schedule);
std::string GraphText(const graph::Graph& graph, const graph::Schedule& schedule);

}  // namespace ridge::app
