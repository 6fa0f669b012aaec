#include "service/checked_program.h"

#include <utility>

namespace ridge::service {
namespace {

class Checked final : public backend::Program {
 public:
  Checked(std::unique_ptr<backend::Program> program, const gguf::File& file)
      : program_(std::move(program)), file_(&file) {}

  Result<std::unique_ptr<backend::StateStore>> NewState(const backend::StateOptions& options) override {
    return program_->NewState(options);
  }
  Status Run(const backend::Step& step, backend::StateStore& state, std::span<float> logits) override {
    RIDGE_RETURN_IF_ERROR(program_->Run(step, state, logits));
    return file_->CheckWhole();
  }
  const std::vector<backend::PlanEntry>& plan() const override { return program_->plan(); }
  backend::LoadReport load_report() const override { return program_->load_report(); }
  size_t weight_bytes() const override { return program_->weight_bytes(); }
  size_t workspace_bytes() const override { return program_->workspace_bytes(); }
  std::string isa() const override { return program_->isa(); }
  int n_threads() const override { return program_->n_threads(); }
  void ForEach(size_t n, const std::function<void(size_t)>& fn) override { program_->ForEach(n, fn); }
  void TraceOps(bool on) override { program_->TraceOps(on); }
  std::vector<backend::OpTime> op_times() const override { return program_->op_times(); }
  void TraceSteps(int64_t every) override { program_->TraceSteps(every); }
  void TraceNextSteps() override { program_->TraceNextSteps(); }
  backend::OpTrace op_trace() const override { return program_->op_trace(); }

 private:
  std::unique_ptr<backend::Program> program_;
  const gguf::File* file_;
};

}  // namespace

std::unique_ptr<backend::Program> CheckedProgram(std::unique_ptr<backend::Program> program, const gguf::File& file) {
  return std::make_unique<Checked>(std::move(program), file);
}

}  // namespace ridge::service
