// The fields of a configuration file, read by kind. The first that is wrong is kept; later ones give what they can.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/json.h"

namespace tessera::huggingface {

class Fields {
 public:
  // `object` outlives this; `what` names it in messages.
  Fields(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  // A null counts as absent, but has() tells it from a field that is not there at all.
  bool has(std::string_view key) const { return object_.find(key) != nullptr; }
  const Json* find(std::string_view key) const;

  // E0302 for another kind, E0202 where it is absent and nothing stands in for it, E0505 past 2^40.
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise = {});
  double real(std::string_view key, std::optional<double> otherwise = {});
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);
  std::vector<double> reals(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  std::vector<int64_t> integers(std::string_view key);  // one number is a list of one
  const Json& all() const { return object_; }
  // An object below; empty where it is absent.
  const Json& object(std::string_view key);

  void fail_with(Error error) {
    if (!error_) error_ = std::move(error);
  }
  Status status() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }

 private:
  const Json* need(std::string_view key, bool optional);
  void wrong(std::string_view key, std::string_view wanted);

  const Json& object_;
  std::string what_;
  std::optional<Error> error_;
};

}  // namespace tessera::huggingface
