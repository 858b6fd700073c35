// Einsum and Det.
#include <algorithm>
#include <map>
#include <string>

#include "base/strings.h"
#include "import/onnx/onnx_ops.h"

namespace tessera::onnx {
namespace {

// One index letter of the equation, or one of the axes that "..." stands for, counted from the last (kEllipsis - 1 is
// the last). Letters sort as characters, the axes of the ellipsis before them.
using Label = int;
constexpr Label kEllipsis = 0;
using Labels = std::vector<Label>;

// A term of the equation: letters, and where "..." stands among them (-1: nowhere).
struct Term {
  std::string letters;
  int ellipsis = -1;
};

Result<Term> parse_term(NodeImport& n, std::string_view text) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == ' ') continue;
    if (c == '.') {
      if (text.substr(i, 3) != "..." || term.ellipsis >= 0)
        return n.fail(Code::attribute_invalid, "the equation's term '{}' has stray dots", text);
      term.ellipsis = static_cast<int>(term.letters.size());
      i += 2;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      term.letters.push_back(c);
    } else {
      return n.fail(Code::attribute_invalid, "the equation's term '{}' has the character '{}'", text, c);
    }
  }
  return term;
}

// The term's labels when "..." stands for `hidden` axes.
Labels labels_of(const Term& term, int hidden) {
  Labels labels(term.letters.begin(), term.letters.end());
  if (term.ellipsis < 0) return labels;
  Labels dots;
  for (int i = 0; i < hidden; ++i) dots.push_back(kEllipsis - hidden + i);
  labels.insert(labels.begin() + term.ellipsis, dots.begin(), dots.end());
  return labels;
}

bool has(const Labels& labels, Label l) { return std::find(labels.begin(), labels.end(), l) != labels.end(); }
int place(const Labels& labels, Label l) {
  return static_cast<int>(std::find(labels.begin(), labels.end(), l) - labels.begin());
}

// A tensor whose axes carry distinct labels.
struct Labelled {
  X x;
  Labels labels;

  void drop(int axis) { labels.erase(labels.begin() + axis); }
  // Axes in this order; `order` is a permutation of the labels.
  void arrange(const Labels& order) {
    std::vector<int> permutation;
    for (Label l : order) permutation.push_back(place(labels, l));
    x = transpose(x, std::move(permutation));
    labels = order;
  }
  // Sums the axes away whose label is not among `kept`.
  void reduce_to(const Labels& kept) {
    Axes axes;
    for (size_t i = 0; i < labels.size(); ++i)
      if (!has(kept, labels[i])) axes.push_back(static_cast<int64_t>(i));
    if (axes.empty()) return;
    x = squeeze(sum(x, axes), std::vector<int>(axes.begin(), axes.end()));
    std::erase_if(labels, [&](Label l) { return !has(kept, l); });
  }
};

// A label that stands twice walks a diagonal.
void take_diagonals(NodeImport& n, Labelled& t) {
  for (size_t i = 0; i < t.labels.size() && n.b.ok(); ++i)
    for (size_t j = t.labels.size(); --j > i;) {
      if (t.labels[i] != t.labels[j]) continue;
      n.b.require_equal(t.x.dim(static_cast<int>(i)), t.x.dim(static_cast<int>(j)));
      t.x = n.b.view(t.x, ir::diagonal_view(t.x.shape(), static_cast<int>(i), static_cast<int>(j)));
      t.drop(static_cast<int>(j));
      if (!n.b.ok()) return;
    }
}

// a and b with the labels in `needed`: shared ones that are not needed are contracted.
Labelled contract(Labelled a, Labelled b, const Labels& needed) {
  Labels both, inner, only_a, only_b;
  for (Label l : a.labels) (!has(b.labels, l) ? only_a : has(needed, l) ? both : inner).push_back(l);
  for (Label l : b.labels)
    if (!has(a.labels, l)) only_b.push_back(l);
  auto joined = [](Labels first, const Labels& second, const Labels& third) {
    first.insert(first.end(), second.begin(), second.end());
    first.insert(first.end(), third.begin(), third.end());
    return first;
  };
  Labels result = joined(both, only_a, only_b);
  a.arrange(joined(both, only_a, inner));
  b.arrange(joined(both, only_b, inner));
  if (!a.x || !b.x) return {a.x ? b.x : a.x, result};
  size_t batch = both.size(), rows = only_a.size(), columns = only_b.size();
  if (inner.empty()) {  // an outer product
    std::vector<int> behind, between;
    for (size_t i = 0; i < columns; ++i) behind.push_back(static_cast<int>(batch + rows + i));
    for (size_t i = 0; i < rows; ++i) between.push_back(static_cast<int>(batch + i));
    return {unsqueeze(a.x, behind) * unsqueeze(b.x, between), result};
  }
  auto matrix = [&](X x, size_t outer) {
    std::span<const Dim> shape = x.shape();
    Shape to(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(batch));
    to.push_back(product(shape.subspan(batch, outer)));
    to.push_back(product(shape.subspan(batch + outer)));
    return reshape(x, std::move(to));
  };
  Shape shape(a.x.shape().begin(), a.x.shape().begin() + static_cast<ptrdiff_t>(batch + rows));
  shape.insert(shape.end(), b.x.shape().begin() + static_cast<ptrdiff_t>(batch),
               b.x.shape().begin() + static_cast<ptrdiff_t>(batch + columns));
  return {reshape(dot(matrix(a.x, rows), matrix(b.x, columns)), std::move(shape)), result};
}

// The equation's parts for operands of these ranks.
struct Equation {
  std::vector<Labels> inputs;
  Labels output;
};

Result<Equation> parse_equation(NodeImport& n, std::string_view text, const Xs& xs) {
  size_t arrow = text.find("->");
  std::string_view left = text.substr(0, arrow);
  std::vector<Term> terms;
  for (;;) {
    size_t comma = left.find(',');
    TESSERA_ASSIGN(Term term, parse_term(n, left.substr(0, comma)));
    terms.push_back(std::move(term));
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (terms.size() != xs.size())
    return n.fail(Code::arity, "the equation '{}' has {} terms for {} inputs", text, terms.size(), xs.size());
  Equation equation;
  int dots = 0;
  std::map<Label, int> uses;
  for (size_t i = 0; i < terms.size(); ++i) {
    int letters = static_cast<int>(terms[i].letters.size()), hidden = xs[i].rank() - letters;
    if (hidden < 0 || (hidden > 0 && terms[i].ellipsis < 0))
      return n.fail(Code::rank_mismatch, "term {} of the equation '{}' has {} letters but the input has {} axes", i,
                    text, letters, xs[i].rank());
    if (terms[i].ellipsis >= 0) dots = std::max(dots, hidden);
    equation.inputs.push_back(labels_of(terms[i], hidden));
    for (char c : terms[i].letters) ++uses[c];
  }
  if (arrow == std::string_view::npos) {  // what stands once, in alphabetic order
    equation.output = labels_of({"", 0}, dots);
    for (auto [label, count] : uses)
      if (count == 1) equation.output.push_back(label);
  } else {
    TESSERA_ASSIGN(Term term, parse_term(n, text.substr(arrow + 2)));
    equation.output = labels_of(term, dots);
    for (Label l : term.letters) {
      if (!uses.contains(l) || std::count(equation.output.begin(), equation.output.end(), l) > 1)
        return n.fail(Code::attribute_invalid, "the result of the equation '{}' has '{}' twice or out of nowhere", text,
                      static_cast<char>(l));
    }
  }
  return equation;
}

// Operands that are 1 along a label where another is larger do not depend on it.
void drop_repeated(NodeImport& n, std::vector<Labelled>& operands) {
  std::map<Label, Dim> sizes;
  for (const Labelled& t : operands)
    for (size_t i = 0; i < t.labels.size(); ++i) {
      Dim size = t.x.dim(static_cast<int>(i));
      auto [known, inserted] = sizes.emplace(t.labels[i], size);
      if (inserted || size.is(1)) continue;
      if (known->second.is(1)) {
        known->second = size;
      } else {
        n.b.require_equal(known->second, size);
      }
    }
  for (Labelled& t : operands) {
    std::vector<int> axes;
    for (size_t i = 0; i < t.labels.size(); ++i)
      if (t.x.dim(static_cast<int>(i)).is(1) && !sizes[t.labels[i]].is(1)) axes.push_back(static_cast<int>(i));
    for (size_t i = axes.size(); i-- > 0;) t.drop(axes[i]);
    if (!axes.empty()) t.x = squeeze(t.x, axes);
  }
}

}  // namespace

// Operands are contracted from left to right, each label as soon as no later term needs it.
Status import_einsum(NodeImport& n) {
  Xs xs = n.all();
  TESSERA_TRY(n.b.status());
  TESSERA_ASSIGN(Equation equation, parse_equation(n, n.text("equation", ""), xs));
  std::vector<Labelled> operands;
  for (size_t i = 0; i < xs.size(); ++i) {
    operands.push_back({xs[i], equation.inputs[i]});
    take_diagonals(n, operands.back());
    TESSERA_TRY(n.b.status());
  }
  drop_repeated(n, operands);
  TESSERA_TRY(n.b.status());
  auto needed_after = [&](size_t i) {
    Labels needed = equation.output;
    for (size_t j = i; j < operands.size(); ++j)
      needed.insert(needed.end(), operands[j].labels.begin(), operands[j].labels.end());
    return needed;
  };
  Labelled y = operands[0];
  y.reduce_to(needed_after(1));
  for (size_t i = 1; i < operands.size(); ++i) {
    Labelled next = operands[i];
    Labels needed = needed_after(i + 1), shared = needed;
    shared.insert(shared.end(), y.labels.begin(), y.labels.end());
    next.reduce_to(shared);
    y = contract(y, next, needed);
    TESSERA_TRY(n.b.status());
    y.reduce_to(needed);
  }
  y.arrange(equation.output);
  n.out(y.x);
  return {};
}

Status import_det(NodeImport& n) {
  n.out(n.b.add1(ops::det_op, {n.need(0)}));
  return {};
}

}  // namespace tessera::onnx
