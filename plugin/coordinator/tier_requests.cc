// What the policy of a tier is told of requests, and what it says of itself.
#include "plugin/coordinator/tier_body.h"
#include "plugin/coordinator/tier_index.h"

namespace kvc {

void TierIndex::begin_request(RunId run, const KeyView& path, Tokens prompt) {
  KVC_CHECK(body_->order.is_open(run));
  if (tier::Policy* p = body_->order.policy(); p != nullptr) p->begin(run, path, prompt);
}

void TierIndex::end_request(RunId run, const KeyView& path, Tokens answer) {
  KVC_CHECK(body_->order.is_open(run));
  if (tier::Policy* p = body_->order.policy(); p != nullptr) p->end(run, path, answer);
}

bool TierIndex::maintain() {
  tier::Policy* p = body_->order.policy();
  return p != nullptr && p->maintain();
}

PolicyNumbers TierIndex::policy() const {
  const tier::Policy* p = body_->order.policy();
  return p == nullptr ? PolicyNumbers{} : p->numbers();
}

PolicyReport TierIndex::policy_report() const {
  const tier::Policy* p = body_->order.policy();
  return p == nullptr ? PolicyReport{} : p->report();
}

}  // namespace kvc
