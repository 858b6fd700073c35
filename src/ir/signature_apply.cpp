// Matching operands against a signature, and the results that follow.
#include <algorithm>

#include "ir/signature.h"

namespace tessera::ir {
namespace {

// An axis of an operand as it is, for messages and for the binding of letters.
struct Place {
  size_t operand;  // index into Infer::operands
  size_t axis;
  bool operator==(const Place&) const = default;
};

// What a letter was found to be, and where first.
struct Binding {
  Dim value;
  Place place;
};

// The axes that a run ("*B") stands for; right-aligned where it broadcasts.
struct Run {
  std::optional<size_t> length;
  size_t operand = 0;  // that told the length
  std::vector<std::optional<Binding>> axes;
};

// An operand that is there, of known rank, beside its form.
struct Use {
  const SignatureOperand* form;
  size_t operand;
  size_t item;                                 // of a repeated operand, from 1; 0 for the others
  std::vector<std::optional<size_t>> lengths;  // axes that each axis of the form stands for
};

std::string axes_text(size_t n) { return n == 1 ? "1 axis" : fmt::format("{} axes", n); }

std::string type_names(uint64_t types) {
  constexpr DType kOrder[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
  std::string text;
  const auto add = [&](DType t) {
    if (types & (uint64_t{1} << static_cast<int>(t))) text.append(text.empty() ? "" : "|").append(name(t));
  };
  for (DType t : kOrder) add(t);
  for (int t = 0; t < kDTypeCount; ++t)
    if (std::ranges::find(kOrder, static_cast<DType>(t)) == std::end(kOrder)) add(static_cast<DType>(t));
  return text;
}

class Matcher {
 public:
  Matcher(Infer& infer, const Signature& signature) : infer_(infer), signature_(signature) {}

  Status match() {
    TESSERA_TRY(check_count());
    TESSERA_TRY(check_types());
    find_own_letters();
    for (size_t i = 0; i < infer_.operands.size(); ++i) {
      const TypeRef type = infer_.operands[i];
      if (type == nullptr) continue;
      const SignatureOperand& form = form_of(i);
      const size_t item = form.repeated ? i + 2 - signature_.operands.size() : 0;
      Use use{&form, i, item, std::vector<std::optional<size_t>>(form.axes.size())};
      (type->ranked ? uses_ : unranked_).push_back(std::move(use));
    }
    const size_t items = signature_.repeated() ? infer_.operands.size() : 0;
    letters_.resize(signature_.letters.size() * (1 + items));
    runs_.resize(letters_.size());
    TESSERA_TRY(measure_runs());
    TESSERA_TRY(bind_plain());
    TESSERA_TRY(bind_products());
    TESSERA_TRY(bind_broadcast());
    return bind_products();
  }

  Status make_results() {
    for (const SignatureOperand& form : signature_.results) {
      TESSERA_ASSIGN(const DType dtype, result_dtype(form));
      std::optional<Shape> shape = result_shape(form);
      infer_.results.push_back(shape ? infer_.context.tensor(dtype, std::move(*shape))
                                     : infer_.context.unranked(dtype));
    }
    return {};
  }

 private:
  // Names, for messages.

  const SignatureOperand& form_of(size_t operand) const {
    return signature_.operands[std::min(operand, signature_.operands.size() - 1)];
  }
  std::string operand_name(size_t operand) const {
    const SignatureOperand& form = form_of(operand);
    if (!form.repeated) return form.name;
    return fmt::format("{}.{}", form.name, operand + 1 - signature_.operands.size());
  }
  // "x[2, 5, 64]"
  std::string shaped(size_t operand) const {
    return operand_name(operand) + to_string(std::span<const Dim>(infer_.operands[operand]->shape));
  }
  // "x[2, 5, 64] (axis 2)"
  std::string at(const Place& place) const { return fmt::format("{} (axis {})", shaped(place.operand), place.axis); }
  std::string at(const Binding& binding) const { return at(binding.place); }

  // Count and types.

  Status check_count() const {
    const size_t given = infer_.operands.size(), declared = signature_.operands.size();
    if (given > declared && !signature_.repeated())
      return fail(Code::arity, "{}: takes {}{} but is given {}", infer_.op.name, declared,
                  declared == 1 ? " operand" : " operands", given);
    for (size_t i = 0; i < std::max(given, declared); ++i) {
      if (i < given && infer_.operands[i] != nullptr) continue;
      const SignatureOperand& form = form_of(i);
      // An optional repeated operand may have no items, but none that is absent.
      if (form.optional && !(form.repeated && i < given)) continue;
      return fail(Code::arity, "{}: operand {} is missing, the form is {}", infer_.op.name, operand_name(i),
                  infer_.op.signature);
    }
    return {};
  }

  Status check_types() {
    first_of_group_.assign(signature_.operands.size() + signature_.results.size(), std::nullopt);
    for (size_t i = 0; i < infer_.operands.size(); ++i) {
      const TypeRef type = infer_.operands[i];
      if (type == nullptr) continue;
      const SignatureOperand& form = form_of(i);
      if (!type->is_tensor() && type->kind != Kind::state)
        return fail(Code::dtype_mismatch, "{}: {} is {} but must be a tensor", infer_.op.name, operand_name(i),
                    to_string(*type));
      if (!(form.types & (uint64_t{1} << static_cast<int>(type->dtype))))
        return fail(Code::dtype_mismatch, "{}: {} is {} but must be {}", infer_.op.name, operand_name(i),
                    name(type->dtype), type_names(form.types));
      if (form.type_attr >= 0) {
        const AttrSpec& attr = infer_.op.attrs[form.type_attr];
        const DType wanted = infer_.attrs[attr.name];
        if (type->dtype != wanted)
          return fail(Code::dtype_mismatch, "{}: {} is {} but the attribute {} is {}", infer_.op.name, operand_name(i),
                      name(type->dtype), attr.name, name(wanted));
      }
      if (form.type_group < 0) continue;
      std::optional<size_t>& first = first_of_group_[static_cast<size_t>(form.type_group)];
      if (!first) first = i;
      if (infer_.dtype(static_cast<int>(*first)) != type->dtype)
        return fail(Code::dtype_mismatch, "{}: {} is {} but {} is {}", infer_.op.name, operand_name(*first),
                    name(infer_.dtype(static_cast<int>(*first))), operand_name(i), name(type->dtype));
    }
    return {};
  }

  // Letters. Those that stand in a repeated operand only have a slot for each item.

  void find_own_letters() {
    own_.assign(signature_.letters.size(), signature_.repeated());
    for (const auto* list : {&signature_.operands, &signature_.results})
      for (const SignatureOperand& value : *list) {
        if (list == &signature_.operands && value.repeated) continue;
        for (const SignatureAxis& axis : value.axes)
          for (int letter : axis.letters) own_[static_cast<size_t>(letter)] = false;
      }
  }
  size_t slot(const Use& use, int letter) const {
    const auto index = static_cast<size_t>(letter);
    return own_[index] ? use.item * signature_.letters.size() + index : index;
  }
  Run& run(const Use& use, const SignatureAxis& axis) { return runs_[slot(use, axis.letters[0])]; }

  // Lengths of runs.

  Status measure_runs() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Use& use : uses_) {
        TESSERA_ASSIGN(const bool learned, measure(use));
        changed = changed || learned;
      }
      if (changed) continue;
      widen_broadcast_runs();
      for (Use& use : uses_)
        if (!changed) changed = divide_by_default(use);
    }
    return {};
  }

  // Works out what the rank of the operand tells about its runs. True when something became known.
  Result<bool> measure(Use& use) {
    const size_t rank = infer_.operands[use.operand]->shape.size();
    size_t fixed = 0;  // axes accounted for
    std::vector<size_t> unknown;
    for (size_t i = 0; i < use.form->axes.size(); ++i) {
      const SignatureAxis& axis = use.form->axes[i];
      std::optional<size_t>& length = use.lengths[i];
      if (!axis.variadic) {
        length = 1;
      } else if (!length && !axis.broadcast) {
        length = run(use, axis).length;
      }
      if (length) {
        fixed += *length;
      } else {
        unknown.push_back(i);
      }
    }
    if (fixed > rank || (unknown.empty() && fixed < rank)) return rank_error(use, fixed, !unknown.empty());
    if (unknown.size() != 1) return false;
    set_length(use, unknown[0], rank - fixed);
    return true;
  }

  void set_length(Use& use, size_t axis, size_t length) {
    use.lengths[axis] = length;
    if (use.form->axes[axis].broadcast) return;
    Run& whole = run(use, use.form->axes[axis]);
    whole.length = length;
    whole.operand = use.operand;
  }

  tl::unexpected<Error> rank_error(const Use& use, size_t needed, bool at_least) {
    std::string reason;
    for (const SignatureAxis& axis : use.form->axes) {
      if (!axis.variadic || axis.broadcast || !run(use, axis).length || run(use, axis).operand == use.operand) continue;
      reason = fmt::format(", as {} is {} in {}", signature_.form(axis), axes_text(*run(use, axis).length),
                           shaped(run(use, axis).operand));
    }
    return fail(Code::rank_mismatch, "{}: {} has {} but its form {} takes {}{}{}", infer_.op.name, shaped(use.operand),
                axes_text(infer_.operands[use.operand]->shape.size()), signature_.form(*use.form),
                at_least ? "at least " : "", needed, reason);
  }

  // A run that only broadcasts is as long as its longest use.
  void widen_broadcast_runs() {
    for (const Use& use : uses_)
      for (size_t i = 0; i < use.form->axes.size(); ++i) {
        const SignatureAxis& axis = use.form->axes[i];
        if (!axis.variadic || !axis.broadcast || !use.lengths[i]) continue;
        Run& widest = run(use, axis);
        widest.axes.resize(std::max(widest.axes.size(), *use.lengths[i]));
      }
  }

  // Divides the axes of an operand with several runs of unknown length, unless one of unknown rank would tell: those
  // that broadcast take what they can, from the right, and the first takes the rest. True when there was something to
  // divide.
  bool divide_by_default(Use& use) {
    size_t left = infer_.operands[use.operand]->shape.size();
    std::vector<size_t> unknown;
    for (size_t i = 0; i < use.form->axes.size(); ++i) {
      if (use.lengths[i]) {
        left -= *use.lengths[i];
      } else if (mentioned_unranked(use, use.form->axes[i].letters[0])) {
        return false;
      } else {
        unknown.push_back(i);
      }
    }
    for (size_t k = unknown.size(); k-- > 1;) {
      const size_t whole = run(use, use.form->axes[unknown[k]]).length.value_or(0);
      set_length(use, unknown[k], std::min(whole, left));
      left -= std::min(whole, left);
    }
    return unknown.size() > 1;
  }

  bool mentioned_unranked(const Use& use, int letter) const {
    return std::ranges::any_of(unranked_, [&](const Use& other) {
      return std::ranges::any_of(other.form->axes, [&](const SignatureAxis& axis) {
        return std::ranges::any_of(axis.letters, [&](int l) { return slot(other, l) == slot(use, letter); });
      });
    });
  }

  // Sizes.

  // Calls fn(axis of the form, index of the first axis, their number) for the axes whose position is known.
  template <class Fn>
  Status each_axis(const Use& use, Fn fn) {
    const size_t rank = infer_.operands[use.operand]->shape.size();
    size_t position = 0, i = 0;
    for (; i < use.form->axes.size() && use.lengths[i]; position += *use.lengths[i], ++i)
      TESSERA_TRY(fn(use.form->axes[i], position, *use.lengths[i]));
    position = rank;
    for (size_t j = use.form->axes.size(); j > i && use.lengths[j - 1]; --j) {
      position -= *use.lengths[j - 1];
      TESSERA_TRY(fn(use.form->axes[j - 1], position, *use.lengths[j - 1]));
    }
    return {};
  }

  Dim size_at(const Place& place) const { return infer_.operands[place.operand]->shape[place.axis]; }

  Status bind(std::optional<Binding>& letter, const SignatureAxis& axis, Place place) {
    const Dim size = size_at(place);
    if (!letter) {
      letter = Binding{size, place};
      return {};
    }
    if (infer_.dims().proves_eq(letter->value, size)) return {};
    if (infer_.dims().proves_ne(letter->value, size))
      return fail(Code::shape_mismatch, "{}: {} is {} in {} but {} in {}", infer_.op.name, bare(axis),
                  to_string(letter->value), at(*letter), to_string(size), at(place));
    guard(Guard::Kind::equal, letter->value, size);
    if (size.is_const()) letter = Binding{size, place};
    return {};
  }

  void guard(Guard::Kind kind, Dim a, Dim b) {
    const Guard guard{kind, a, b};
    if (std::ranges::find(infer_.guards, guard) == infer_.guards.end()) infer_.guards.push_back(guard);
  }

  // The form without "|1".
  std::string bare(SignatureAxis axis) const {
    axis.broadcast = false;
    return signature_.form(axis);
  }

  static bool is_plain(const SignatureAxis& axis) {
    return !axis.variadic && axis.letters.size() == 1 && axis.factor == 1 && axis.divisor == 1;
  }

  Status bind_plain() {
    for (const Use& use : uses_) {
      TESSERA_TRY(each_axis(use, [&](const SignatureAxis& axis, size_t begin, size_t count) -> Status {
        if (axis.broadcast) return {};
        if (is_plain(axis)) return bind(letters_[slot(use, axis.letters[0])], axis, {use.operand, begin});
        if (!axis.variadic) return {};
        std::vector<std::optional<Binding>>& bound = run(use, axis).axes;
        bound.resize(count);
        for (size_t k = 0; k < count; ++k) TESSERA_TRY(bind(bound[k], axis, {use.operand, begin + k}));
        return {};
      }));
    }
    return {};
  }

  // Terms such as "H*D", "D/2" and "4": checked when all letters are known, solved when all but one are.
  Status bind_products() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Use& use : uses_) {
        TESSERA_TRY(each_axis(use, [&](const SignatureAxis& axis, size_t begin, size_t) -> Status {
          if (axis.variadic || is_plain(axis)) return {};
          const Place place{use.operand, begin};
          if (axis.broadcast && size_at(place).is(1)) return {};
          return bind_product(use, axis, place, changed);
        }));
      }
    }
    return {};
  }

  // "H is 3 in q[...] (axis 1) and D is 5 in ..."
  std::string facts(const Use& use, const SignatureAxis& axis) const {
    std::string text;
    for (int letter : axis.letters)
      if (const std::optional<Binding>& bound = letters_[slot(use, letter)])
        text += fmt::format("{}{} is {} in {}", text.empty() ? "" : " and ",
                            signature_.letters[static_cast<size_t>(letter)], to_string(bound->value), at(*bound));
    return text;
  }

  Status bind_product(const Use& use, const SignatureAxis& axis, Place place, bool& changed) {
    Dim known = axis.factor;
    std::optional<Binding>* missing = nullptr;
    for (int letter : axis.letters) {
      std::optional<Binding>& bound = letters_[slot(use, letter)];
      if (!bound) {
        if (missing != nullptr) return {};
        missing = &bound;
        continue;
      }
      if (bound->place == place) return {};  // solved from this very term
      known = known * bound->value;
    }
    const Dim size = size_at(place), whole = size * axis.divisor;
    if (missing != nullptr && known.is(0) && whole.is(0)) return {};  // any size will do
    DimTable& dims = infer_.dims();
    if (missing != nullptr) {
      std::optional<Dim> value = dims.exact_div(whole, known);
      if (!value) {
        if (whole.is_const() && known.is_const())
          return fail(
              Code::shape_mismatch, "{}: {} is {} in {}, but {}", infer_.op.name, bare(axis), to_string(size),
              at(place),
              axis.letters.size() == 1 ? fmt::format("must be a multiple of {}", axis.factor) : facts(use, axis));
        guard(Guard::Kind::divisible, whole, known);
        value = floordiv(whole, known);
      }
      *missing = Binding{*value, place};
      changed = true;
      return {};
    }
    if (dims.proves_eq(whole, known)) return {};
    if (!dims.proves_ne(whole, known)) {
      guard(Guard::Kind::equal, whole, known);
      return {};
    }
    return fail(Code::shape_mismatch, "{}: {} but {}", infer_.op.name,
                axis.letters.empty() ? fmt::format("the size is {} in {}", to_string(size), at(place))
                                     : fmt::format("{} is {} in {}", bare(axis), to_string(size), at(place)),
                axis.letters.empty() ? fmt::format("must be {}", axis.factor) : facts(use, axis));
  }

  Status bind_broadcast() {
    for (size_t letter = 0; letter < letters_.size(); ++letter) bound_before_.push_back(letters_[letter].has_value());
    for (const Use& use : uses_) {
      TESSERA_TRY(each_axis(use, [&](const SignatureAxis& axis, size_t begin, size_t count) -> Status {
        if (!axis.broadcast) return {};
        if (is_plain(axis)) {
          const size_t index = slot(use, axis.letters[0]);
          return stretch(letters_[index], bound_before_[index], axis, {use.operand, begin});
        }
        if (!axis.variadic) return {};
        Run& whole = run(use, axis);
        if (whole.length && count > *whole.length)
          return fail(Code::rank_mismatch, "{}: {} is {} in {} but {} in {}", infer_.op.name, bare(axis),
                      axes_text(*whole.length), shaped(whole.operand), count, shaped(use.operand));
        const size_t skipped = whole.axes.size() - count;
        for (size_t k = 0; k < count; ++k)
          TESSERA_TRY(stretch(whole.axes[skipped + k], whole.length.has_value(), axis, {use.operand, begin + k}));
        return {};
      }));
    }
    return {};
  }

  // A size that may be 1 where the letter is more. `exact`: another use has told what the letter is.
  Status stretch(std::optional<Binding>& letter, bool exact, const SignatureAxis& axis, Place place) {
    const Dim size = size_at(place);
    if (!letter || (!exact && letter->value.is(1))) {
      letter = Binding{size, place};
      return {};
    }
    if (size.is(1)) return {};
    if (exact) return bind(letter, axis, place);
    const std::optional<Dim> both = broadcast_dims(infer_, letter->value, size);
    if (!both)
      return fail(Code::shape_mismatch, "{}: {} is {} in {} but {} in {}, and neither is 1", infer_.op.name, bare(axis),
                  to_string(letter->value), at(*letter), to_string(size), at(place));
    if (*both != letter->value) letter = Binding{*both, place};
    return {};
  }

  // Results.

  Result<DType> result_dtype(const SignatureOperand& form) const {
    if (form.type_attr >= 0) return static_cast<DType>(infer_.attrs[infer_.op.attrs[form.type_attr].name]);
    if (form.type_group >= 0)
      if (const auto first = first_of_group_[static_cast<size_t>(form.type_group)])
        return infer_.dtype(static_cast<int>(*first));
    for (int t = 0; t < kDTypeCount; ++t)
      if (form.types == uint64_t{1} << t) return static_cast<DType>(t);
    return fail(Code::internal, "{}: nothing tells the type of {}", infer_.op.name, form.name);
  }

  // nullopt when the rank or a size is not known.
  std::optional<Shape> result_shape(const SignatureOperand& form) {
    if (std::optional<Shape> shape = shape_of_letters(form)) return shape;
    // The same form as an operand's, which does not divide into runs.
    for (const Use& use : uses_)
      if (use.item == 0 && same_form(*use.form, form)) return infer_.operands[use.operand]->shape;
    return std::nullopt;
  }

  std::optional<Shape> shape_of_letters(const SignatureOperand& form) {
    const Use as_use{&form, 0, 0, {}};
    Shape shape;
    for (const SignatureAxis& axis : form.axes) {
      if (axis.variadic) {
        const Run& whole = run(as_use, axis);
        // Known by a use without |1, or by all uses.
        const int letter = axis.letters[0];
        if (!whole.length && (!used_ranked(letter) || mentioned_unranked(as_use, letter))) return std::nullopt;
        for (const std::optional<Binding>& bound : whole.axes) {
          if (!bound) return std::nullopt;
          shape.push_back(bound->value);
        }
        continue;
      }
      Dim size = axis.factor;
      for (int letter : axis.letters) {
        const std::optional<Binding>& bound = letters_[static_cast<size_t>(letter)];
        if (!bound) return std::nullopt;
        if (bound->value.is(1) && !bound_before_[static_cast<size_t>(letter)] && mentioned_unranked(as_use, letter))
          return std::nullopt;
        size = size * bound->value;
      }
      if (axis.divisor != 1) {
        const std::optional<Dim> quotient = infer_.dims().exact_div(size, axis.divisor);
        if (!quotient) guard(Guard::Kind::divisible, size, axis.divisor);
        size = quotient ? *quotient : floordiv(size, axis.divisor);
      }
      shape.push_back(size);
    }
    return shape;
  }

  static bool same_form(const SignatureOperand& operand, const SignatureOperand& result) {
    return std::ranges::equal(operand.axes, result.axes, [](const SignatureAxis& a, const SignatureAxis& b) {
      return !a.broadcast && !b.broadcast && a.variadic == b.variadic && a.letters == b.letters &&
             a.factor == b.factor && a.divisor == b.divisor;
    });
  }
  // Whether a ranked operand has the run at all: then no axes means none.
  bool used_ranked(int letter) const {
    return std::ranges::any_of(uses_, [&](const Use& use) {
      for (size_t i = 0; i < use.form->axes.size(); ++i)
        if (use.lengths[i] && use.form->axes[i].variadic && use.form->axes[i].letters[0] == letter) return true;
      return false;
    });
  }

  Infer& infer_;
  const Signature& signature_;
  std::vector<Use> uses_;                              // ranked operands
  std::vector<Use> unranked_;                          // the others
  std::vector<std::optional<size_t>> first_of_group_;  // operand that set the type
  std::vector<bool> own_;                              // letters that are each item's own
  std::vector<std::optional<Binding>> letters_;
  std::vector<bool> bound_before_;  // letters that a use without |1 has bound
  std::vector<Run> runs_;
};

}  // namespace

Status apply_signature(Infer& infer) {
  if (infer.op.signature.empty()) return {};
  Matcher matcher(infer, signature_of(infer.op));
  TESSERA_TRY(matcher.match());
  if (infer.op.infer != nullptr) return {};
  return matcher.make_results();
}

}  // namespace tessera::ir
