#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/name_table.h"
#include "ir/graph.h"
#include "ir/mix.h"

namespace tessera::ir {
namespace {

struct TypeHash {
  size_t operator()(const Type& t) const {
    size_t seed = static_cast<size_t>(t.kind) * 64 + static_cast<size_t>(t.dtype) * 2 + t.ranked;
    for (const Dim& d : t.shape) mix(seed, d.hash());
    mix(seed, std::hash<const void*>()(t.element));
    return seed;
  }
};

struct HashValue {
  size_t& seed;
  void operator()(int64_t v) const { mix(seed, std::hash<int64_t>()(v)); }
  void operator()(double v) const { mix(seed, std::hash<double>()(v)); }
  void operator()(const std::vector<int64_t>& v) const {
    mix(seed, v.size());
    for (int64_t i : v) mix(seed, std::hash<int64_t>()(i));
  }
  void operator()(const Shape& v) const {
    mix(seed, v.size());
    for (const Dim& d : v) mix(seed, d.hash());
  }
  void operator()(const View& v) const {
    (*this)(v.offsets);
    for (const auto& axis : v.axes) {
      mix(seed, axis.size());
      for (const ViewAtom& atom : axis) {
        mix(seed, static_cast<size_t>(atom.axis));
        mix(seed, atom.stride.hash());
        mix(seed, atom.size.hash() * 2 + atom.tied);
      }
    }
  }
};

struct AttrsHash {
  size_t operator()(const Attrs& a) const {
    size_t seed = a.values.size();
    for (const AttrValue& v : a.values) {
      mix(seed, v.index());
      std::visit(HashValue{seed}, v);
    }
    return seed;
  }
};

// An operator on operands of these types.
struct Call {
  static constexpr size_t kMost = 4;
  const OpDef* op = nullptr;
  AttrsRef attrs = nullptr;
  std::array<TypeRef, kMost> operands = {};
  size_t count = 0;
  bool operator==(const Call&) const = default;

  static Call of(const OpDef& op, AttrsRef attrs, std::span<const TypeRef> operands) {
    Call call{&op, attrs, {}, operands.size()};
    std::copy(operands.begin(), operands.end(), call.operands.begin());
    return call;
  }
};
struct CallHash {
  size_t operator()(const Call& call) const {
    size_t seed = std::hash<const void*>()(call.op);
    mix(seed, std::hash<const void*>()(call.attrs));
    for (size_t i = 0; i < call.count; ++i) mix(seed, std::hash<const void*>()(call.operands[i]));
    return seed;
  }
};
struct PairHash {
  size_t operator()(const std::pair<AttrsRef, AttrsRef>& pair) const {
    size_t seed = std::hash<const void*>()(pair.first);
    mix(seed, std::hash<const void*>()(pair.second));
    return seed;
  }
};

}  // namespace

// Node-based sets: the addresses of their elements are stable.
struct Context::Interner {
  std::unordered_set<Type, TypeHash> types;
  std::unordered_set<Attrs, AttrsHash> attrs;
  NameTable<NameId> names;
  std::unordered_map<std::pair<AttrsRef, AttrsRef>, AttrsRef, PairHash> composed;
  std::unordered_map<Call, std::vector<TypeRef>, CallHash> calls;
};

Context::Context() : interner_(std::make_unique<Interner>()) {
  name("");
  locations_.push_back({});
  also_.emplace_back();
}
Context::~Context() = default;

TypeRef Context::type(Type type) { return &*interner_->types.insert(std::move(type)).first; }

AttrsRef Context::attrs(Attrs attrs) { return &*interner_->attrs.insert(std::move(attrs)).first; }

AttrsRef Context::composed(AttrsRef inner, AttrsRef outer) {
  const auto found = interner_->composed.find({inner, outer});
  if (found != interner_->composed.end()) return found->second;
  const View& view = std::get<View>(outer->values[0]);
  std::optional<View> both = inner == nullptr ? normalised(view) : compose(std::get<View>(inner->values[0]), view);
  if (!both) return nullptr;  // perhaps more is known of the sizes later
  const AttrsRef made = attrs(Attrs{{std::move(*both)}});
  interner_->composed.emplace(std::pair(inner, outer), made);
  return made;
}

const std::vector<TypeRef>* Context::known_results(const OpDef& op, AttrsRef attrs,
                                                   std::span<const TypeRef> operands) const {
  if (operands.size() > Call::kMost) return nullptr;
  const auto found = interner_->calls.find(Call::of(op, attrs, operands));
  return found == interner_->calls.end() ? nullptr : &found->second;
}

void Context::remember_results(const OpDef& op, AttrsRef attrs, std::span<const TypeRef> operands,
                               std::vector<TypeRef> results) {
  if (operands.size() <= Call::kMost) interner_->calls.emplace(Call::of(op, attrs, operands), std::move(results));
}

NameId Context::name(std::string_view text) {
  if (const NameId* found = interner_->names.find(text)) return *found;
  names_.emplace_back(text);
  NameId id = static_cast<NameId>(names_.size() - 1);
  interner_->names.add(names_.back(), id);
  return id;
}

LocId Context::location(Location location) {
  locations_.push_back(location);
  return static_cast<LocId>(locations_.size() - 1);
}

LocId Context::covering(std::span<const LocId> places) {
  if (places.size() == 1) return places[0];
  std::vector<LocId> all;
  for (LocId place : places)
    for (LocId one : covered(place)) all.push_back(one);
  if (all.empty()) return 0;
  std::unordered_set<LocId> seen = {all[0]};
  std::vector<LocId> others;
  for (LocId one : all)
    if (seen.insert(one).second) others.push_back(one);
  if (others.empty()) return all[0];
  Location made = locations_[all[0]];
  made.also = static_cast<uint32_t>(also_.size());
  others.insert(others.begin(), all[0]);
  also_.push_back(std::move(others));
  return location(made);
}

std::vector<LocId> Context::covered(LocId id) const {
  if (id == 0) return {};
  const uint32_t also = locations_[id].also;
  return also == 0 ? std::vector<LocId>{id} : also_[also];
}

uint32_t Context::constant(Tensor tensor) {
  constants_.push_back(std::move(tensor));
  return static_cast<uint32_t>(constants_.size() - 1);
}

AttrValue default_value(const AttrSpec& spec) {
  switch (spec.kind) {
    case AttrKind::real:
      return spec.real_default;
    case AttrKind::integers:
      return std::vector<int64_t>();
    case AttrKind::dims:
      return Shape();
    case AttrKind::view:
      return View();
    default:
      return spec.integer_default;
  }
}

std::string_view word_at(std::string_view words, int64_t index) {
  for (; index > 0; --index) {
    size_t bar = words.find('|');
    if (bar == std::string_view::npos) return {};
    words.remove_prefix(bar + 1);
  }
  return index < 0 ? std::string_view() : words.substr(0, words.find('|'));
}

int64_t word_index(std::string_view words, std::string_view word) {
  for (int64_t i = 0;; ++i) {
    std::string_view candidate = word_at(words, i);
    if (candidate.empty()) return -1;
    if (candidate == word) return i;
  }
}

std::string to_string(const Type& type) {
  switch (type.kind) {
    case Kind::sequence:
      return "seq<" + to_string(*type.element) + ">";
    case Kind::optional:
      return "opt<" + to_string(*type.element) + ">";
    case Kind::nothing:
      return "nothing " + std::string(name(type.dtype));
    case Kind::tensor:
    case Kind::state:
      break;
  }
  std::string text = type.kind == Kind::state ? "state " : "";
  text += name(type.dtype);
  return text + (type.ranked ? to_string(std::span<const Dim>(type.shape)) : "[*]");
}

}  // namespace tessera::ir
