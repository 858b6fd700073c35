#include <algorithm>

#include "text/engine.h"

namespace tessera::text {
namespace {

class PipelineEngine : public Engine {
 public:
  explicit PipelineEngine(Pipeline pipeline) : p_(std::move(pipeline)) {
    if (!p_.decoder) p_.decoder = make_spaced_decoder();
  }

  Status encode(const Request& request, std::vector<ModelToken>& out) const override {
    std::vector<AddedTokens::Section> sections;
    p_.added.split(request.text, false, request.parse_special, sections);
    for (const AddedTokens::Section& section : sections) {
      if (section.id != Vocabulary::kNone) {
        out.push_back({section.id, section.span});
      } else {
        TESSERA_TRY(encode_section(request, section.span, out));
      }
    }
    return {};
  }

  std::string decode(const std::vector<uint32_t>& ids) const override {
    std::vector<DecodedToken> tokens;
    tokens.reserve(ids.size());
    for (uint32_t id : ids)
      if (const std::string_view text = token(id); !text.empty())
        tokens.push_back({std::string(text), p_.added.has(id)});
    p_.decoder->apply(tokens);
    std::string out;
    for (const DecodedToken& token : tokens) out += token.text;
    return out;
  }

  size_t size() const override { return std::max(p_.vocabulary->size(), p_.added.size()); }
  std::string_view token(uint64_t id) const override {
    return p_.added.has(id) ? p_.added.content(id) : p_.vocabulary->token(id);
  }
  uint32_t find(std::string_view token) const override {
    const uint32_t added = p_.added.find(token);
    return added != Vocabulary::kNone ? added : p_.vocabulary->find(token);
  }
  bool is_special(uint64_t id) const override { return p_.added.is_special(id); }
  std::string_view kind() const override { return p_.model->kind(); }
  std::optional<uint32_t> unknown() const override { return p_.model->unknown(); }

 private:
  // `span` holds no added token that is looked for in the text as it is.
  Status encode_section(const Request& request, Span span, std::vector<ModelToken>& out) const {
    Aligned text(request.text.substr(span.begin, span.end - span.begin), span.begin, request.offsets);
    if (p_.normalizer) TESSERA_TRY(p_.normalizer->apply(text));
    if (!p_.added.any_normalized()) return encode_text(text, span.begin == 0, out);

    std::vector<AddedTokens::Section> sections;
    p_.added.split(text.text(), true, request.parse_special, sections);
    if (sections.size() == 1 && sections[0].id == Vocabulary::kNone) return encode_text(text, span.begin == 0, out);
    for (const AddedTokens::Section& section : sections) {
      const Span at = section.span;
      if (section.id != Vocabulary::kNone) {
        out.push_back({section.id, text.origin(at.begin, at.end)});
        continue;
      }
      Aligned part(text.text(), text.base(), text.tracked());
      part.replace(std::string(text.text().substr(at.begin, at.end - at.begin)), origins(text, at));
      TESSERA_TRY(encode_text(part, span.begin == 0 && at.begin == 0, out));
    }
    return {};
  }

  static std::vector<Span> origins(const Aligned& text, Span span) {
    std::vector<Span> all;
    for (uint32_t i = span.begin; i < span.end && text.tracked(); ++i) all.push_back(text.origin(i));
    return all;
  }

  Status encode_text(Aligned& text, bool at_start, std::vector<ModelToken>& out) const {
    if (text.text().empty()) return {};
    Pieces pieces{text, {{0, static_cast<uint32_t>(text.text().size())}}, at_start};
    if (p_.pre_tokenizer) TESSERA_TRY(p_.pre_tokenizer->apply(pieces));
    const size_t first = out.size();
    TESSERA_TRY(p_.model->encode(text.text(), pieces.spans, out));
    if (!text.tracked()) return {};
    for (size_t i = first; i < out.size(); ++i)
      if (out[i].span.begin < out[i].span.end) out[i].span = text.origin(out[i].span.begin, out[i].span.end);
    return {};
  }

  Pipeline p_;
};

}  // namespace

std::unique_ptr<const Engine> make_pipeline_engine(Pipeline pipeline) {
  return std::make_unique<PipelineEngine>(std::move(pipeline));
}

}  // namespace tessera::text
