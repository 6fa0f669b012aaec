// Who begins next: higher priority first, then the tenant that was served least, then who came first.
//
//   WaitingQueue queue;
//   queue.Push(std::move(sequence));
//   if (Sequence* next = queue.Head(); next != nullptr && fits(*next)) run(queue.TakeHead());
//
// Tenants are compared by the tokens computed for them (virtual token counters; Sheng et al., "Fairness in serving large language models", 2023). One
// that was away starts level with the one served least, so that being away earns nothing.
// Guarantees: within a priority and a tenant first come, first served: by id. Nobody waits for ever: after kMostPassedOver admissions from higher
// priorities one from each lower one comes. Head stays the same until something changes. Who comes, is looked for or goes costs the logarithm of who
// waits, so thousands that vanish at once hold nobody up; Head costs the tenants of a priority. Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/sequence.h"

namespace ridge::engine {

class WaitingQueue {
 public:
  static constexpr int64_t kMostPassedOver = 16;

  // Where there is no memory (std::bad_alloc) nothing has changed, and the caller still has the sequence.
  void Push(std::unique_ptr<Sequence>&& sequence);
  // One that was preempted: before all others of its priority and tenant. The same holds.
  void PushFront(std::unique_ptr<Sequence>&& sequence);
  Sequence* Head() const;                                       // null: nobody waits
  RequestId first_id() const { return by_id_.begin()->first; }  // of who came first; not empty
  std::unique_ptr<Sequence> TakeHead();
  std::unique_ptr<Sequence> Remove(RequestId id);  // null: not here

  // Tokens were computed for the tenant of a sequence, which need not wait.
  void Charge(const Sequence& sequence, int64_t tokens);
  // A sequence that came by Push has ended.
  void Leave(const Sequence& sequence);

  size_t size() const { return by_id_.size(); }
  bool empty() const { return by_id_.empty(); }
  const Sequence* Find(RequestId id) const;  // null: not here
  std::vector<const Sequence*> All() const;

 private:
  struct Tenant {
    double tokens = 0;
    int64_t sequences = 0;  // waiting or running; without any it is forgotten
  };
  using Tenants = std::map<std::string, Tenant>;
  struct Line {
    const Tenant* tenant = nullptr;
    std::map<RequestId, std::unique_ptr<Sequence>> sequences;
  };
  struct Class {
    std::map<std::string, Line> of_tenant;  // none of them empty
    int64_t passed_over = 0;
  };
  using Classes = std::map<int32_t, Class, std::greater<>>;  // none of them empty

  Line& LineOf(const Sequence& sequence);
  void Insert(std::unique_ptr<Sequence>&& sequence);
  int32_t HeadPriority() const;
  double LeastTokens();
  std::unique_ptr<Sequence> Take(const Sequence& sequence);
  void EraseIfEmpty(int32_t priority, const std::string& tenant);

  Classes classes_;
  Tenants tenants_;
  std::map<RequestId, Sequence*> by_id_;
  std::optional<double> least_tokens_;  // of a tenant; none: it may have changed
};

}  // namespace ridge::engine
