// Flags of speculative decoding, and loading a model with the one that drafts for it.
//
//   SpeculationOptions options("auto");   options.Add(app);
//   RIDGE_ASSIGN_OR_RETURN(Loaded loaded, options.Load(model_options, needs, /*sequences=*/8));
//   Service::Create(std::move(loaded.model), {...}, std::move(loaded.draft));
//
// Guarantees: a flag does what it says or is refused by name, before a weight is read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "model_options.h"
#include "service/runtime.h"

namespace ridge::app {

inline constexpr int64_t kDraftRows = 32;  // drafted tokens that a step may verify, of all sequences

class SpeculationOptions {
 public:
  struct Loaded {
    std::unique_ptr<service::Runtime> model, draft;  // draft: null without a draft model
    engine::Speculation speculation = engine::Speculation::kOff;
    std::shared_ptr<const Profile> profile;  // that settings came from; null: none
  };

  // standard: the value of --spec that holds when neither flag is given; with a draft model it is auto.
  explicit SpeculationOptions(std::string standard) : standard_(std::move(standard)) {}
  std::vector<CLI::Option*> Add(CLI::App* app);

  // Errors: kUsage for a wrong value, and for flags that contradict each other.
  Result<engine::Speculation> Resolve() const;
  // Adds what drafts need to the needs of `sequences` that run at once, and loads, with the profile that holds here.
  Result<Loaded> Load(const ModelOptions& model, const LoadNeeds& needs, int64_t sequences) const;
  // The same pair as a memory plan: no weight is read. asked: of the first model.
  Result<Loaded> Plan(service::RuntimeOptions asked) const;

  bool drafts_by_model() const { return !draft_model_.empty(); }
  // What was resolved: speculation, draft model, and the profile that settings came from.
  static Json ConfigJson(engine::Speculation speculation, const service::Runtime* draft, const Profile* profile);

 private:
  Result<std::unique_ptr<service::Runtime>> PlanDraft(service::RuntimeOptions& draft, int64_t sequences) const;

  std::string standard_, speculation_, draft_model_;
};

}  // namespace ridge::app
