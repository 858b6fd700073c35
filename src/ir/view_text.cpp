// The text form of views.
#include <cctype>
#include <iterator>

#include "ir/view.h"

namespace tessera::ir {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

// A Dim as one token: in parentheses unless it is a number or a name.
std::string token(Dim d) {
  std::string text = to_string(d);
  for (char c : text)
    if (!is_word(c)) return fmt::format("({})", text);
  return text;
}

class ViewParser {
 public:
  ViewParser(DimTable& dims, std::string_view text) : dims_(dims), text_(text) {}

  Result<View> view() {
    View view;
    TESSERA_TRY(expect("["));
    if (!take("]")) {
      do {
        TESSERA_TRY(axis(view.axes.emplace_back()));
      } while (take(","));
      TESSERA_TRY(expect("]"));
    }
    TESSERA_TRY(expect("from"));
    TESSERA_TRY(expect("["));
    if (!take("]")) {
      do {
        TESSERA_ASSIGN(Dim offset, dim(",]"));
        view.offsets.push_back(offset);
      } while (take(","));
      TESSERA_TRY(expect("]"));
    }
    skip_spaces();
    if (at_ != text_.size()) return wrong("the end");
    for (const auto& atoms : view.axes)
      for (const ViewAtom& atom : atoms)
        if (atom.axis >= view.base_rank())
          return fail(Code::graph_invalid, "view walks axis {} of a base of {} axes", atom.axis, view.base_rank());
    return normalised(std::move(view));
  }

 private:
  Status axis(std::vector<ViewAtom>& atoms) {
    do {
      TESSERA_ASSIGN(Dim size, dim(":,] "));
      if (size.is_const() && size.value() < 0)
        return fail(Code::graph_invalid, "view has an axis of size {}", size.value());
      if (take(":")) {
        bool tied = false;
        do {
          TESSERA_ASSIGN(Dim axis, dim("*+,] "));
          if (!axis.is_const() || axis.value() < 0 || axis.value() > INT16_MAX) return wrong("a base axis");
          Dim stride = 1;
          if (take("*")) {
            TESSERA_ASSIGN(stride, dim("+,] "));
          }
          atoms.push_back({static_cast<int>(axis.value()), stride, size, tied});
          tied = true;
        } while (take("+"));
      } else {
        atoms.push_back({-1, 0, size});
      }
      skip_spaces();
    } while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != ']');
    return {};
  }

  // The Dim that ends before one of `ends`, outside of parentheses and quotes.
  Result<Dim> dim(std::string_view ends) {
    skip_spaces();
    const size_t begin = at_;
    int depth = 0;
    for (bool quoted = false; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\\' && quoted) {
        ++at_;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (!quoted) {
        if (depth == 0 && ends.find(c) != std::string_view::npos) break;
        if (c == '(') ++depth;
        if (c == ')') --depth;
      }
    }
    at_ = std::min(at_, text_.size());
    if (at_ == begin) return wrong("a size");
    return dims_.parse(text_.substr(begin, at_ - begin));
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view word) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  Status expect(std::string_view word) {
    if (take(word)) return {};
    return wrong(word);
  }
  tl::unexpected<Error> wrong(std::string_view wanted) const {
    return fail(Code::text_syntax, "view: expected {} at character {} of '{}'", wanted, at_ + 1, text_);
  }

  DimTable& dims_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string to_string(const View& view) {
  std::string text = "[";
  for (size_t j = 0; j < view.axes.size(); ++j) {
    if (j > 0) text += ", ";
    if (view.axes[j].empty()) text += "1";
    for (size_t i = 0; i < view.axes[j].size(); ++i) {
      const ViewAtom& atom = view.axes[j][i];
      if (!atom.tied) text += (i > 0 ? " " : "") + token(atom.size);
      if (atom.axis < 0) continue;
      text += (atom.tied ? "+" : ":") + std::to_string(atom.axis);
      if (!atom.stride.is(1)) text += "*" + token(atom.stride);
    }
  }
  return text + "] from " + to_string(std::span<const Dim>(view.offsets));
}

Result<View> parse_view(DimTable& dims, std::string_view text) { return ViewParser(dims, text).view(); }

}  // namespace tessera::ir
